/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress export: a checkpoint as files for others. */
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "place.h"

static void
notice(void *user, const char *text)
{
    (void)user;
    cli_note("%s", text);
}

/* "runs/gpt/" and step 7 -> "gpt@7"; "model.ckp" -> "model". Owned by the caller. */
static char *
stem_of(const cli_place *p, uint64_t step)
{
    char *path = cli_copy(p->path), *name;
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    if (!p->is_run && cli_ends_with(path, ".ckp"))
        path[n - 4] = '\0';
    name = strrchr(path, '/');
    name = name != NULL && name[1] != '\0' ? name + 1 : path;
    const bool plain = strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "/") != 0;
    char *out = cli_alloc(strlen(name) + 32);
    if (p->is_run)
        (void)snprintf(out, strlen(name) + 32, "%s@%llu", plain ? name : "run", (unsigned long long)step);
    else
        (void)snprintf(out, strlen(name) + 32, "%s", name);
    free(path);
    return out;
}

static void
tell(const cli_args *a, const ckp_exported *d, double seconds)
{
    cli_json j = {0};
    cli_text t;

    if (a->json) {
        cli_json_open(&j, NULL, '{');
        cli_json_str(&j, "out", a->output);
        cli_json_str(&j, "name", d->name);
        cli_json_str(&j, "kind", a->to);
        cli_json_u64(&j, "files", d->files);
        cli_json_u64(&j, "tensors", d->tensors);
        cli_json_u64(&j, "bytes", d->bytes);
        cli_json_u64(&j, "values_lost", d->values_lost);
        cli_json_num(&j, "seconds", seconds);
        cli_json_close(&j, '}');
    } else if (!a->quiet) {
        cli_note("%s in %s: %llu tensors, %s%s", d->name, a->output, (unsigned long long)d->tensors, cli_size(&t, d->bytes),
                 d->files > 1 ? ", in several files" : "");
    }
}

static int
export_open(const cli_args *a, const cli_place *p, ckp_checkpoint *ck)
{
    static const char *const kinds[] = {"safetensors", "pt", "hf"};
    ckp_export_options o = CKP_EXPORT_OPTIONS_INIT;
    ckp_exported done = {.size = sizeof done};
    ckp_checkpoint_info info = {.size = sizeof info};
    cli_progress bar;
    ckp_error e = {0};

    for (int k = 0; k < 3; k++)
        if (strcmp(a->to, kinds[k]) == 0)
            o.to = (ckp_export_kind)k;
    o.only = a->only;
    o.max_file_bytes = a->max_file != 0 ? a->max_file : o.max_file_bytes;
    o.replace = a->force;
    o.threads = a->threads;
    o.notice = a->quiet ? NULL : notice;
    o.progress = cli_progress_step;
    o.progress_user = &bar;
    ckp_checkpoint_get_info(ck, &info);
    char *stem = stem_of(p, info.step);
    cli_progress_start(&bar, a, p->path);
    const ckp_status st = ckp_checkpoint_export_to(ck, a->output, stem, &o, &done, &e);
    const double seconds = cli_progress_end(&bar);
    free(stem);
    if (st == CKP_OK)
        tell(a, &done, seconds);
    const int code = cli_told_part(st, &e);
    if (st == CKP_EEXIST)
        cli_note("-f replaces it");
    return code;
}

static int
export_one(const cli_args *a)
{
    ckp_checkpoint *ck = NULL;
    cli_place place;

    if (a->output == NULL || a->to == NULL)
        return cli_fail(CLI_USAGE, "say where and what: --output DIR and --to safetensors, pt or hf.");
    int code = cli_place_parse(&place, a->arg[0]);
    if (code != CLI_OK)
        return code;
    code = cli_place_open(&ck, &place, a);
    if (code == CLI_OK)
        code = export_open(a, &place, ck);
    ckp_checkpoint_close(ck);
    cli_place_free(&place);
    return code;
}

const cli_command cli_cmd_export = {
    .name = "export",
    .args = "FILE|RUN[@STEP]",
    .summary = "Write a checkpoint as files for other programs",
    .text = "Into the directory --output, which is made if need be. --to safetensors: every tensor, in NAME.safetensors; --to pt: everything, in NAME.pt\n"
            "that torch.load(weights_only=True) reads; --to hf: a model's weights under its own names, as transformers' from_pretrained() reads\n"
            "them: model.safetensors, or, above --max-file, numbered files with an index. Of a run these are the tensors of 'model', or of the object\n"
            "that --only names; config.json comes from where the model does. Without @STEP it is the newest checkpoint.\n"
            "\n"
            "  ckpress export runs/gpt@12000 -o out --to safetensors\n"
            "  ckpress export runs/gpt -o gpt-hf --to hf",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_BASE) | CLI_HAS(CLI_OPT_TO) | CLI_HAS(CLI_OPT_MAX_FILE) |
               CLI_HAS(CLI_OPT_ONLY) | CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = 1,
    .run = export_one,
};
