/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress verify: is it whole? */
#include "json.h"
#include "place.h"

typedef struct findings { const cli_args *a; cli_json *j; uint64_t n; } findings;

static void
finding(void *user, const char *what, const ckp_error *e)
{
    findings *f = user;

    f->n++;
    if (f->a->json) {
        cli_json_open(f->j, NULL, '{');
        cli_json_str(f->j, "where", what);
        cli_json_str(f->j, "status", ckp_status_name(e->code));
        cli_json_str(f->j, "file", e->file[0] != '\0' ? e->file : NULL);
        cli_json_str(f->j, "tensor", e->tensor[0] != '\0' ? e->tensor : NULL);
        if (e->offset != CKP_NO_OFFSET)
            cli_json_u64(f->j, "offset", e->offset);
        cli_json_str(f->j, "text", e->text);
        cli_json_close(f->j, '}');
        return;
    }
    (void)cli_fail(CLI_OK, "%s", e->text);
}

/* A file or a whole run by its path, one checkpoint of a run through what opening it finds. */
static ckp_status
verify_place(const cli_args *a, const cli_place *p, findings *f, ckp_error *e)
{
    ckp_checkpoint *ck = NULL;

    if (!p->has_step)
        return ckp_verify(p->path, a->base, a->n_base, a->level, a->threads, finding, f, e);
    ckp_status st = ckp_checkpoint_open_run_on(&ck, p->path, cli_base_model(a), p->step, false, e);
    if (st != CKP_OK)
        finding(f, p->path, e);
    else
        st = ckp_checkpoint_verify(ck, a->level, a->threads, finding, f, e);
    ckp_checkpoint_close(ck);
    return st;
}

static int
verify_one(const cli_args *a, const char *path, cli_json *j)
{
    static const char *const level[] = {"structure", "structure and stored data", "structure, stored and decoded data"};
    findings f = {a, j, 0};
    cli_place place;
    ckp_error e = {0};

    const int parsed = cli_place_parse(&place, path);
    if (parsed != CLI_OK)
        return parsed;
    if (a->json) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "path", path);
        cli_json_open(j, "findings", '[');
    }
    const ckp_status st = verify_place(a, &place, &f, &e);
    cli_place_free(&place);
    if (a->json) {
        cli_json_close(j, ']');
        cli_json_bool(j, "whole", st == CKP_OK);
        cli_json_close(j, '}');
    } else if (!a->quiet) {
        cli_safe(stdout, path);
        if (st == CKP_OK)
            (void)printf(": ok (%s)\n", level[a->level]);
        else
            (void)printf(": %s\n", ckp_status_name(st));
    }
    return f.n != 0 ? cli_code(st) : cli_told(st, &e);
}

static int
verify(const cli_args *a)
{
    cli_json j = {0};
    int first = CLI_OK;

    if (a->json)
        cli_json_open(&j, NULL, '[');
    for (size_t i = 0; i < a->n_arg && cli_signal() == 0; i++) {
        const int code = verify_one(a, a->arg[i], &j);
        if (first == CLI_OK)
            first = code;
    }
    if (a->json)
        cli_json_close(&j, ']');
    return cli_signal() != 0 && first == CLI_OK ? 128 + cli_signal() : first;
}

const cli_command cli_cmd_verify = {
    .name = "verify",
    .args = "FILE|RUN[@STEP]...",
    .summary = "Check that files and runs are whole",
    .text = "Checks structure (manifests, lengths, tables, indexes, that every base is there), then reads everything and checks the hash of\n"
            "each stored chunk. --decode also decodes it and checks the hash of the result; --structure reads no stored data. Every finding\n"
            "is told on standard error, and the exit code is that of the first. A save that was cut short is no damage: it never was a\n"
            "checkpoint.\n"
            "\n"
            "  ckpress verify runs/gpt\n"
            "  ckpress verify runs/gpt@12000 --decode",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_STRUCTURE) | CLI_HAS(CLI_OPT_DATA) | CLI_HAS(CLI_OPT_DECODE) | CLI_HAS(CLI_OPT_BASE) | CLI_HAS(CLI_OPT_THREADS) |
               CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = SIZE_MAX,
    .run = verify,
};
