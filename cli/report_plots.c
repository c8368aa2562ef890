/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of a report that have plots, in their order, each with a sentence that says what it shows. */
#include <stdlib.h>
#include "report_canvas.h"

void
report_plots(FILE *f, const report *r)
{
    report_canvas c = {.f = f, .r = r, .slots = report_slots(r)};

    c.label = cli_alloc(c.slots * sizeof *c.label);
    c.v = cli_alloc(c.slots * sizeof *c.v);
    for (size_t s = 0; s < c.slots; s++) {
        size_t first, end;
        report_slot(r, s, &first, &end);
        c.label[s] = r->point[end - 1].step;
    }
    (void)fputs("<h2>Size</h2>\n", f);
    report_plot_sizes(&c);
    (void)fputs("<h2>Settings over time</h2>\n", f);
    if (r->settings.n == 0)
        (void)fputs("<p>None: every checkpoint that is here is lossless.</p>\n", f);
    report_plot_settings(&c);
    report_plot_restores(&c);
    report_series_table(f, r, &r->settings, "Settings");
    (void)fputs("<h2>Measured loss</h2>\n", f);
    report_plot_losses(&c);
    (void)fputs("<h2>Metrics</h2>\n", f);
    report_plot_metrics(&c);
    report_series_table(f, r, &r->metrics, "Metrics, and what ckpress measured");
    (void)fputs("<h2>Errors</h2>\n<p>What lossy coding lost, as recorded when it was saved. A first moment keeps its projection, which has no error; "
                "a second moment's is relative to each value.</p>\n", f);
    report_plot_errors(&c);
    report_error_table(f, r);
    (void)fputs("<h2>Tensors</h2>\n", f);
    report_plot_tensors(&c);
    report_size_table(f, r);
    report_plot_widths(&c);
    free(c.label);
    free(c.v);
}
