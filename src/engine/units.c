/* SPDX-License-Identifier: Apache-2.0 */
/* Which chunks of a checkpoint must be decoded together. */
#include <stdlib.h>
#include "base/fail.h"
#include "engine/decode.h"

/* A chunk under the weight that it belongs to. */
typedef struct member { uint32_t owner; uint64_t first; uint32_t chunk; uint8_t kind; /* 0 w, 1 m, 2 v */ } member;

static int
by_owner(const void *a, const void *b)
{
    const member *x = a, *y = b;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

static int
by_chunk(const void *a, const void *b)
{
    const ckpi_unit *x = a, *y = b;
    const uint32_t i = x->v < x->m ? (x->v < x->w ? x->v : x->w) : (x->m < x->w ? x->m : x->w);
    const uint32_t j = y->v < y->m ? (y->v < y->w ? y->v : y->w) : (y->m < y->w ? y->m : y->w);
    return i < j ? -1 : i > j;
}

/* Weights may have moments beside them; quantized moments have weights. Everything else is decoded alone. */
static bool
member_of(const ckpi_lineage *c, uint32_t i, member *m)
{
    const ckpi_chunk *k = &c->level[0].f->chunk[i];
    const uint32_t tensor = k->piece[0].tensor;
    const bool moment = k->role == CKP_ROLE_M || k->role == CKP_ROLE_V || k->role == CKP_ROLE_MOMENTUM;

    *m = (member){tensor, k->piece[0].first, i, 0};
    if (!moment)
        return ckpi_role_is_weight(k->role);
    m->owner = c->table->rec[tensor].owner;
    m->kind = k->role == CKP_ROLE_V ? 2 : 1;
    return k->quant != CKPI_QUANT_NONE && k->quant != CKPI_QUANT_CLUSTER && m->owner != CKPI_NO_TENSOR;    /* lineage.c has seen that kinds and roles go together */
}

static bool
same_shape(const ckpi_chunk *a, const ckpi_chunk *b)
{
    if (a->n_pieces != b->n_pieces || a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n_pieces; i++)
        if (a->piece[i].first != b->piece[i].first || a->piece[i].count != b->piece[i].count)
            return false;
    return true;
}

static uint32_t
weight_of(const ckpi_lineage *c, uint32_t tensor)
{
    const ckpi_rec *r = &c->table->rec[tensor];
    return ckpi_role_is_weight(r->role) ? tensor : r->owner;
}

/* Two chunks of a unit are of the same elements of the same weights, piece by piece. */
static bool
belongs(const ckpi_lineage *c, uint32_t a, uint32_t b)
{
    if (a == CKPI_NO_CHUNK || b == CKPI_NO_CHUNK)
        return true;
    const ckpi_chunk *x = &c->level[0].f->chunk[a], *y = &c->level[0].f->chunk[b];
    bool same = same_shape(x, y);
    for (size_t i = 0; same && i < x->n_pieces; i++)
        same = weight_of(c, x->piece[i].tensor) == weight_of(c, y->piece[i].tensor);
    return same;
}

static ckp_status
check_unit(const ckpi_lineage *c, const ckpi_unit *u, ckp_error *err)
{
    /* a damaged file may have lost the weights: its moments can still be read, if they go together */
    const bool m_ok = belongs(c, u->m, u->w) && belongs(c, u->m, u->v);
    const bool v_ok = belongs(c, u->v, u->w);

    if (m_ok && v_ok)
        return CKP_OK;
    const ckpi_chunk *k = &c->level[0].f->chunk[m_ok ? u->v : u->m];
    const ckp_status st = ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "a chunk of moments does not fit its weights");
    ckpi_fail_tensor(err, c->table->rec[k->piece[0].tensor].name);
    ckpi_fail_file(err, ckpi_reader_name(c->level[0].f->r));
    return st;
}

static ckp_status
join(const ckpi_lineage *c, const member *m, size_t n_members, ckpi_unit *u, size_t *n, ckp_error *err)
{
    for (size_t i = 0; i < n_members;) {
        ckpi_unit x = {CKPI_NO_CHUNK, CKPI_NO_CHUNK, CKPI_NO_CHUNK};
        size_t j = i;
        for (; j < n_members && m[j].owner == m[i].owner && m[j].first == m[i].first; j++) {
            uint32_t *slot = m[j].kind == 0 ? &x.w : m[j].kind == 1 ? &x.m : &x.v;
            if (*slot != CKPI_NO_CHUNK)
                return ckpi_fail_at(err, CKP_ECORRUPT, c->level[0].f->chunk[m[j].chunk].offset, "two chunks for the same elements");
            *slot = m[j].chunk;
        }
        const ckp_status st = check_unit(c, &x, err);
        if (st != CKP_OK)
            return st;
        u[(*n)++] = x;
        i = j;
    }
    return CKP_OK;
}

ckp_status
ckpi_units(const ckpi_lineage *c, ckpi_unit **out, size_t *n, ckp_error *err)
{
    const size_t chunks = c->level[0].f->n_chunks;
    member *m = ckpi_malloc(chunks, sizeof *m);
    ckpi_unit *u = ckpi_malloc(chunks, sizeof *u);
    size_t n_members = 0;
    ckp_status st = CKP_OK;

    *out = NULL;
    *n = 0;
    if (m == NULL || u == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for %zu units", chunks);
        goto done;
    }
    for (uint32_t i = 0; i < chunks; i++) {
        if (member_of(c, i, &m[n_members]))
            n_members++;
        else if (c->level[0].f->chunk[i].quant == CKPI_QUANT_NONE || c->level[0].f->chunk[i].quant == CKPI_QUANT_CLUSTER)
            u[(*n)++] = (ckpi_unit){i, CKPI_NO_CHUNK, CKPI_NO_CHUNK};
        else
            st = ckpi_fail_at(err, CKP_ECORRUPT, c->level[0].f->chunk[i].offset, "a quantized chunk that belongs to no weight");
        if (st != CKP_OK)
            goto done;
    }
    qsort(m, n_members, sizeof *m, by_owner);
    st = join(c, m, n_members, u, n, err);
    if (st != CKP_OK)
        goto done;
    qsort(u, *n, sizeof *u, by_chunk);
    *out = u;
    u = NULL;
done:
    if (st != CKP_OK)
        *n = 0;
    free(m);
    free(u);
    return st;
}
