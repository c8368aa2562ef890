/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a report: the numbers behind its plots. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "html.h"
#include "report.h"

#define MOST_ROWS 30             /* of tensors */
#define MOST_COLUMNS 8           /* of checkpoints beside them */

static double
value_at(const report_list *l, const char *name, size_t i)
{
    const report_series *s = report_find(l, name);
    return s != NULL ? s->value[i] : (double)NAN;
}

/* Like 0.724; an en dash where nothing is known. */
static void
cell_bits(cli_html_table *t, const report_point *p, double bytes)
{
    cli_text s;
    const double bits = report_bits(p, bytes);

    (void)snprintf(s.s, sizeof s.s, "%.3f", bits);
    cli_html_cell(t, p->looked && !isnan(bits) ? s.s : "\xe2\x80\x93");
}

static void
checkpoint_row(cli_html_table *t, const report *r, size_t i)
{
    const report_point *p = &r->point[i];
    cli_text s;

    cli_html_cell_count(t, p->sequence);
    cli_html_cell_count(t, p->step);
    (void)snprintf(s.s, sizeof s.s, p->is_delta ? "delta %u" : "key", p->chain);
    cli_html_cell(t, s.s);
    cli_html_cell(t, cli_html_time(&s, p->saved_unix));
    cli_html_cell_count(t, p->stored_bytes);
    cli_html_cell(t, cli_ratio(&s, p->raw_bytes, p->stored_bytes));
    for (int k = 0; k < REPORT_PARTS; k++)
        cell_bits(t, p, (double)p->part_bytes[k]);
    cell_bits(t, p, (double)p->stored_bytes);
    cli_html_cell(t, ckp_profile_name(p->profile));
    cli_html_cell_number(t, value_at(&r->settings, "quality", i));
    cli_html_cell_number(t, value_at(&r->settings, "step", i));
    cli_html_cell_number(t, value_at(&r->settings, "movement", i));
    cli_html_cell_number(t, value_at(&r->settings, "m_share", i));
    cli_html_cell_number(t, value_at(&r->metrics, "ckpress.loss_live", i));
    cli_html_cell_number(t, value_at(&r->metrics, "ckpress.loss_decoded", i));
    cli_html_cell_number(t, value_at(&r->metrics, "ckpress.evaluations", i));
    cli_html_cell_count(t, p->restore_count);
    cli_html_cell(t, p->problem != NULL ? p->problem : "ok");
}

void
report_checkpoint_table(FILE *f, const report *r)
{
    static const char *const head[] = {"number", "step", "kind", "saved, UTC", "bytes", "ratio", "weights, bits", "m, bits", "v, bits", "rest, bits",
                                       "all, bits", "profile", "quality", "step, RMS", "movement, RMS", "m share", "loss, live",
                                       "loss, decoded", "evaluations", "restores", "health"};
    cli_html_table t;

    (void)fputs("<h2>Checkpoints</h2>\n", f);
    cli_html_table_begin(&t, f, "Bits are those of a parameter of the model; step and movement are in RMS of all large weights", "rrllrrrrrrrlrrrrrrrrl", head);
    for (size_t s = 0; s < report_slots(r); s++) {
        size_t first, end;
        report_slot(r, s, &first, &end);
        checkpoint_row(&t, r, end - 1);
    }
    cli_html_table_end(&t);
}

/* ---- metrics ------------------------------------------------------------------------------------------------------- */

/* One that is there, also when it is no number. */
static void
cell_value(cli_html_table *t, double v)
{
    if (isnan(v))
        cli_html_cell(t, "NaN");
    else
        cli_html_cell_number(t, v);
}

static void
series_row(cli_html_table *t, const report *r, const report_series *s)
{
    double first = (double)NAN, last = (double)NAN, low = (double)NAN, high = (double)NAN;
    size_t n = 0, odd = 0;

    for (size_t i = 0; i < r->n; i++) {
        const double v = s->value[i];
        if (!s->has[i])
            continue;
        first = n++ == 0 ? v : first;
        last = v;
        odd += isfinite(v) ? 0 : 1;
        low = isfinite(v) ? fmin(v, low) : low;      /* of NaN and a number, the number */
        high = isfinite(v) ? fmax(v, high) : high;
    }
    cli_html_cell_name(t, s->name);
    cli_html_cell_count(t, n);
    cli_html_cell_count(t, odd);
    cell_value(t, first);
    cell_value(t, last);
    cli_html_cell_number(t, low);
    cli_html_cell_number(t, high);
}

void
report_series_table(FILE *f, const report *r, const report_list *l, const char *caption)
{
    static const char *const head[] = {"name", "checkpoints", "not finite", "first", "last", "least", "most"};
    cli_html_table t;

    if (l->n == 0)
        return;
    cli_html_table_begin(&t, f, caption, "lrrrrrr", head);
    for (size_t i = 0; i < l->n; i++)
        series_row(&t, r, &l->v[i]);
    cli_html_table_end(&t);
    if (l->cut)
        (void)fprintf(f, "<p>The first %d names; there are more.</p>\n", REPORT_NAMES);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

static int
by_size(const void *x, const void *y)
{
    const report_tensor *a = *(const report_tensor *const *)x, *b = *(const report_tensor *const *)y;
    if (a->stored_bytes != b->stored_bytes)
        return a->stored_bytes > b->stored_bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int
by_error(const void *x, const void *y)
{
    const report_tensor *a = *(const report_tensor *const *)x, *b = *(const report_tensor *const *)y;
    if (a->rms_error != b->rms_error)
        return a->rms_error > b->rms_error ? -1 : 1;
    if (a->max_error != b->max_error)
        return a->max_error > b->max_error ? -1 : 1;
    return strcmp(a->name, b->name);
}

static const report_tensor *
tensor_named(const report_point *p, const char *name)
{
    for (size_t i = 0; i < p->n_tensors; i++)
        if (p->tensor[i].name == name || strcmp(p->tensor[i].name, name) == 0)
            return &p->tensor[i];
    return NULL;
}

/* Up to MOST_COLUMNS points that were looked into, evenly from the first to the newest. */
static size_t
pick_columns(const report *r, const report_point *at[MOST_COLUMNS])
{
    size_t n = 0, total = 0, seen = 0;

    for (size_t i = 0; i < r->n; i++)
        total += r->point[i].tensor != NULL;
    const size_t want = total < MOST_COLUMNS ? total : MOST_COLUMNS;
    for (size_t i = 0; i < r->n && n < want; i++) {
        if (r->point[i].tensor == NULL)
            continue;
        /* the n-th of `want` even places in 0 ... total - 1 */
        if (seen++ >= (want > 1 ? n * (total - 1) / (want - 1) : total - 1))
            at[n++] = &r->point[i];
    }
    return n;
}

static void
size_table(FILE *f, const report *r, const report_tensor **sorted, size_t n)
{
    const report_point *at[MOST_COLUMNS];
    const size_t columns = pick_columns(r, at);
    const char *head[4 + MOST_COLUMNS] = {"tensor", "role", "elements", "bytes, newest"};
    char text[MOST_COLUMNS][48], align[4 + MOST_COLUMNS + 1] = "llrr";
    cli_html_table t;

    for (size_t k = 0; k < columns; k++) {
        (void)snprintf(text[k], sizeof text[k], "bits at %llu", (unsigned long long)at[k]->step);
        head[4 + k] = text[k];
        align[4 + k] = 'r';
    }
    cli_html_table_begin(&t, f, "The largest tensors of the newest checkpoint, with bits an element over steps", align, head);
    for (size_t i = 0; i < n && i < MOST_ROWS; i++) {
        cli_html_cell_name(&t, sorted[i]->name);
        cli_html_cell(&t, ckp_role_name(sorted[i]->role));
        cli_html_cell_count(&t, sorted[i]->numel);
        cli_html_cell_count(&t, sorted[i]->stored_bytes);
        for (size_t k = 0; k < columns; k++) {
            const report_tensor *x = tensor_named(at[k], sorted[i]->name);
            cli_html_cell_number(&t, x != NULL ? x->bits : (double)NAN);
        }
    }
    cli_html_table_end(&t);
    if (n > MOST_ROWS)
        (void)fprintf(f, "<p>%d of %zu tensors.</p>\n", MOST_ROWS, n);
}

static void
error_table(FILE *f, const report_point *p, const report_tensor **sorted, size_t n)
{
    static const char *const head[] = {"tensor", "role", "RMS error", "largest error", "bits"};
    cli_html_table t;
    char caption[160];

    if (n == 0)
        return;
    (void)snprintf(caption, sizeof caption, "Step %llu: tensors with the largest errors, relative to the tensor's RMS (of v: to the value)",
                   (unsigned long long)p->step);
    cli_html_table_begin(&t, f, caption, "llrrr", head);
    for (size_t i = 0; i < n && i < MOST_ROWS; i++) {
        cli_html_cell_name(&t, sorted[i]->name);
        cli_html_cell(&t, ckp_role_name(sorted[i]->role));
        cli_html_cell_number(&t, sorted[i]->role == CKP_ROLE_V ? (double)NAN : sorted[i]->rms_error);
        cli_html_cell_number(&t, sorted[i]->max_error);
        cli_html_cell_number(&t, sorted[i]->bits);
    }
    cli_html_table_end(&t);
    if (n > MOST_ROWS)
        (void)fprintf(f, "<p>%d of %zu tensors with an error.</p>\n", MOST_ROWS, n);
}

/* Tensors of a point in an order; those without an error are left out where `lossy`. Freed by the caller. */
static const report_tensor **
sort_tensors(const report_point *p, bool lossy, int (*order)(const void *, const void *), size_t *n)
{
    const report_tensor **sorted = cli_alloc(p->n_tensors * sizeof *sorted);

    *n = 0;
    for (size_t i = 0; i < p->n_tensors; i++)
        if (!lossy || p->tensor[i].rms_error > 0.0 || p->tensor[i].max_error > 0.0)
            sorted[(*n)++] = &p->tensor[i];
    qsort((void *)sorted, *n, sizeof *sorted, order);
    return sorted;
}

void
report_error_table(FILE *f, const report *r)
{
    const report_point *p = report_newest_lossy(r);
    size_t n = 0;

    if (p == NULL)
        return;
    const report_tensor **sorted = sort_tensors(p, true, by_error, &n);
    error_table(f, p, sorted, n);
    free((void *)sorted);
}

void
report_size_table(FILE *f, const report *r)
{
    const report_point *p = report_newest(r);
    size_t n = 0;

    if (p == NULL || p->n_tensors == 0)
        return;
    const report_tensor **sorted = sort_tensors(p, false, by_size, &n);
    size_table(f, r, sorted, n);
    free((void *)sorted);
}
