/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing a stream's model: all by integers, so that every machine picks the same. */
#include "codec/rans/rans_model.h"

#include <string.h>

#include "codec/rans/rans.h"

static void
place(ckpi_rans_model *m, unsigned s, unsigned share, uint32_t *at)
{
    m->freq[s] = (uint16_t)(share << (CKPI_RANS_MAX_BITS - m->bits));
    m->start[s] = (uint16_t)*at;
    *at += m->freq[s];
    m->distinct += share != 0;
}

void
ckpi_rans_model_range(ckpi_rans_model *m)
{
    uint32_t at = 0;
    m->distinct = 0;
    for (unsigned i = 0; i < 256; i++)
        place(m, (m->first + i) & 255, m->freq[(m->first + i) & 255], &at);
}

bool
ckpi_rans_model_classes(ckpi_rans_model *m, uint16_t share[9])
{
    uint32_t sum = 0, at = 0;
    for (unsigned k = 1; k < 9; k++)
        sum += (uint32_t)share[k] * ckpi_rans_pop_size[k];
    if (sum == 0 || sum >= 1u << m->bits)
        return false;
    share[0] = (uint16_t)((1u << m->bits) - sum);
    m->distinct = 0;
    for (unsigned r = 0; r < 256; r++)
        place(m, ckpi_rans_pop_order[r], share[__builtin_popcount(ckpi_rans_pop_order[r])], &at);
    return true;
}

bool
ckpi_rans_model_binomial(ckpi_rans_model *m)
{
    uint16_t share[9] = {0};
    if (m->p13 == 0 || m->p13 >= 1u << 13)
        return false;
    for (unsigned k = 1; k <= m->top_class; k++) {
        uint64_t t = (uint64_t)1 << 32; /* the product of eight probabilities, each step rounded down */
        for (unsigned i = 0; i < 8; i++)
            t = t * (i < k ? m->p13 : (1u << 13) - m->p13) >> 13;
        const uint64_t f = ((t << m->bits) + (1u << 31)) >> 32;
        share[k] = f == 0 ? 1 : (uint16_t)f;
    }
    return ckpi_rans_model_classes(m, share);
}

/* Bits of the coded symbols in 1/65536, and UINT64_MAX when one has no share. */
static uint64_t
cost(const ckpi_rans_model *m, const uint32_t hist[256])
{
    uint64_t sum = 0;
    for (unsigned s = 0; s < 256; s++) {
        if (hist[s] == 0)
            continue;
        if (m->freq[s] == 0)
            return UINT64_MAX;
        sum += (uint64_t)hist[s] * ((CKPI_RANS_MAX_BITS << 16) - ckpi_rans_log2(m->freq[s]));
    }
    return sum;
}

/* Table and symbols in bytes. */
static uint64_t
price(const ckpi_rans_model *m, const uint32_t hist[256])
{
    uint8_t table[CKPI_RANS_TABLE_MAX];
    const uint64_t c = cost(m, hist);
    return c == UINT64_MAX ? c : ckpi_rans_model_write(m, table) + (c + 8 * 65536 - 1) / (8 * 65536);
}

/* The shortest circular range that holds every byte value that occurs. False when only one does. */
static bool
find_range(ckpi_rans_model *m, const uint32_t hist[256])
{
    unsigned last = 256, best_gap = 0, best_at = 0, head = 256;
    for (unsigned s = 0; s < 512; s++) { /* twice around: gaps may pass the end */
        if (hist[s & 255] == 0)
            continue;
        if (head == 256)
            head = s;
        if (last != 256 && s - last > best_gap) {
            best_gap = s - last;
            best_at = s & 255;
        }
        last = s;
        if (s >= 256 + head)
            break;
    }
    m->first = (uint8_t)best_at;
    m->span = 257 - best_gap;
    return best_gap != 256;
}

/* Take `over` shares from where the loss, count / (share - 1/2), is least; shares of one stay. */
static void
take(ckpi_rans_model *m, const uint32_t hist[256], uint32_t over)
{
    for (; over > 0; over--) {
        unsigned best = 256;
        for (unsigned s = 0; s < 256; s++) {
            if (m->freq[s] < 2)
                continue;
            if (best == 256 ||
                (uint64_t)hist[s] * (2u * m->freq[best] - 1) < (uint64_t)hist[best] * (2u * m->freq[s] - 1))
                best = s;
        }
        m->freq[best]--; /* there is one: 2^bits is at least the number of symbols */
    }
}

static void
fit_span(ckpi_rans_model *m, const uint32_t hist[256], size_t n)
{
    const uint32_t want = 1u << m->bits, top_share = want - 1; /* more than one symbol occurs */
    uint32_t sum = 0;
    unsigned top = m->first;
    for (unsigned s = 0; s < 256; s++) {
        uint64_t f = (((uint64_t)hist[s] << m->bits) + n / 2) / n;
        if (hist[s] != 0 && f == 0)
            f = 1;
        if (f > top_share)
            f = top_share;
        m->freq[s] = (uint16_t)f;
        sum += m->freq[s];
        if (hist[s] > hist[top])
            top = s;
    }
    if (sum > want)
        take(m, hist, sum - want);
    else
        m->freq[top] = (uint16_t)(m->freq[top] + (want - sum));
    ckpi_rans_model_range(m);
}

static bool
fit_classes(ckpi_rans_model *m, const uint64_t count[9], size_t n)
{
    uint16_t share[9] = {0};
    m->top_class = 0;
    for (unsigned k = 1; k < 9; k++) {
        if (count[k] == 0)
            continue;
        const uint64_t all = (uint64_t)n * ckpi_rans_pop_size[k];
        const uint64_t f = ((count[k] << m->bits) + all / 2) / all;
        share[k] = f == 0 ? 1 : (uint16_t)f;
        m->top_class = k;
    }
    return ckpi_rans_model_classes(m, share);
}

static bool
fit_binomial(ckpi_rans_model *m, const uint64_t count[9], size_t n)
{
    uint64_t ones = 0;
    m->top_class = 1;
    for (unsigned k = 1; k < 9; k++) {
        ones += count[k] * k;
        if (count[k] != 0)
            m->top_class = k;
    }
    const uint64_t p = ((ones << 13) + 4 * (uint64_t)n) / (8 * (uint64_t)n);
    m->p13 = p == 0 ? 1 : (unsigned)p;
    return ckpi_rans_model_binomial(m);
}

/*
 * Alphabets too large for registers are looked up in tables: of 4096 entries at 12 bits, of 2^bits bytes above. Finer shares must be
 * worth the slower look-up, and the last step, beyond the first-level cache, too. In bytes.
 */
static uint64_t
handicap(const ckpi_rans_model *m, uint64_t bytes)
{
    if (m->kind != CKPI_RANS_SPAN || m->distinct <= CKPI_RANS_SMALL || m->bits <= CKPI_RANS_WIDE_BITS)
        return 0;
    return bytes / 512 + (m->bits == CKPI_RANS_MAX_BITS ? bytes / 1024 : 0);
}

static void
keep_better(ckpi_rans_model *best, uint64_t *bytes, const ckpi_rans_model *m, const uint32_t hist[256])
{
    uint64_t b = price(m, hist);
    if (b != UINT64_MAX)
        b += handicap(m, b);
    if (b < *bytes) {
        *bytes = b;
        *best = *m;
    }
}

void
ckpi_rans_model_pick(ckpi_rans_model *best, const uint32_t hist[256], size_t n, uint64_t *bytes)
{
    ckpi_rans_model m = {0};
    memset(best, 0, sizeof *best);
    best->kind = CKPI_RANS_STORED;
    *bytes = n;
    if (!find_range(&m, hist)) {
        best->kind = CKPI_RANS_ONE;
        best->first = m.first;
        *bytes = 1;
        return;
    }
    uint64_t count[9] = {0};
    for (unsigned s = 0; s < 256; s++)
        count[__builtin_popcount(s)] += hist[s];
    for (m.bits = CKPI_RANS_MIN_BITS; m.bits <= CKPI_RANS_MAX_BITS; m.bits += CKPI_RANS_BITS_STEP) {
        /* Coarse shares make small tables: only for streams that a table would weigh down. */
        if (m.bits < 12 && n >> (m.bits + 4) != 0)
            continue;
        m.kind = CKPI_RANS_SPAN;
        fit_span(&m, hist, n);
        keep_better(best, bytes, &m, hist);
        m.kind = CKPI_RANS_CLASSES;
        if (fit_classes(&m, count, n))
            keep_better(best, bytes, &m, hist);
        m.kind = CKPI_RANS_BITS;
        if (fit_binomial(&m, count, n))
            keep_better(best, bytes, &m, hist);
    }
}
