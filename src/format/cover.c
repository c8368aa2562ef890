/* SPDX-License-Identifier: Apache-2.0 */
#include "format/cover.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/limits.h"
#include "format/table.h"

void
ckpi_cover_free(ckpi_cover *c)
{
    free(c->at);
    *c = (ckpi_cover){0};
}

bool
ckpi_cover_add(ckpi_cover *c, const ckpi_piece *piece, size_t n, uint64_t decoded_hash)
{
    if (n > c->cap - c->n) {
        const size_t cap = CKPI_MAX(c->cap * 2, c->n + n);
        ckpi_span *at = ckpi_realloc(c->at, cap, sizeof *at);
        if (at == NULL)
            return false;
        c->at = at;
        c->cap = cap;
    }
    for (size_t i = 0; i < n; i++)
        c->at[c->n++] = (ckpi_span){piece[i].tensor, piece[i].first, piece[i].count, decoded_hash};
    return true;
}

static int
by_place(const void *pa, const void *pb)
{
    const ckpi_span *a = pa, *b = pb;
    if (a->tensor != b->tensor)
        return a->tensor < b->tensor ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

static ckp_status
gap(const ckpi_rec *r, uint64_t want, uint64_t got, ckp_error *err)
{
    const ckp_status st = ckpi_fail(err, CKP_ECORRUPT, "%s: expected a chunk from element %llu of %llu, found %llu", r->name,
                                    (unsigned long long)want, (unsigned long long)r->numel, (unsigned long long)got);
    ckpi_fail_tensor(err, r->name);
    return st;
}

static void
hash_span(ckpi_hasher *h, ckpi_buf *scratch, const char *name, const ckpi_span *s)
{
    ckpi_buf_clear(scratch);
    ckpi_buf_str(scratch, name, strlen(name));
    ckpi_buf_u64(scratch, s->first);
    ckpi_buf_u64(scratch, s->count);
    ckpi_buf_u64(scratch, s->hash);
    ckpi_hasher_add(h, scratch->data, scratch->len);
}

static ckp_status
check_sorted(const ckpi_cover *c, const ckpi_table *t, ckpi_hasher *h, ckpi_buf *scratch, ckp_error *err)
{
    size_t at = 0;
    for (size_t i = 0; i < t->n; i++) {
        const ckpi_rec *r = &t->rec[i];
        uint64_t next = 0;
        for (; at < c->n && c->at[at].tensor == i; at++) {
            if (c->at[at].first != next)
                return gap(r, next, c->at[at].first, err);
            next += c->at[at].count;
            hash_span(h, scratch, r->name, &c->at[at]);
        }
        /* Pieces of tensors that store nothing were refused with their frame. */
        if (ckpi_rec_stored(r) && next != r->numel)
            return gap(r, next, r->numel, err);
    }
    return CKP_OK;
}

ckp_status
ckpi_cover_check(ckpi_cover *c, const ckpi_table *t, ckpi_id *content, ckp_error *err)
{
    ckp_status st;
    ckpi_buf scratch = CKPI_BUF_INIT;
    ckpi_hasher *h = ckpi_hasher_new();
    if (h == NULL || !ckpi_buf_reserve(&scratch, CKPI_MAX_NAME + 32)) {
        st = ckpi_fail(err, CKP_ENOMEM, "content id: out of memory");
        goto done;
    }
    if (c->n != 0)
        qsort(c->at, c->n, sizeof *c->at, by_place);
    st = check_sorted(c, t, h, &scratch, err);
    *content = ckpi_hasher_128(h);
done:
    ckpi_hasher_free(h);
    ckpi_buf_free(&scratch);
    return st;
}
