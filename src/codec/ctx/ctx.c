/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/ctx/ctx.h"
#include "base/fail.h"
#include "codec/ctx/ctx_kern.h"
#include "codec/rans/rans.h"

/* Where each context's symbols begin in a buffer that holds them one context after the other; starts[contexts] = n. */
static void
find_starts(size_t starts[CKPI_CTX_MAX + 1], const uint8_t *ctx, size_t n, unsigned contexts)
{
    uint32_t hist[256];
    ckpi_rans_hist(ctx, n, hist);
    starts[0] = 0;
    for (unsigned c = 0; c < contexts; c++)
        starts[c + 1] = starts[c] + hist[c];
}

static void
split(uint8_t *sorted, const size_t *starts, const uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts, uint32_t cpu)
{
    uint8_t *at[CKPI_CTX_MAX];
    for (unsigned c = 0; c < contexts; c++)
        at[c] = sorted + starts[c];
    const ckpi_ctx_kern *kern = ckpi_ctx_kern_pick(cpu);
    for (size_t i = kern != NULL ? kern->split(sorted + n, at, sym, ctx, n, contexts) : 0; i < n; i++)
        *at[ctx[i]]++ = sym[i];
}

static void
merge(uint8_t *sym, const uint8_t **at, const uint8_t *ctx, size_t n, const uint8_t *end, unsigned contexts, uint32_t cpu)
{
    const ckpi_ctx_kern *kern = ckpi_ctx_kern_pick(cpu);
    for (size_t i = kern != NULL ? kern->merge(end, at, sym, ctx, n, contexts) : 0; i < n; i++)
        sym[i] = *at[ctx[i]]++;
}

ckp_status
ckpi_ctx_put(ckpi_buf *out, const uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts, ckpi_scratch *ws, uint32_t cpu,
             ckp_error *err)
{
    if (contexts == 1)
        return ckpi_stream_put(out, sym, n, ws, cpu, err);
    const size_t mark = ckpi_scratch_mark(ws);
    uint8_t *sorted = ckpi_scratch_get(ws, n);
    if (sorted == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "contexts: no memory for %zu symbols", n);
    size_t starts[CKPI_CTX_MAX + 1];
    find_starts(starts, ctx, n, contexts);
    split(sorted, starts, sym, ctx, n, contexts, cpu);
    ckp_status st = CKP_OK;
    for (unsigned c = 0; st == CKP_OK && c < contexts; c++)
        st = ckpi_stream_put(out, sorted + starts[c], starts[c + 1] - starts[c], ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}

ckp_status
ckpi_ctx_get(ckpi_rd *in, uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (contexts == 1)
        return ckpi_stream_get_to(in, sym, n, ws, cpu, err);
    const size_t mark = ckpi_scratch_mark(ws);
    uint8_t *sorted = ckpi_scratch_get(ws, n);
    if (sorted == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "contexts: no memory for %zu symbols", n);
    size_t starts[CKPI_CTX_MAX + 1];
    const uint8_t *at[CKPI_CTX_MAX];
    find_starts(starts, ctx, n, contexts);
    ckp_status st = CKP_OK;
    for (unsigned c = 0; st == CKP_OK && c < contexts; c++) {
        st = ckpi_stream_get_to(in, sorted + starts[c], starts[c + 1] - starts[c], ws, cpu, err);
        at[c] = sorted + starts[c];
    }
    if (st == CKP_OK)
        merge(sym, at, ctx, n, sorted + n, contexts, cpu);
    ckpi_scratch_release(ws, mark);
    return st;
}
