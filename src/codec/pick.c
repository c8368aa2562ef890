/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choosing a codec for a chunk, in three steps: a look at a few hundred elements says which codecs could win at all; where
 * several remain and the chunk is large, a sample of slices is coded with each; those near the best are tried on the whole
 * chunk. Most chunks of floats leave the first step with one codec, which is why FAST and DEFAULT need not differ; SMALL tries all.
 */
#include <string.h>
#include "base/bytes.h"
#include "base/checked.h"
#include "base/fail.h"
#include "codec/lz/lz.h"
#include "codec/rows.h"

enum {
    LOOKS = 512,          /* elements of the first look */
    SLICES = 8,
    SLICE = 1024,         /* elements: whole runs, so that repeats are seen */
    WHOLE = 2 * SLICES * SLICE, /* elements up to which a sample would not be much smaller than the block */
    MAX_CANDIDATES = 16
};

typedef struct candidate {
    const ckpi_codec *codec;
    bool with_base;
    size_t sample_len;
} candidate;

/* What the first look counts, of LOOKS elements at most. */
typedef struct looks {
    size_t n;
    size_t zero;          /* all bits zero */
    size_t kept;          /* equal to the base */
    size_t seen;          /* same bits as an element met before */
    size_t moved;         /* bits of the differences from the base, summed; as DIFF sees them */
} looks;

size_t
ckpi_codec_pick_bound(const ckpi_block *b)
{
    size_t most = b->n * b->width + 64;
    for (size_t i = 0; ckpi_codec_at(i) != NULL; i++)
        most = CKPI_MAX(most, ckpi_codec_at(i)->bound(b));
    return most;
}

static uint64_t
bits_at(const void *words, size_t i, unsigned width)
{
    uint8_t bytes[8] = {0};
    uint64_t v = 0;
    memcpy(bytes, (const uint8_t *)words + i * width, CKPI_MIN(width, 8u));
    for (unsigned k = width < 8 ? width : 8; k-- > 0;)
        v = v << 8 | bytes[k];
    return v;
}

static bool
is_float(const ckpi_block *b)
{
    return b->width >= 2 && (b->dtype == CKP_F32 || b->dtype == CKP_BF16 || b->dtype == CKP_F16 || b->dtype == CKP_F64);
}

/* Length of the difference of two words as DIFF takes it: of floats that of their places in the order of all floats. */
static unsigned
difference_bits(uint64_t x, uint64_t y, const ckpi_block *b)
{
    const unsigned unused = 64 - 8 * CKPI_MIN(b->width, 8u);
    int64_t ox = (int64_t)(x << unused), oy = (int64_t)(y << unused);
    if (is_float(b)) {
        ox ^= ox < 0 ? INT64_MAX : 0;
        oy ^= oy < 0 ? INT64_MAX : 0;
    }
    uint64_t d = ((uint64_t)ox - (uint64_t)oy) >> unused, length = 0;
    if (d >> (63 - unused))
        d = (UINT64_MAX >> unused) - d + 1;
    for (; d != 0; d >>= 1)
        length++;
    return (unsigned)length;
}

static looks
look(const ckpi_block *b)
{
    enum { SLOTS = 2048 };
    uint64_t met[SLOTS] = {0};
    looks l = {.n = CKPI_MIN(b->n, (size_t)LOOKS)};
    for (size_t k = 0; k < l.n; k++) {
        const size_t i = b->n / l.n * k;
        const uint64_t v = bits_at(b->data, i, b->width);
        uint64_t *slot = &met[(v * UINT64_C(0x9E3779B97F4A7C15)) >> 53];
        l.zero += v == 0;
        if (b->base != NULL) {
            const uint64_t old = bits_at(b->base, i, b->width);
            l.kept += v == old;
            l.moved += difference_bits(v, old, b);
        }
        l.seen += v != 0 && *slot == v;
        *slot = v;
    }
    return l;
}

/* Values that come again and again. 2-byte floats do so by chance: a sixth of a sample of weights is no sign of anything. */
static bool
repeats(const ckpi_block *b, const looks *l)
{
    return (l->seen + l->zero) * (b->width == 2 ? 2 : 16) >= l->n;
}

/*
 * Floats that have moved little from the base: their differences are shorter than a mantissa by more than their lengths and
 * signs can cost, so no other codec comes near DIFF, unless nearly all are the same: then MASK is as small, and faster.
 */
static bool
surely_diff(const ckpi_block *b, const looks *l)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(b->dtype);
    return b->base != NULL && is_float(b) && info != NULL && !repeats(b, l) && 2 * l->moved + 3 * l->n < 2 * l->n * info->mant_bits;
}

/*
 * Words that have changed have nothing to do with what they were: their differences from the base are nearly as long as words drawn at random
 * would give, two or three bits short of a word in the mean. A base then tells only which words have changed, and that is MASK's. Numbers that training moves,
 * even moments whose signs come and go, stay below it by far.
 */
static bool
unrelated(const ckpi_block *b, const looks *l)
{
    const size_t changed = l->n - l->kept;
    return b->base != NULL && changed != 0 && 2 * l->moved >= changed * (16 * CKPI_MIN(b->width, 8u) - 7);
}

/* Whether a codec could be the smallest for what the look has seen. */
static bool
could_win(uint8_t id, bool with_base, const ckpi_block *b, const looks *l)
{
    const bool new_words = unrelated(b, l), diff = !new_words && surely_diff(b, l);
    switch (id) {
    case CKPI_CODEC_RAW: return false;          /* the fall-back */
    case CKPI_CODEC_RANS: return b->width == 1; /* wider elements: their planes are better */
    case CKPI_CODEC_PLANES: return !diff && !(with_base && new_words);
    case CKPI_CODEC_DIFF: return !new_words;
    case CKPI_CODEC_MASK: return (with_base ? l->kept : l->zero) * 16 >= l->n * (diff ? 15 : 1);
    case CKPI_CODEC_LZ: return !is_float(b) || repeats(b, l);
    default: return true;
    }
}

/* The ways to code the block that are worth a try, the cheapest to decode first: a tie goes to the first. */
static size_t
list(candidate *out, const ckpi_block *b, const looks *l, ckpi_effort effort)
{
    static const uint8_t order[] = {CKPI_CODEC_ZERO, CKPI_CODEC_RAW, CKPI_CODEC_MASK, CKPI_CODEC_RANS,
                                    CKPI_CODEC_PLANES, CKPI_CODEC_DIFF, CKPI_CODEC_REARRANGED, CKPI_CODEC_LZ};
    size_t n = 0;
    for (size_t i = 0; i < sizeof order; i++) {
        const ckpi_codec *c = ckpi_codec_find(order[i]);
        for (int with_base = 0; with_base <= (b->base != NULL && c->takes_base); with_base++) {
            ckpi_block view = *b;
            view.base = with_base ? b->base : NULL;
            if ((c->needs_base && !with_base) || !c->fits(&view))
                continue;
            if (effort == CKPI_EFFORT_SMALL || could_win(c->id, with_base != 0, b, l))
                out[n++] = (candidate){.codec = c, .with_base = with_base != 0};
        }
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
    if (kept != NULL && kept != dst)
        memcpy(dst, kept, *len);
    return CKP_OK;
}

/* Slices of `slice` elements, spread over the block, each beginning where a row does. */
static void
copy_slices(uint8_t *dst, const void *src, const ckpi_block *b, size_t slice)
{
    const size_t step = (b->n - slice) / (SLICES - 1), bytes = slice * b->width;
    for (size_t i = 0; i < SLICES; i++) {
        const size_t at = i * step, first = b->cols != 0 && b->cols <= slice ? at / b->cols * b->cols : at;
        memcpy(dst + i * bytes, (const uint8_t *)src + first * b->width, bytes);
    }
}

/* Whole rows where a slice can hold some, so that the sample has the block's columns. */
static ckp_status
sample_of(ckpi_block *s, const ckpi_block *b, ckpi_scratch *ws, ckp_error *err)
{
    const bool rows = b->cols != 0 && b->cols <= SLICE;
    const size_t slice = rows ? SLICE / b->cols * b->cols : SLICE;
    *s = *b;
    s->n = SLICES * slice;
    s->cols = rows ? b->cols : 0;
    const size_t bytes = s->n * s->width;
    uint8_t *data = ckpi_scratch_get(ws, bytes), *base = ckpi_scratch_get(ws, bytes);
    if (data == NULL || base == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "pick: no memory for a sample of %zu bytes", bytes);
    copy_slices(data, b->data, b, slice);
    s->data = data;
    if (b->base != NULL) {
        copy_slices(base, b->base, b, slice);
        s->base = base;
    }
    return CKP_OK;
}

/* How far above the smallest a candidate may be on the sample, one part in so many, because the whole is kinder to it: its tables
   weigh less, and rows of a matrix, which a sample does not have, tell planes more. */
static size_t
margin(const candidate *c, const ckpi_block *b)
{
    enum { USUAL = 16, ROWS = 8 };
    return c->codec->id == CKPI_CODEC_PLANES && b->cols != 0 ? ROWS : USUAL;
}

/* Drops candidates that a sample shows to be no use: all of them, where none makes it smaller. */
static ckp_status
shorten(candidate *c, size_t *count, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_block s;
    ckp_status st = sample_of(&s, b, ws, err);
    if (st != CKP_OK)
        return st;
    const size_t cap = ckpi_codec_pick_bound(&s);
    uint8_t *out = ckpi_scratch_get(ws, cap);
    if (out == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "pick: no memory for %zu bytes", cap);
    const size_t raw = s.n * s.width;
    size_t least = raw, kept = 0;
    for (size_t i = 0; i < *count; i++) {
        st = encode(&c[i], &s, out, cap, &c[i].sample_len, ws, cpu, err);
        if (st != CKP_OK)
            return st;
        least = CKPI_MIN(least, c[i].sample_len);
    }
    for (size_t i = 0; least < raw && i < *count; i++) {
        if (c[i].sample_len <= least + least / margin(&c[i], b))
            c[kept++] = c[i];
    }
    *count = kept;
    return CKP_OK;
}

/* SMALL: what zstd's slow levels make of a chunk that they won at the fast one. */
static ckp_status
squeeze(const candidate *best, const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckp_error *err)
{
    if (best->codec->id != CKPI_CODEC_LZ)
        return CKP_OK;
    return ckpi_lz_encode(b, CKPI_LZ_SMALL, dst, cap, len, err);
}

static void
fall_back(const ckpi_block *b, uint8_t *dst, size_t *len, uint8_t *id, bool *used_base)
{
    *len = b->n * b->width;
    if (*len != 0)
        memcpy(dst, b->data, *len);
    *id = CKPI_CODEC_RAW;
    *used_base = false;
}

ckp_status
ckpi_codec_pick(const ckpi_block *b, ckpi_effort effort, uint8_t *dst, size_t cap, size_t *len, uint8_t *id, bool *used_base,
                ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t need = ckpi_codec_pick_bound(b), mark = ckpi_scratch_mark(ws);
    if (cap < need)
        return ckpi_fail(err, CKP_EINVAL, "pick: room for %zu of %zu bytes", cap, need);
    candidate c[MAX_CANDIDATES];
    const candidate *best = NULL;
    const looks l = look(b);
    size_t count = list(c, b, &l, effort);
    ckp_status st = CKP_OK;
    uint8_t *spare = NULL;

    if (count != 0 && c[0].codec->id == CKPI_CODEC_ZERO)
        count = 1; /* nothing is smaller than nothing */
    if ((count > 1 || unrelated(b, &l)) && b->n > WHOLE && effort != CKPI_EFFORT_SMALL)
        st = shorten(c, &count, b, ws, cpu, err);
    if (st == CKP_OK && count > 1 && (spare = ckpi_scratch_get(ws, need)) == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "pick: no memory for %zu bytes", need);
    if (st == CKP_OK)
        st = try_all(c, count, b, dst, spare, need, len, &best, ws, cpu, err);
    if (st == CKP_OK && best != NULL && effort == CKPI_EFFORT_SMALL)
        st = squeeze(best, b, dst, need, len, err);
    if (st == CKP_OK && (best == NULL || *len >= b->n * b->width)) {
        if (best == NULL || best->codec->id != CKPI_CODEC_ZERO) {
            fall_back(b, dst, len, id, used_base);
            best = NULL;
        }
    }
    if (st == CKP_OK && best != NULL) {
        *id = best->codec->id;
        *used_base = best->with_base;
    }
    ckpi_scratch_release(ws, mark);
    return st;
}
