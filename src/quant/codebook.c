/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/codebook.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "quant/codebook_kern.h"
#include "quant/num.h"

CKPI_NO_CONTRACT

enum { BLOCK = 4096 };

bool
ckpi_codebook_valid(const ckpi_codebook *cb)
{
    if (cb->k > CKPI_CODEBOOK_MAX)
        return false;
    for (uint32_t i = 0; i < cb->k; i++) {
        if (!f32_finite(cb->centre[i]) || (i > 0 && !(cb->centre[i - 1] < cb->centre[i])))
            return false;
    }
    return true;
}

/* Half way from level i to the next; halves first, for the sum could overflow. A border is above the lower centre even when no number
   lies between the two. */
static float
border(const ckpi_codebook *cb, uint32_t i)
{
    const float lower = cb->centre[i], upper = cb->centre[i + 1], half = lower * 0.5f + upper * 0.5f;
    return half > lower && half < upper ? half : upper;
}

static void
set_borders(ckpi_borders *b, const ckpi_codebook *cb)
{
    b->n = cb->k != 0 ? cb->k - 1 : 0;
    b->protect = (int8_t)(cb->k + 1);
    for (uint32_t i = 0; i < CKPI_CODEBOOK_MAX; i++)
        b->at[i] = i < b->n ? border(cb, i) : f32_of(CKPI_F32_INF_BITS);
}

/* ---- what a codebook is worth ------------------------------------------------------------------------------------------- */

double
ckpi_codebook_error(const ckpi_codebook *cb, const ckpi_points *p)
{
    ckpi_borders b;
    set_borders(&b, cb);
    double sum = 0;
    uint32_t level = 0;
    for (size_t i = 0; cb->k != 0 && i < p->n; i++) {
        while (level < b.n && p->x[i] >= b.at[level])
            level++;
        const double off = (double)p->x[i] - (double)cb->centre[level];
        sum += p->weight[i] * (off * off);
    }
    return sum;
}

/* At least log2(worse / better) / 2 of a true ratio above 1, without libm: the first term of its series, or the table of v's factors. */
static double
bits_gained(double worse, double better)
{
    const double near_one = 1.4427 * ((worse - better) / (worse + better));
    const double ratio = worse / better;
    if (!(ratio < 0x1p100))
        return 50;
    const double far = ((double)f32_log_units((float)ratio) - 2) / 256;
    return CKPI_MAX(near_one, far);
}

bool
ckpi_codebook_pays(const ckpi_codebook *old, const ckpi_codebook *fresh, const ckpi_points *p, double churn_bits)
{
    if (old->k != fresh->k)
        return true;
    ckpi_borders was, is;
    set_borders(&was, old);
    set_borders(&is, fresh);
    double count = 0, moved = 0;
    uint32_t before = 0, after = 0;
    for (size_t i = 0; i < p->n; i++) {
        while (before < was.n && p->x[i] >= was.at[before])
            before++;
        while (after < is.n && p->x[i] >= is.at[after])
            after++;
        count += p->weight[i];
        moved += before != after ? p->weight[i] : 0;
    }
    const double worse = ckpi_codebook_error(old, p), better = ckpi_codebook_error(fresh, p);
    if (!(worse > better))
        return false;
    return count * bits_gained(worse, better) > moved * churn_bits + 32.0 * fresh->k;
}

/* ---- coding --------------------------------------------------------------------------------------------------------------- */

static uint16_t
kept_value(float x)
{
    const uint16_t h = ckpi_f32_to_bf16(x);
    return f32_finite(x) && (h & 0x7fff) == 0x7f80 ? (uint16_t)(h - 1) : h;
}

static size_t
keep_block(const float *x, const int8_t *code, size_t n, int8_t protect, uint16_t *kept)
{
    const uint64_t ones = 0x0101010101010101u, same = ones * (uint8_t)protect;
    size_t count = 0;
    for (size_t i = 0; i < n;) {
        /* Eight codes of which none is the wanted one: no byte of the difference is zero. */
        const uint64_t d = n - i >= 8 ? ckpi_ld64(code + i) ^ same : 0;
        if (((d - ones) & ~d & ones << 7) == 0) {
            i += 8;
            continue;
        }
        for (const size_t end = CKPI_MIN(i + 8, n); i < end; i++) {
            if (code[i] == protect)
                kept[count++] = kept_value(x[i]);
        }
    }
    return count;
}

size_t
ckpi_codebook_assign(const ckpi_codebook *cb, const ckpi_partition *part, const float *x, const float *g, size_t n, int8_t *code,
                     uint16_t *kept, uint32_t cpu)
{
    ckpi_codebook_codes_fn *codes = ckpi_codebook_pick(cpu);
    const ckpi_fpenv env = ckpi_fp_enter();
    ckpi_borders b = {.part = *part};
    size_t count = 0;
    b.part.prune_by_score = part->prune_by_score && g != NULL;
    set_borders(&b, cb);
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t len = CKPI_MIN((size_t)BLOCK, n - at);
        codes(&b, x + at, g != NULL ? g + at : NULL, len, code + at);
        count += keep_block(x + at, code + at, len, b.protect, kept + count);
    }
    ckpi_fp_leave(env);
    return count;
}

ckp_status
ckpi_codebook_decode(const ckpi_codebook *cb, const int8_t *code, size_t n, const uint16_t *kept, size_t n_kept, float *x, ckp_error *err)
{
    const uint8_t protect = (uint8_t)(cb->k + 1);
    float value[256] = {0};
    uint8_t highest = 0;
    size_t used = 0;
    memcpy(value + 1, cb->centre, cb->k * sizeof *value);
    for (size_t i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)code[i];
        x[i] = value[c];
        highest = CKPI_MAX(highest, c);
        if (c == protect && used < n_kept)
            x[i] = ckpi_bf16_to_f32(kept[used++]);
        else if (c == protect)
            return ckpi_fail(err, CKP_ECORRUPT, "codebook: more protected codes than the %zu values kept", n_kept);
    }
    if (highest > protect || used != n_kept)
        return ckpi_fail(err, CKP_ECORRUPT, "codebook: code %u of %u levels, %zu of %zu values kept", (unsigned)highest, (unsigned)cb->k,
                         used, n_kept);
    return CKP_OK;
}

/* ---- better centres --------------------------------------------------------------------------------------------------------- */

void
ckpi_level_sums_add(ckpi_level_sums *s, const float *x, const int8_t *code, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned level = (unsigned)code[i] - 1u; /* pruned: beyond all */
        if (level >= CKPI_CODEBOOK_MAX || !f32_finite(x[i]))
            continue;
        const bool first = s->count[level]++ == 0;
        s->sum[level] += (double)x[i];
        s->least[level] = first ? x[i] : f32_min(s->least[level], x[i]);
        s->most[level] = first ? x[i] : f32_max(s->most[level], x[i]);
    }
}

void
ckpi_level_sums_merge(ckpi_level_sums *s, const ckpi_level_sums *other)
{
    for (unsigned k = 0; k < CKPI_CODEBOOK_MAX; k++) {
        if (other->count[k] == 0)
            continue;
        const bool first = s->count[k] == 0;
        s->count[k] += other->count[k];
        s->sum[k] += other->sum[k];
        s->least[k] = first ? other->least[k] : f32_min(s->least[k], other->least[k]);
        s->most[k] = first ? other->most[k] : f32_max(s->most[k], other->most[k]);
    }
}

void
ckpi_codebook_recentre(ckpi_codebook *cb, const ckpi_level_sums *s)
{
    for (uint32_t k = 0; k < cb->k; k++) {
        if (s->count[k] == 0)
            continue;
        const float mean = (float)(s->sum[k] / (double)s->count[k]);
        cb->centre[k] = f32_min(f32_max(mean, s->least[k]), s->most[k]); /* the mean of equal numbers may be off by its rounding */
    }
}
