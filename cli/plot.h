/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plots as inline SVG: slots of equal width from left to right, each labelled with a number of its own, and a linear axis upwards with
 * round ticks.
 */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H
#include "ui.h"

typedef struct cli_plot {
    FILE *f;
    size_t slots;
    double y0, y1;
} cli_plot;

/* The range of an axis: the finite ones of the values given to it. Starts from CLI_RANGE_INIT. */
typedef struct cli_range { double low, high; bool any; } cli_range;
#define CLI_RANGE_INIT {0.0, 0.0, false}
void cli_range_add(cli_range *r, double v);

/*
 * title and y_label are told to readers of the page (escaped). label[slots] are written along the axis below, as many as fit. A range
 * without values becomes 0 to 1, one of a single value a little around it.
 */
void cli_plot_begin(cli_plot *p, FILE *f, const char *title, const char *x_label, const char *y_label, const uint64_t *label, size_t slots,
                    const cli_range *range);
/* A line through v[slots]; it breaks where one is not finite, or goes across. Points are told one by one where there are few. */
void cli_plot_line(cli_plot *p, const double *v, bool across, const char *name, const char *color, const uint64_t *label);
/* From low to high at a slot; words may be NULL. */
void cli_plot_bar(cli_plot *p, size_t slot, double low, double high, const char *color, const char *words);
/* A dashed line from bottom to top. */
void cli_plot_mark(cli_plot *p, size_t slot, const char *color, const char *words);
/* A cross at the top: a value that is there and has no place on the axis. */
void cli_plot_cross(cli_plot *p, size_t slot, const char *color, const char *words);
void cli_plot_end(cli_plot *p);
#endif
