/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress thin, ckpress rebase: storing checkpoints of a run otherwise. */
#include "json.h"
#include "place.h"
#include "table.h"

typedef struct rewriting { const cli_args *a; const char *verb; cli_progress bar; cli_table tab; cli_json j; } rewriting;

static const char *
word(const rewriting *r, ckp_rewrite_fate fate)
{
    switch (fate) {
    case CKP_REWRITE_DONE: return r->verb;
    case CKP_REWRITE_MOVED: return "moved";
    case CKP_REWRITE_NEEDED: return "needed";
    case CKP_REWRITE_LEFT: break;
    }
    return "left";
}

static void
tell(void *user, const ckp_list_entry *e, ckp_rewrite_fate fate, uint64_t new_bytes)
{
    rewriting *r = user;
    cli_text t;

    if (r->a->json) {
        cli_json_open(&r->j, NULL, '{');
        cli_json_str(&r->j, "dir", e->dir);
        cli_json_u64(&r->j, "step", e->step);
        cli_json_u64(&r->j, "stored_bytes", e->stored_bytes);
        cli_json_u64(&r->j, "new_bytes", new_bytes);
        cli_json_str(&r->j, "fate", word(r, fate));
        cli_json_close(&r->j, '}');
        return;
    }
    if (r->a->quiet)
        return;
    (void)snprintf(t.s, sizeof t.s, "%llu", (unsigned long long)e->step);
    cli_table_add(&r->tab, t.s);
    cli_table_add(&r->tab, e->is_delta ? "delta" : "key");
    cli_table_add(&r->tab, cli_size(&t, e->stored_bytes));
    cli_table_add(&r->tab, new_bytes != 0 ? cli_size(&t, new_bytes) : "-");
    cli_table_add(&r->tab, word(r, fate));
}

static void
sum_up(const rewriting *r, const ckp_rewritten *d)
{
    cli_text freed, now;

    if (r->a->dry_run)
        cli_note("%llu would be %s, %llu moved to a new base", (unsigned long long)d->done, r->verb, (unsigned long long)d->moved);
    else
        cli_note("%llu %s, %llu moved to a new base: %s in place of %s", (unsigned long long)d->done, r->verb, (unsigned long long)d->moved,
                 cli_size(&now, d->new_bytes), cli_size(&freed, d->freed_bytes));
    if (d->needed != 0)
        cli_note("%llu keep their moments, which those of newer ones are differences to", (unsigned long long)d->needed);
}

static int
rewrite(const cli_args *a, const char *verb, const cli_place *place)
{
    static const char *const head[] = {"STEP", "KIND", "SIZE", "NOW", ""};
    rewriting r = {.a = a, .verb = verb};
    ckp_rewrite_opts o = CKP_REWRITE_OPTS_INIT;
    ckp_rewritten done = {.size = sizeof done};
    ckp_error e = {0};

    o.older_than = a->older_than != 0 ? a->older_than : o.older_than;
    o.dry_run = a->dry_run;
    o.base_model = cli_base_model(a);
    o.threads = a->threads;
    o.progress = cli_progress_step;
    o.user = &r.bar;
    o.told = tell;
    o.told_user = &r;
    cli_table_init(&r.tab, "rlrrl");
    for (size_t i = 0; !a->json && !a->quiet && i < sizeof head / sizeof *head; i++)
        cli_table_add(&r.tab, head[i]);
    if (a->json)
        cli_json_open(&r.j, NULL, '[');
    cli_progress_start(&r.bar, a, place->path);
    const ckp_status st = place->has_step ? ckp_run_rebase(place->path, (uint64_t)place->step, &o, &done, &e) : ckp_run_thin(place->path, &o, &done, &e);
    (void)cli_progress_end(&r.bar);
    if (a->json)
        cli_json_close(&r.j, ']');
    else if (r.tab.n > r.tab.columns)
        cli_table_print(&r.tab, 0);
    if (st == CKP_OK && !a->quiet && !a->json)
        sum_up(&r, &done);
    cli_table_free(&r.tab);
    return cli_told_part(st, &e);
}

static int
thin(const cli_args *a)
{
    cli_place place;

    if (!a->drop_optimizer)
        return cli_fail(CLI_USAGE, "say what to drop: --drop-optimizer.");
    int code = cli_place_parse(&place, a->arg[0]);
    if (code != CLI_OK)
        return code;
    code = place.has_step ? cli_fail(CLI_USAGE, "thin takes the directory of a run.") : rewrite(a, "thinned", &place);
    cli_place_free(&place);
    return code;
}

static int
rebase(const cli_args *a)
{
    cli_place place;

    int code = cli_place_parse(&place, a->arg[0]);
    if (code != CLI_OK)
        return code;
    code = place.has_step ? rewrite(a, "rebased", &place) : cli_fail(CLI_USAGE, "rebase takes a checkpoint of a run: RUN@STEP.");
    cli_place_free(&place);
    return code;
}

const cli_command cli_cmd_thin = {
    .name = "thin",
    .args = "RUN",
    .summary = "Drop old optimizer state of a run",
    .text = "--drop-optimizer drops first moments (Adam's exp_avg, SGD's momentum) of all checkpoints older than the newest --older-than (10). Weights, second\n"
            "moments and everything else come back bit for bit as before; the moments come back as zeros, and restoring says so. What weights' steps follow\n"
            "stays, and moments that those of a newer checkpoint are differences to (lossless runs: within the chain of the newest). Each checkpoint is\n"
            "written anew beside the old one and decoded whole before the old one goes; what was cut short goes on when it is asked for again.\n"
            "No training may write to the run meanwhile, and nothing in it may be damaged.\n"
            "\n"
            "  ckpress thin runs/gpt --drop-optimizer --older-than 10 -n",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_DROP_OPTIMIZER) | CLI_HAS(CLI_OPT_OLDER_THAN) | CLI_HAS(CLI_OPT_DRY_RUN) | CLI_HAS(CLI_OPT_BASE) |
               CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = 1,
    .run = thin,
};

const cli_command cli_cmd_rebase = {
    .name = "rebase",
    .args = "RUN@STEP",
    .summary = "Make a delta of a lossless run a key",
    .text = "The checkpoint no longer needs its base, and what is based on it has a shorter chain. It is written anew beside the old one, and so is what is\n"
            "based on it, chunk by chunk as it was; each is decoded whole before the old ones go. Lossy checkpoints are refused: what later deltas stand on is\n"
            "not only what they restore to. What was cut short goes on when it is asked for again.\n"
            "\n"
            "  ckpress rebase runs/gpt@12000",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_DRY_RUN) | CLI_HAS(CLI_OPT_BASE) | CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = 1,
    .run = rebase,
};
