/* SPDX-License-Identifier: Apache-2.0 */
/* The plots of a report, each with its key and a sentence that says what it shows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "html.h"
#include "plot.h"
#include "report.h"

#define BAD "#c33"
#define RESTORE "#8a6fc0"
#define X_LABEL "step; checkpoints in the order in which they were saved"
#define MOST_METRICS 12
#define MOST_TENSORS 6

/* What every plot shares: labels of the slots, and scratch for the values of one line. */
typedef struct canvas {
    FILE *f;
    const report *r;
    size_t slots;
    uint64_t *label;
    double *v;
} canvas;

static void
key(FILE *f, const char *const *name, const char *const *color, size_t n)
{
    (void)fputs("<p class=\"key\">", f);
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(f, "<span><i style=\"background:%s\"></i>", color[i]);
        cli_html_name(f, name[i]);
        (void)fputs("</span> ", f);
    }
    (void)fputs("</p>\n", f);
}

/* Restores and what is damaged, in every plot at the same places. */
static void
marks(cli_plot *p, const canvas *c)
{
    char words[512];

    for (size_t s = 0; s < c->slots; s++) {
        size_t first, end;
        report_slot(c->r, s, &first, &end);
        for (size_t i = first; i < end; i++) {
            const report_point *at = &c->r->point[i];
            const bool restored = i > 0 && at->restore_count > c->r->point[i - 1].restore_count;
            if (at->whole && !restored)
                continue;
            (void)snprintf(words, sizeof words, "step %llu: %.400s", (unsigned long long)at->step,
                           at->whole ? "first save after a restore" : at->problem);
            cli_plot_mark(p, s, at->whole ? RESTORE : BAD, words);
            break;
        }
    }
}

static void
begin(cli_plot *p, const canvas *c, const char *title, const char *y_label, const cli_range *range)
{
    cli_plot_begin(p, c->f, title, X_LABEL, y_label, c->label, c->slots, range);
    marks(p, c);
}

/* The last value of each slot. */
static void
series_values(const canvas *c, const report_series *s)
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
cross_out(cli_plot *p, const canvas *c, const report_series *s)
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
            cli_plot_cross(p, k, BAD, words);
            break;
        }
    }
}

/* One plot of up to n series in one unit; those that are not there are left out. */
static void
plot_series(const canvas *c, const char *title, const char *y_label, const report_series *const *s, const char *const *name,
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
        key(c->f, shown, with, n_shown);
    begin(&p, c, title, y_label, &range);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == NULL)
            continue;
        series_values(c, s[i]);
        cli_plot_line(&p, c->v, true, name[i], color[i], c->label);
        cross_out(&p, c, s[i]);
    }
    cli_plot_end(&p);
}

/* ---- sizes --------------------------------------------------------------------------------------------------------- */

typedef struct slot_size { double part[REPORT_PARTS], all, bits[REPORT_PARTS], all_bits; size_t n; } slot_size;

/* Means over the slot's checkpoints whose parts are known. */
static slot_size
size_of(const canvas *c, size_t slot)
{
    slot_size z = {{0}, 0.0, {0}, 0.0, 0};
    size_t first, end;

    report_slot(c->r, slot, &first, &end);
    for (size_t i = first; i < end; i++) {
        const report_point *p = &c->r->point[i];
        if (!p->looked)
            continue;
        z.n++;
        for (int k = 0; k < REPORT_PARTS; k++) {
            z.part[k] += (double)p->part_bytes[k];
            z.bits[k] += report_bits(p, (double)p->part_bytes[k]);
        }
    }
    for (int k = 0; k < REPORT_PARTS; k++) {
        z.part[k] = z.n != 0 ? z.part[k] / (double)z.n : 0.0;
        z.bits[k] = z.n != 0 ? z.bits[k] / (double)z.n : (double)NAN;
        z.all += z.part[k];
        z.all_bits += z.bits[k];
    }
    return z;
}

/* "kB" and so on for the largest of the slots. */
static double
unit_for(double most, const char **name)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB"};
    size_t i = 0;
    double unit = 1.0;

    while (most >= 1000.0 * unit && i + 1 < sizeof names / sizeof *names) {
        unit *= 1000.0;
        i++;
    }
    *name = names[i];
    return unit;
}

static void
plot_sizes(const canvas *c)
{
    cli_range range = CLI_RANGE_INIT;
    cli_plot p;
    const char *unit_name;
    char words[160];
    double most = 0.0;

    for (size_t s = 0; s < c->slots; s++)
        most = fmax(most, size_of(c, s).all);
    const double unit = unit_for(most, &unit_name);
    cli_range_add(&range, 0.0);
    cli_range_add(&range, most > 0.0 ? most / unit : 1.0);
    key(c->f, report_part_name, report_part_color, REPORT_PARTS);
    begin(&p, c, "Size of each checkpoint by what the bytes are for", unit_name, &range);
    for (size_t s = 0; s < c->slots; s++) {
        const slot_size z = size_of(c, s);
        double low = 0.0;
        for (int k = 0; k < REPORT_PARTS; k++) {
            (void)snprintf(words, sizeof words, "step %llu, %s: %s %.0f bytes", (unsigned long long)c->label[s],
                           c->slots != c->r->n ? "mean" : c->r->point[s].is_delta ? "delta" : "key", report_part_name[k], z.part[k]);
            cli_plot_bar(&p, s, low, low + z.part[k] / unit, report_part_color[k], words);
            low += z.part[k] / unit;
        }
    }
    cli_plot_end(&p);
}

static void
plot_bits(const canvas *c)
{
    static const char *const name[] = {"all", "weights", "m", "v", "rest"};
    const char *color[REPORT_PARTS + 1] = {"#777777"};
    cli_range range = CLI_RANGE_INIT;
    cli_plot p;

    cli_range_add(&range, 0.0);
    for (size_t s = 0; s < c->slots; s++)
        cli_range_add(&range, size_of(c, s).all_bits);
    for (int k = 0; k < REPORT_PARTS; k++)
        color[k + 1] = report_part_color[k];
    key(c->f, name, color, REPORT_PARTS + 1);
    begin(&p, c, "Bits a parameter of the model by what they are for", "bits a parameter", &range);
    for (int k = -1; k < REPORT_PARTS; k++) {
        for (size_t s = 0; s < c->slots; s++) {
            const slot_size z = size_of(c, s);
            c->v[s] = k < 0 ? z.all_bits : z.bits[k];
        }
        cli_plot_line(&p, c->v, false, name[k + 1], color[k + 1], c->label);
    }
    cli_plot_end(&p);
}

/* ---- settings, losses, metrics, errors -------------------------------------------------------------------------------- */

static const struct { const char *name, *title, *unit, *color; } settings[] = {
    {"step", "Step of the weights", "RMS of the weights", "#3b6fb6"},
    {"movement", "Movement of the weights since the save before", "RMS of the weights", "#4a9a5b"},
    {"quality", "Quality: scale of the profile's steps", "scale", "#777777"},
    {"m_threshold", "Threshold of m, below which it is zero", "roots of v", "#d08b2c"},
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
plot_other(const canvas *c, const report_series *s, const char *y_label, bool from_zero, size_t *shown)
{
    static const char *const color[] = {"#3b6fb6"};
    const char *name = s->name;

    (void)fputs("<h3>", c->f);
    cli_html_name(c->f, name);
    (void)fputs("</h3>\n", c->f);
    plot_series(c, name, y_label, &s, &name, color, 1, from_zero);
    ++*shown;
}

static void
plot_settings(const canvas *c)
{
    size_t shown = 0;

    for (size_t i = 0; i < N_SETTINGS; i++) {
        const report_series *s = report_find(&c->r->settings, settings[i].name);
        if (s == NULL)
            continue;
        (void)fprintf(c->f, "<h3>%s</h3>\n", settings[i].title);
        plot_series(c, settings[i].title, settings[i].unit, &s, &settings[i].name, &settings[i].color, 1, true);
    }
    for (size_t i = 0; i < c->r->settings.n && shown < MOST_METRICS; i++)
        if (!has_own_plot(c->r->settings.v[i].name))
            plot_other(c, &c->r->settings.v[i], "as recorded", true, &shown);
    for (size_t i = 0; i < c->r->metrics.n && shown < MOST_METRICS; i++)
        if (report_is_own(c->r->metrics.v[i].name) && !has_own_plot(c->r->metrics.v[i].name))
            plot_other(c, &c->r->metrics.v[i], "as recorded", true, &shown);
}

static void
plot_restores(const canvas *c)
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
    begin(&p, c, "Restores behind each checkpoint", "restores", &range);
    cli_plot_line(&p, c->v, false, "restores", RESTORE, c->label);
    cli_plot_end(&p);
}

/* By how much decoding raised the loss: the difference of the two curves, which are too close to be told apart. */
static void
plot_increase(const canvas *c, const report_series *live, const report_series *decoded)
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
    begin(&p, c, "Increase of the loss by decoding", "% of the live loss", &range);
    cli_plot_line(&p, c->v, true, "increase, %", "#3b6fb6", c->label);
    cli_plot_end(&p);
}

static void
plot_losses(const canvas *c)
{
    static const char *const name[] = {"live weights", "decoded weights"}, *const color[] = {"#777777", "#3b6fb6"};
    const report_series *s[] = {report_find(&c->r->metrics, "ckpress.loss_live"), report_find(&c->r->metrics, "ckpress.loss_decoded")};

    if (s[0] == NULL && s[1] == NULL) {
        (void)fputs("<p>None: no <code>eval_fn</code> was given to the saves that are here.</p>\n", c->f);
        return;
    }
    (void)fputs("<p>The loss that <code>eval_fn</code> gave for the live weights and for what a restore would give. Saves that were not measured have no "
                "point.</p>\n", c->f);
    plot_series(c, "Measured loss of live and decoded weights", "loss", s, name, color, 2, false);
    if (s[0] != NULL && s[1] != NULL)
        plot_increase(c, s[0], s[1]);
}

static void
plot_metrics(const canvas *c)
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

static void
plot_errors(const canvas *c)
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
    key(c->f, shown, with, n);
    begin(&p, c, "Largest RMS error of a tensor", "of the tensor's RMS", &range);
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

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

static int
by_size(const void *x, const void *y)
{
    const report_tensor *a = *(const report_tensor *const *)x, *b = *(const report_tensor *const *)y;
    if (a->stored_bytes != b->stored_bytes)
        return a->stored_bytes > b->stored_bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Bits of a tensor at each point that was looked into; at last the slot's. Names are shared, so a pointer decides mostly. */
static void
tensor_values(const canvas *c, const char *name)
{
    for (size_t s = 0; s < c->slots; s++) {
        size_t first, end;
        report_slot(c->r, s, &first, &end);
        c->v[s] = (double)NAN;
        for (size_t i = first; i < end; i++)
            for (size_t k = 0; k < c->r->point[i].n_tensors; k++) {
                const report_tensor *t = &c->r->point[i].tensor[k];
                if (t->name == name || strcmp(t->name, name) == 0)
                    c->v[s] = t->bits;
            }
    }
}

static void
plot_tensors(const canvas *c)
{
    static const char *const color[MOST_TENSORS] = {"#3b6fb6", "#d08b2c", "#4a9a5b", "#8a6fc0", "#b0607a", "#5f9ea0"};
    const report_point *newest = report_newest(c->r);
    cli_range range = CLI_RANGE_INIT;
    cli_plot p;
    const char *name[MOST_TENSORS];
    size_t n = 0;

    if (newest == NULL || newest->n_tensors == 0)
        return;
    const report_tensor **sorted = cli_alloc(newest->n_tensors * sizeof *sorted);
    for (size_t i = 0; i < newest->n_tensors; i++)
        sorted[i] = &newest->tensor[i];
    qsort((void *)sorted, newest->n_tensors, sizeof *sorted, by_size);
    cli_range_add(&range, 0.0);
    for (; n < MOST_TENSORS && n < newest->n_tensors; n++) {
        name[n] = sorted[n]->name;
        tensor_values(c, name[n]);
        for (size_t s = 0; s < c->slots; s++)
            cli_range_add(&range, c->v[s]);
    }
    key(c->f, name, color, n);
    begin(&p, c, "Bits an element of the tensors that are largest in the newest checkpoint", "bits an element", &range);
    for (size_t i = 0; i < n; i++) {
        tensor_values(c, name[i]);
        cli_plot_line(&p, c->v, true, name[i], color[i], c->label);
    }
    cli_plot_end(&p);
    free((void *)sorted);
}

void
report_plots(FILE *f, const report *r)
{
    canvas c = {.f = f, .r = r, .slots = report_slots(r)};

    c.label = cli_alloc(c.slots * sizeof *c.label);
    c.v = cli_alloc(c.slots * sizeof *c.v);
    for (size_t s = 0; s < c.slots; s++) {
        size_t first, end;
        report_slot(r, s, &first, &end);
        c.label[s] = r->point[end - 1].step;
    }
    (void)fputs("<h2>Size</h2>\n", f);
    plot_sizes(&c);
    plot_bits(&c);
    (void)fputs("<h2>Settings over time</h2>\n", f);
    if (r->settings.n == 0)
        (void)fputs("<p>None: every checkpoint that is here is lossless.</p>\n", f);
    plot_settings(&c);
    plot_restores(&c);
    report_series_table(f, r, &r->settings, "Settings");
    (void)fputs("<h2>Measured loss</h2>\n", f);
    plot_losses(&c);
    (void)fputs("<h2>Metrics</h2>\n", f);
    plot_metrics(&c);
    report_series_table(f, r, &r->metrics, "Metrics, and what ckpress measured");
    (void)fputs("<h2>Errors</h2>\n<p>What lossy coding lost, as recorded when it was saved. A first moment keeps its projection, which has no error; "
                "a second moment's is relative to each value.</p>\n", f);
    plot_errors(&c);
    report_error_table(f, r);
    (void)fputs("<h2>Tensors</h2>\n", f);
    plot_tensors(&c);
    report_size_table(f, r);
    free(c.label);
    free(c.v);
}
