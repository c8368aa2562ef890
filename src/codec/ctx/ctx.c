/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/ctx/ctx.h"
#include <string.h>
#include "base/fail.h"
#include "codec/count/count.h"
#include "codec/ctx/ctx_kern.h"
#include "codec/rans/rans.h"

/*
 * A buffer with the symbols of one context after those of the other. Vectors are stored and loaded whole, so each context has
 * GAP bytes behind its symbols that nobody reads.
 */
enum { GAP = 64 };

typedef struct sorted {
    uint8_t *bytes;
    size_t start[CKPI_CTX_MAX], count[CKPI_CTX_MAX];
} sorted;

static ckp_status
sorted_make(sorted *s, size_t n, unsigned contexts, ckpi_scratch *ws, ckp_error *err)
{
    size_t at = 0;
    for (unsigned c = 0; c < contexts; c++) {
        s->start[c] = at;
        at += s->count[c] + GAP;
    }
    s->bytes = ckpi_scratch_get(ws, at);
    return s->bytes != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "contexts: no memory for %zu symbols", n);
}

/* The histogram of each context, in one pass; neighbours count in tables of their own, so that none waits for the other's store. */
static void
count_pairs(uint32_t (*hist)[256], const uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts)
{
    uint32_t(*odd)[256] = hist + contexts;
    memset(hist, 0, 2 * contexts * sizeof *hist);
    size_t i = 0;
    for (; i + 2 <= n; i += 2) {
        hist[ctx[i]][sym[i]]++;
        odd[ctx[i + 1]][sym[i + 1]]++;
    }
    for (; i < n; i++)
        hist[ctx[i]][sym[i]]++;
    for (unsigned c = 0; c < contexts; c++) {
        for (unsigned k = 0; k < 256; k++)
            hist[c][k] += odd[c][k];
    }
}

static void
sum_up(sorted *s, uint32_t total[256], uint32_t (*hist)[256], unsigned contexts)
{
    memset(total, 0, 256 * sizeof *total);
    for (unsigned c = 0; c < contexts; c++) {
        s->count[c] = 0;
        for (unsigned k = 0; k < 256; k++) {
            total[k] += hist[c][k];
            s->count[c] += hist[c][k];
        }
    }
}

static void
split(const sorted *s, const uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts, uint32_t cpu)
{
    uint8_t *at[CKPI_CTX_MAX];
    for (unsigned c = 0; c < contexts; c++)
        at[c] = s->bytes + s->start[c];
    const ckpi_ctx_kern *kern = ckpi_ctx_kern_pick(cpu);
    for (size_t i = kern != NULL ? kern->split(at, sym, ctx, n, contexts) : 0; i < n; i++)
        *at[ctx[i]]++ = sym[i];
}

static void
merge(uint8_t *sym, const sorted *s, const uint8_t *ctx, size_t n, unsigned contexts, uint32_t cpu)
{
    const uint8_t *at[CKPI_CTX_MAX];
    for (unsigned c = 0; c < contexts; c++)
        at[c] = s->bytes + s->start[c];
    const ckpi_ctx_kern *kern = ckpi_ctx_kern_pick(cpu);
    for (size_t i = kern != NULL ? kern->merge(at, sym, ctx, n, contexts) : 0; i < n; i++)
        sym[i] = *at[ctx[i]]++;
}

ckp_status
ckpi_ctx_put(ckpi_buf *out, const uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts, uint32_t total[256], ckpi_scratch *ws,
             uint32_t cpu, ckp_error *err)
{
    if (contexts == 1) {
        ckpi_rans_hist(sym, n, total);
        return ckpi_stream_put_counted(out, sym, n, total, ws, cpu, err);
    }
    const size_t mark = ckpi_scratch_mark(ws);
    uint32_t(*hist)[256] = ckpi_scratch_get(ws, 2 * contexts * sizeof *hist);
    if (hist == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "contexts: no memory for %u histograms", contexts);
    sorted s;
    count_pairs(hist, sym, ctx, n, contexts);
    sum_up(&s, total, hist, contexts);
    ckp_status st = sorted_make(&s, n, contexts, ws, err);
    if (st == CKP_OK)
        split(&s, sym, ctx, n, contexts, cpu);
    for (unsigned c = 0; st == CKP_OK && c < contexts; c++)
        st = ckpi_stream_put_counted(out, s.bytes + s.start[c], s.count[c], hist[c], ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}

ckp_status
ckpi_ctx_get(ckpi_rd *in, uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (contexts == 1)
        return ckpi_stream_get_to(in, sym, n, ws, cpu, err);
    const size_t mark = ckpi_scratch_mark(ws);
    sorted s;
    for (unsigned c = 0; c < contexts; c++)
        s.count[c] = ckpi_count_byte(ctx, n, c, cpu);
    ckp_status st = sorted_make(&s, n, contexts, ws, err);
    for (unsigned c = 0; st == CKP_OK && c < contexts; c++)
        st = ckpi_stream_get_to(in, s.bytes + s.start[c], s.count[c], ws, cpu, err);
    if (st == CKP_OK)
        merge(sym, &s, ctx, n, contexts, cpu);
    ckpi_scratch_release(ws, mark);
    return st;
}
