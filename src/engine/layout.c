/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "engine/layout.h"

bool
ckpi_role_is_weight(unsigned role)
{
    return role == CKP_ROLE_WEIGHT || role == CKP_ROLE_MASTER || role == CKP_ROLE_AVERAGE;
}

bool
ckpi_is_small_float(ckp_dtype dt)
{
    return dt == CKP_F32 || dt == CKP_BF16 || dt == CKP_F16;
}

size_t
ckpi_matrix_cols(const ckpi_rec *r)
{
    uint64_t rest = 1;

    if (r->ndim < 2 || r->flat)
        return 0;
    const uint64_t *shape = r->box_shape != NULL ? r->box_shape : r->shape;
    for (unsigned i = 1; i < r->ndim; i++)
        rest *= shape[i];                   /* divides numel, which is checked */
    return rest >= 16 && rest <= CKPI_MAX_CHUNK_ELEMS / 16 ? (size_t)rest : 0;
}

/* ---- growing ---------------------------------------------------------------------------------------------------- */

static ckpi_group *
add_group(ckpi_layout *l, const ckpi_group *proto)
{
    if (l->n == l->cap) {
        size_t cap = l->cap != 0 ? 2 * l->cap : 16;
        ckpi_group *g = ckpi_realloc(l->g, cap, sizeof *g);
        if (g == NULL)
            return NULL;
        l->g = g;
        l->cap = cap;
    }
    l->g[l->n] = *proto;
    return &l->g[l->n++];
}

/* Grows by doubling: capacities are powers of two, so the count tells when one is full. */
static bool
add_piece(ckpi_group *g, uint32_t tensor, uint64_t first, uint64_t count, uint32_t m, uint32_t v)
{
    const size_t k = g->n_pieces;

    if ((k & (k - 1)) == 0) {
        const size_t cap = k != 0 ? 2 * k : 1;
        ckpi_piece *p = ckpi_realloc(g->piece, cap, sizeof *p);
        if (p == NULL)
            return false;
        g->piece = p;
        uint32_t *mm = ckpi_realloc(g->m, cap, sizeof *mm);
        if (mm == NULL)
            return false;
        g->m = mm;
        uint32_t *vv = ckpi_realloc(g->v, cap, sizeof *vv);
        if (vv == NULL)
            return false;
        g->v = vv;
    }
    g->piece[k] = (ckpi_piece){tensor, first, count};
    g->m[k] = m;
    g->v[k] = v;
    g->n_pieces = k + 1;
    g->n += count;
    return true;
}

/* ---- kinds ------------------------------------------------------------------------------------------------------ */

static bool
same_kind(const ckpi_group *a, const ckpi_group *b)
{
    return a->lossy == b->lossy && a->fine == b->fine && a->has_m == b->has_m && a->has_v == b->has_v && a->role == b->role &&
           a->clustered == b->clustered && a->dtype == b->dtype && a->m_role == b->m_role && a->m_dtype == b->m_dtype && a->v_dtype == b->v_dtype;
}

static bool
stored(const ckpi_rec *r)
{
    return r->alias_of == CKPI_NO_TENSOR && r->copy_of == CKPI_NO_TENSOR && r->numel > 0;
}

/* Moments that fit their weight element by element, first come first served. */
static void
find_moments(ckpi_layout *l, const ckpi_table *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const ckpi_rec *r = &t->rec[i];
        if (r->owner == CKPI_NO_TENSOR || !stored(r) || r->numel != t->rec[r->owner].numel || !ckpi_is_small_float(r->dtype))
            continue;
        uint32_t *slot = r->role == CKP_ROLE_V                                      ? l->v_of
                         : r->role == CKP_ROLE_M || r->role == CKP_ROLE_MOMENTUM ? l->m_of
                                                                                   : NULL;
        if (slot != NULL && slot[r->owner] == CKPI_NO_TENSOR)
            slot[r->owner] = i;
    }
}

typedef struct plan {
    const ckpi_table *t;
    const bool *no_loss;
    bool lossy;
    ckpi_alone alone;
    ckpi_packing packing;
} plan;

static bool
is_fine(const ckpi_rec *r)
{
    return r->ndim < 2 || r->numel < CKPI_FINE_BELOW;
}

/* Moments follow their owner: lossless where it is. Averages have none, and are lossy by themselves. */
static bool
owner_is_lossy(const ckpi_layout *l, const plan *p, uint32_t i)
{
    const ckpi_rec *r = &p->t->rec[i];
    if (!p->lossy || !ckpi_role_is_weight(r->role) || !stored(r) || !ckpi_is_small_float(r->dtype) || (p->no_loss != NULL && p->no_loss[i]))
        return false;
    const uint32_t m = l->m_of[i], v = l->v_of[i];
    if (p->no_loss != NULL && ((m != CKPI_NO_TENSOR && p->no_loss[m]) || (v != CKPI_NO_TENSOR && p->no_loss[v])))
        return false;
    return r->role == CKP_ROLE_AVERAGE || p->alone == CKPI_ALONE_LOSSY || (p->alone == CKPI_ALONE_LARGE && !is_fine(r)) || m != CKPI_NO_TENSOR || v != CKPI_NO_TENSOR;
}

static ckpi_group
kind_of(const ckpi_layout *l, const plan *p, uint32_t i, bool lossy)
{
    const ckpi_rec *r = &p->t->rec[i];
    ckpi_group k = {.lossy = lossy, .role = r->role, .dtype = r->dtype};

    const bool moment = r->role == CKP_ROLE_M || r->role == CKP_ROLE_V || r->role == CKP_ROLE_MOMENTUM;
    k.clustered = !lossy && p->alone == CKPI_ALONE_CLUSTERS && moment && r->dtype == CKP_F32 && r->numel >= CKPI_FINE_BELOW &&
                  (p->no_loss == NULL || !p->no_loss[i]);
    if (!lossy)
        return k;
    k.fine = is_fine(r);
    k.has_m = l->m_of[i] != CKPI_NO_TENSOR;
    k.has_v = l->v_of[i] != CKPI_NO_TENSOR;
    k.m_role = k.has_m ? p->t->rec[l->m_of[i]].role : (ckp_role)0;
    k.m_dtype = k.has_m ? p->t->rec[l->m_of[i]].dtype : (ckp_dtype)0;
    k.v_dtype = k.has_v ? p->t->rec[l->v_of[i]].dtype : (ckp_dtype)0;
    return k;
}

/* The group that may still take n more elements of this kind; a new one when there is none. */
static ckpi_group *
open_group(ckpi_layout *l, const plan *p, const ckpi_group *kind, uint64_t n)
{
    const size_t reach = p->packing == CKPI_PACK_ORDERED ? CKPI_MIN(l->n, 1) : CKPI_MIN(l->n, 64);

    for (size_t k = 0; k < reach; k++) {
        ckpi_group *g = &l->g[l->n - 1 - k];
        if (same_kind(g, kind) && g->n + n <= CKPI_MAX_CHUNK_ELEMS && g->n_pieces < CKPI_MAX_CHUNK_PIECES && !g->bytes)
            return g;
    }
    return add_group(l, kind);
}

/* `bytes` doubles as "closed" while the layout is built; the real value is set at the end. */
static void
close_group(ckpi_group *g)
{
    g->bytes = 1;
}

static ckp_status
add_tensor(ckpi_layout *l, const plan *p, uint32_t i, bool lossy, ckp_error *err)
{
    const ckpi_rec *r = &p->t->rec[i];
    const ckpi_group kind = kind_of(l, p, i, lossy);
    /* rows of packed elements need not end on a byte; a power of two always does */
    const size_t cols = ckpi_dtype_get(r->dtype)->bits % 8 == 0 ? ckpi_matrix_cols(r) : 0;
    const uint64_t step = cols != 0 ? (CKPI_MAX_CHUNK_ELEMS / cols) * cols : CKPI_MAX_CHUNK_ELEMS;
    const bool own = !lossy && r->numel >= CKPI_OWN_CHUNK;

    for (uint64_t first = 0; first < r->numel; first += step) {
        const uint64_t count = CKPI_MIN(step, r->numel - first);
        const bool alone = own || r->numel > step;
        ckpi_group *g = alone ? add_group(l, &kind) : open_group(l, p, &kind, count);
        if (g == NULL || !add_piece(g, i, first, count, l->m_of[i], l->v_of[i]))
            return ckpi_fail(err, CKP_ENOMEM, "no memory for the layout of %zu tensors", p->t->n);
        if (alone)
            close_group(g);
    }
    return CKP_OK;
}

static void
set_bytes(ckpi_layout *l, const ckpi_table *t)
{
    for (size_t i = 0; i < l->n; i++) {
        ckpi_group *g = &l->g[i];
        g->bytes = 0;
        for (size_t k = 0; k < g->n_pieces; k++) {
            uint64_t b = 0;
            (void)ckpi_dtype_bytes(t->rec[g->piece[k].tensor].dtype, g->piece[k].count, &b);
            g->bytes += b;
        }
    }
}

ckp_status
ckpi_layout_new(ckpi_layout **out, const ckpi_table *t, bool lossy, ckpi_alone alone, const bool *no_loss, ckpi_packing packing,
                ckp_error *err)
{
    const plan p = {t, no_loss, lossy, alone, packing};
    ckpi_layout *l = ckpi_calloc(1, sizeof *l);
    bool *taken = NULL;          /* tensors that a lossy group covers */
    ckp_status st = CKP_OK;

    *out = NULL;
    if (l != NULL) {
        l->n_tensors = t->n;
        l->m_of = ckpi_malloc(t->n + 1, sizeof *l->m_of);
        l->v_of = ckpi_malloc(t->n + 1, sizeof *l->v_of);
        taken = ckpi_calloc(t->n + 1, sizeof *taken);
    }
    if (l == NULL || l->m_of == NULL || l->v_of == NULL || taken == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for the layout of %zu tensors", t->n);
        goto done;
    }
    memset(l->m_of, 0xff, (t->n + 1) * sizeof *l->m_of);
    memset(l->v_of, 0xff, (t->n + 1) * sizeof *l->v_of);
    find_moments(l, t);
    for (uint32_t i = 0; st == CKP_OK && i < t->n; i++) {
        if (!owner_is_lossy(l, &p, i))
            continue;
        taken[i] = true;
        if (l->m_of[i] != CKPI_NO_TENSOR)
            taken[l->m_of[i]] = true;
        if (l->v_of[i] != CKPI_NO_TENSOR)
            taken[l->v_of[i]] = true;
        st = add_tensor(l, &p, i, true, err);
    }
    for (uint32_t i = 0; st == CKP_OK && i < t->n; i++)
        if (!taken[i] && stored(&t->rec[i]))
            st = add_tensor(l, &p, i, false, err);
    if (st != CKP_OK)
        goto done;
    set_bytes(l, t);
    *out = l;
    l = NULL;
done:
    free(taken);
    ckpi_layout_free(l);
    return st;
}

void
ckpi_layout_free(ckpi_layout *l)
{
    if (l == NULL)
        return;
    for (size_t i = 0; i < l->n; i++) {
        free(l->g[i].piece);
        free(l->g[i].m);
        free(l->g[i].v);
    }
    free(l->g);
    free(l->m_of);
    free(l->v_of);
    free(l);
}

bool
ckpi_layout_equal(const ckpi_layout *a, const ckpi_layout *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const ckpi_group *x = &a->g[i], *y = &b->g[i];
        if (!same_kind(x, y) || x->n_pieces != y->n_pieces)
            return false;
        for (size_t k = 0; k < x->n_pieces; k++)
            if (x->piece[k].tensor != y->piece[k].tensor || x->piece[k].first != y->piece[k].first ||
                x->piece[k].count != y->piece[k].count)
                return false;
    }
    return true;
}
