/* SPDX-License-Identifier: Apache-2.0 */
/* Three values for what directions leave: one histogram says where to cut, what a kept value stands for, and how much there is. */
#include <math.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "quant/low_kern.h"

CKPI_NO_CONTRACT

enum { BINS = CKPI_LOW_TOP + 1, LANES = 4, BLOCK = 64, SAMPLE_EVERY = 7, SAMPLE_FROM = 1 << 17 };

/* u less y in parts of a step. y: room for a row, or NULL without directions. */
static void
take_rest(const int8_t *u, size_t n, const ckpi_low *low, float *y, int16_t *r, const ckpi_low_ops *ops)
{
    if (low->rank == 0) {
        ops->rest(u, NULL, n, r);
        return;
    }
    for (size_t i = 0, at = 0; at < n; i++, at += low->cols) {
        const size_t part = CKPI_MIN(low->cols, n - at);
        ckpi_low_row(low, i, part, y, ops);
        ops->rest(u + at, y, part, r + at);
    }
}

/* Sizes of a sample of blocks, or of all elements; a prime, so that blocks are of all columns. Returns how many. */
static uint64_t
count(const int16_t *r, size_t n, uint32_t (*h)[BINS])
{
    const size_t every = n >= SAMPLE_FROM ? SAMPLE_EVERY * BLOCK : BLOCK;
    uint64_t counted = 0;
    memset(h, 0, LANES * sizeof *h);
    for (size_t at = 0; at < n; at += every) {
        const size_t end = CKPI_MIN(at + BLOCK, n);
        for (size_t i = at; i < end; i++) {
            const int sign = r[i] >> 15;             /* -1 or 0: signs are not to be foretold */
            h[i % LANES][(r[i] ^ sign) - sign]++;    /* in turns, since neighbours are often alike */
        }
        counted += end - at;
    }
    for (size_t k = 1; k < LANES; k++)
        for (size_t b = 0; b < BINS; b++)
            h[0][b] += h[k][b];
    return counted;
}

/* Sizes above the result are kept: as near to `wanted` elements as whole bins come, and the largest at least. */
static int16_t
cut(const uint32_t *h, double wanted)
{
    double kept = 0.0;
    int16_t t = CKPI_LOW_TOP;
    for (; t > 0; t--) {
        const double next = kept + (double)h[t];
        if (kept > 0.0 && next > wanted && next - wanted > wanted - kept)
            break;
        kept = next;
    }
    return t;
}

ckp_status
ckpi_three_code(ckpi_three *out, const int8_t *u, size_t n, const ckpi_low *low, double share, double most, int8_t *code, ckpi_scratch *ws,
                uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    int16_t *r = ckpi_scratch_get(ws, n * sizeof *r);
    float *y = ckpi_scratch_get(ws, (low->rank != 0 ? low->cols : 1) * sizeof *y);
    uint32_t(*h)[BINS] = ckpi_scratch_get(ws, LANES * sizeof *h);

    *out = (ckpi_three){.left = 1.0};
    if (r == NULL || y == NULL || h == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for three values of %zu moments", n);
    const ckpi_fpenv env = ckpi_fp_enter();
    const ckpi_low_ops *ops = ckpi_low_pick(cpu);
    take_rest(u, n, low, y, r, ops);
    ckpi_low_sums sums;
    double wanted = share * (double)count(r, n, h);
    if (low->rank != 0) {
        const double had = (double)ops->squares(u, n) * (CKPI_LOW_UNIT * CKPI_LOW_UNIT);
        ops->three(r, n, CKPI_LOW_TOP, code, &sums);
        out->left = had > 0.0 ? fmin((double)sums.all / had, 1.0) : 1.0;
        wanted *= sqrt(out->left);
    }
    const int16_t t = cut(h[0], wanted);
    ops->three(r, n, t, code, &sums);
    out->kept = (uint64_t)sums.kept;
    if (sums.kept != 0)
        out->size = fmin((double)sums.all / (double)sums.size, most * (t + 1)) / CKPI_LOW_UNIT;
    ckpi_fp_leave(env);
    ckpi_scratch_release(ws, mark);
    return CKP_OK;
}
