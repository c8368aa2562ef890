/* SPDX-License-Identifier: Apache-2.0 */
#include "report_canvas.h"
#include <math.h>
#include "html.h"

#define X_LABEL "step; checkpoints in the order in which they were saved"

void
report_key(FILE *f, const char *const *name, const char *const *color, size_t n)
{
    (void)fputs("<p class=\"key\">", f);
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(f, "<span><i style=\"background:%s\"></i>", color[i]);
        cli_html_name(f, name[i]);
        (void)fputs("</span> ", f);
    }
    (void)fputs("</p>\n", f);
}

/* The point of a slot that is marked: one that is damaged, else the first save after a restore. NULL: none. */
static const report_point *
marked(const report_canvas *c, size_t slot)
{
    const report_point *found = NULL;
    size_t first, end;

    report_slot(c->r, slot, &first, &end);
    for (size_t i = first; i < end; i++) {
        const report_point *at = &c->r->point[i];
        if (!at->whole)
            return at;
        if (found == NULL && i > 0 && at->restore_count > at[-1].restore_count)
            found = at;
    }
    return found;
}

static void
marks(cli_plot *p, const report_canvas *c)
{
    char words[512];

    for (size_t s = 0; s < c->slots; s++) {
        const report_point *at = marked(c, s);
        if (at == NULL)
            continue;
        (void)snprintf(words, sizeof words, "step %llu: %.400s", (unsigned long long)at->step, at->whole ? "first save after a restore" : at->problem);
        cli_plot_mark(p, s, at->whole ? REPORT_RESTORE : REPORT_BAD, words);
    }
}

void
report_begin(cli_plot *p, const report_canvas *c, const char *title, const char *y_label, const cli_range *range)
{
    cli_plot_begin(p, c->f, title, X_LABEL, y_label, c->label, c->slots, range);
    marks(p, c);
}

/* The last value of each slot. */
static void
series_values(const report_canvas *c, const report_series *s)
{
    for (size_t k = 0; k < c->slots; k++) {
        size_t first, end;
        report_slot(c->r, k, &first, &end);
        c->v[k] = (double)NAN;
        for (size_t i = first; i < end; i++)
            if (!isnan(s->value[i]))
                c->v[k] = s->value[i];
    }
}

/* Values that are there and not finite have no place on an axis, and must not go unseen. */
static void
cross_out(cli_plot *p, const report_canvas *c, const report_series *s)
{
    char words[64];

    for (size_t k = 0; k < c->slots; k++) {
        size_t first, end;
        report_slot(c->r, k, &first, &end);
        for (size_t i = first; i < end; i++) {
            if (!s->has[i] || isfinite(s->value[i]))
                continue;
            (void)snprintf(words, sizeof words, "step %llu: %s", (unsigned long long)c->r->point[i].step,
                           isnan(s->value[i]) ? "NaN" : s->value[i] > 0.0 ? "infinite" : "minus infinite");
            cli_plot_cross(p, k, REPORT_BAD, words);
            break;
        }
    }
}

void
report_plot_series(const report_canvas *c, const char *title, const char *y_label, const report_series *const *s, const char *const *name,
                   const char *const *color, size_t n, bool from_zero)
{
    cli_range range = CLI_RANGE_INIT;
    cli_plot p;
    const char *shown[8], *with[8];
    size_t n_shown = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == NULL)
            continue;
        shown[n_shown] = name[i];
        with[n_shown++] = color[i];
        series_values(c, s[i]);
        for (size_t k = 0; k < c->slots; k++)
            cli_range_add(&range, c->v[k]);
    }
    if (n_shown == 0)
        return;
    if (from_zero)
        cli_range_add(&range, 0.0);
    if (n_shown > 1)
        report_key(c->f, shown, with, n_shown);
    report_begin(&p, c, title, y_label, &range);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == NULL)
            continue;
        series_values(c, s[i]);
        cli_plot_line(&p, c->v, true, name[i], color[i], c->label);
        cross_out(&p, c, s[i]);
    }
    cli_plot_end(&p);
}
