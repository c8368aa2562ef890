/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which values of the base get a part of their own: the commonest forty are candidates (DynaQuant has up to 34 indices), and each, the rarest first, joins the
 * rest unless coding it apart saves more than the tables and states of its streams cost. All by a sample's integers.
 */
#include "base/bytes.h"
#include "codec/rans/rans.h"
#include "codec/rearranged/rearranged.h"

enum {
    SAMPLE = 32768,   /* symbols looked at, about */
    STRETCH = 64,     /* in a row */
    OVERHEAD = 40,    /* bytes: two tables, two sets of states, heads */
    FEWEST = 256      /* symbols in the whole block that are worth a look */
};

typedef struct sample {
    const uint8_t *code, *base;
    size_t n, step;           /* stretches begin this far apart */
    size_t looked;
} sample;

static void
count_base(sample *s, uint32_t hist[256])
{
    memset(hist, 0, 256 * sizeof *hist);
    for (size_t at = 0; at < s->n; at += s->step) {
        const size_t end = CKPI_MIN(at + STRETCH, s->n);
        for (size_t i = at; i < end; i++)
            hist[s->base[i]]++;
        s->looked += end - at;
    }
}

static void
count_symbols(const sample *s, const uint8_t part[256], uint32_t (*hist)[256])
{
    for (size_t at = 0; at < s->n; at += s->step) {
        const size_t end = CKPI_MIN(at + STRETCH, s->n);
        for (size_t i = at; i < end; i++)
            hist[part[s->base[i]]][(uint8_t)(s->code[i] - s->base[i])]++;
    }
}

/* The commonest values that occur often enough, commonest first; the smaller value of equals. */
static unsigned
list(uint8_t value[CKPI_REARRANGED_MAX], const sample *s, uint32_t hist[256])
{
    unsigned n = 0;
    for (; n < CKPI_REARRANGED_MAX; n++) {
        unsigned best = 0;
        for (unsigned v = 1; v < 256; v++)
            best = hist[v] > hist[best] ? v : best;
        if ((uint64_t)hist[best] * s->n < (uint64_t)FEWEST * s->looked)
            break;
        value[n] = (uint8_t)best;
        hist[best] = 0;
    }
    return n;
}

static uint64_t
cost(const uint32_t hist[256], const sample *s)
{
    return ckpi_rans_entropy_bytes(hist) * s->n / s->looked;
}

/* Marks what stays apart. rest: part 0's histogram, which grows by what joins it. */
static void
weigh(bool apart[CKPI_REARRANGED_MAX], uint32_t (*hist)[256], unsigned n, const sample *s)
{
    uint32_t *rest = hist[0];
    uint64_t alone = cost(rest, s);
    for (unsigned k = n; k-- > 0;) {
        uint32_t both[256];
        for (unsigned v = 0; v < 256; v++)
            both[v] = rest[v] + hist[k + 1][v];
        const uint64_t joined = cost(both, s);
        apart[k] = alone + cost(hist[k + 1], s) + OVERHEAD < joined;
        if (!apart[k]) {
            memcpy(rest, both, sizeof both);
            alone = joined;
        }
    }
}

void
ckpi_rearranged_choose(ckpi_rearranged_plan *plan, const uint8_t *code, const uint8_t *base, size_t n)
{
    uint32_t hist[CKPI_REARRANGED_PARTS][256] = {{0}};
    uint8_t value[CKPI_REARRANGED_MAX], part[256] = {0};
    bool apart[CKPI_REARRANGED_MAX], own[256] = {false};
    sample s = {.code = code, .base = base, .n = n, .step = STRETCH * (1 + n / SAMPLE)};
    count_base(&s, hist[0]);
    const unsigned candidates = list(value, &s, hist[0]);
    for (unsigned k = 0; k < candidates; k++)
        part[value[k]] = (uint8_t)(k + 1);
    memset(hist[0], 0, sizeof hist[0]);
    count_symbols(&s, part, hist);
    weigh(apart, hist, candidates, &s);
    for (unsigned k = 0; k < candidates; k++)
        own[value[k]] = apart[k];
    plan->own = 0;
    for (unsigned v = 0; v < 256; v++) {
        if (own[v])
            plan->value[plan->own++] = (uint8_t)v;
    }
}
