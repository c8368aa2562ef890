/* SPDX-License-Identifier: Apache-2.0 */
#include "plot.h"
#include <math.h>
#include <string.h>
#include "html.h"

#define WIDTH 760.0
#define HEIGHT 240.0
#define LEFT 64.0
#define RIGHT 8.0
#define TOP 22.0
#define BOTTOM 38.0
#define FEW 64                   /* points up to which each has a mark that says its value */

void
cli_range_add(cli_range *r, double v)
{
    if (!isfinite(v))
        return;
    r->low = r->any ? fmin(r->low, v) : v;
    r->high = r->any ? fmax(r->high, v) : v;
    r->any = true;
}

static double
x_of(const cli_plot *p, double slot)
{
    return LEFT + (slot + 0.5) / (double)p->slots * (WIDTH - LEFT - RIGHT);
}

static double
y_of(const cli_plot *p, double v)
{
    /* halves, so that even the widest range does not overflow */
    return HEIGHT - BOTTOM - (v / 2 - p->y0 / 2) / (p->y1 / 2 - p->y0 / 2) * (HEIGHT - BOTTOM - TOP);
}

/* 1, 2 or 5 times a power of ten: about five of them fill the range. */
static double
round_step(double range)
{
    const double raw = range / 5.0, ten = pow(10.0, floor(log10(raw))), part = raw / ten;
    return (part < 1.5 ? 1.0 : part < 3.5 ? 2.0 : part < 7.5 ? 5.0 : 10.0) * ten;
}

static void
tick_text(cli_text *t, double v, double step)
{
    const int decimals = step >= 1.0 ? 0 : (int)ceil(-log10(step) - 1e-9);

    if (fabs(v) < step * 1e-6)
        (void)snprintf(t->s, sizeof t->s, "0");
    else if (fabs(v) < 1e6 && decimals <= 6)
        (void)snprintf(t->s, sizeof t->s, "%.*f", decimals, v);
    else
        (void)snprintf(t->s, sizeof t->s, "%.3g", v);
}

/* The range widened to whole ticks. *step 0: no ticks can be told apart. */
static void
fit_range(cli_plot *p, const cli_range *range, double *step)
{
    p->y0 = range->any ? range->low : 0.0;
    p->y1 = range->any ? range->high : 1.0;
    if (p->y1 - p->y0 <= fabs(p->y1) * 1e-9) {
        const double around = p->y1 != 0.0 ? fabs(p->y1) * 0.05 : 0.5;
        p->y0 -= around;
        p->y1 += around;
    }
    const double span = p->y1 - p->y0;
    *step = isfinite(span) ? round_step(span) : 0.0;
    if (!isfinite(*step) || !(*step > 0.0)) {
        *step = 0.0;
        return;
    }
    p->y0 = floor(p->y0 / *step) * *step;
    p->y1 = ceil(p->y1 / *step) * *step;
}

static void
draw_ticks(const cli_plot *p, double step)
{
    cli_text t;

    for (int i = 0; step > 0.0 && i < 16; i++) {
        const double v = p->y0 + (double)i * step;
        if (v > p->y1 + step / 2)
            break;
        tick_text(&t, v, step);
        (void)fprintf(p->f, "<line class=\"grid\" x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\"/>", LEFT, y_of(p, v), WIDTH - RIGHT, y_of(p, v));
        (void)fprintf(p->f, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>", LEFT - 5, y_of(p, v) + 4, t.s);
    }
}

static void
draw_labels(const cli_plot *p, const uint64_t *label)
{
    const size_t most = 9, every = p->slots > most ? (p->slots + most - 1) / most : 1;

    for (size_t i = 0; i < p->slots; i += every)
        (void)fprintf(p->f, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%llu</text>", x_of(p, (double)i), HEIGHT - BOTTOM + 15,
                      (unsigned long long)label[i]);
}

void
cli_plot_begin(cli_plot *p, FILE *f, const char *title, const char *x_label, const char *y_label, const uint64_t *label, size_t slots,
               const cli_range *range)
{
    double step;

    *p = (cli_plot){.f = f, .slots = slots};
    fit_range(p, range, &step);
    (void)fprintf(f, "<figure><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\"><title>", WIDTH, HEIGHT);
    cli_html_short(f, title);
    (void)fputs("</title>", f);
    draw_ticks(p, step);
    (void)fprintf(f, "<line class=\"axis\" x1=\"%.0f\" y1=\"%.0f\" x2=\"%.0f\" y2=\"%.0f\"/>", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM);
    (void)fprintf(f, "<line class=\"axis\" x1=\"%.0f\" y1=\"%.0f\" x2=\"%.0f\" y2=\"%.0f\"/>", LEFT, TOP, LEFT, HEIGHT - BOTTOM);
    draw_labels(p, label);
    (void)fprintf(f, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">", (WIDTH + LEFT) / 2, HEIGHT - 5);
    cli_html_text(f, x_label);
    (void)fprintf(f, "</text><text x=\"4\" y=\"%.0f\">", TOP - 9);
    cli_html_text(f, y_label);
    (void)fputs("</text>\n", f);
}

static void
draw_points(const cli_plot *p, const double *v, const char *name, const char *color, const uint64_t *label)
{
    for (size_t i = 0; i < p->slots; i++) {
        if (!isfinite(v[i]))
            continue;
        (void)fprintf(p->f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"><title>step %llu: ", x_of(p, (double)i), y_of(p, v[i]), color,
                      (unsigned long long)label[i]);
        cli_html_short(p->f, name);
        (void)fprintf(p->f, " %.6g</title></circle>", v[i]);
    }
}

/* The next slot with a value after i: the very next, or any. */
static bool
goes_on(const cli_plot *p, const double *v, size_t i, bool across)
{
    for (i++; i < p->slots; i++)
        if (isfinite(v[i]) || !across)
            return isfinite(v[i]);
    return false;
}

void
cli_plot_line(cli_plot *p, const double *v, bool across, const char *name, const char *color, const uint64_t *label)
{
    bool open = false;

    for (size_t i = 0; i < p->slots; i++) {
        if (!isfinite(v[i]))
            continue;
        const bool next = goes_on(p, v, i, across);
        if (!open && next)
            (void)fputs("<polyline points=\"", p->f);
        open = open || next;
        if (open)
            (void)fprintf(p->f, "%.1f,%.1f ", x_of(p, (double)i), y_of(p, v[i]));
        else if (p->slots > FEW)     /* alone between gaps */
            (void)fprintf(p->f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"1.2\" fill=\"%s\"/>", x_of(p, (double)i), y_of(p, v[i]), color);
        if (open && !next) {
            (void)fprintf(p->f, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"/>", color);
            open = false;
        }
    }
    if (p->slots <= FEW)
        draw_points(p, v, name, color, label);
    (void)fputc('\n', p->f);
}

static void
end_with_words(const cli_plot *p, const char *element, const char *words)
{
    if (words == NULL) {
        (void)fputs("/>", p->f);
        return;
    }
    (void)fputs("><title>", p->f);
    cli_html_text(p->f, words);
    (void)fprintf(p->f, "</title></%s>\n", element);
}

void
cli_plot_bar(cli_plot *p, size_t slot, double low, double high, const char *color, const char *words)
{
    const double width = (WIDTH - LEFT - RIGHT) / (double)p->slots * 0.7, wide = width < 40.0 ? width : 40.0;

    if (!(high > low))
        return;
    (void)fprintf(p->f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x_of(p, (double)slot) - wide / 2, y_of(p, high), wide,
                  y_of(p, low) - y_of(p, high), color);
    end_with_words(p, "rect", words);
}

void
cli_plot_mark(cli_plot *p, size_t slot, const char *color, const char *words)
{
    const double x = x_of(p, (double)slot);

    (void)fprintf(p->f, "<line x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"%s\" stroke-dasharray=\"3 3\"", x, TOP, x, HEIGHT - BOTTOM, color);
    end_with_words(p, "line", words);
}

void
cli_plot_cross(cli_plot *p, size_t slot, const char *color, const char *words)
{
    (void)fprintf(p->f, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\" style=\"fill:%s\"><title>", x_of(p, (double)slot), TOP + 4, color);
    cli_html_text(p->f, words);
    (void)fputs("</title>\xc3\x97</text>\n", p->f);
}

void
cli_plot_end(cli_plot *p)
{
    (void)fputs("</svg></figure>\n", p->f);
}
