/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of the largest tensors over the checkpoints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "report_canvas.h"

#define MOST_TENSORS 6

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
tensor_values(const report_canvas *c, const char *name)
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

void
report_plot_tensors(const report_canvas *c)
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
    report_key(c->f, name, color, n);
    report_begin(&p, c, "Bits an element of the tensors that are largest in the newest checkpoint", "bits an element", &range);
    for (size_t i = 0; i < n; i++) {
        tensor_values(c, name[i]);
        cli_plot_line(&p, c->v, true, name[i], color[i], c->label);
    }
    cli_plot_end(&p);
    free((void *)sorted);
}
