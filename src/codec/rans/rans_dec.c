/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder: reads and checks head, table and states; kernels then cannot leave their buffers whatever the words say. */
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/rans/rans.h"
#include "codec/rans/rans_kern.h"
#include "codec/rans/rans_wire.h"

typedef struct stream {
    ckpi_rans_model m;
    unsigned lanes;
    uint32_t x[CKPI_RANS_LANES_MAX];
    const uint8_t *words, *end;
} stream;

static ckp_status
bad(ckp_error *err, size_t at, const char *what)
{
    return ckpi_fail_at(err, CKP_ECORRUPT, at, "rans stream: %s", what);
}

/* Fills *s but for STORED, where only the kind is set. */
static ckp_status
parse(stream *s, const uint8_t *src, size_t len, ckp_error *err)
{
    if (len == 0)
        return bad(err, 0, "no bytes");
    const unsigned head = src[0];
    s->m.kind = (ckpi_rans_kind)(head & 7);
    s->lanes = ckpi_rans_lanes[head >> 3 & 3];
    s->m.bits = (head >> 5) * CKPI_RANS_BITS_STEP + CKPI_RANS_MIN_BITS;
    s->m.first = 0;
    if (s->m.kind > CKPI_RANS_BITS || s->m.bits > CKPI_RANS_MAX_BITS || (s->m.kind <= CKPI_RANS_ONE && head > CKPI_RANS_ONE))
        return bad(err, 0, "unknown kind");
    if (s->m.kind == CKPI_RANS_STORED)
        return CKP_OK;
    size_t used;
    if (!ckpi_rans_model_read(&s->m, src + 1, len - 1, &used))
        return bad(err, 1, "frequency table is not valid");
    size_t pos = 1 + used;
    if (s->m.kind == CKPI_RANS_ONE)
        return pos == len ? CKP_OK : bad(err, pos, "bytes left over");
    if (!ckpi_rans_states_read(s->x, s->lanes, src + pos, len - pos, &used))
        return bad(err, pos, "states are not valid");
    pos += used;
    s->words = src + pos;
    s->end = src + len;
    return CKP_OK;
}

static uint8_t *
make_slots(const ckpi_rans_model *m, ckpi_scratch *ws)
{
    const unsigned shift = CKPI_RANS_MAX_BITS - m->bits;
    uint8_t *slot = ckpi_scratch_get(ws, ((size_t)1 << m->bits) + 3);
    if (slot == NULL)
        return NULL;
    memset(slot + ((size_t)1 << m->bits), 0, 3);
    for (unsigned s = 0; s < 256; s++)
        memset(slot + (m->start[s] >> shift), (int)s, m->freq[s] >> shift);
    return slot;
}

/*
 * Whole groups by a wide kernel: in place as long as it reads inside src, then from a copy of the last words with room behind
 * them. Returns the symbols decoded; if the words ran out on the way, the rest fails in the reference.
 */
static size_t
decode_wide(stream *s, const ckpi_rans_dec *d, ckpi_rans_dec_fn *wide, uint8_t *dst, size_t n)
{
    const size_t groups = n / s->lanes;
    size_t done = 0;
    if (s->end - s->words >= CKPI_RANS_READ)
        done = wide(d, dst, groups, s->x, s->lanes, &s->words, s->end - CKPI_RANS_READ);
    uint8_t tail[2 * CKPI_RANS_READ] = {0};
    const uint8_t *p = tail;
    const size_t left = (size_t)(s->end - s->words);
    if (done == groups || left > CKPI_RANS_READ)
        return done * s->lanes;
    memcpy(tail, s->words, left);
    done += wide(d, dst + done * s->lanes, groups - done, s->x, s->lanes, &p, tail + left);
    s->words = (size_t)(p - tail) > left ? NULL : s->words + (p - tail);
    return done * s->lanes;
}

static ckp_status
decode_coded(stream *s, uint8_t *dst, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const ckpi_rans_dec d = {.m = &s->m, .slot = make_slots(&s->m, ws)};
    if (d.slot == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "rans: no memory for tables");
    ckpi_rans_dec_fn *wide = s->lanes >= CKPI_RANS_WIDE_LANES ? ckpi_rans_dec_pick(&s->m, cpu) : NULL;
    const size_t done = wide != NULL ? decode_wide(s, &d, wide, dst, n) : 0;
    if (s->words == NULL || !ckpi_rans_dec_ref(&d, dst, done, n, s->x, s->lanes, &s->words, s->end))
        return bad(err, CKP_NO_OFFSET, "ends before its last symbol");
    if (s->words != s->end)
        return bad(err, CKP_NO_OFFSET, "bytes left over");
    for (unsigned i = 0; i < s->lanes; i++)
        if (s->x[i] != CKPI_RANS_LOW)
            return bad(err, CKP_NO_OFFSET, "final states do not match");
    return CKP_OK;
}

ckp_status
ckpi_rans_decode(const uint8_t *src, size_t len, uint8_t *dst, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (n > CKPI_RANS_MAX)
        return ckpi_fail(err, CKP_EINVAL, "rans: %zu symbols", n);
    if (n == 0)
        return len == 0 ? CKP_OK : bad(err, 0, "bytes left over");
    stream s;
    ckp_status st = parse(&s, src, len, err);
    if (st != CKP_OK)
        return st;
    if (s.m.kind == CKPI_RANS_STORED) {
        if (len - 1 != n)
            return bad(err, len, "stored bytes are not as many as symbols");
        memcpy(dst, src + 1, n);
        return CKP_OK;
    }
    if (s.m.kind == CKPI_RANS_ONE) {
        memset(dst, s.m.first, n);
        return CKP_OK;
    }
    const size_t mark = ckpi_scratch_mark(ws);
    st = decode_coded(&s, dst, n, ws, cpu, err);
    ckpi_scratch_release(ws, mark);
    return st;
}
