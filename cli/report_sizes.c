/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes and bits of each checkpoint by what they are for. */
#include <math.h>
#include "report_canvas.h"

typedef struct slot_size { double part[REPORT_PARTS], all, bits[REPORT_PARTS], all_bits; size_t n; } slot_size;

/* Means over the slot's checkpoints whose parts are known. */
static slot_size
size_of(const report_canvas *c, size_t slot)
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
plot_bytes(const report_canvas *c)
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
    report_key(c->f, report_part_name, report_part_color, REPORT_PARTS);
    report_begin(&p, c, "Size of each checkpoint by what the bytes are for", unit_name, &range);
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
plot_bits(const report_canvas *c)
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
    report_key(c->f, name, color, REPORT_PARTS + 1);
    report_begin(&p, c, "Bits a parameter of the model by what they are for", "bits a parameter", &range);
    for (int k = -1; k < REPORT_PARTS; k++) {
        for (size_t s = 0; s < c->slots; s++) {
            const slot_size z = size_of(c, s);
            c->v[s] = k < 0 ? z.all_bits : z.bits[k];
        }
        cli_plot_line(&p, c->v, false, name[k + 1], color[k + 1], c->label);
    }
    cli_plot_end(&p);
}

void
report_plot_sizes(const report_canvas *c)
{
    plot_bytes(c);
    plot_bits(c);
}
