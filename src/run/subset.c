/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "run/checkpoint.h"
#include "run/subset.h"

const char *
ckpi_subset_name(const char *name, const char *only)
{
    const size_t n = only != NULL ? strlen(only) : 0;

    if (only == NULL)
        return name;
    if (strncmp(name, only, n) != 0)
        return NULL;
    return name[n] == '\0' ? name : name[n] == '/' && name[n + 1] != '\0' ? name + n + 1 : NULL;
}

/* first: by row, the tensor that has its elements, or CKPI_NO_TENSOR. Their own row may be no part of the subset. */
static void
add(ckpi_subset *s, uint32_t *first, const ckpi_table *t, uint32_t i, const char *name)
{
    const ckpi_rec *r = &t->rec[i];
    const uint32_t payload = r->alias_of != CKPI_NO_TENSOR ? r->alias_of : i, k = (uint32_t)s->n++;

    s->tensor[k] = (ckpi_out_tensor){.name = name, .dtype = r->dtype, .ndim = r->ndim, .bytes = r->bytes, .alias_of = first[payload],
                                     .shape = r->shape};
    s->row[k] = i;
    s->number[i] = k;
    if (first[payload] == CKPI_NO_TENSOR)
        first[payload] = k;
}

ckp_status
ckpi_subset_new(ckpi_subset *out, const ckpi_table *t, const char *only, ckp_error *err)
{
    *out = (ckpi_subset){.tensor = ckpi_calloc(t->n + 1, sizeof *out->tensor), .row = ckpi_calloc(t->n + 1, sizeof *out->row),
                         .number = ckpi_malloc(t->n + 1, sizeof *out->number)};
    uint32_t *first = ckpi_malloc(t->n + 1, sizeof *first);
    if (out->tensor == NULL || out->row == NULL || out->number == NULL || first == NULL) {
        free(first);
        ckpi_subset_free(out);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", t->n);
    }
    for (size_t i = 0; i <= t->n; i++)
        out->number[i] = first[i] = CKPI_NO_TENSOR;
    ckp_status st = CKP_OK;
    for (uint32_t i = 0; st == CKP_OK && i < t->n; i++) {
        const char *name = ckpi_subset_name(t->rec[i].name, only);
        if (name != NULL && !ckpi_rec_whole(&t->rec[i]))
            st = ckpi_refuse_part(&t->rec[i], err);
        else if (name != NULL)
            add(out, first, t, i, name);
    }
    free(first);
    if (st == CKP_OK && (out->n != 0 || only == NULL))
        return CKP_OK;
    ckpi_subset_free(out);
    return st != CKP_OK ? st : ckpi_fail(err, CKP_ENOTFOUND, "there is no tensor '%.200s/...' in it", only);
}

void
ckpi_subset_free(ckpi_subset *s)
{
    free(s->tensor);
    free(s->row);
    free(s->number);
    *s = (ckpi_subset){0};
}
