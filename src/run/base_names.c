/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "engine/layout.h"
#include "run/base_names.h"

/* The ending after the next border; NULL: there is none. */
static const char *
next_ending(const char *name)
{
    const char *p = strpbrk(name, "./");
    return p != NULL && p[1] != '\0' ? p + 1 : NULL;
}

static int
by_text(const void *a, const void *b)
{
    const ckpi_ending *x = a, *y = b;
    const int c = strcmp(x->text, y->text);
    return c != 0 ? c : x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

ckp_status
ckpi_endings_new(ckpi_endings *e, const ckp_state *s, ckp_error *err)
{
    size_t n = 0;

    *e = (ckpi_endings){0};
    for (size_t i = 0; i < s->n; i++)
        for (const char *p = s->t[i].name; p != NULL; p = next_ending(p))
            n++;
    e->at = ckpi_calloc(n + 1, sizeof *e->at);
    if (e->at == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu names", n);
    for (uint32_t i = 0; i < s->n; i++)
        for (const char *p = s->t[i].name; p != NULL; p = next_ending(p))
            e->at[e->n++] = (ckpi_ending){p, i};
    qsort(e->at, e->n, sizeof *e->at, by_text);
    return CKP_OK;
}

void
ckpi_endings_free(ckpi_endings *e)
{
    free(e->at);
    *e = (ckpi_endings){0};
}

static bool
fits(const ckpi_tensor *t, const ckpi_rec *r)
{
    if (t->ndim != r->ndim || t->numel != r->numel || t->global_shape != NULL || t->flat)
        return false;
    for (unsigned i = 0; i < r->ndim; i++)
        if (t->shape[i] != r->shape[i])
            return false;
    return t->dtype == r->dtype || (ckpi_is_small_float(t->dtype) && ckpi_is_small_float(r->dtype));
}

/* First of the endings that equal text. */
static size_t
find(const ckpi_endings *e, const char *text)
{
    size_t lo = 0, hi = e->n;

    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (strcmp(e->at[mid].text, text) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint32_t
ckpi_endings_match(const ckpi_endings *e, const ckp_state *s, const ckpi_rec *r)
{
    if (!(ckpi_role_is_weight(r->role) || r->copy_of != CKPI_NO_TENSOR) || r->flat || r->box_shape != NULL)
        return CKPI_NO_TENSOR;
    for (const char *p = r->name; p != NULL; p = next_ending(p)) {
        uint32_t got = CKPI_NO_TENSOR;
        size_t n = 0;
        for (size_t i = find(e, p); n < 2 && i < e->n && strcmp(e->at[i].text, p) == 0; i++)
            if (fits(&s->t[e->at[i].tensor], r)) {
                got = e->at[i].tensor;
                n++;
            }
        if (n != 0)
            return n == 1 ? got : CKPI_NO_TENSOR;
    }
    return CKPI_NO_TENSOR;
}
