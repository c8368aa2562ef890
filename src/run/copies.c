/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "engine/stage.h"
#include "engine/values.h"
#include "run/copies.h"
#include "state/hindex.h"

/* Values that a tensor is recognised by. */
#define SAMPLES 16u
/* Elements that are compared in one go. */
#define BLOCK ((uint64_t)1 << 18)

static bool
may_be_copy(const ckpi_tensor *t)
{
    return t->alias_of == CKPI_NO_TENSOR && t->numel != 0 && ckpi_copy_dtypes(CKP_F32, t->dtype);
}

static bool
may_be_master(const ckpi_tensor *t)
{
    return t->alias_of == CKPI_NO_TENSOR && t->numel != 0 && t->dtype == CKP_F32;
}

static uint32_t
payload_of(const ckp_state *s, uint32_t i)
{
    return i != CKPI_NO_TENSOR && s->t[i].alias_of != CKPI_NO_TENSOR ? s->t[i].alias_of : i;
}

/* ---- comparing ---------------------------------------------------------------------------------------------------- */

typedef struct part { uint32_t copy; uint64_t first; } part;

typedef struct compare_job {
    const ckp_state *s;
    const uint32_t *master;
    atomic_bool *differs;        /* by copy */
    part *part;
    size_t n;
} compare_job;

/* Elements where they lie, or brought together in scratch. */
static ckp_status
elements(const void **out, const ckpi_tensor *t, uint64_t first, size_t n, size_t width, ckpi_scratch *ws, ckp_error *err)
{
    *out = ckpi_tensor_direct(t, first);
    if (*out != NULL)
        return CKP_OK;
    void *tmp = ckpi_scratch_get(ws, n * width);
    *out = tmp;
    return tmp != NULL ? ckpi_tensor_copy_out(t, first, n, tmp, err) : ckpi_fail(err, CKP_ENOMEM, "no memory to compare %zu elements", n);
}

static ckp_status
compare_part(void *user, size_t i, ckpi_scratch *ws, ckp_error *err)
{
    const compare_job *j = user;
    const part *p = &j->part[i];
    const ckpi_tensor *copy = &j->s->t[p->copy], *master = &j->s->t[j->master[p->copy]];
    const size_t n = (size_t)CKPI_MIN(copy->numel - p->first, BLOCK), mark = ckpi_scratch_mark(ws);
    const void *c = NULL, *m = NULL;

    if (atomic_load_explicit(&j->differs[p->copy], memory_order_relaxed))
        return CKP_OK;
    ckp_status st = elements(&c, copy, p->first, n, 2, ws, err);
    if (st == CKP_OK)
        st = elements(&m, master, p->first, n, 4, ws, err);
    uint8_t *rounded = st == CKP_OK ? ckpi_scratch_get(ws, 2 * n) : NULL;
    if (st == CKP_OK && rounded == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to compare %zu elements", n);
    if (st == CKP_OK) {
        ckpi_round_copy(copy->dtype, rounded, m, n);
        if (memcmp(rounded, c, 2 * n) != 0)
            atomic_store_explicit(&j->differs[p->copy], true, memory_order_relaxed);
    } else {
        ckpi_fail_tensor(err, copy->name);
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

static bool
list_parts(compare_job *j)
{
    size_t n = 0;

    for (size_t i = 0; i < j->s->n; i++)
        n += j->master[i] != CKPI_NO_TENSOR ? (size_t)((j->s->t[i].numel + BLOCK - 1) / BLOCK) : 0;
    j->part = ckpi_malloc(n + 1, sizeof *j->part);
    j->differs = ckpi_calloc(j->s->n + 1, sizeof *j->differs);
    for (uint32_t i = 0; j->part != NULL && j->differs != NULL && i < j->s->n; i++)
        for (uint64_t first = 0; j->master[i] != CKPI_NO_TENSOR && first < j->s->t[i].numel; first += BLOCK)
            j->part[j->n++] = (part){i, first};
    return j->part != NULL && j->differs != NULL;
}

/* Takes those out of master whose elements are not the rounded ones. *all: there were none. Pull sources are read on this thread only. */
static ckp_status
prove(const ckp_state *s, uint32_t *master, bool *all, ckpi_ctx *ctx, ckp_error *err)
{
    compare_job j = {.s = s, .master = master};
    ckp_status st = list_parts(&j) ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to compare %zu tensors", s->n);

    if (st == CKP_OK && !ckpi_state_pulls(s))
        st = ckpi_ctx_run(ctx, j.n, compare_part, &j, err);
    else
        for (size_t i = 0; st == CKP_OK && i < j.n; i++) {
            ckpi_scratch_reset(ctx->ws[0]);
            st = compare_part(&j, i, ctx->ws[0], err);
        }
    *all = true;
    for (size_t i = 0; st == CKP_OK && i < s->n; i++) {
        if (!atomic_load_explicit(&j.differs[i], memory_order_relaxed))
            continue;
        master[i] = CKPI_NO_TENSOR;
        *all = false;
    }
    free(j.part);
    free(j.differs);
    return st;
}

/* ---- declared ------------------------------------------------------------------------------------------------------ */

/*
 * The master of a tensor: that which has it, or its own owner, as its owner; for the role COPY also the owner itself.
 */
static uint32_t
declared(const ckp_state *s, const uint32_t *master_of, uint32_t i)
{
    const ckpi_tensor *t = &s->t[i];
    const uint32_t owner = payload_of(s, t->owner);

    if (master_of[i] != CKPI_NO_TENSOR || t->role != CKP_ROLE_COPY || owner == CKPI_NO_TENSOR)
        return master_of[i];
    return s->t[owner].role != CKP_ROLE_MASTER && master_of[owner] != CKPI_NO_TENSOR ? master_of[owner] : owner;
}

/* master: filled for all rows. */
static ckp_status
take_declared(const ckp_state *s, uint32_t *master, ckp_error *err)
{
    uint32_t *master_of = ckpi_malloc(s->n + 1, sizeof *master_of);

    if (master_of == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu masters", s->n);
    for (size_t i = 0; i < s->n; i++)
        master_of[i] = CKPI_NO_TENSOR;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->t[i].role == CKP_ROLE_MASTER && s->t[i].owner != CKPI_NO_TENSOR)
            master_of[payload_of(s, s->t[i].owner)] = payload_of(s, i);
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t m = may_be_copy(&s->t[i]) ? declared(s, master_of, i) : CKPI_NO_TENSOR;
        const bool fits = m != CKPI_NO_TENSOR && may_be_master(&s->t[m]) && s->t[m].numel == s->t[i].numel;
        master[i] = fits ? m : CKPI_NO_TENSOR;
    }
    free(master_of);
    return CKP_OK;
}

/* Those of the base's table that can be asked of this state. False: not even the names are the same. */
static bool
take_like(const ckp_state *s, const ckpi_table *like, uint32_t *master)
{
    bool same = like->n == s->n;

    for (size_t i = 0; same && i < s->n; i++) {
        const uint32_t m = like->rec[i].copy_of;
        master[i] = m;
        same = strcmp(like->rec[i].name, s->t[i].name) == 0 &&
               (m == CKPI_NO_TENSOR || (may_be_copy(&s->t[i]) && may_be_master(&s->t[m]) && s->t[m].numel == s->t[i].numel));
    }
    return same;
}

/* ---- found --------------------------------------------------------------------------------------------------------- */

/* A few values that lie evenly over a tensor, as `as`; false where they are all one value and say nothing. */
static ckp_status
sample(const ckpi_tensor *t, ckp_dtype as, uint64_t *hash, bool *tells, ckp_error *err)
{
    uint16_t word[SAMPLES];
    const size_t width = t->dtype == CKP_F32 ? 4 : 2;

    *tells = false;
    for (size_t k = 0; k < SAMPLES; k++) {
        uint8_t one[4];
        const ckp_status st = ckpi_tensor_copy_out(t, (t->numel - 1) / (SAMPLES - 1) * k, 1, one, err);
        if (st != CKP_OK)
            return st;
        if (width == 4)
            ckpi_round_copy(as, &word[k], one, 1);
        else
            (void)memcpy(&word[k], one, 2);
        *tells = *tells || word[k] != word[0];
    }
    const uint64_t key[3] = {ckpi_hash64(word, sizeof word), t->numel, (uint64_t)as};
    *hash = ckpi_hash64(key, sizeof key);
    return CKP_OK;
}

static bool
is_moment(ckp_role r)
{
    return r == CKP_ROLE_M || r == CKP_ROLE_V || r == CKP_ROLE_MOMENTUM || r == CKP_ROLE_AVERAGE;
}

/* Enough elements to tell tensors by. */
static bool
may_be_found(const ckpi_tensor *t)
{
    return t->numel >= SAMPLES && !is_moment(t->role);
}

static ckp_status
index_masters(const ckp_state *s, ckpi_hindex *ix, ckp_error *err)
{
    static const ckp_dtype as[] = {CKP_BF16, CKP_F16};

    for (uint32_t i = 0; i < s->n; i++)
        for (size_t k = 0; may_be_master(&s->t[i]) && may_be_found(&s->t[i]) && k < 2; k++) {
            uint64_t hash = 0;
            bool tells = false;
            const ckp_status st = sample(&s->t[i], as[k], &hash, &tells, err);
            if (st != CKP_OK)
                return st;
            if (tells && !ckpi_hindex_put(ix, hash, i))
                return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu masters", s->n);
        }
    return CKP_OK;
}

/* Whether a master is looked for: of all tensors, or of those alone that say they are copies, of whatever. */
static bool
is_sought(const ckpi_tensor *t, const uint32_t *master, bool all)
{
    return *master == CKPI_NO_TENSOR && may_be_copy(t) && may_be_found(t) && (all || (t->role == CKP_ROLE_COPY && t->owner == CKPI_NO_TENSOR));
}

/* Where two sought tensors are one master's rounding, one of them may be a snapshot of the other, to stay as it is: neither is a copy. */
static ckp_status
only_ones(const ckp_state *s, uint32_t *master, ckp_error *err)
{
    uint8_t *copies = ckpi_calloc(s->n + 1, 1);

    if (copies == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu masters", s->n);
    for (size_t i = 0; i < s->n; i++)
        if (master[i] != CKPI_NO_TENSOR && copies[master[i]] < 2)
            copies[master[i]]++;
    for (size_t i = 0; i < s->n; i++)
        if (master[i] != CKPI_NO_TENSOR && copies[master[i]] > 1 && s->t[i].role == CKP_ROLE_COPY && s->t[i].owner == CKPI_NO_TENSOR)
            master[i] = CKPI_NO_TENSOR;
    free(copies);
    return CKP_OK;
}

static ckp_status
find(const ckp_state *s, uint32_t *master, bool all, ckp_error *err)
{
    ckpi_hindex ix = {0};

    bool any = false;
    for (size_t i = 0; i < s->n; i++)
        any = any || is_sought(&s->t[i], &master[i], all);
    ckp_status st = any ? index_masters(s, &ix, err) : CKP_OK;
    for (size_t i = 0; any && st == CKP_OK && i < s->n; i++) {
        uint64_t hash = 0;
        bool tells = false;
        size_t at = 0;
        if (!is_sought(&s->t[i], &master[i], all))
            continue;
        st = sample(&s->t[i], s->t[i].dtype, &hash, &tells, err);
        const uint32_t m = st == CKP_OK && tells ? ckpi_hindex_next(&ix, hash, &at) : CKPI_HINDEX_NONE;
        if (m != CKPI_HINDEX_NONE && s->t[m].numel == s->t[i].numel)
            master[i] = m;
    }
    ckpi_hindex_free(&ix);
    return st == CKP_OK && !all ? only_ones(s, master, err) : st;
}

/* ---- both ---------------------------------------------------------------------------------------------------------- */

/* Moments of a weight that is derived are the master's: it is the master that is predicted and quantized. */
static void
move_moments(ckpi_table *t, const uint32_t *master)
{
    for (size_t i = 0; i < t->n; i++) {
        ckpi_rec *r = &t->rec[i];
        const bool moment = r->role == CKP_ROLE_M || r->role == CKP_ROLE_V || r->role == CKP_ROLE_MOMENTUM;
        if (moment && r->owner != CKPI_NO_TENSOR) {
            const uint32_t w = t->rec[r->owner].alias_of != CKPI_NO_TENSOR ? t->rec[r->owner].alias_of : r->owner;
            r->owner = master[w] != CKPI_NO_TENSOR ? master[w] : r->owner;
        }
    }
}

bool
ckpi_copies_strayed(const ckpi_table *t, const ckp_state *s, size_t i)
{
    return s->t[i].role == CKP_ROLE_COPY && s->t[i].owner == CKPI_NO_TENSOR && t->rec[i].copy_of == CKPI_NO_TENSOR;
}

/* So that a base model predicts them, and nobody takes them for what is derived. */
static ckp_status
strays_are_weights(ckpi_table *t, const ckp_state *s, ckp_error *err)
{
    bool any = false;

    for (size_t i = 0; i < s->n; i++)
        if (ckpi_copies_strayed(t, s, i)) {
            t->rec[i].role = CKP_ROLE_WEIGHT;
            any = true;
        }
    return any ? ckpi_table_rehash(t, err) : CKP_OK;
}

ckp_status
ckpi_copies_link(ckpi_table *t, const ckp_state *s, const ckpi_copies *how, ckp_error *err)
{
    if (how->ctx == NULL)
        return strays_are_weights(t, s, err);
    uint32_t *master = ckpi_malloc(s->n + 1, sizeof *master);
    bool done = false, any = false;

    ckp_status st = master != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu masters", s->n);
    if (st == CKP_OK && how->like != NULL && take_like(s, how->like, master))
        st = prove(s, master, &done, how->ctx, err);
    if (st == CKP_OK && !done) {
        st = take_declared(s, master, err);
        if (st == CKP_OK)
            st = find(s, master, how->search, err);
        if (st == CKP_OK)
            st = prove(s, master, &done, how->ctx, err);
    }
    for (size_t i = 0; st == CKP_OK && i < s->n; i++)
        any = any || master[i] != CKPI_NO_TENSOR;
    if (any) {
        move_moments(t, master);
        st = ckpi_table_link_copies(t, master, err);
    }
    free(master);
    return st == CKP_OK ? strays_are_weights(t, s, err) : st;
}
