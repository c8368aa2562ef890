/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Widths of resident moments (ckpress.torch) over the checkpoints: parameters by steps, a colour a width.
 *
 * Such an optimizer's state has, of each parameter NAME, codes (NAME/exp_avg_code, NAME/momentum_buffer_code; NAME/exp_avg where a checkpoint has them
 * rounded) and two bytes NAME/bits: the widths of m and v, v's 0 where there is a momentum alone, m's IN_ROOM and more where it has room for some steps.
 * They are the only tensors that a report decodes.
 */
#include <stdlib.h>
#include <string.h>
#include "html.h"
#include "report_canvas.h"

#define MOST_ROWS 48
#define MOST_CHANGES 100
#define WIDTH 760.0
#define LEFT 210.0
#define RIGHT 8.0
#define TOP 4.0
#define BOTTOM 34.0
#define ROW 12.0
#define IN_ROOM 16u          /* of python/ckpress/torch/_optim_state.py: 8 bits, and which width it is to have */

static const unsigned width_of[] = {2, 3, 4, 5, 6, 8};
static const char *const color_of[] = {"#f3d9a4", "#e3ae5c", "#9cc3a0", "#5f9fb5", "#3b6fb6", "#2a3f7a"};
#define N_WIDTHS (sizeof width_of / sizeof *width_of)

typedef struct rows { const report_canvas *c; const report_point *of; const report_tensor **v; size_t n, all; bool both; } rows;

/* ---- reading ------------------------------------------------------------------------------------------------------- */

/* NAME of NAME/bits as its length; 0: it has another name. */
static size_t
stem(const char *name)
{
    const size_t n = strlen(name), end = sizeof REPORT_WIDTHS - 1;
    return n > end && strcmp(name + n - end, REPORT_WIDTHS) == 0 ? n - end : 0;
}

/* NAME of NAME/bits with another ending; the caller frees it. */
static char *
with_ending(const char *name, const char *ending)
{
    const size_t n = stem(name), m = strlen(ending) + 1;
    char *out = cli_alloc(n + m);
    (void)memcpy(out, name, n);
    (void)memcpy(out + n, ending, m);
    return out;
}

/* Elements of the codes that lie beside a tensor of widths; 0: there are none, it is somebody else's. */
static uint64_t
codes_beside(const ckp_checkpoint *ck, uint32_t index)
{
    static const char *const beside[] = {"/exp_avg_code", "/momentum_buffer_code", "/exp_avg"};
    ckp_tensor_info t = {.size = sizeof t}, codes = {.size = sizeof codes};

    if (ckp_checkpoint_tensor(ck, index, &t, NULL) != CKP_OK || t.dtype != CKP_U8 || t.ndim != 1 || t.shape[0] != 2)
        return 0;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        char *name = with_ending(t.name, beside[i]);
        const uint32_t found = ckp_checkpoint_find(ck, name);
        free(name);
        if (found != UINT32_MAX && ckp_checkpoint_tensor(ck, found, &codes, NULL) == CKP_OK)
            return codes.numel;
    }
    return 0;
}

static bool
is_width(unsigned bits)
{
    for (size_t i = 0; i < N_WIDTHS; i++)
        if (width_of[i] == bits)
            return true;
    return false;
}

/* Reads them all at once. A status other than CKP_OK: none is known. */
static ckp_status
read_widths(report_point *p, ckp_checkpoint *ck, ckp_error *err)
{
    static const uint64_t shape[1] = {2};
    ckp_target *t = cli_alloc(p->n_tensors * sizeof *t);
    report_tensor **of = cli_alloc(p->n_tensors * sizeof *of);
    uint8_t (*bits)[2] = cli_alloc(p->n_tensors * sizeof *bits);
    size_t n = 0;

    for (size_t i = 0; i < p->n_tensors; i++) {
        const uint32_t index = stem(p->tensor[i].name) != 0 ? ckp_checkpoint_find(ck, p->tensor[i].name) : UINT32_MAX;
        if (index == UINT32_MAX || (p->tensor[i].codes = codes_beside(ck, index)) == 0)
            continue;
        t[n] = (ckp_target){.index = index, .dtype = CKP_U8, .ndim = 1, .shape = shape, .data = bits[n]};
        of[n++] = &p->tensor[i];
    }
    const ckp_status st = n != 0 ? ckp_checkpoint_read(ck, t, n, 1, err) : CKP_OK;
    for (size_t i = 0; st == CKP_OK && i < n; i++)
        if (bits[i][0] >= IN_ROOM)
            bits[i][0] = 8;
    for (size_t i = 0; st == CKP_OK && i < n; i++)
        if (is_width(bits[i][0]) && (bits[i][1] == 0 || is_width(bits[i][1])))
            (void)memcpy(of[i]->width, bits[i], 2);
    free(t);
    free((void *)of);
    free(bits);
    return st;
}

static bool
may_have_widths(const report_point *p)
{
    for (size_t i = 0; i < p->n_tensors; i++)
        if (p->tensor[i].numel == 2 && stem(p->tensor[i].name) != 0)
            return true;
    return false;
}

int
report_gather_widths(report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        report_point *p = &r->point[i];
        ckp_checkpoint_info info = {.size = sizeof info};
        ckp_checkpoint *ck = NULL;
        ckp_error e = {0};

        if (cli_signal() != 0)
            return cli_told(CKP_ECANCELLED, &e);
        if (p->tensor == NULL || !p->whole || !may_have_widths(p))
            continue;
        ckp_status st = ckp_checkpoint_open_run(&ck, r->path, (int64_t)p->step, false, &e);
        if (st == CKP_OK) {
            ckp_checkpoint_get_info(ck, &info);
            st = strcmp(info.name, p->dir) == 0 ? read_widths(p, ck, &e) : CKP_ENOTFOUND;  /* a step may be there twice */
        }
        ckp_checkpoint_close(ck);
        r->no_widths += st != CKP_OK;
    }
    return CLI_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

/* The tensor of that name in a point, mostly at the same place; NULL: not there, or without widths. */
static const report_tensor *
same(const report_point *p, const char *name, size_t at)
{
    if (at < p->n_tensors && p->tensor[at].name == name)
        return p->tensor[at].width[0] != 0 ? &p->tensor[at] : NULL;
    for (size_t k = 0; k < p->n_tensors; k++)
        if (p->tensor[k].width[0] != 0 && strcmp(p->tensor[k].name, name) == 0)
            return &p->tensor[k];
    return NULL;
}

/* The newest point that has widths; NULL: none. */
static const report_point *
newest(const report *r)
{
    for (size_t i = r->n; i-- > 0;)
        for (size_t k = 0; k < r->point[i].n_tensors; k++)
            if (r->point[i].tensor[k].width[0] != 0)
                return &r->point[i];
    return NULL;
}

/* Widths of a moment slot by slot; between two looks the earlier one's. 0: not known. */
static void
slot_widths(const report_canvas *c, const report_tensor *t, size_t at, unsigned which)
{
    double now = 0.0;

    for (size_t s = 0; s < c->slots; s++) {
        size_t first, end;
        report_slot(c->r, s, &first, &end);
        for (size_t i = first; i < end; i++) {
            const report_tensor *found = same(&c->r->point[i], t->name, at);
            if (found != NULL)
                now = found->width[which];
            else if (c->r->point[i].tensor != NULL)
                now = 0.0;
        }
        c->v[s] = now;
    }
}

/* ---- drawing ------------------------------------------------------------------------------------------------------- */

static void
name_text(FILE *f, const char *name)
{
    char *text = with_ending(name, "");

    cli_html_short(f, text);
    free(text);
}

static double
x_of(const report_canvas *c, size_t slot)
{
    return LEFT + (double)slot / (double)c->slots * (WIDTH - LEFT - RIGHT);
}

static const char *
color(double bits)
{
    for (size_t i = 0; i < N_WIDTHS; i++)
        if (bits == (double)width_of[i])
            return color_of[i];
    return "none";
}

/* Neighbours of one width are one rectangle, which says what it shows. */
static void
draw_row(const report_canvas *c, const char *name, double y)
{
    for (size_t from = 0, to; from < c->slots; from = to) {
        for (to = from + 1; to < c->slots && !(c->v[to] < c->v[from]) && !(c->v[to] > c->v[from]); to++)
            ;
        if (!(c->v[from] > 0.0))
            continue;
        (void)fprintf(c->f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"><title>", x_of(c, from), y, x_of(c, to) - x_of(c, from), ROW - 1,
                      color(c->v[from]));
        name_text(c->f, name);
        (void)fprintf(c->f, ": %.0f bits, step %llu to %llu</title></rect>", c->v[from], (unsigned long long)c->label[from], (unsigned long long)c->label[to - 1]);
    }
    (void)fprintf(c->f, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 5, y + ROW - 3);
    name_text(c->f, name);
    (void)fputs("</text>\n", c->f);
}

static void
draw_steps(const report_canvas *c, double y)
{
    const size_t most = 7, every = c->slots > most ? (c->slots + most - 1) / most : 1;

    for (size_t i = 0; i < c->slots; i += every)
        (void)fprintf(c->f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%llu</text>", (x_of(c, i) + x_of(c, i + 1)) / 2, y + 14, (unsigned long long)c->label[i]);
    (void)fprintf(c->f, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"middle\">step</text>\n", (WIDTH + LEFT) / 2, y + 30);
}

static void
heat_map(const rows *w, unsigned which, const char *title)
{
    const report_canvas *c = w->c;
    const double height = TOP + ROW * (double)w->n;

    (void)fprintf(c->f, "<h3>%s</h3>\n<figure><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\"><title>%s</title>\n", title, WIDTH, height + BOTTOM, title);
    for (size_t i = 0; i < w->n; i++) {
        slot_widths(c, w->v[i], (size_t)(w->v[i] - w->of->tensor), which);
        draw_row(c, w->v[i]->name, TOP + ROW * (double)i);
    }
    draw_steps(c, height);
    (void)fputs("</svg></figure>\n", c->f);
}

/* ---- changes ------------------------------------------------------------------------------------------------------- */

static void
change_row(cli_html_table *t, const report_point *p, const report_tensor *was, const report_tensor *now)
{
    char *name = with_ending(now->name, ""), from[16], to[16];

    (void)snprintf(from, sizeof from, "%u/%u", was->width[0], was->width[1]);
    (void)snprintf(to, sizeof to, "%u/%u", now->width[0], now->width[1]);
    cli_html_cell_count(t, p->step);
    cli_html_cell_name(t, name);
    cli_html_cell(t, from);
    cli_html_cell(t, to);
    free(name);
}

/* The point before i whose tensors were looked at; NULL: none. */
static const report_point *
looked_before(const report *r, size_t i)
{
    while (i-- > 0)
        if (r->point[i].tensor != NULL)
            return &r->point[i];
    return NULL;
}

/* Changes of all points, told to `t` unless that is NULL, the first `skip` left out; how many there are. */
static size_t
changes(const report *r, cli_html_table *t, size_t skip)
{
    size_t n = 0;

    for (size_t i = 0; i < r->n; i++) {
        const report_point *p = &r->point[i], *before = looked_before(r, i);
        for (size_t k = 0; before != NULL && k < p->n_tensors; k++) {
            const report_tensor *now = &p->tensor[k], *was = now->width[0] != 0 ? same(before, now->name, k) : NULL;
            if (was == NULL || memcmp(was->width, now->width, 2) == 0)
                continue;
            if (n++ >= skip && t != NULL)
                change_row(t, p, was, now);
        }
    }
    return n;
}

static void
change_table(const report_canvas *c)
{
    static const char *const head[] = {"step", "parameter", "m/v before", "m/v"};
    const size_t n = changes(c->r, NULL, 0);
    cli_html_table t;
    char caption[128];

    if (n == 0)
        return;
    (void)snprintf(caption, sizeof caption, "Changes of widths from one checkpoint to the next: %s%zu", n > MOST_CHANGES ? "the last 100 of " : "", n);
    cli_html_table_begin(&t, c->f, caption, "rlrr", head);
    (void)changes(c->r, &t, n > MOST_CHANGES ? n - MOST_CHANGES : 0);
    cli_html_table_end(&t);
}

/* Parameters with the most elements, in the checkpoint's order. */
static int
by_codes(const void *x, const void *y)
{
    const report_tensor *a = *(const report_tensor *const *)x, *b = *(const report_tensor *const *)y;
    return a->codes != b->codes ? (a->codes > b->codes ? -1 : 1) : (a > b) - (a < b);
}

static int
by_place(const void *x, const void *y)
{
    const report_tensor *a = *(const report_tensor *const *)x, *b = *(const report_tensor *const *)y;
    return (a > b) - (a < b);
}

static void
pick_rows(rows *w)
{
    w->v = cli_alloc((w->of->n_tensors + 1) * sizeof *w->v);
    for (size_t k = 0; k < w->of->n_tensors; k++) {
        const report_tensor *t = &w->of->tensor[k];
        if (t->width[0] == 0)
            continue;
        w->both |= t->width[1] != 0;
        w->v[w->all++] = t;
    }
    w->n = w->all < MOST_ROWS ? w->all : MOST_ROWS;
    qsort((void *)w->v, w->all, sizeof *w->v, by_codes);
    qsort((void *)w->v, w->n, sizeof *w->v, by_place);
}

void
report_plot_widths(const report_canvas *c)
{
    static const char *const name[N_WIDTHS] = {"2 bits", "3", "4", "5", "6", "8"};
    rows w = {.c = c, .of = newest(c->r)};
    cli_text a;

    if (w.of == NULL)
        return;
    pick_rows(&w);
    (void)fputs("<h2>Widths of resident moments</h2>\n<p>Bits in which the optimizer keeps each parameter's moments, as saved.", c->f);
    if (w.all > w.n)
        (void)fprintf(c->f, " The %d largest of %s parameters.", MOST_ROWS, cli_html_count(&a, w.all));
    (void)fputs("</p>\n", c->f);
    report_key(c->f, name, color_of, N_WIDTHS);
    heat_map(&w, 0, w.both ? "Bits of m" : "Bits of the momentum");
    if (w.both)
        heat_map(&w, 1, "Bits of v");
    change_table(c);
    free((void *)w.v);
}
