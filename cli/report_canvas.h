/* SPDX-License-Identifier: Apache-2.0 */
/* What the plots of a report share: slots, their labels, marks of restores and damage, and scratch for the values of one line. */
#ifndef CLI_REPORT_CANVAS_H
#define CLI_REPORT_CANVAS_H
#include "plot.h"
#include "report.h"

#define REPORT_BAD "#c33"
#define REPORT_RESTORE "#8a6fc0"

typedef struct report_canvas {
    FILE *f;
    const report *r;
    size_t slots;
    uint64_t *label;             /* step of each slot's last checkpoint */
    double *v;                   /* a value a slot: scratch */
} report_canvas;

/* A line of colours and names above a plot. */
void report_key(FILE *f, const char *const *name, const char *const *color, size_t n);
/* Axes, with restores and damage marked at the same places in every plot. */
void report_begin(cli_plot *p, const report_canvas *c, const char *title, const char *y_label, const cli_range *range);
/* One plot of up to 8 series in one unit; those that are NULL are left out, and the plot where all are. */
void report_plot_series(const report_canvas *c, const char *title, const char *y_label, const report_series *const *s, const char *const *name,
                        const char *const *color, size_t n, bool from_zero);

/* Sections with plots: bytes and bits; settings, losses, metrics and errors; tensors; widths of resident moments. */
void report_plot_sizes(const report_canvas *c);
void report_plot_settings(const report_canvas *c);
void report_plot_restores(const report_canvas *c);
void report_plot_losses(const report_canvas *c);
void report_plot_metrics(const report_canvas *c);
void report_plot_errors(const report_canvas *c);
void report_plot_tensors(const report_canvas *c);
void report_plot_widths(const report_canvas *c);
#endif
