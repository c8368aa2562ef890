/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/fixed.h"
#include "base/float.h"
#include "engine/pack2.h"
#include "engine/threshold.h"

enum { SAMPLE = 2048 };
/* The smallest that is of use: scales reach 2^-148. */
#define TINY 0x1p-100F
/* Above this share the elements are as good as equal, and there is no tail to follow. */
#define DENSE 0.2
/* At the shares in use, a kept value stands for 10 to 20 thresholds. */
#define AT_MOST 32.0

static float
size_of(const ckpi_enc_in *in, size_t i)
{
    const float m = fabsf(in->m[i]);

    if (!isfinite(m))
        return 0.0F;
    if (in->v != NULL) {
        const float v = in->v[i];
        return v > 0.0F && isfinite(v) ? (float)((double)m * (double)in->kc / sqrt((double)v)) : 0.0F;
    }
    const int32_t row = in->grid.row != NULL ? in->grid.row[i / in->grid.cols] : 0;
    const int32_t col = in->grid.col != NULL ? in->grid.col[i % in->grid.cols] : 0;
    const double rq = (double)ckpi_exp2_fixed(-row) * (double)ckpi_exp2_fixed(-col);
    return (float)((double)m * (double)in->kc * rq * rq);
}

static int
by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

ckp_status
ckpi_threshold_sample(ckpi_reach *out, const ckpi_enc_in *in, double share, ckpi_scratch *ws, ckp_error *err)
{
    const size_t n = in->grid.n, count = CKPI_MIN(n, (size_t)SAMPLE), mark = ckpi_scratch_mark(ws);
    float *u = ckpi_scratch_get(ws, (count + 1) * sizeof *u);

    *out = (ckpi_reach){TINY, 0.0F};
    if (u == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a sample of moments");
    const ckpi_fpenv env = ckpi_fp_enter();
    /* spread over the piece, and not along a column */
    for (size_t k = 0; k < count; k++)
        u[k] = size_of(in, n / count * k + (k * 7) % (n / count));
    qsort(u, count, sizeof *u, by_size);
    if (count != 0) {
        const size_t beyond = (size_t)((double)count * share);
        const float t = u[count - 1 - CKPI_MIN(beyond, count - 1)];
        out->largest = u[count - 1];
        /* a little below, so that elements that are all equal are kept */
        out->threshold = fminf(fmaxf(t * (1.0F - 0x1p-20F), TINY), 0x1p100F);
    }
    ckpi_fp_leave(env);
    ckpi_scratch_release(ws, mark);
    return CKP_OK;
}

float
ckpi_threshold_follow(float threshold, uint64_t kept, uint64_t n, double share)
{
    const double s = n != 0 ? (double)kept / (double)n : 0.0;

    if (kept == 0)
        return fmaxf(threshold * 0.5F, TINY);
    if (s > DENSE)
        return threshold;
    /* near the share, that of a normal distribution falls with about the eighth power of the threshold; roots are exact everywhere, powers not */
    const double root = sqrt(sqrt(sqrt(s / share)));
    return fminf(threshold * (float)fmin(fmax(root, 0.5), 2.0), 0x1p100F);
}

uint64_t
ckpi_threshold_kept(const uint8_t *packed, size_t n)
{
    const size_t bytes = CKPI_PACK2_BYTES(n);
    uint64_t kept = 0;
    size_t i = 0;

    for (; i + 8 <= bytes; i += 8) {
        const uint64_t x = ckpi_ld64(packed + i);
        kept += (uint64_t)__builtin_popcountll((x | x >> 1) & UINT64_C(0x5555555555555555));
    }
    for (; i < bytes; i++)
        kept += (uint64_t)__builtin_popcountll((uint64_t)((packed[i] | packed[i] >> 1) & 0x55));
    return kept;
}

float
ckpi_threshold_bound(float mg, float threshold, float kc)
{
    return (float)fmin((double)mg, AT_MOST * (double)threshold / (double)kc);
}
