/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress log: how a run came about, save by save. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "place.h"
#include "report.h"
#include "settings.h"
#include "table.h"

/* What the order of saves says of one of them. */
typedef struct past {
    const report_point *before;  /* the save before, of those that are there; NULL: none */
    uint64_t gone;               /* saves between the two that are no longer there */
    int64_t after;               /* seconds since the one before; -1: not known */
    bool restored;               /* training was restored first */
    bool between;                /* that was for a save between the two, which is gone: of which step is not known */
    bool anew;                   /* it goes on from no checkpoint of the run, though there were some */
    bool back;                   /* its step is not above that of the save before */
    uint64_t parent_step;
} past;

/* "step-00000100-9f3a61c2": also of a directory that is gone. */
static uint64_t
step_of(const char *dir)
{
    return strncmp(dir, "step-", 5) == 0 ? strtoull(dir + 5, NULL, 10) : 0;
}

static past
past_of(const report *r, size_t i)
{
    const report_point *p = &r->point[i], *parent = report_point_of(r, p->parent_dir);
    past out = {.before = i != 0 ? p - 1 : NULL, .after = -1, .parent_step = step_of(p->parent_dir)};
    /* of the step of the save before, and not there: what stands in for it is (thin, rebase) */
    if (parent == NULL && out.before != NULL && p->parent_dir[0] != '\0' && out.before->step == out.parent_step)
        parent = out.before;
    const uint64_t restores = parent != NULL ? parent->restore_count : out.before != NULL ? out.before->restore_count : 0;

    out.gone = p->sequence - (out.before != NULL ? out.before->sequence : 0);
    out.gone -= out.gone != 0;
    if (out.before != NULL && p->saved_unix > 0 && out.before->saved_unix > 0 && p->saved_unix >= out.before->saved_unix)
        out.after = p->saved_unix - out.before->saved_unix;
    /* what follows a save goes on from it, or was restored; should saves between them be gone, only the count of restores is left to tell */
    out.between = parent == NULL && out.gone != 0 && p->restore_count > restores;
    out.restored = p->parent_dir[0] != '\0' && (out.between || (parent != NULL ? p->restore_count > restores : out.before != NULL && out.gone == 0));
    out.anew = p->parent_dir[0] == '\0' && p->sequence > 1;
    /* the exact save at a run's end has the step of the one before, as it should */
    out.back = out.before != NULL && (p->step < out.before->step || (p->step == out.before->step && !report_is_exact(r, i)));
    return out;
}

/* ---- as text --------------------------------------------------------------------------------------------------------- */

/* A text that grows. */
typedef struct line { char *s; size_t n, cap; } line;

static void add(line *l, const char *format, ...) CLI_PRINTF(2, 3);

static void
add(line *l, const char *format, ...)
{
    va_list ap, again;

    va_start(ap, format);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    if (l->n + (size_t)n + 1 > l->cap) {
        l->cap = 2 * (l->n + (size_t)n + 1);
        char *grown = cli_alloc(l->cap);
        if (l->n != 0)
            (void)memcpy(grown, l->s, l->n);
        free(l->s);
        l->s = grown;
    }
    (void)vsnprintf(l->s + l->n, l->cap - l->n, format, again);
    va_end(again);
    l->n += (size_t)n;
}

static void
note(cli_table *t, line *l)
{
    if (l->n != 0)
        cli_table_note(t, l->s);
    l->n = 0;
}

static void
note_lineage(cli_table *t, line *l, const report_point *p, const past *h)
{
    const unsigned long long from = h->parent_step, step = p->step;

    if (h->gone != 0)
        add(l, "%llu save%s before it %s no longer there", (unsigned long long)h->gone, h->gone == 1 ? "" : "s", h->gone == 1 ? "is" : "are");
    note(t, l);
    if (h->anew)
        add(l, "begins anew: it goes on from no checkpoint of this run");
    else if (h->between)
        add(l, "restored in between (restore %llu), for a save that is no longer there", (unsigned long long)p->restore_count);
    else if (h->restored)
        add(l, "restored from step %llu (restore %llu)", from, (unsigned long long)p->restore_count);
    if (h->before != NULL && h->restored && !h->between && h->before->step > h->parent_step)
        add(l, ": steps %llu to %llu were given up", from + 1, (unsigned long long)h->before->step);
    else if (h->back && !h->restored)
        add(l, "%sstep %llu comes after step %llu", l->n != 0 ? "; " : "", step, (unsigned long long)h->before->step);
    note(t, l);
}

static void
note_metrics(cli_table *t, line *l, const report *r, size_t i)
{
    for (size_t k = 0; k < r->metrics.n; k++)
        if (r->metrics.v[k].has[i] && !cli_is_measured(r->metrics.v[k].name))
            add(l, "%s%s %.6g", l->n != 0 ? ", " : "", r->metrics.v[k].name, r->metrics.v[k].value[i]);
    note(t, l);
    const double live = report_value(&r->metrics, "ckpress.loss_live", i), decoded = report_value(&r->metrics, "ckpress.loss_decoded", i);
    if (isnan(live))
        return;
    add(l, "measured loss: %.6g of the live weights", live);
    if (!isnan(decoded))
        add(l, ", %.6g decoded (%+.2f %%)", decoded, 100.0 * (decoded - live) / fabs(live));
    note(t, l);
}

static void
add_point(cli_table *t, line *l, const report *r, size_t i)
{
    const report_point *p = &r->point[i];
    const past h = past_of(r, i);
    cli_text s;

    (void)snprintf(s.s, sizeof s.s, "%llu", (unsigned long long)p->step);
    cli_table_add(t, s.s);
    cli_table_add(t, report_is_exact(r, i) ? (p->is_delta ? "delta, exact" : "key, exact") : p->is_delta ? "delta" : "key");
    cli_table_add(t, cli_size(&s, p->stored_bytes));
    cli_table_add(t, cli_ratio(&s, p->raw_bytes, p->stored_bytes));
    (void)snprintf(s.s, sizeof s.s, "%llu", (unsigned long long)step_of(p->base_dir));
    cli_table_add(t, p->base_dir[0] != '\0' ? s.s : p->base_model != NULL ? "model" : "-");
    cli_table_add(t, cli_when(&s, p->saved_unix, true));
    cli_table_add(t, cli_duration(&s, h.after));
    if (h.before == NULL || h.before->profile != p->profile)
        add(l, "profile %s", ckp_profile_name(p->profile) != NULL ? ckp_profile_name(p->profile) : "not known");
    note(t, l);
    note_lineage(t, l, p, &h);
    note_metrics(t, l, r, i);
    if (p->problem != NULL)
        add(l, "DAMAGED: %s", p->problem);
    note(t, l);
}

static void
print_odd(const report *r)
{
    cli_table t;
    cli_text s;

    if (r->n_odd == 0)
        return;
    (void)puts("\nno checkpoints:");
    cli_table_init(&t, "rl");
    for (size_t i = 0; i < r->n_odd && i < REPORT_ODD; i++) {
        (void)snprintf(s.s, sizeof s.s, "%llu", (unsigned long long)r->odd[i].step);
        cli_table_add(&t, s.s);
        cli_table_add(&t, r->odd[i].dir);
        cli_table_note(&t, r->odd[i].what);
    }
    cli_table_print(&t, 2);
    if (r->n_odd > REPORT_ODD)
        (void)printf("  ... and %zu more\n", r->n_odd - REPORT_ODD);
}

static void
print_log(const report *r, bool reverse)
{
    static const char *const head[] = {"STEP", "KIND", "SIZE", "RATIO", "BASE", "SAVED", "AFTER"};
    cli_table t;
    line l = {0};

    cli_table_init(&t, "rlrrrlr");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&t, head[i]);
    for (size_t i = 0; i < r->n; i++)
        add_point(&t, &l, r, reverse ? r->n - 1 - i : i);
    if (r->n != 0)
        cli_table_print(&t, 0);
    cli_table_free(&t);
    free(l.s);
    print_odd(r);
}

/* ---- as JSON --------------------------------------------------------------------------------------------------------- */

static void
json_log(const report *r, bool reverse)
{
    cli_json j = {0};

    report_json_begin(&j, r);
    for (size_t k = 0; k < r->n; k++) {
        const size_t i = reverse ? r->n - 1 - k : k;
        const past h = past_of(r, i);
        cli_json_open(&j, NULL, '{');
        report_json_point(&j, r, i);
        cli_json_bool(&j, "exact", report_is_exact(r, i));
        cli_json_num(&j, "seconds_after", h.after >= 0 ? (double)h.after : (double)NAN);
        cli_json_u64(&j, "gone_before", h.gone);
        cli_json_bool(&j, "restored", h.restored);
        cli_json_bool(&j, "anew", h.anew);
        cli_json_bool(&j, "back", h.back);
        cli_json_close(&j, '}');
    }
    cli_json_close(&j, ']');
    report_json_odd(&j, r);
    cli_json_close(&j, '}');
}

static int
log_run(const cli_args *a)
{
    cli_place place;
    report r = {0};

    int code = cli_place_parse(&place, a->arg[0]);
    if (code == CLI_OK && place.has_step)
        code = cli_fail(CLI_USAGE, "%s: a log is of a whole run, not of a step; 'ckpress info' describes one checkpoint.", a->arg[0]);
    if (code == CLI_OK)
        code = report_gather(&r, place.path, false);
    if (code == CLI_OK && a->json)
        json_log(&r, a->reverse);
    else if (code == CLI_OK)
        print_log(&r, a->reverse);
    if (code == CLI_OK && r.n == 0 && !a->quiet)
        cli_note("%s: no checkpoint yet", r.path);
    report_free(&r);
    cli_place_free(&place);
    return code;
}

const cli_command cli_cmd_log = {
    .name = "log",
    .args = "RUN",
    .summary = "Tell how a run came about, save by save",
    .text = "Checkpoints in the order in which they were committed, newest last: what each is predicted from, when it was saved and how long after\n"
            "the one before, and below it what else is known: restores and the steps that were given up with them, saves that are no longer\n"
            "there, metrics, the loss that eval_fn measured, damage. Then what is no checkpoint: saves that were cut short, for instance. Damage\n"
            "that manifests and indexes do not show is found by 'ckpress verify'.\n"
            "\n"
            "  ckpress log runs/gpt\n"
            "  ckpress log runs/gpt --reverse | less",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_REVERSE) | CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = 1,
    .run = log_run,
};
