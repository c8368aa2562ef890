/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, losses, metrics and errors over the checkpoints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "html.h"
#include "report_canvas.h"

#define MOST_METRICS 12

static const struct { const char *name, *title, *unit, *color; } settings[] = {
    {"step", "Step of the weights", "RMS of the weights", "#3b6fb6"},
    {"movement", "Movement of the weights since the save before", "RMS of the weights", "#4a9a5b"},
    {"quality", "Quality: scale of the profile's steps", "scale", "#777777"},
    {"m_share", "Share of m that is kept; the rest is zero", "of its values", "#d08b2c"},
    {"v_octaves", "Step of v", "octaves of its root", "#4a9a5b"},
    {"rms", "RMS of the weights", "unit of the weights", "#3b6fb6"},
};
#define N_SETTINGS (sizeof settings / sizeof *settings)

/* Names that are shown elsewhere: known settings, and the guard's losses with the quality that is a setting too. */
static bool
has_own_plot(const char *name)
{
    for (size_t k = 0; k < N_SETTINGS; k++)
        if (strcmp(name, settings[k].name) == 0)
            return true;
    return strcmp(name, "ckpress.loss_live") == 0 || strcmp(name, "ckpress.loss_decoded") == 0 || strcmp(name, "ckpress.quality") == 0;
}

/* A series under its own name. */
static void
plot_other(const report_canvas *c, const report_series *s, const char *y_label, bool from_zero, size_t *shown)
{
    static const char *const color[] = {"#3b6fb6"};
    const char *name = s->name;

    (void)fputs("<h3>", c->f);
    cli_html_name(c->f, name);
    (void)fputs("</h3>\n", c->f);
    report_plot_series(c, name, y_label, &s, &name, color, 1, from_zero);
    ++*shown;
}

void
report_plot_settings(const report_canvas *c)
{
    size_t shown = 0;

    for (size_t i = 0; i < N_SETTINGS; i++) {
        const report_series *s = report_find(&c->r->settings, settings[i].name);
        if (s == NULL)
            continue;
        (void)fprintf(c->f, "<h3>%s</h3>\n", settings[i].title);
        report_plot_series(c, settings[i].title, settings[i].unit, &s, &settings[i].name, &settings[i].color, 1, true);
    }
    for (size_t i = 0; i < c->r->settings.n && shown < MOST_METRICS; i++)
        if (!has_own_plot(c->r->settings.v[i].name))
            plot_other(c, &c->r->settings.v[i], "as recorded", true, &shown);
    for (size_t i = 0; i < c->r->metrics.n && shown < MOST_METRICS; i++)
        if (report_is_own(c->r->metrics.v[i].name) && !has_own_plot(c->r->metrics.v[i].name))
            plot_other(c, &c->r->metrics.v[i], "as recorded", true, &shown);
}

void
report_plot_restores(const report_canvas *c)
{
    cli_range range = CLI_RANGE_INIT;
    cli_plot p;

    for (size_t s = 0; s < c->slots; s++) {
        size_t first, end;
        report_slot(c->r, s, &first, &end);
        c->v[s] = (double)c->r->point[end - 1].restore_count;
        cli_range_add(&range, c->v[s]);
    }
    if (range.high <= 0.0)
        return;
    cli_range_add(&range, 0.0);
    (void)fputs("<h3>Restores behind each checkpoint</h3>\n", c->f);
    report_begin(&p, c, "Restores behind each checkpoint", "restores", &range);
    cli_plot_line(&p, c->v, false, "restores", REPORT_RESTORE, c->label);
    cli_plot_end(&p);
}

/* By how much decoding raised the loss: the difference of the two curves, which are too close to be told apart. */
static void
plot_increase(const report_canvas *c, const report_series *live, const report_series *decoded)
{
    cli_range range = CLI_RANGE_INIT;
    cli_plot p;

    for (size_t s = 0; s < c->slots; s++) {
        size_t first, end;
        report_slot(c->r, s, &first, &end);
        c->v[s] = (double)NAN;
        for (size_t i = first; i < end; i++)
            if (isfinite(live->value[i]) && isfinite(decoded->value[i]) && live->value[i] != 0.0)
                c->v[s] = 100.0 * (decoded->value[i] - live->value[i]) / fabs(live->value[i]);
        cli_range_add(&range, c->v[s]);
    }
    cli_range_add(&range, 0.0);
    (void)fputs("<h3>Increase of the loss by decoding</h3>\n", c->f);
    report_begin(&p, c, "Increase of the loss by decoding", "% of the live loss", &range);
    cli_plot_line(&p, c->v, true, "increase, %", "#3b6fb6", c->label);
    cli_plot_end(&p);
}

/* A save that kept the weights exactly after all has the loss of a try that was thrown away: not of what a restore gives. */
static report_series
without_exact(const report *r, const report_series *decoded)
{
    const report_series *step = report_find(&r->settings, "step");
    report_series out = {decoded->name, cli_alloc(r->n * sizeof *out.value), cli_alloc(r->n * sizeof *out.has)};

    for (size_t i = 0; i < r->n; i++) {
        const bool exact = step != NULL && step->has[i] && step->value[i] == 0.0;
        out.value[i] = exact ? (double)NAN : decoded->value[i];
        out.has[i] = !exact && decoded->has[i];
    }
    return out;
}

void
report_plot_losses(const report_canvas *c)
{
    static const char *const name[] = {"live weights", "decoded weights"}, *const color[] = {"#777777", "#3b6fb6"};
    const report_series *live = report_find(&c->r->metrics, "ckpress.loss_live"), *decoded = report_find(&c->r->metrics, "ckpress.loss_decoded");

    if (live == NULL || decoded == NULL) {
        (void)fputs("<p>None: no <code>eval_fn</code> was given to the saves that are here.</p>\n", c->f);
        return;
    }
    const report_series kept = without_exact(c->r, decoded), *const s[] = {live, &kept};
    (void)fputs("<p>The loss that <code>eval_fn</code> gave for the live weights and for what a restore would give. Saves that were not measured have no "
                "point, and those that kept the weights exactly (step 0) none of decoded weights.</p>\n", c->f);
    report_plot_series(c, "Measured loss of live and decoded weights", "loss", s, name, color, 2, false);
    plot_increase(c, live, &kept);
    free(kept.value);
    free(kept.has);
}

void
report_plot_metrics(const report_canvas *c)
{
    size_t shown = 0, all = 0;

    for (size_t i = 0; i < c->r->metrics.n; i++) {
        if (report_is_own(c->r->metrics.v[i].name))
            continue;
        if (all++ < MOST_METRICS)
            plot_other(c, &c->r->metrics.v[i], "as given", false, &shown);
    }
    if (shown < all)
        (void)fprintf(c->f, "<p>Plots of %zu of %zu metrics; the table has more.</p>\n", shown, all);
    if (shown == 0)
        (void)fputs("<p>None were given to save().</p>\n", c->f);
}

void
report_plot_errors(const report_canvas *c)
{
    static const int role[] = {CKP_ROLE_WEIGHT, CKP_ROLE_MASTER, CKP_ROLE_MOMENTUM};
    static const char *const name[] = {"weights", "masters", "momentum"}, *const color[] = {"#3b6fb6", "#4a9a5b", "#d08b2c"};
    cli_range range = CLI_RANGE_INIT;
    cli_plot p;
    const char *shown[3], *with[3];
    size_t n = 0, at[3];

    for (size_t k = 0; k < 3; k++) {
        double most = 0.0;
        for (size_t i = 0; i < c->r->n; i++)
            most = fmax(most, c->r->point[i].rms_error[role[k]]);
        if (!(most > 0.0))
            continue;
        shown[n] = name[k];
        with[n] = color[k];
        at[n++] = k;
        cli_range_add(&range, most);
    }
    if (n == 0) {
        (void)fputs("<p>None: nothing that is here was coded with an error that is recorded.</p>\n", c->f);
        return;
    }
    cli_range_add(&range, 0.0);
    report_key(c->f, shown, with, n);
    report_begin(&p, c, "Largest RMS error of a tensor", "of the tensor's RMS", &range);
    for (size_t k = 0; k < n; k++) {
        for (size_t s = 0; s < c->slots; s++) {
            size_t first, end;
            report_slot(c->r, s, &first, &end);
            const report_point *last = &c->r->point[end - 1];
            c->v[s] = last->looked ? last->rms_error[role[at[k]]] : (double)NAN;
        }
        cli_plot_line(&p, c->v, false, shown[k], with[k], c->label);
    }
    cli_plot_end(&p);
}
