/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <ckpress/run_inspect.h>
#include "table.h"

static cli_quantizer *
quantizer_named(cli_settings *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->v[i].name, name) == 0)
            return &s->v[i];
    if (s->n == sizeof s->v / sizeof *s->v)
        return &s->v[s->n - 1];
    cli_quantizer *q = &s->v[s->n++];
    (void)snprintf(q->name, sizeof q->name, "%s", name);
    q->low = (double)INFINITY;
    q->high = 0.0;
    return q;
}

/* Least and largest of what tells how coarse it is. 0 is what a chunk does not say itself. */
static void
add(cli_quantizer *q, double low, double high)
{
    q->low = low > 0.0 ? fmin(q->low, low) : q->low;
    q->high = fmax(q->high, high);
}

static void
add_errors(cli_clustered *c, const ckp_tensor_info *t, const ckp_tensor_settings *x)
{
    const double n = c->n + (double)t->numel;

    c->mse += (x->mse - c->mse) * (double)t->numel / n;
    c->mre += (x->mre - c->mre) * (double)t->numel / n;
    c->n = n;
}

int
cli_settings_gather(cli_settings *s, const ckp_checkpoint *ck)
{
    ckp_error e = {0};

    *s = (cli_settings){0};
    for (size_t i = 0; i < ckp_checkpoint_count(ck); i++) {
        ckp_tensor_info t = {.size = sizeof t};
        ckp_tensor_settings x = {.size = sizeof x};
        ckp_status st = ckp_checkpoint_tensor(ck, i, &t, &e);
        if (st == CKP_OK && t.lossy && t.alias_of == UINT32_MAX && t.copy_of == UINT32_MAX)
            st = ckp_checkpoint_tensor_settings(ck, i, &x, &e);
        if (st != CKP_OK)
            return cli_told(st, &e);
        if (x.quantizer == NULL || strcmp(x.quantizer, "none") == 0)
            continue;
        cli_quantizer *q = quantizer_named(s, x.quantizer);
        q->tensors++;
        q->follows = q->follows || x.step_follows;
        add(q, x.step_follows ? x.step_min : x.step, x.step_follows ? x.step_max : x.step);
        add(q, x.magnitude, x.magnitude);
        add(q, x.octaves, x.octaves);
        add(q, x.levels, x.levels);
        if (strcmp(x.quantizer, "cluster") == 0 || strcmp(x.quantizer, "codebook") == 0)
            add_errors(&s->role[t.role], &t, &x);
    }
    return CLI_OK;
}

static const char *
unit_of(const cli_quantizer *q)
{
    switch (q->name[0]) {
    case 'w': return q->follows ? "step, in the weights' unit; follows second moments" : "step, in the weights' unit";
    case 'm': return "value of a code, in roots of the second moments";
    case 'v': return q->high > 0.0 ? "step of the root, in octaves" : "step: as in its base";
    case 'c': return strcmp(q->name, "cluster") == 0 ? "clusters of 256 values each" : "means of clusters";
    case 'i': return q->high > 0.0 ? "centres of a codebook" : "codebooks: as in its base";
    default: return "another quantizer";
    }
}

static void
add_number(cli_table *t, double v)
{
    cli_text s;
    (void)snprintf(s.s, sizeof s.s, "%.3g", v);
    cli_table_add(t, v > 0.0 && isfinite(v) ? s.s : "-");
}

void
cli_settings_print(const cli_settings *s)
{
    static const char *const head[] = {"QUANTIZER", "TENSORS", "FROM", "TO", "OF"};
    cli_table t;
    cli_text n;

    if (s->n == 0)
        return;
    (void)puts("\ncoded with:");
    cli_table_init(&t, "lrrrl");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&t, head[i]);
    for (size_t i = 0; i < s->n; i++) {
        const cli_quantizer *q = &s->v[i];
        cli_table_add(&t, q->name);
        (void)snprintf(n.s, sizeof n.s, "%llu", (unsigned long long)q->tensors);
        cli_table_add(&t, n.s);
        add_number(&t, q->low);
        add_number(&t, q->high);
        cli_table_add(&t, unit_of(q));
    }
    cli_table_print(&t, 2);
    for (int r = 0; r < CKP_ROLE_COUNT_; r++)
        if (s->role[r].n > 0.0)
            (void)printf("  error of %s: MRE %.3g, MSE %.3g\n", ckp_role_name((ckp_role)r), s->role[r].mre, s->role[r].mse);
}

/* ---- what was measured ---------------------------------------------------------------------------------------------- */

typedef struct measured { double live, decoded, quality, evaluations; } measured;

/* Into *m by the metric's name; false for another metric. */
static bool
take(measured *m, const ckp_metric *x)
{
    static const char *const name[] = {"ckpress.loss_live", "ckpress.loss_decoded", "ckpress.quality", "ckpress.evaluations"};
    double *const to[] = {&m->live, &m->decoded, &m->quality, &m->evaluations};

    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (strcmp(x->name, name[i]) == 0) {
            *to[i] = x->value;
            return true;
        }
    return false;
}

bool
cli_is_measured(const char *metric)
{
    measured m;
    return take(&m, &(ckp_metric){metric, 0.0});
}

static double
increase(const measured *m)
{
    return m->live != 0.0 ? 100.0 * (m->decoded - m->live) / fabs(m->live) : (double)NAN;
}

static void
print_settings(const ckp_checkpoint *ck)
{
    ckp_metric x;

    for (size_t i = 0; ckp_checkpoint_setting(ck, i, &x); i++) {
        (void)fputs(i == 0 ? "settings: " : ", ", stdout);
        cli_safe(stdout, x.name);
        (void)printf(" %.4g", x.value);
    }
    if (ckp_checkpoint_setting(ck, 0, &x))
        (void)putchar('\n');
}

/* A lossy save whose weights are lossless: the last one of a run, or one that could not meet its budget. */
static bool
is_exact(const ckp_checkpoint *ck)
{
    ckp_metric x;

    for (size_t i = 0; ckp_checkpoint_setting(ck, i, &x); i++)
        if (strcmp(x.name, "step") == 0)
            return x.value == 0.0;
    return false;
}

static bool
measured_of(measured *m, const ckp_checkpoint *ck)
{
    ckp_metric x;
    bool any = false;

    *m = (measured){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    for (size_t i = 0; ckp_checkpoint_metric(ck, i, &x); i++)
        any = take(m, &x) || any;
    return any;
}

void
cli_recorded_print(const ckp_checkpoint *ck)
{
    const bool exact = is_exact(ck);
    measured m;

    print_settings(ck);
    if (!measured_of(&m, ck))
        return;
    (void)printf("measured: loss %.6g of the live weights", m.live);
    if (!isnan(m.decoded))
        (void)printf(", %.6g decoded (%+.2f %%)", m.decoded, increase(&m));
    (void)printf(", quality %.3g, evaluations %.0f%s\n", m.quality, m.evaluations, exact ? "; the weights were then kept exactly" : "");
}

void
cli_settings_json(cli_json *j, const cli_settings *s, const ckp_checkpoint *ck)
{
    ckp_metric x;

    cli_json_open(j, "settings", '{');
    for (size_t i = 0; ckp_checkpoint_setting(ck, i, &x); i++)
        cli_json_double(j, x.name, x.value);
    cli_json_close(j, '}');
    cli_json_open(j, "quantizers", '{');
    for (size_t i = 0; i < s->n; i++) {
        cli_json_open(j, s->v[i].name, '{');
        cli_json_u64(j, "tensors", s->v[i].tensors);
        cli_json_num(j, "least", s->v[i].low);
        cli_json_num(j, "most", s->v[i].high);
        cli_json_bool(j, "follows", s->v[i].follows);
        cli_json_close(j, '}');
    }
    cli_json_close(j, '}');
    cli_json_open(j, "clusters", '{');
    for (int r = 0; r < CKP_ROLE_COUNT_; r++) {
        if (s->role[r].n <= 0.0)
            continue;
        cli_json_open(j, ckp_role_name((ckp_role)r), '{');
        cli_json_double(j, "mre", s->role[r].mre);
        cli_json_double(j, "mse", s->role[r].mse);
        cli_json_close(j, '}');
    }
    cli_json_close(j, '}');
}

/* ---- of all checkpoints ---------------------------------------------------------------------------------------------- */

typedef struct row { uint64_t step; bool is_delta; measured m; } row;
typedef struct rows { row *v; size_t n, cap; } rows;

static int
add_row(void *user, const ckp_list_entry *e)
{
    rows *r = user;
    row x = {e->step, e->is_delta, {(double)NAN, (double)NAN, (double)NAN, (double)NAN}};
    ckp_metric m;
    bool any = false;

    for (size_t i = 0; ckp_list_entry_metric(e, i, &m); i++)
        any = take(&x.m, &m) || any;
    if (!any)
        return cli_signal();
    if (r->n == r->cap) {
        const size_t cap = r->cap != 0 ? 2 * r->cap : 64;
        row *grown = cli_alloc(cap * sizeof *grown);
        if (r->n != 0)
            (void)memcpy(grown, r->v, r->n * sizeof *grown);
        free(r->v);
        r->v = grown;
        r->cap = cap;
    }
    r->v[r->n++] = x;
    return cli_signal();
}

static void
print_rows(const rows *r, size_t first)
{
    static const char *const head[] = {"STEP", "KIND", "QUALITY", "LIVE", "DECODED", "INCREASE", "EVALUATIONS"};
    cli_table t;
    cli_text s;

    cli_table_init(&t, "rlrrrrr");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&t, head[i]);
    for (size_t i = first; i < r->n; i++) {
        const row *x = &r->v[i];
        const double cell[] = {x->m.quality, x->m.live, x->m.decoded};
        (void)snprintf(s.s, sizeof s.s, "%llu", (unsigned long long)x->step);
        cli_table_add(&t, s.s);
        cli_table_add(&t, x->is_delta ? "delta" : "key");
        for (size_t k = 0; k < 3; k++) {
            (void)snprintf(s.s, sizeof s.s, k == 0 ? "%.3g" : "%.6g", cell[k]);
            cli_table_add(&t, isnan(cell[k]) ? "-" : s.s);
        }
        (void)snprintf(s.s, sizeof s.s, "%+.2f %%", increase(&x->m));
        cli_table_add(&t, isnan(increase(&x->m)) ? "-" : s.s);
        (void)snprintf(s.s, sizeof s.s, "%.0f", x->m.evaluations);
        cli_table_add(&t, isnan(x->m.evaluations) ? "-" : s.s);
    }
    cli_table_print(&t, 2);
}

int
cli_measured_print(const char *run, bool all)
{
    enum { SHOWN = 8 };
    rows r = {0};
    ckp_error e = {0};

    const ckp_status st = ckp_run_list(run, add_row, &r, &e);
    const size_t first = all || r.n <= SHOWN ? 0 : r.n - SHOWN;
    if (st == CKP_OK && r.n != 0) {
        (void)puts("\nloss as measured when it was saved, of the live weights and decoded:");
        print_rows(&r, first);
        if (first != 0)
            (void)printf("  ... %zu earlier ones with -v\n", first);
    }
    free(r.v);
    return cli_told(st, &e);
}
