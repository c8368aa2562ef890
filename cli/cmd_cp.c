/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress cp: copy a run, or some of its checkpoints. */
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "place.h"
#include "table.h"

typedef struct copying { const cli_args *a; cli_progress bar; bool drawing; cli_table tab; cli_json j; } copying;

static bool
wants_table(const cli_args *a)
{
    return !a->json && !a->quiet && (a->dry_run || a->verbose);
}

static void
tell(void *user, const ckp_list_entry *e, ckp_copy_fate fate, const char *reason)
{
    static const char *const word[] = {[CKP_COPY_DONE] = "copied", [CKP_COPY_THERE] = "there", [CKP_COPY_DAMAGED] = "damaged"};
    copying *c = user;
    cli_text t;

    if (c->a->json) {
        cli_json_open(&c->j, NULL, '{');
        cli_json_str(&c->j, "dir", e->dir);
        cli_json_u64(&c->j, "step", e->step);
        cli_json_u64(&c->j, "stored_bytes", e->stored_bytes);
        cli_json_str(&c->j, "fate", word[fate]);
        if (reason != NULL)
            cli_json_str(&c->j, "reason", reason);
        cli_json_close(&c->j, '}');
    } else if (fate == CKP_COPY_DAMAGED) {
        cli_note("%s is left out: %s", e->dir, reason);
    }
    if (!wants_table(c->a))
        return;
    (void)snprintf(t.s, sizeof t.s, "%llu", (unsigned long long)e->step);
    cli_table_add(&c->tab, t.s);
    cli_table_add(&c->tab, e->is_delta ? "delta" : "key");
    cli_table_add(&c->tab, cli_size(&t, e->stored_bytes));
    cli_table_add(&c->tab, word[fate]);
}

static void
sum_up(const cli_args *a, const ckp_copied *done)
{
    cli_text size;

    cli_note("%llu %s, %s; %llu there already", (unsigned long long)done->copied, a->dry_run ? "would be copied" : "copied", cli_size(&size, done->bytes),
             (unsigned long long)done->there);
    if (done->models_outside > 0)
        cli_note("%llu of these begin from a base model outside the run's directory: keep that file too", (unsigned long long)done->models_outside);
}

static int
run_copy(const cli_args *a, const cli_place *from, const char *dest)
{
    static const char *const head[] = {"STEP", "KIND", "SIZE", ""};
    copying c = {.a = a};
    ckp_copied done = {.size = sizeof done};
    ckp_copy_opts o = CKP_COPY_OPTS_INIT;
    ckp_error e = {0};
    uint64_t *step = cli_alloc((a->n_step + 1) * sizeof *step);

    memcpy(step, a->step, a->n_step * sizeof *step);
    o.step = step;
    o.n_steps = a->n_step;
    o.newest = a->newest;
    if (from->has_step)
        step[o.n_steps++] = (uint64_t)from->step;
    o.dry_run = a->dry_run;
    o.told = tell;
    o.told_user = &c;
    cli_table_init(&c.tab, "rlrl");
    for (size_t i = 0; wants_table(a) && i < sizeof head / sizeof *head; i++)
        cli_table_add(&c.tab, head[i]);
    if (a->json)
        cli_json_open(&c.j, NULL, '[');
    cli_progress_start(&c.bar, a, "copying");
    o.progress = cli_progress_step;
    o.user = &c.bar;
    const ckp_status st = ckp_run_copy(from->path, dest, &o, &done, &e);
    (void)cli_progress_end(&c.bar);
    if (a->json)
        cli_json_close(&c.j, ']');
    else if (c.tab.n > c.tab.columns)
        cli_table_print(&c.tab, 0);
    if (!a->quiet && !a->json && (st == CKP_OK || done.copied + done.there > 0))
        sum_up(a, &done);
    cli_table_free(&c.tab);
    free(step);
    return cli_told_part(st, &e);
}

/* Else a directory "s3:" would be made. */
static int
refuse_url(const char *path)
{
    if (strstr(path, "://") == NULL)
        return CLI_OK;
    return cli_fail(CLI_USAGE, "%s: runs are copied from directory to directory: give a path.", path);
}

static int
cp(const cli_args *a)
{
    cli_place from;

    int code = refuse_url(a->arg[0]);
    if (code == CLI_OK)
        code = refuse_url(a->arg[1]);
    if (code == CLI_OK)
        code = cli_place_parse(&from, a->arg[0]);
    if (code != CLI_OK)
        return code;
    code = strcmp(a->arg[1], "-") == 0 ? cli_fail(CLI_USAGE, "a run is a directory: it cannot go to a pipe.") : run_copy(a, &from, a->arg[1]);
    cli_place_free(&from);
    return code;
}

const cli_command cli_cmd_cp = {
    .name = "cp",
    .args = "RUN[@STEP] DEST",
    .summary = "Copy a run, or checkpoints with all that they need",
    .text = "DEST is made, or is an earlier copy, which is brought up to date: the same run, valid at every moment, so that a training can go on\n"
            "from it. Checkpoints appear in it in the order in which they were saved, each byte proved by its hash; what was cut short goes on when\n"
            "it is asked for again. RUN is only read, and may be trained and pruned meanwhile. What is damaged is left out with what needs it,\n"
            "and cp fails after the rest. Two copies that have both been trained on are two runs: cp refuses to mix them.\n"
            "\n"
            "  ckpress cp runs/gpt /backup/gpt\n"
            "  ckpress cp runs/gpt@3000 runs/gpt-warmer\n"
            "  ckpress cp runs/gpt send --step 1000 --newest -n",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_STEP) | CLI_HAS(CLI_OPT_NEWEST) | CLI_HAS(CLI_OPT_DRY_RUN) | CLI_HAS(CLI_OPT_JSON) | CLI_HAS(CLI_OPT_PROGRESS) |
               CLI_HAS(CLI_OPT_VERBOSE),
    .min_args = 2,
    .max_args = 2,
    .run = cp,
};
