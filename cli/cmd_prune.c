/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress prune: delete old checkpoints of a run by rules. */
#include <string.h>
#include "json.h"
#include "place.h"
#include "table.h"

typedef struct pruning { const cli_args *a; cli_table tab; cli_json j; } pruning;

static void
tell(void *user, const ckp_list_entry *e, ckp_fate fate)
{
    static const char *const word[] = {[CKP_FATE_DELETED] = "deleted", [CKP_FATE_BASE] = "base", [CKP_FATE_KEPT] = "kept"};
    pruning *p = user;
    cli_text t;

    if (p->a->json) {
        cli_json_open(&p->j, NULL, '{');
        cli_json_str(&p->j, "dir", e->dir);
        cli_json_u64(&p->j, "step", e->step);
        cli_json_u64(&p->j, "stored_bytes", e->stored_bytes);
        cli_json_str(&p->j, "fate", word[fate]);
        cli_json_close(&p->j, '}');
        return;
    }
    if (p->a->quiet)
        return;
    (void)snprintf(t.s, sizeof t.s, "%llu", (unsigned long long)e->step);
    cli_table_add(&p->tab, t.s);
    cli_table_add(&p->tab, e->is_delta ? "delta" : "key");
    cli_table_add(&p->tab, cli_size(&t, e->stored_bytes));
    cli_table_add(&p->tab, word[fate]);
}

static void
sum_up(const cli_args *a, const ckp_pruned *done)
{
    cli_text freed, left;

    cli_note("%llu %s, %s; %llu kept and %llu as bases, %s", (unsigned long long)done->deleted, a->dry_run ? "would go" : "deleted",
             cli_size(&freed, done->freed_bytes), (unsigned long long)done->kept, (unsigned long long)done->bases, cli_size(&left, done->left_bytes));
    if (a->rules.max_bytes != 0 && done->left_bytes > a->rules.max_bytes)
        cli_note("that is more than %s: the newest stays, and all that it is a difference to ('ckpress rebase' makes a key of a lossless one)",
                 cli_size(&left, a->rules.max_bytes));
}

static bool
has_rule(const ckp_retention *r)
{
    return r->keep_last != 0 || r->keep_every != 0 || r->keep_best != 0 || r->max_bytes != 0;
}

static int
prune(const cli_args *a)
{
    static const char *const head[] = {"STEP", "KIND", "SIZE", ""};
    pruning p = {.a = a};
    ckp_pruned done = {.size = sizeof done};
    cli_place place;
    ckp_error e = {0};

    const int code = cli_place_parse(&place, a->arg[0]);
    if (code != CLI_OK)
        return code;
    if (place.has_step || !has_rule(&a->rules)) {
        cli_place_free(&place);
        return place.has_step ? cli_fail(CLI_USAGE, "prune takes the directory of a run.")
                              : cli_fail(CLI_USAGE, "say what to keep: --keep-last, --keep-every, --keep-best, --max-bytes.");
    }
    cli_table_init(&p.tab, "rlrl");
    for (size_t i = 0; !a->json && !a->quiet && i < sizeof head / sizeof *head; i++)
        cli_table_add(&p.tab, head[i]);
    if (a->json)
        cli_json_open(&p.j, NULL, '[');
    const ckp_status st = ckp_run_prune(place.path, &a->rules, a->dry_run, tell, &p, &done, &e);
    if (a->json)
        cli_json_close(&p.j, ']');
    else if (p.tab.n > p.tab.columns)
        cli_table_print(&p.tab, 0);
    if (st == CKP_OK && !a->quiet && !a->json)
        sum_up(a, &done);
    cli_table_free(&p.tab);
    cli_place_free(&place);
    return cli_told(st, &e);
}

const cli_command cli_cmd_prune = {
    .name = "prune",
    .args = "RUN",
    .summary = "Delete old checkpoints of a run",
    .text = "Keeps what any rule names, the newest checkpoint, the newest whose metrics are finite, and whatever deltas among those need;\n"
            "deletes the rest. With --max-bytes alone, or after the other rules, the oldest go until what is left fits. Nothing is deleted\n"
            "beside damage, nor while a training writes to the run (which can keep to the same rules itself). -n says what would go.\n"
            "\n"
            "  ckpress prune runs/gpt --keep-last 5 --keep-every 10000 --keep-best val_loss -n\n"
            "  ckpress prune runs/gpt --max-bytes 50G",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_KEEP_LAST) | CLI_HAS(CLI_OPT_KEEP_EVERY) | CLI_HAS(CLI_OPT_KEEP_BEST) | CLI_HAS(CLI_OPT_MAX_BYTES) |
               CLI_HAS(CLI_OPT_DRY_RUN) | CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = 1,
    .run = prune,
};
