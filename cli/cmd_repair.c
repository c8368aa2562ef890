/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress repair: take what is damaged out of the way of a run. */
#include "json.h"
#include "place.h"
#include "table.h"

typedef struct repairing { const cli_args *a; cli_progress bar; cli_table tab; cli_json j; } repairing;

static const char *
word(const cli_args *a, ckp_repair_fate fate)
{
    static const char *const done[] = {"set aside", "deleted", "left", "swept", "attempt"};
    static const char *const would[] = {"to set aside", "to delete", "left", "to sweep", "to sweep"};
    return a->dry_run && !a->json ? would[fate] : done[fate];
}

static void
tell(void *user, const ckp_list_entry *e, ckp_repair_fate fate, const char *reason)
{
    repairing *r = user;

    if (r->a->json) {
        cli_json_open(&r->j, NULL, '{');
        cli_json_str(&r->j, "dir", e->dir);
        cli_json_u64(&r->j, "step", e->step);
        cli_json_u64(&r->j, "stored_bytes", e->stored_bytes);
        cli_json_str(&r->j, "fate", word(r->a, fate));
        cli_json_str(&r->j, "reason", reason);
        cli_json_close(&r->j, '}');
        return;
    }
    if (r->a->quiet)
        return;
    cli_table_add(&r->tab, e->dir);
    cli_table_add(&r->tab, word(r->a, fate));
    cli_table_add(&r->tab, reason);
}

static void
sum_up(const cli_args *a, const ckp_repaired *done)
{
    if (done->identity)
        cli_note("run.json %s anew, as all manifests say; a damaged one %s set-aside-run.json", a->dry_run ? "would be written" : "was written",
                 a->dry_run ? "would become" : "is");
    if (done->set_aside + done->deleted + done->left + done->swept == 0 && !done->identity)
        cli_note("nothing to repair");
    if (done->set_aside != 0 && !a->dry_run)
        cli_note("what was set aside is in set-aside-...: remove it when it is not needed; 'ckpress salvage' reads single shards of it");
    if (done->restorable != 0)
        cli_note("%llu checkpoints can be restored%s, the newest is step %llu", (unsigned long long)done->restorable,
                 a->level == CKP_VERIFY_STRUCTURE ? " as far as structure shows (--data reads everything)" : "", (unsigned long long)done->newest_step);
}

static void
finish_json(repairing *r, const ckp_repaired *done)
{
    cli_json_close(&r->j, ']');
    cli_json_bool(&r->j, "identity_rewritten", done->identity);
    cli_json_u64(&r->j, "restorable", done->restorable);
    if (done->restorable != 0)
        cli_json_u64(&r->j, "newest_step", done->newest_step);
    else
        cli_json_str(&r->j, "newest_step", NULL);
    cli_json_bool(&r->j, "dry_run", r->a->dry_run);
    cli_json_close(&r->j, '}');
}

static int
repair_run(const cli_args *a, const char *dir)
{
    static const char *const head[] = {"CHECKPOINT", "", "WHY"};
    repairing r = {.a = a};
    ckp_repair_opts o = CKP_REPAIR_OPTS_INIT;
    ckp_repaired done = {.size = sizeof done};
    ckp_error e = {0};

    o.dry_run = a->dry_run;
    o.remove = a->remove;
    o.data = a->level == CKP_VERIFY_DATA;
    o.progress = cli_progress_step;
    o.user = &r.bar;
    o.told = tell;
    o.told_user = &r;
    cli_table_init(&r.tab, "lll");
    for (size_t i = 0; !a->json && !a->quiet && i < sizeof head / sizeof *head; i++)
        cli_table_add(&r.tab, head[i]);
    if (a->json) {
        cli_json_open(&r.j, NULL, '{');
        cli_json_str(&r.j, "run", dir);
        cli_json_open(&r.j, "checkpoints", '[');
    }
    cli_progress_start(&r.bar, a, dir);
    const ckp_status st = ckp_run_repair(dir, &o, &done, &e);
    (void)cli_progress_end(&r.bar);
    if (a->json)
        finish_json(&r, &done);
    else if (r.tab.n > r.tab.columns)
        cli_table_print(&r.tab, 0);
    if (!a->quiet && !a->json && (st == CKP_OK || done.set_aside + done.swept + done.left != 0))
        sum_up(a, &done);
    cli_table_free(&r.tab);
    return cli_told_part(st, &e);
}

static int
repair(const cli_args *a)
{
    cli_place place;

    int code = cli_place_parse(&place, a->arg[0]);
    if (code != CLI_OK)
        return code;
    if (place.has_step)
        code = cli_fail(CLI_USAGE, "repair takes the directory of a run.");
    else if (a->share < 1.0)
        code = cli_fail(CLI_USAGE, "repair reads everything or nothing: --data takes no share.");
    else
        code = repair_run(a, place.path);
    cli_place_free(&place);
    return code;
}

const cli_command cli_cmd_repair = {
    .name = "repair",
    .args = "RUN",
    .summary = "Take what is damaged out of the way of a run",
    .text = "Afterwards listing and restoring meet whole checkpoints only, and prune works again. A checkpoint whose manifest or shards are damaged\n"
            "or missing, and every one that is based on it, is set aside: its directory becomes set-aside-NAME, with all that is in it. The rest of\n"
            "saves and deletions that were cut short goes, as the next training would remove it. A run.json that is lost or damaged is written anew if\n"
            "all manifests agree. --data also reads everything; --delete deletes instead of setting aside, unless nothing restorable would be left.\n"
            "No training may write to the run meanwhile. What was cut short goes on when it is asked for again.\n"
            "\n"
            "  ckpress repair runs/gpt -n\n"
            "  ckpress repair runs/gpt --data",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_DRY_RUN) | CLI_HAS(CLI_OPT_DATA) | CLI_HAS(CLI_OPT_DELETE) | CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 1,
    .max_args = 1,
    .run = repair,
};
