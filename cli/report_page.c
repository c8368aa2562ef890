/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a report: one file, plots as inline SVG, nothing loaded from anywhere, no scripts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "html.h"
#include "report.h"

#define MOST_PROBLEMS 100

static const char style[] =
    ":root { color-scheme: light dark }\n"
    "body { font: 15px sans-serif; max-width: 800px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }\n"
    "h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 2em } h3 { font-size: 1em; margin: 1.2em 0 .2em }\n"
    "figure { margin: 0 } svg { width: 100%; font: 11px sans-serif } svg text { fill: currentColor }\n"
    ".axis { stroke: currentColor } .grid { stroke: currentColor; opacity: .12 }\n"
    ".key span { margin-right: 1.2em } .key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em }\n"
    ".wide { overflow-x: auto } table { border-collapse: collapse; font-size: 13px; margin: 1em 0 } caption { text-align: left; padding-bottom: 4px }\n"
    "th { text-align: left; vertical-align: bottom; border-bottom: 1px solid currentColor } td, th { padding: 2px 10px 2px 0 } .r { text-align: right }\n"
    "td { vertical-align: top; font-variant-numeric: tabular-nums } .notes { border-left: 3px solid #d08b2c; padding-left: 1em }\n"
    "bdi { overflow-wrap: anywhere }\n"
    "@media (prefers-color-scheme: dark) { body { color: #ddd; background: #1b1b1b } }\n"
    "@media print { :root { color-scheme: light } body { max-width: none; margin: 0; color: #000; background: #fff } figure, tr { break-inside: avoid } h2, h3 { break-after: avoid } "
    ".wide { overflow: visible } table { font-size: 9px } }\n";

typedef struct totals { uint64_t stored, raw, part[REPORT_PARTS], unseen, keys, deltas; double params; } totals;

static totals
sum_up(const report *r)
{
    totals t = {0};

    for (size_t i = 0; i < r->n; i++) {
        const report_point *p = &r->point[i];
        t.stored += p->stored_bytes;
        t.raw += p->raw_bytes;
        t.params += (double)p->params;
        for (int k = 0; k < REPORT_PARTS; k++)
            t.part[k] += p->part_bytes[k];
        t.unseen += p->looked ? 0 : p->stored_bytes;
        t.keys += !p->is_delta;
        t.deltas += p->is_delta;
    }
    return t;
}

static void
row(cli_html_table *t, const char *what, const char *value)
{
    cli_html_cell(t, what);
    cli_html_cell(t, value);
}

static void
row_bits(cli_html_table *t, const char *what, const totals *z, uint64_t bytes)
{
    char text[128];
    cli_text s;

    (void)snprintf(text, sizeof text, "%s", cli_html_count(&s, bytes));
    if (z->params > 0.0)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), " (%.3f bits a parameter)", 8.0 * (double)bytes / z->params);
    row(t, what, text);
}

static void
summary(FILE *f, const report *r)
{
    static const char *const head[] = {"what", "value"};
    const totals z = sum_up(r);
    const report_point *last = &r->point[r->n - 1];
    cli_html_table t;
    char text[160];
    cli_text a, b;

    cli_html_table_begin(&t, f, "All checkpoints that are here; bytes of shards, without manifests", "ll", head);
    (void)snprintf(text, sizeof text, "%zu: %llu keys, %llu deltas", r->n, (unsigned long long)z.keys, (unsigned long long)z.deltas);
    row(&t, "checkpoints", text);
    (void)snprintf(text, sizeof text, "%s to %s", cli_html_count(&a, r->point[0].step), cli_html_count(&b, last->step));
    row(&t, "steps, oldest to newest", text);
    (void)snprintf(text, sizeof text, "%s to %s", cli_html_time(&a, r->point[0].saved_unix), cli_html_time(&b, last->saved_unix));
    row(&t, "saved, UTC", text);
    row(&t, "parameters of the newest", last->params != 0 ? cli_html_count(&a, last->params) : "not known");
    row(&t, "raw bytes", cli_html_count(&a, z.raw));
    row_bits(&t, "stored bytes", &z, z.stored);
    row(&t, "ratio", cli_ratio(&a, z.raw, z.stored));
    for (int k = 0; k < REPORT_PARTS; k++)
        row_bits(&t, k == REPORT_REST ? "rest: headers, tables, random states ..." : report_part_name[k], &z, z.part[k]);
    if (z.unseen != 0)
        row_bits(&t, "not told apart: damaged", &z, z.unseen);
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)last->restore_count);
    row(&t, "restores behind the newest", text);
    cli_html_table_end(&t);
}

/* ---- what the reader must know ------------------------------------------------------------------------------------- */

static void
note_kept(FILE *f, const report *r)
{
    const uint64_t committed = report_committed(r);
    cli_text a, b;

    if (committed > r->n)
        (void)fprintf(f, "<li>%s of %s saves are here and shown. Of the others, which were deleted (<code>keep_last</code>) or lost, only the number is "
                         "known.</li>\n", cli_html_count(&a, r->n), cli_html_count(&b, committed));
}

static void
note_thinned(FILE *f, const report *r)
{
    size_t first, end;

    if (r->n > REPORT_SLOTS) {
        report_slot(r, 0, &first, &end);
        (void)fprintf(f, "<li>Thinned: plots and the table of checkpoints show one in %zu and the newest; sizes in plots are means of %zu. Sums and the "
                         "tables of metrics count all; so does <code>--json</code>.</li>\n", end - first, end - first);
    }
    if (r->n > REPORT_LOOKS)
        (void)fprintf(f, "<li>Tensors were looked at in up to %d of the checkpoints, evenly spread, and in the newest.</li>\n", REPORT_LOOKS + 1);
    if (r->metrics.cut || r->settings.cut)
        (void)fprintf(f, "<li>More than %d names of metrics or settings: the first ones are shown.</li>\n", REPORT_NAMES);
}

static void
problem_table(FILE *f, const report *r)
{
    static const char *const head[] = {"directory", "step", "what is wrong"};
    cli_html_table t;
    cli_text a;
    size_t shown = 0;

    if (report_bad(r) + r->n_odd == 0)
        return;
    cli_html_table_begin(&t, f, "Damaged checkpoints, and directories that look like one and are none", "lrl", head);
    for (size_t i = 0; i < r->n && shown < MOST_PROBLEMS; i++) {
        if (r->point[i].whole)
            continue;
        shown++;
        cli_html_cell_name(&t, r->point[i].dir);
        cli_html_cell_count(&t, r->point[i].step);
        cli_html_cell(&t, r->point[i].problem);
    }
    for (size_t i = 0; i < r->n_odd && i < REPORT_ODD; i++) {
        cli_html_cell_name(&t, r->odd[i].dir);
        cli_html_cell(&t, "\xe2\x80\x93");
        cli_html_cell(&t, r->odd[i].what);
    }
    cli_html_table_end(&t);
    if (shown < report_bad(r) || r->n_odd > REPORT_ODD)
        (void)fprintf(f, "<p>%s more.</p>\n", cli_html_count(&a, report_bad(r) - shown + (r->n_odd > REPORT_ODD ? r->n_odd - REPORT_ODD : 0)));
}

static void
restore_table(FILE *f, const report *r)
{
    static const char *const head[] = {"saved at step", "restores", "trained from"};
    cli_html_table t;
    bool open = false;
    size_t shown = 0;

    for (size_t i = 1; i < r->n && shown < MOST_PROBLEMS; i++) {
        if (r->point[i].restore_count <= r->point[i - 1].restore_count)
            continue;
        if (!open)
            cli_html_table_begin(&t, f, "First saves after restores (violet in the plots)", "rrl", head);
        open = true;
        shown++;
        cli_html_cell_count(&t, r->point[i].step);
        cli_html_cell_count(&t, r->point[i].restore_count);
        cli_html_cell_name(&t, r->point[i].parent_dir);
    }
    if (open)
        cli_html_table_end(&t);
}

static void
notes(FILE *f, const report *r)
{
    cli_text a;

    (void)fputs("<ul class=\"notes\">\n<li>Made from manifests and indexes: structure was checked, hashes of the data were not "
                "(<code>ckpress verify</code> does).</li>\n", f);
    if (report_bad(r) != 0)
        (void)fprintf(f, "<li>%s of the checkpoints %s damaged or lack a base: red in the plots, named below.</li>\n", cli_html_count(&a, report_bad(r)),
                      report_bad(r) == 1 ? "is" : "are");
    if (r->n_odd != 0)
        (void)fprintf(f, "<li>%s director%s here and no checkpoint%s.</li>\n", cli_html_count(&a, r->n_odd),
                      r->n_odd == 1 ? "y looks like one of those" : "ies look like those", r->n_odd == 1 ? "" : "s");
    if (r->no_widths != 0)
        (void)fprintf(f, "<li>Widths of resident moments could not be read from %s checkpoint%s.</li>\n", cli_html_count(&a, r->no_widths), r->no_widths == 1 ? "" : "s");
    note_kept(f, r);
    note_thinned(f, r);
    (void)fputs("</ul>\n", f);
}

void
report_page(FILE *f, const report *r)
{
    (void)fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n<title>ckpress: ", f);
    cli_html_text(f, report_title(r));
    (void)fprintf(f, "</title>\n<style>%s</style></head>\n<body>\n<h1>", style);
    cli_html_name(f, report_title(r));
    (void)fputs("</h1>\n<p>Report of the run <code>", f);
    cli_html_name(f, r->path);
    (void)fprintf(f, "</code> by ckpress %s.</p>\n", ckp_version());
    notes(f, r);
    if (r->n == 0) {
        (void)fputs("<p>There is no checkpoint.</p>\n", f);
    } else {
        summary(f, r);
        report_plots(f, r);
        report_checkpoint_table(f, r);
        restore_table(f, r);
    }
    problem_table(f, r);
    (void)fputs("</body></html>\n", f);
}
