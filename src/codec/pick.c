/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing a codec for a chunk. Small chunks are coded with every codec that fits and the smallest stays. Of a large one a
 * sample of slices is coded so; those within a margin of the best are then tried on the whole chunk.
 */
#include <string.h>
#include "base/bytes.h"
#include "base/checked.h"
#include "base/fail.h"
#include "codec/rows.h"

enum {
    WHOLE = 16384,        /* elements up to which a sample would not be smaller than the block */
    SLICES = 8,
    SLICE = 1024,         /* elements: whole runs, so that repeats and rows are seen */
    MAX_CANDIDATES = 16
};

typedef struct candidate {
    const ckpi_codec *codec;
    bool with_base;
    size_t sample_len;
} candidate;

size_t
ckpi_codec_pick_bound(const ckpi_block *b)
{
    size_t most = b->n * b->width + 64;
    for (size_t i = 0; ckpi_codec_at(i) != NULL; i++)
        most = CKPI_MAX(most, ckpi_codec_at(i)->bound(b));
    return most;
}

/* Every way to code the block, the cheapest to decode first: a tie goes to the first. */
static size_t
list(candidate *out, const ckpi_block *b, ckpi_effort effort)
{
    static const uint8_t order[] = {CKPI_CODEC_ZERO, CKPI_CODEC_RAW, CKPI_CODEC_MASK, CKPI_CODEC_PLANES,
                                    CKPI_CODEC_RANS, CKPI_CODEC_DIFF, CKPI_CODEC_LZ};
    size_t n = 0;
    (void)effort;
    for (size_t i = 0; i < sizeof order; i++) {
        const ckpi_codec *c = ckpi_codec_find(order[i]);
        ckpi_block plain = *b;
        plain.base = NULL;
        if (!c->needs_base && c->fits(&plain))
            out[n++] = (candidate){.codec = c};
        if (c->takes_base && b->base != NULL && c->fits(b))
            out[n++] = (candidate){.codec = c, .with_base = true};
    }
    return n;
}

static ckp_status
encode(const candidate *c, const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_block view = *b;
    if (!c->with_base)
        view.base = NULL;
    const size_t mark = ckpi_scratch_mark(ws);
    const ckp_status st = c->codec->encode(&view, dst, cap, len, ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}

/* Codes b with each candidate in turn, into dst or spare, and leaves the smallest in dst. */
static ckp_status
try_all(const candidate *c, size_t count, const ckpi_block *b, uint8_t *dst, uint8_t *spare, size_t cap, size_t *len, const candidate **best,
        ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    uint8_t *at = dst;   /* where the next one goes */
    uint8_t *kept = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t got = 0;
        const ckp_status st = encode(&c[i], b, at, cap, &got, ws, cpu, err);
        if (st != CKP_OK)
            return st;
        if (kept != NULL && got >= *len)
            continue;
        *len = got;
        *best = &c[i];
        kept = at;
        at = at == dst ? spare : dst;
    }
    if (kept != dst)
        memcpy(dst, spare, *len);
    return CKP_OK;
}

static void
copy_slices(uint8_t *dst, const void *src, const ckpi_block *b)
{
    const size_t step = (b->n - SLICE) / (SLICES - 1), bytes = (size_t)SLICE * b->width;
    for (size_t i = 0; i < SLICES; i++)
        memcpy(dst + i * bytes, (const uint8_t *)src + i * step * b->width, bytes);
}

/* Drops candidates that a sample shows to be no use. */
static ckp_status
shorten(candidate *c, size_t *count, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_block s = *b;
    s.n = SLICES * SLICE;
    s.cols = 0;
    const size_t bytes = s.n * s.width, cap = ckpi_codec_pick_bound(&s);
    uint8_t *data = ckpi_scratch_get(ws, bytes), *base = ckpi_scratch_get(ws, bytes), *out = ckpi_scratch_get(ws, cap);
    if (data == NULL || base == NULL || out == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "pick: no memory for a sample of %zu bytes", bytes);
    copy_slices(data, b->data, b);
    s.data = data;
    if (b->base != NULL) {
        copy_slices(base, b->base, b);
        s.base = base;
    }
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < *count; i++) {
        const ckp_status st = encode(&c[i], &s, out, cap, &c[i].sample_len, ws, cpu, err);
        if (st != CKP_OK)
            return st;
        least = CKPI_MIN(least, c[i].sample_len);
    }
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (c[i].sample_len <= least + least / 64)
            c[kept++] = c[i];
    }
    *count = kept;
    return CKP_OK;
}

ckp_status
ckpi_codec_pick(const ckpi_block *b, ckpi_effort effort, uint8_t *dst, size_t cap, size_t *len, uint8_t *id, bool *used_base,
                ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t need = ckpi_codec_pick_bound(b), mark = ckpi_scratch_mark(ws);
    if (cap < need)
        return ckpi_fail(err, CKP_EINVAL, "pick: room for %zu of %zu bytes", cap, need);
    candidate c[MAX_CANDIDATES];
    const candidate *best = c;
    size_t count = list(c, b, effort);
    ckp_status st = CKP_OK;
    uint8_t *spare = NULL;

    if (c[0].codec->id == CKPI_CODEC_ZERO)
        count = 1; /* nothing is smaller than nothing */
    if (count > 1 && b->n > WHOLE)
        st = shorten(c, &count, b, ws, cpu, err);
    if (st == CKP_OK && count > 1 && (spare = ckpi_scratch_get(ws, need)) == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "pick: no memory for %zu bytes", need);
    if (st == CKP_OK)
        st = try_all(c, count, b, dst, spare, need, len, &best, ws, cpu, err);
    if (st == CKP_OK && *len > b->n * b->width) { /* a sample may mislead */
        *len = b->n * b->width;
        memcpy(dst, b->data, *len);
        *id = CKPI_CODEC_RAW;
        *used_base = false;
    } else if (st == CKP_OK) {
        *id = best->codec->id;
        *used_base = best->with_base;
    }
    ckpi_scratch_release(ws, mark);
    return st;
}
