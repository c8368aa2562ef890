/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress salvage: what a damaged file still holds. */
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

/* model.ckp -> model.salvaged */
static char *
default_dir(const char *in)
{
    const size_t n = strlen(in) - (cli_ends_with(in, ".ckp") ? 4 : 0);
    char *out = cli_alloc(n + sizeof ".salvaged");
    (void)memcpy(out, in, n);
    (void)memcpy(out + n, ".salvaged", sizeof ".salvaged");
    return out;
}

static int
salvage(const cli_args *a)
{
    static const char *const head[] = {"TENSOR", "ELEMENTS", "OF", ""};
    salvaged s = {.a = a};
    ckp_error e = {0};
    char *made = a->output == NULL ? default_dir(a->arg[0]) : NULL;
    const char *out = made != NULL ? made : a->output;

    if (strcmp(a->arg[0], "-") == 0 || strcmp(out, "-") == 0) {
        free(made);
        return cli_fail(CLI_USAGE, "salvage reads a file and writes into a directory, not a pipe.");
    }
    cli_table_init(&s.tab, "lrrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&s.tab, head[i]);
    if (a->json)
        cli_json_open(&s.j, NULL, '[');
    const ckp_status st = ckp_salvage(a->arg[0], a->base, a->n_base, out, a->force, tell, &s, &e);
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
    free(made);
    const int code = st != CKP_OK ? cli_told(st, &e) : s.part + s.lost != 0 ? CLI_DATA : CLI_OK;
    if (st == CKP_EEXIST)
        cli_note("-f replaces it");
    if (st == CKP_EBASE && a->n_base == 0)
        cli_note("--base FILE names one, once for each: the checkpoint's own base and those behind it, as manifest.json beside it says");
    return code;
}

const cli_command cli_cmd_salvage = {
    .name = "salvage",
    .args = "FILE",
    .summary = "Save what a damaged file still holds",
    .text = "Reads every whole chunk and writes whole tensors to DIR/salvaged.safetensors and parts of broken ones, named NAME[first:last],\n"
            "to DIR/salvaged-parts.safetensors. DIR is --output, else FILE's name with .salvaged. Nothing that fails its hash is written.\n"
            "Tensors that are not whole are listed; -v lists all. The exit code is 0 only if all is whole.\n"
            "\n"
            "  ckpress salvage cut.ckp -o saved",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_VERBOSE) | CLI_HAS(CLI_OPT_OUTPUT) | CLI_HAS(CLI_OPT_FORCE) | CLI_HAS(CLI_OPT_BASE) |
               CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = 1,
    .run = salvage,
};
