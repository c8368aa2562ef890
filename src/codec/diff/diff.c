/* SPDX-License-Identifier: Apache-2.0 */
/* Ordered-integer difference with the base. */
#include "codec/diff/diff.h"
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/ctx/ctx.h"
#include "codec/rans/rans.h"
#include "codec/rows.h"

enum {
    MANY = 65536,         /* elements that pay for eight tables of a hundred symbols */
    SOME = 8192,
    FEW = 2048,
    HEADER = 1 + 1 + 1 + 2
};

bool
ckpi_diff_par_of(ckpi_diff_par *p, const ckpi_block *b)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(b->dtype);
    *p = (ckpi_diff_par){.width = b->width, .contexts = 1};
    if (info != NULL && info->kind == CKPI_KIND_FLOAT && info->bits == 8 * b->width && 1u + info->exp_bits + info->mant_bits == info->bits) {
        p->is_float = true;
        p->mant = info->mant_bits;
    }
    return b->width == 1 || b->width == 2 || b->width == 4 || b->width == 8;
}

static bool
diff_fits(const ckpi_block *b)
{
    ckpi_diff_par p;
    return b->base != NULL && ckpi_diff_par_of(&p, b);
}

static size_t
diff_bound(const ckpi_block *b)
{
    return HEADER + b->n * b->width;
}

static unsigned
exponent_at(const ckpi_diff_par *p, const uint8_t *base, size_t i)
{
    const uint8_t *at = base + i * p->width;
    const uint64_t word = p->width == 1 ? *at : p->width == 2 ? ckpi_ld16(at) : p->width == 4 ? ckpi_ld32(at) : ckpi_ld64(at);
    return (unsigned)((word & (UINT64_MAX >> (65 - 8 * p->width))) >> p->mant);
}

/*
 * Contexts: the exponents of the base one by one, from the highest down, but for the rare ones at both ends, which join their
 * neighbours: a table for a few symbols costs more than it saves.
 */
static void
choose_contexts(ckpi_diff_par *p, const void *base, size_t n, unsigned most)
{
    enum { ASKED = 2048, EXPONENTS = 2048, RARE = 16 };
    uint16_t count[EXPONENTS] = {0};
    const size_t asked = CKPI_MIN(n, (size_t)ASKED), step = n / asked;
    for (size_t i = 0; i < asked; i++)
        count[exponent_at(p, base, i * step)]++;
    size_t above = 0;
    p->top = EXPONENTS - 1;
    while (p->top > 0 && (above += count[p->top]) * RARE < asked)
        p->top--;
    p->contexts = 1;
    while (p->contexts < most && p->contexts <= p->top && (asked - above) * RARE >= asked)
        above += count[p->top - p->contexts++];
}

static void
choose(ckpi_diff_par *p, const ckpi_block *b)
{
    p->msb = b->n >= SOME ? 2 : b->n >= FEW ? 1 : 0;
    if (b->width == 8)
        p->msb = CKPI_MIN(p->msb, 1u); /* a symbol is one byte */
    if (p->is_float && b->n >= SOME)
        choose_contexts(p, b->base, b->n, b->n >= MANY ? 8 : 4);
}

static size_t
counted_bytes(const uint32_t hist[256], const uint8_t rest[256])
{
    uint64_t bits = 0;
    for (unsigned s = 0; s < 256; s++)
        bits += (uint64_t)hist[s] * rest[s];
    return (size_t)((bits + 7) / 8);
}

static ckp_status
encode_coded(ckpi_buf *out, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_diff_par p;
    ckpi_diff_par_of(&p, b);
    choose(&p, b);
    uint8_t *sym = ckpi_scratch_get(ws, b->n), *ctx = ckpi_scratch_get(ws, b->n);
    void *magnitude = ckpi_scratch_get(ws, b->n * b->width);
    if (sym == NULL || ctx == NULL || magnitude == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "diff: no memory for %zu elements", b->n);
    const ckpi_diff_kern *kern = ckpi_diff_kern_pick(b->width, cpu);
    ckpi_diff_symbols(&p, b->data, b->base, b->n, sym, magnitude, cpu);
    if (p.contexts > 1)
        kern->contexts(&p, b->base, b->n, ctx);

    ckpi_buf_u8(out, CKPI_DIFF_CODED);
    ckpi_buf_u8(out, (uint8_t)p.msb);
    ckpi_buf_u8(out, (uint8_t)p.contexts);
    ckpi_buf_u16(out, (uint16_t)p.top);
    uint32_t hist[256];
    const ckp_status st = ckpi_ctx_put(out, sym, ctx, b->n, p.contexts, hist, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    uint8_t rest[256];
    ckpi_diff_rest_bits(rest, p.msb, p.width);
    const size_t bytes = counted_bytes(hist, rest);
    uint8_t *place = ckpi_buf_extend(out, bytes);
    if (place != NULL)
        ckpi_diff_bits_pick(p.width, cpu)->put(place, bytes, sym, magnitude, b->n, rest);
    return ckpi_buf_status(out, err, "diff");
}

static ckp_status
diff_encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (cap < diff_bound(b))
        return ckpi_fail(err, CKP_EINVAL, "diff: room for %zu of %zu bytes", cap, diff_bound(b));
    const size_t mark = ckpi_scratch_mark(ws);
    ckpi_buf out = ckpi_stream_out(dst, diff_bound(b));
    ckp_status st = b->n != 0 ? encode_coded(&out, b, ws, cpu, err) : CKP_ELIMIT;
    ckpi_scratch_release(ws, mark);
    if (st == CKP_ELIMIT) { /* unrelated data: symbols and bits take more room than the words */
        dst[0] = CKPI_DIFF_STORED;
        out.len = 1 + b->n * b->width;
        if (b->n != 0)
            memcpy(dst + 1, b->data, b->n * b->width);
        st = CKP_OK;
    }
    *len = out.len;
    return st;
}

static ckp_status
get_header(ckpi_rd *in, ckpi_diff_par *p, ckp_error *err)
{
    p->msb = ckpi_rd_u8(in);
    p->contexts = ckpi_rd_u8(in);
    p->top = ckpi_rd_u16(in);
    if (p->msb > CKPI_DIFF_MSB_MAX || p->contexts == 0 || p->contexts > CKPI_CTX_MAX || (p->contexts > 1 && !p->is_float))
        ckpi_rd_fail(in, "bits of a symbol and contexts in their range");
    return ckpi_rd_ok(in) ? CKP_OK : ckpi_rd_error(in, err, "diff header");
}

static ckp_status
decode_coded(ckpi_rd *in, const ckpi_block *b, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_diff_par p;
    ckpi_diff_par_of(&p, b);
    ckp_status st = get_header(in, &p, err);
    if (st != CKP_OK)
        return st;
    uint8_t *sym = ckpi_scratch_get(ws, b->n), *ctx = ckpi_scratch_get(ws, b->n);
    void *magnitude = ckpi_scratch_get(ws, b->n * b->width);
    if (sym == NULL || ctx == NULL || magnitude == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "diff: no memory for %zu elements", b->n);
    if (p.contexts > 1)
        ckpi_diff_kern_pick(b->width, cpu)->contexts(&p, b->base, b->n, ctx);
    st = ckpi_ctx_get(in, sym, ctx, b->n, p.contexts, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    const size_t left = ckpi_rd_left(in);
    const uint64_t bits = ckpi_diff_join(&p, dst, b->base, in->data + in->pos, left, sym, b->n, magnitude, cpu);
    if ((bits + 7) / 8 != left) {
        ckpi_rd_fail(in, "exactly the low bits of all differences");
        return ckpi_rd_error(in, err, "diff");
    }
    return CKP_OK;
}

static ckp_status
diff_decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_rd in = ckpi_rd_init(src, len, 0);
    const uint8_t form = ckpi_rd_u8(&in);
    if (form == CKPI_DIFF_STORED && len == 1 + b->n * b->width) {
        if (len > 1)
            memcpy(dst, src + 1, len - 1);
        return CKP_OK;
    }
    if (form != CKPI_DIFF_CODED || b->n == 0) {
        ckpi_rd_fail(&in, "a known form of difference, of the right length");
        return ckpi_rd_error(&in, err, "diff");
    }
    const size_t mark = ckpi_scratch_mark(ws);
    const ckp_status st = decode_coded(&in, b, dst, ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}

const ckpi_codec ckpi_codec_diff = {.id = CKPI_CODEC_DIFF,
                                    .name = "diff",
                                    .needs_base = true,
                                    .takes_base = true,
                                    .fits = diff_fits,
                                    .bound = diff_bound,
                                    .encode = diff_encode,
                                    .decode = diff_decode};
