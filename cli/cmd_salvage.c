/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress salvage: what a damaged file still holds. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "place.h"
#include "table.h"

typedef struct salvaged { const cli_args *a; cli_json j; cli_table tab; uint64_t whole, part, lost; } salvaged;

static void
tell(void *user, const char *tensor, uint64_t have, uint64_t of)
{
    salvaged *s = user;
    cli_text t;

    if (have == of)
        s->whole++;
    else if (have != 0)
        s->part++;
    else
        s->lost++;
    if (s->a->json) {
        cli_json_open(&s->j, NULL, '{');
        cli_json_str(&s->j, "tensor", tensor);
        cli_json_u64(&s->j, "elements", of);
        cli_json_u64(&s->j, "salvaged", have);
        cli_json_close(&s->j, '}');
    } else if (s->a->verbose || have != of) {
        cli_table_add(&s->tab, tensor);
        (void)snprintf(t.s, sizeof t.s, "%llu", (unsigned long long)have);
        cli_table_add(&s->tab, t.s);
        (void)snprintf(t.s, sizeof t.s, "%llu", (unsigned long long)of);
        cli_table_add(&s->tab, t.s);
        cli_table_add(&s->tab, have == of ? "whole" : have != 0 ? "part" : "lost");
    }
}

/* model.ckp -> model.salvaged, run/@20 -> run@20.salvaged */
static char *
default_dir(const char *in)
{
    const size_t n = strlen(in) - (cli_ends_with(in, ".ckp") ? 4 : 0);
    const char *at = strrchr(in, '@');
    const bool step = at != NULL && at[1] != '\0' && strspn(at + 1, "0123456789") == strlen(at + 1);
    size_t head = step ? (size_t)(at - in) : n;
    char *out = cli_alloc(n + sizeof ".salvaged");

    while (step && head > 1 && in[head - 1] == '/')
        head--;
    (void)snprintf(out, n + sizeof ".salvaged", "%.*s%s.salvaged", (int)head, in, step ? at : "");
    return out;
}

/* ---- the files of RUN@STEP: its shard, then those that it is a difference to, nearest first ---- */

/* One checkpoint of a run, by its directory's name, or the last one of a step. */
typedef struct member { const char *want_dir; uint64_t want_step; bool found; unsigned chain; char dir[256], base_dir[256]; char *base_model; } member;
typedef struct files { char **path; size_t n; } files;

static int
take_member(void *user, const ckp_list_entry *e)
{
    member *m = user;

    if (m->want_dir != NULL ? strcmp(e->dir, m->want_dir) != 0 : e->step != m->want_step)
        return 0;
    if (m->found && e->manifest == NULL)     /* a save that was cut short is no checkpoint: those come last */
        return 0;
    free(m->base_model);
    m->found = true;
    m->chain = e->chain;
    m->base_model = e->base_model != NULL ? cli_copy(e->base_model) : NULL;
    (void)memcpy(m->dir, e->dir, sizeof m->dir);
    (void)memcpy(m->base_dir, e->base_dir, sizeof m->base_dir);
    return 0;
}

/* The one shard of a checkpoint. */
static int
add_shard(files *f, const cli_place *place, const char *dir)
{
    const size_t room = strlen(place->path) + strlen(dir) + 2 + NAME_MAX + 1;
    char *path = cli_alloc(room);
    size_t n = 0;

    (void)snprintf(path, room, "%s/%s", place->path, dir);
    DIR *d = opendir(path);
    int code = d != NULL ? CLI_OK : cli_fail(CLI_FILES, "%s: %s", path, strerror(errno));
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "shard-", 6) == 0 && cli_ends_with(e->d_name, ".ckp") && n++ == 0)
            (void)snprintf(path, room, "%s/%s/%s", place->path, dir, e->d_name);
    if (d != NULL)
        (void)closedir(d);
    if (code == CLI_OK && n == 0)
        code = cli_fail(CLI_FILES, "%s: there is no shard in it.", path);
    if (code == CLI_OK && n > 1)
        code = cli_fail(CLI_USAGE, "step %lld has %zu shards: name one, as %s, and --base with that of each checkpoint behind it.", (long long)place->step,
                        n, path);
    if (code == CLI_OK)
        f->path[f->n++] = path;
    else
        free(path);
    return code;
}

static int
files_of_chain(files *f, const cli_place *place)
{
    ckp_error e = {0};
    member m = {.want_step = (uint64_t)place->step};

    int code = cli_told(ckp_run_list(place->path, take_member, &m, &e), &e);
    if (code == CLI_OK && !m.found)
        code = cli_fail(CLI_FILES, "%s has no checkpoint of step %lld.", place->path, (long long)place->step);
    const size_t most = m.chain + (size_t)2;      /* deltas, key, base model */
    f->path = cli_alloc(most * sizeof *f->path);
    while (code == CLI_OK && m.found && f->n < most) {
        code = add_shard(f, place, m.dir);
        if (code != CLI_OK || m.base_dir[0] == '\0')
            break;
        char next[sizeof m.base_dir];
        (void)memcpy(next, m.base_dir, sizeof next);
        m.want_dir = next;
        m.found = false;
        code = cli_told(ckp_run_list(place->path, take_member, &m, &e), &e);
        if (code == CLI_OK && !m.found)
            cli_note("the base %s is not in the run", next);
    }
    if (code == CLI_OK && m.base_model != NULL && f->n < most)
        f->path[f->n++] = cli_copy(m.base_model);
    free(m.base_model);
    return code;
}

/* What salvage reads: the file, or that of RUN@STEP, and its bases. */
static int
files_of(files *f, const cli_args *a)
{
    cli_place place;

    int code = cli_place_parse(&place, a->arg[0]);
    if (code == CLI_OK && place.has_step) {
        code = files_of_chain(f, &place);
    } else if (code == CLI_OK && place.is_run) {
        code = cli_fail(CLI_USAGE, "salvage reads one checkpoint: %s@STEP; 'ckpress ls' shows which there are.", place.path);
    } else if (code == CLI_OK) {
        f->path = cli_alloc(sizeof *f->path);
        f->path[f->n++] = cli_copy(a->arg[0]);
    }
    cli_place_free(&place);
    return code;
}

static void
free_files(files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->path[i]);
    free(f->path);
}

static int
salvage_files(const cli_args *a, const files *f, const char *out)
{
    static const char *const head[] = {"TENSOR", "ELEMENTS", "OF", ""};
    const bool given = a->n_base != 0;
    salvaged s = {.a = a};
    ckp_error e = {0};

    cli_table_init(&s.tab, "lrrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&s.tab, head[i]);
    if (a->json)
        cli_json_open(&s.j, NULL, '[');
    const ckp_status st = ckp_salvage(f->path[0], given ? a->base : (const char *const *)f->path + 1, given ? a->n_base : f->n - 1, out, a->force, tell, &s, &e);
    if (a->json)
        cli_json_close(&s.j, ']');
    else if (st == CKP_OK && s.tab.n > s.tab.columns)
        cli_table_print(&s.tab, 0);
    if (st == CKP_OK && !a->quiet) {
        cli_safe(stderr, out);
        (void)fprintf(stderr, ": %llu tensors whole, %llu in part, %llu lost\n", (unsigned long long)s.whole, (unsigned long long)s.part,
                      (unsigned long long)s.lost);
    }
    cli_table_free(&s.tab);
    const int code = st != CKP_OK ? cli_told(st, &e) : s.part + s.lost != 0 ? CLI_DATA : CLI_OK;
    if (st == CKP_EEXIST)
        cli_note("-f replaces it");
    if (st == CKP_EBASE && a->n_base == 0)
        cli_note("--base FILE names one, once for each: the checkpoint's own base and those behind it, as manifest.json beside it says");
    return code;
}

static int
salvage(const cli_args *a)
{
    if (strcmp(a->arg[0], "-") == 0 || (a->output != NULL && strcmp(a->output, "-") == 0))
        return cli_fail(CLI_USAGE, "salvage reads a file and writes into a directory, not a pipe.");
    char *made = a->output == NULL ? default_dir(a->arg[0]) : NULL;
    files f = {0};

    int code = files_of(&f, a);
    if (code == CLI_OK)
        code = salvage_files(a, &f, made != NULL ? made : a->output);
    free_files(&f);
    free(made);
    return code;
}

const cli_command cli_cmd_salvage = {
    .name = "salvage",
    .args = "FILE|RUN@STEP",
    .summary = "Save what a damaged file still holds",
    .text = "Reads every whole chunk and writes whole tensors to DIR/salvaged.safetensors and parts of broken ones, named NAME[first:last],\n"
            "to DIR/salvaged-parts.safetensors. DIR is --output, else FILE's name with .salvaged. Nothing that fails its hash is written.\n"
            "Tensors that are not whole are listed; -v lists all. The exit code is 0 only if all is whole. A delta needs its bases: those of RUN@STEP\n"
            "are found in the run, a file's are named by --base, nearest first. They may be damaged too.\n"
            "\n"
            "  ckpress salvage cut.ckp -o saved\n"
            "  ckpress salvage runs/gpt@12000",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_VERBOSE) | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_BASE) |
               CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = 1,
    .run = salvage,
};
