/* SPDX-License-Identifier: Apache-2.0 */
/* Differences as tables, and as JSON. */
#include "diff.h"
#include <math.h>
#include <string.h>
#include "json.h"
#include "table.h"

/* ---- tables ---------------------------------------------------------------------------------------------------------- */

static void
print_side(const cli_diff *d, int i)
{
    (void)printf("%c: ", "AB"[i]);
    cli_safe(stdout, d->a->arg[i]);
    if (d->has_step[i] && !d->place[i].has_step)
        (void)printf(" (step %llu)", (unsigned long long)d->step[i]);
    (void)putchar('\n');
}

static void
print_counts(const cli_diff *d)
{
    const size_t same = d->count[CKP_DIFF_SAME], other = d->count[CKP_DIFF_VALUES], layout = d->count[CKP_DIFF_LAYOUT];

    if (!diff_any(d)) {
        (void)printf("identical: %zu tensor%s%s\n", d->n, d->n == 1 ? "" : "s", d->a->only == NULL ? " and all plain values" : "");
        return;
    }
    (void)printf("tensors: %zu identical, %zu differ", same, other);
    if (layout != 0)
        (void)printf(", %zu of another type or shape", layout);
    (void)printf(", %zu only in A, %zu only in B", d->count[CKP_DIFF_ONLY_A], d->count[CKP_DIFF_ONLY_B]);
    if (d->a->only == NULL)
        (void)printf("; values: %zu differ", d->n_values);
    (void)putchar('\n');
    if (same + other + layout == 0 && d->count[CKP_DIFF_ONLY_A] != 0 && d->count[CKP_DIFF_ONLY_B] != 0)
        (void)puts("no name is in both: they are of different models, or name tensors differently");
}

static void
add_share(cli_table *tab, uint64_t part, uint64_t all)
{
    cli_text t;

    (void)snprintf(t.s, sizeof t.s, "%.3g %%", all != 0 ? 100.0 * (double)part / (double)all : 0.0);
    /* "100 %" is all of them */
    if (part != all && part != 0 && 100.0 * (double)part / (double)all >= 99.95)
        (void)snprintf(t.s, sizeof t.s, "99.9 %%");
    cli_table_add(tab, t.s);
}

static void
add_number(cli_table *tab, double v, bool known)
{
    cli_text t;
    (void)snprintf(t.s, sizeof t.s, "%.3g", v);
    cli_table_add(tab, known && !isnan(v) ? t.s : "-");
}

static void
add_row(cli_table *tab, const diff_tensor *x, bool not_finite)
{
    const ckp_diff_tensor *t = &x->t;
    cli_text s;

    cli_table_add(tab, x->name);
    cli_table_add(tab, ckp_role_name(t->role));
    cli_table_add(tab, cli_count(&s, t->numel));
    add_share(tab, t->differ, t->numel);
    add_number(tab, t->max_abs, t->numbers);
    add_number(tab, t->rms, t->numbers);
    add_number(tab, x->relative, t->numbers);
    if (not_finite)
        cli_table_add(tab, t->numbers ? cli_count(&s, t->not_finite) : "-");
}

static void
print_tensors(const cli_diff *d)
{
    static const char *const head[] = {"TENSOR", "ROLE", "ELEMENTS", "DIFFER", "MAX", "RMS", "RMS/A", "NAN, INF"};
    bool not_finite = false, any = false;
    cli_table tab;

    for (size_t i = 0; i < d->n; i++) {
        not_finite = not_finite || d->tensor[i].t.not_finite != 0;
        any = any || d->tensor[i].t.kind == CKP_DIFF_VALUES || (d->tensor[i].t.kind == CKP_DIFF_SAME && d->a->all);
    }
    if (!any)
        return;
    (void)putchar('\n');
    cli_table_init(&tab, not_finite ? "llrrrrrr" : "llrrrrr");
    for (size_t i = 0; i < 7u + not_finite; i++)
        cli_table_add(&tab, head[i]);
    for (size_t i = 0; i < d->n; i++)
        if (d->tensor[i].t.kind == CKP_DIFF_VALUES || (d->tensor[i].t.kind == CKP_DIFF_SAME && d->a->all))
            add_row(&tab, &d->tensor[i], not_finite);
    cli_table_print(&tab, 0);
}

/* Appends "f32 [3, 4]". */
static void
layout_text(char *out, size_t cap, ckp_dtype dt, unsigned ndim, const uint64_t *shape)
{
    size_t at = strlen(out);

    at += (size_t)snprintf(out + at, cap - at, "%s [", ckp_dtype_name(dt));
    for (unsigned i = 0; i < ndim && at < cap; i++)
        at += (size_t)snprintf(out + at, cap - at, "%s%llu", i != 0 ? ", " : "", (unsigned long long)shape[i]);
    if (at < cap)
        (void)snprintf(out + at, cap - at, "]");
}

static void
print_kind(const cli_diff *d, ckp_diff_kind kind, const char *title)
{
    cli_table tab;

    if (d->count[kind] == 0)
        return;
    (void)printf("\n%s:\n", title);
    cli_table_init(&tab, "lll");
    for (size_t i = 0; i < d->n; i++) {
        const diff_tensor *x = &d->tensor[i];
        if (x->t.kind != kind)
            continue;
        char text[256] = "";
        if (x->t.dtype_a != 0)
            layout_text(text, sizeof text / 2, x->t.dtype_a, x->t.ndim_a, x->t.shape_a);
        if (kind == CKP_DIFF_LAYOUT)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), " -> ");
        if (x->t.dtype_b != 0)
            layout_text(text, sizeof text, x->t.dtype_b, x->t.ndim_b, x->t.shape_b);
        cli_table_add(&tab, x->name);
        cli_table_add(&tab, ckp_role_name(x->t.role));
        cli_table_add(&tab, text);
    }
    cli_table_print(&tab, 2);
}

static void
print_roles(const cli_diff *d)
{
    static const char *const head[] = {"ROLE", "TENSORS", "IDENTICAL", "ELEMENTS", "DIFFER", "MAX", "RMS", "RMS/A"};
    cli_table tab;
    cli_text s;

    if (d->count[CKP_DIFF_VALUES] == 0)
        return;
    (void)puts("\nby role, of what is in both with the same type and shape:");
    cli_table_init(&tab, "lrrrrrrr");
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        cli_table_add(&tab, head[i]);
    for (int k = 0; k < CKP_ROLE_COUNT_; k++) {
        const diff_role *r = &d->role[k];
        if (r->tensors == 0)
            continue;
        cli_table_add(&tab, ckp_role_name((ckp_role)k));
        cli_table_add(&tab, cli_count(&s, r->tensors));
        cli_table_add(&tab, cli_count(&s, r->same));
        cli_table_add(&tab, cli_count(&s, r->elements));
        add_share(&tab, r->differ, r->elements);
        add_number(&tab, r->max_abs, r->numbers);
        add_number(&tab, r->norm / sqrt(fmax(1.0, (double)r->elements)), r->numbers);
        add_number(&tab, diff_relative(r->norm, r->norm_a), r->numbers);
    }
    cli_table_print(&tab, 2);
}

static void
print_values(const cli_diff *d)
{
    enum { SHOWN = 50 };
    const size_t shown = d->a->all || d->n_values <= SHOWN ? d->n_values : SHOWN;

    if (d->n_values == 0)
        return;
    (void)puts("\nvalues:");
    for (size_t i = 0; i < shown; i++) {
        const diff_value *v = &d->value[i];
        (void)fputs("  ", stdout);
        cli_safe(stdout, v->path[0] != '\0' ? v->path : "(all of it)");
        (void)fputs(": ", stdout);
        cli_safe(stdout, v->a != NULL ? v->a : "(not there)");
        (void)fputs(" -> ", stdout);
        cli_safe(stdout, v->b != NULL ? v->b : "(not there)");
        (void)putchar('\n');
    }
    if (shown < d->n_values)
        (void)printf("  ... %zu more with --all\n", d->n_values - shown);
}

void
diff_print(const cli_diff *d)
{
    print_side(d, 0);
    print_side(d, 1);
    print_counts(d);
    print_tensors(d);
    print_kind(d, CKP_DIFF_LAYOUT, "of another type or shape");
    print_kind(d, CKP_DIFF_ONLY_A, "only in A");
    print_kind(d, CKP_DIFF_ONLY_B, "only in B");
    print_roles(d);
    print_values(d);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------ */

static const char *const kind_name[] = {"identical", "differs", "layout", "only_a", "only_b"};

static void
json_side(cli_json *j, const cli_diff *d, int i)
{
    cli_json_open(j, i == 0 ? "a" : "b", '{');
    cli_json_str(j, "path", d->place[i].path);
    if (d->has_step[i])
        cli_json_u64(j, "step", d->step[i]);
    cli_json_close(j, '}');
}

static void
json_figures(cli_json *j, uint64_t elements, uint64_t differ, bool numbers, double max_abs, double rms, double rms_a)
{
    cli_json_u64(j, "elements", elements);
    cli_json_u64(j, "differ", differ);
    if (!numbers)
        return;
    cli_json_double(j, "max_abs", max_abs);
    cli_json_double(j, "rms", rms);
    cli_json_double(j, "rms_a", rms_a);
    cli_json_double(j, "relative", diff_relative(rms, rms_a));
}

static void
json_layout(cli_json *j, const char *key, ckp_dtype dt, unsigned ndim, const uint64_t *shape)
{
    if (dt == 0) {
        cli_json_str(j, key, NULL);
        return;
    }
    cli_json_open(j, key, '{');
    cli_json_str(j, "dtype", ckp_dtype_name(dt));
    cli_json_open(j, "shape", '[');
    for (unsigned i = 0; i < ndim; i++)
        cli_json_u64(j, NULL, shape[i]);
    cli_json_close(j, ']');
    cli_json_close(j, '}');
}

static void
json_tensor(cli_json *j, const diff_tensor *x)
{
    const ckp_diff_tensor *t = &x->t;

    cli_json_open(j, NULL, '{');
    cli_json_str(j, "name", x->name);
    cli_json_str(j, "kind", kind_name[t->kind]);
    cli_json_str(j, "role", ckp_role_name(t->role));
    json_layout(j, "a", t->dtype_a, t->ndim_a, t->shape_a);
    json_layout(j, "b", t->dtype_b, t->ndim_b, t->shape_b);
    cli_json_bool(j, "alias", t->alias);
    if (t->kind == CKP_DIFF_SAME || t->kind == CKP_DIFF_VALUES) {
        json_figures(j, t->numel, t->differ, t->numbers, t->max_abs, t->rms, t->rms_a);
        cli_json_u64(j, "not_finite", t->not_finite);
    }
    cli_json_close(j, '}');
}

static void
json_roles(cli_json *j, const cli_diff *d)
{
    cli_json_open(j, "roles", '{');
    for (int k = 0; k < CKP_ROLE_COUNT_; k++) {
        const diff_role *r = &d->role[k];
        const double root = sqrt(fmax(1.0, (double)r->elements));
        if (r->tensors == 0)
            continue;
        cli_json_open(j, ckp_role_name((ckp_role)k), '{');
        cli_json_u64(j, "tensors", r->tensors);
        cli_json_u64(j, "identical", r->same);
        json_figures(j, r->elements, r->differ, r->numbers, r->max_abs, r->norm / root, r->norm_a / root);
        cli_json_close(j, '}');
    }
    cli_json_close(j, '}');
}

void
diff_json(const cli_diff *d)
{
    cli_json j = {0};

    cli_json_open(&j, NULL, '{');
    json_side(&j, d, 0);
    json_side(&j, d, 1);
    cli_json_bool(&j, "identical", !diff_any(d));
    cli_json_open(&j, "counts", '{');
    for (int k = 0; k < 5; k++)
        cli_json_u64(&j, kind_name[k], d->count[k]);
    cli_json_u64(&j, "values", d->n_values);
    cli_json_close(&j, '}');
    cli_json_open(&j, "tensors", '[');
    for (size_t i = 0; i < d->n; i++)
        if (d->tensor[i].t.kind != CKP_DIFF_SAME || d->a->all)
            json_tensor(&j, &d->tensor[i]);
    cli_json_close(&j, ']');
    json_roles(&j, d);
    cli_json_open(&j, "values", '[');
    for (size_t i = 0; i < d->n_values; i++) {
        cli_json_open(&j, NULL, '{');
        cli_json_str(&j, "path", d->value[i].path);
        cli_json_str(&j, "a", d->value[i].a);
        cli_json_str(&j, "b", d->value[i].b);
        cli_json_close(&j, '}');
    }
    cli_json_close(&j, ']');
    cli_json_close(&j, '}');
}
