/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading into the caller's memory, all or nothing: every unit is decoded once for proof before the first byte of a target is written,
 * so that a restore that fails leaves the live model as it was.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/stream.h"
#include "engine/values.h"
#include "run/checkpoint.h"

#define NO_TARGET SIZE_MAX

/* Targets by the tensor in whose chunks their elements lie: aliases share one with it, copies with their master. */
typedef struct read_job {
    const ckp_checkpoint *ck;
    const ckp_target *target;
    size_t n;
    size_t *head;                /* by tensor: first target, or NO_TARGET */
    size_t *next;                /* by target */
    unsigned *want;              /* by unit: CKPI_WANT_* */
    bool write;
    bool large;                  /* no cache would hold what is written */
    uint32_t cpu;
} read_job;

ckp_status
ckpi_refuse_part(const ckpi_rec *r, ckp_error *err)
{
    const ckp_status st = ckpi_fail(err, CKP_EUNSUPPORTED, "a part of a tensor, %llu elements of it, is in this shard: open the run, which has all shards",
                                    (unsigned long long)r->numel);
    ckpi_fail_tensor(err, r->name);
    return st;
}

ckp_status
ckpi_target_check(const ckpi_table *tab, const ckp_target *t, bool parts, ckp_error *err)
{
    if (t->index >= tab->n)
        return ckpi_fail(err, CKP_ENOTFOUND, "no tensor %u; there are %zu", (unsigned)t->index, tab->n);
    const ckpi_rec *r = &tab->rec[t->index];
    bool same = t->ndim == r->ndim;
    for (unsigned i = 0; same && i < r->ndim; i++)
        same = t->shape != NULL && t->shape[i] == (r->box_shape != NULL ? r->box_shape[i] : r->shape[i]);
    /* memory for the whole tensor would keep what was in it; a box has a shape of its own, by which its reader knows it */
    if (!ckpi_rec_whole(r) && (r->flat ? !parts : !same))
        return ckpi_refuse_part(r, err);
    ckp_status st = CKP_OK;
    if (t->dtype != r->dtype)
        st = ckpi_fail(err, CKP_EMISMATCH, "saved as %s, the target is %s", ckp_dtype_name(r->dtype),
                       ckp_dtype_name(t->dtype) != NULL ? ckp_dtype_name(t->dtype) : "unknown");
    else if (!same)
        st = ckpi_fail(err, CKP_EMISMATCH, "shape differs from the target's: %u dimensions and %llu elements saved, %u dimensions given",
                       r->ndim, (unsigned long long)r->numel, t->ndim);
    else if (t->data == NULL && r->numel != 0)
        st = ckpi_fail(err, CKP_EINVAL, "the target has no memory");
    else if (t->strides != NULL && ckp_dtype_bits(r->dtype) % 8 != 0)
        st = ckpi_fail(err, CKP_EINVAL, "elements of less than a byte have no strides");
    if (st != CKP_OK)
        ckpi_fail_tensor(err, r->name);
    return st;
}

static void
want_chunks(read_job *j)
{
    const ckpi_fmt_file *f = j->ck->lin->level[0].f;

    for (uint32_t c = 0; c < f->n_chunks; c++) {
        bool wanted = false;
        for (size_t k = 0; !wanted && k < f->chunk[c].n_pieces; k++)
            wanted = j->head[f->chunk[c].piece[k].tensor] != NO_TARGET;
        const uint32_t u = j->ck->unit_of[c];
        const ckpi_unit *unit = &j->ck->unit[u];
        if (wanted)
            j->want[u] |= c == unit->w ? CKPI_WANT_W : c == unit->m ? CKPI_WANT_M : CKPI_WANT_V;
    }
}

static ckp_status
job_init(read_job *j, ckp_error *err)
{
    const ckpi_table *t = j->ck->lin->table;
    uint64_t bytes = 0;

    j->head = ckpi_malloc(t->n + 1, sizeof *j->head);
    j->next = ckpi_malloc(j->n + 1, sizeof *j->next);
    j->want = ckpi_calloc(j->ck->n_units + 1, sizeof *j->want);
    if (j->head == NULL || j->next == NULL || j->want == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to read %zu tensors", j->n);
    for (size_t i = 0; i < t->n; i++)
        j->head[i] = NO_TARGET;
    for (size_t i = 0; i < j->n; i++) {
        const ckp_status st = ckpi_target_check(t, &j->target[i], j->ck->parts, err);
        if (st != CKP_OK)
            return st;
        const uint32_t holder = ckpi_table_holder(t, j->target[i].index);
        j->next[i] = j->head[holder];
        j->head[holder] = i;
        bytes += t->rec[j->target[i].index].bytes;
    }
    j->large = bytes >= CKPI_STREAM_FROM;
    want_chunks(j);
    return CKP_OK;
}

static void
job_free(read_job *j)
{
    free(j->head);
    free(j->next);
    free(j->want);
}

/* Elements [first, first + count), in the target's dtype. */
static void
to_target(const ckp_target *t, uint64_t first, uint64_t count, const void *src, bool large)
{
    const size_t width = ckp_dtype_bits(t->dtype) / 8;
    uint64_t len = 0, skip = 0;

    if (t->strides != NULL) {
        ckpi_scatter(t->data, t->shape, t->strides, t->ndim, width, first, count, src);
        return;
    }
    (void)ckpi_dtype_bytes(t->dtype, count, &len);
    (void)ckpi_dtype_bytes(t->dtype, first, &skip);
    if (large)
        ckpi_stream((uint8_t *)t->data + skip, src, (size_t)len);
    else
        memcpy((uint8_t *)t->data + skip, src, (size_t)len);
}

#define ROUND_AT_ONCE 4096u

/* The same of a copy, from its master's elements. */
static void
to_copy(const ckp_target *t, uint64_t first, uint64_t count, const void *src, bool large)
{
    const uint8_t *master = src;
    uint16_t part[ROUND_AT_ONCE];

    for (uint64_t at = 0; at < count; at += ROUND_AT_ONCE) {
        const uint64_t n = CKPI_MIN(count - at, ROUND_AT_ONCE);
        ckpi_round_copy(t->dtype, part, master + 4 * at, (size_t)n);
        to_target(t, first + at, n, part, large);
    }
}

/* One decoded chunk to all targets that it belongs to. */
static ckp_status
to_targets(void *user, const ckpi_chunk *c, const void *bytes, ckp_error *err)
{
    const read_job *j = user;
    const uint8_t *src = bytes;

    (void)err;
    for (size_t k = 0; k < c->n_pieces; k++) {
        const ckpi_piece *p = &c->piece[k];
        const ckpi_rec *r = &j->ck->lin->table->rec[p->tensor];
        uint64_t len = 0;
        (void)ckpi_dtype_bytes(r->dtype, p->count, &len);
        for (size_t i = j->head[p->tensor]; i != NO_TARGET; i = j->next[i])
            (j->target[i].dtype == r->dtype ? to_target : to_copy)(&j->target[i], p->first, p->count, src, j->large);
        src += len;
    }
    return CKP_OK;
}

static ckp_status
read_unit(void *user, size_t u, ckpi_scratch *ws, ckp_error *err)
{
    const read_job *j = user;
    if (j->want[u] == 0)
        return CKP_OK;
    return ckpi_decode_unit(j->ck->lin, &j->ck->unit[u], j->want[u], j->write ? to_targets : NULL, (void *)(uintptr_t)j, ws, j->cpu, err);
}

/* Where it failed stays in *err. */
static ckp_status
partly_written(const read_job *j, ckp_status st, ckp_error *err)
{
    if (err == NULL)
        return CKP_EPARTIAL;
    char why[sizeof err->text];
    (void)memcpy(why, err->text, sizeof why);
    (void)snprintf(err->text, sizeof err->text, "%s twice while %zu tensors were being written, which now hold neither the old nor the new: %.500s",
                   ckp_status_name(st), j->n, why);
    err->code = CKP_EPARTIAL;
    return CKP_EPARTIAL;
}

/*
 * After proof, only the machine can fail the writing: memory that is short now and sufficed a moment ago, a file that can no longer be
 * read. Once more, with the memory of one thread, rather than leave tensors half written; and if that fails too, said so.
 */
static ckp_status
write_units(read_job *j, ckpi_ctx *ctx, ckp_error *err)
{
    j->write = true;
    ckp_status st = ckpi_ctx_run(ctx, j->ck->n_units, read_unit, j, err);
    if (st == CKP_OK)
        return st;
    st = CKP_OK;
    for (size_t u = 0; st == CKP_OK && u < j->ck->n_units; u++) {
        ckpi_scratch_reset(ctx->ws[0]);
        st = read_unit(j, u, ctx->ws[0], err);
    }
    return st == CKP_OK ? st : partly_written(j, st, err);
}

ckp_status
ckp_checkpoint_read(ckp_checkpoint *ck, const ckp_target *t, size_t n, unsigned threads, ckp_error *err)
{
    read_job j = {.ck = ck, .target = t, .n = n};
    ckpi_ctx *ctx = NULL;

    ckp_status st = ckpi_checkpoint_check(ck, err);
    if (st != CKP_OK)
        return st;
    if (n != 0 && t == NULL)
        return ckpi_fail(err, CKP_EINVAL, "checkpoint_read: no targets");
    st = job_init(&j, err);
    if (st == CKP_OK)
        st = ckpi_ctx_new(&ctx, threads, false, err);
    if (st == CKP_OK) {
        j.cpu = ctx->cpu;
        st = ckpi_ctx_run(ctx, ck->n_units, read_unit, &j, err);
    }
    if (st == CKP_OK)
        st = write_units(&j, ctx, err);
    ckpi_ctx_free(ctx);
    job_free(&j);
    return st;
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

typedef struct range_job {
    const ckpi_table *t;
    uint32_t holder;
    ckp_dtype dtype;             /* of dst; another than the holder's for a copy */
    uint64_t first, count;
    uint8_t *dst;
} range_job;

static ckp_status
to_range(void *user, const ckpi_chunk *c, const void *bytes, ckp_error *err)
{
    const range_job *j = user;
    const uint8_t *src = bytes;

    (void)err;
    for (size_t k = 0; k < c->n_pieces; k++) {
        const ckpi_piece *p = &c->piece[k];
        const ckp_dtype dt = j->t->rec[p->tensor].dtype;
        uint64_t len = 0;
        (void)ckpi_dtype_bytes(dt, p->count, &len);
        const uint64_t lo = CKPI_MAX(p->first, j->first), hi = CKPI_MIN(p->first + p->count, j->first + j->count);
        if (p->tensor == j->holder && lo < hi) {
            uint64_t from = 0, to = 0, part = 0;
            (void)ckpi_dtype_bytes(dt, lo - p->first, &from);
            (void)ckpi_dtype_bytes(j->dtype, lo - j->first, &to);
            (void)ckpi_dtype_bytes(dt, hi - lo, &part);
            if (j->dtype == dt)
                memcpy(j->dst + to, src + from, (size_t)part);
            else
                ckpi_round_copy(j->dtype, j->dst + to, src + from, (size_t)(hi - lo));
        }
        src += len;
    }
    return CKP_OK;
}

static ckp_status
check_range(const ckp_checkpoint *ck, uint32_t index, uint64_t first, uint64_t count, const void *dst, ckp_error *err)
{
    uint64_t bytes = 0;

    if (index >= ck->lin->table->n)
        return ckpi_fail(err, CKP_ENOTFOUND, "no tensor %u; there are %zu", (unsigned)index, ck->lin->table->n);
    const ckpi_rec *r = &ck->lin->table->rec[index];
    ckp_status st = CKP_OK;
    if (first > r->numel || count > r->numel - first)
        st = ckpi_fail(err, CKP_EINVAL, "elements [%llu, %llu + %llu) are not within its %llu", (unsigned long long)first,
                       (unsigned long long)first, (unsigned long long)count, (unsigned long long)r->numel);
    else if (!ckpi_dtype_bytes(r->dtype, first, &bytes) || !ckpi_dtype_bytes(r->dtype, count, &bytes))
        st = ckpi_fail(err, CKP_EINVAL, "a range of packed elements must start and end on a byte");
    else if (dst == NULL && count != 0)
        st = ckpi_fail(err, CKP_EINVAL, "no memory to read into");
    if (st != CKP_OK)
        ckpi_fail_tensor(err, r->name);
    return st;
}

ckp_status
ckp_checkpoint_read_range(ckp_checkpoint *ck, uint32_t index, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    ckpi_ctx *ctx = NULL;

    ckp_status st = ckpi_checkpoint_check(ck, err);
    if (st == CKP_OK)
        st = check_range(ck, index, first, count, dst, err);
    if (st == CKP_OK)
        st = ckpi_ctx_new(&ctx, 1, false, err);
    if (st != CKP_OK)
        return st;
    const ckpi_rec *r = &ck->lin->table->rec[index];
    range_job j = {ck->lin->table, ckpi_table_holder(ck->lin->table, index), r->dtype, first, count, dst};
    for (uint64_t at = first; st == CKP_OK && at < first + count;) {
        const ckpi_chunk_key *k = ckpi_lineage_find(ck->lin, 0, j.holder, at);
        if (k == NULL) {
            st = ckpi_fail(err, CKP_EINTERNAL, "element %llu of %s is in no chunk", (unsigned long long)at, r->name);
            break;
        }
        const ckpi_chunk *c = &ck->lin->level[0].f->chunk[k->chunk];
        const ckpi_unit *u = &ck->unit[ck->unit_of[k->chunk]];
        const unsigned want = k->chunk == u->w ? CKPI_WANT_W : k->chunk == u->m ? CKPI_WANT_M : CKPI_WANT_V;
        ckpi_scratch_reset(ctx->ws[0]);
        st = ckpi_decode_unit(ck->lin, u, want, to_range, &j, ctx->ws[0], ctx->cpu, err);
        at = c->piece[k->piece].first + c->piece[k->piece].count;
    }
    ckpi_ctx_free(ctx);
    return st;
}
