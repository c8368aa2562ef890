/* SPDX-License-Identifier: Apache-2.0 */
/* Codes that are given from ckpi_aim()'s distance on carry the progress of all weights. */
#include "engine/aim.h"
#include "base/cpu.h"
#include "harness/check.h"
#include "harness/seed.h"
#include <math.h>
#include <stdlib.h>

enum { N = 100000 };

typedef struct piece {
    float *w, *m, *wrec;
    int8_t *code;
    uint8_t *far;
    ckpi_enc_in in;
    ckpi_enc_out out;
} piece;

static piece
piece_new(void)
{
    piece p = {calloc(N, 4), calloc(N, 4), calloc(N, 4), calloc(N, 1), calloc(N / 8 + 1, 1), {.w = NULL}, {.wcode = NULL}};
    p.in = (ckpi_enc_in){.grid = {.n = N, .cols = 128, .rows = (N + 127) / 128, .vstep = 1}, .w = p.w, .m = p.m, .wrec = p.wrec, .w_dtype = CKP_F32,
                         .wstep = {1, 1, 1}, .round = CKPI_ROUND_EARLY, .mkind = CKPI_M_NONE};
    p.out = (ckpi_enc_out){.wcode = p.code, .wfar = p.far};
    return p;
}

static void
piece_free(piece *p)
{
    free(p->w);
    free(p->m);
    free(p->wrec);
    free(p->code);
    free(p->far);
    ckpi_escapes_free(&p->out.wesc);
}

/* Share of what all weights moved down the gradient that w^ lacks; saves the piece. */
static double
lag(piece *p, ckpi_scratch *ws, double *bits)
{
    double missing = 0, moved = 0, coded = 0;
    p->in.wnear = ckpi_aim(&p->in, NULL, p->far);
    assert_true(p->in.wnear >= CKPI_WNEAR_MIN && p->in.wnear <= 0.5f);
    assert_ok(ckpi_quant_encode(&p->in, &p->out, ws, ckpi_cpu(), NULL));
    for (size_t i = 0; i < N; i++) {
        missing -= (double)p->m[i] * ((double)p->w[i] - (double)p->wrec[i]);
        moved -= (double)p->m[i] * (double)p->w[i];
        coded += p->code[i] != 0;
    }
    *bits = coded / N;
    return missing / moved;
}

/* Moves of a twentieth of a step, in the direction of a noisy momentum: to nearest none would be coded for five saves. */
static void
test_progress(void **state)
{
    (void)state;
    test_rng r = test_rng_new("aim");
    piece p = piece_new();
    ckpi_scratch *ws = ckpi_scratch_new();
    for (int save = 0; save < 8; save++) {
        double share;
        for (size_t i = 0; i < N; i++) {
            const double way = test_normal(&r);
            p.w[i] -= (float)(0.05 * way + 0.05 * (i % 7 == 0 ? 3 : 1) * (i % 2 ? 1 : -1));
            p.m[i] = (float)(way + (i % 2 ? 1 : -1));
        }
        const double missing = lag(&p, ws, &share);
        assert_true(share < 0.2);
        /* while the nearest codes are enough, there is nothing to choose; the first saves may need more than CKPI_WNEAR_MIN allows */
        assert_true(save < 2 || fabs(missing) < 0.12);
    }
    ckpi_scratch_free(ws);
    piece_free(&p);
}

/* Nothing moved, nothing known, nothing finite: an answer within its range. */
static void
test_strange(void **state)
{
    (void)state;
    piece p = piece_new();
    assert_true(ckpi_aim(&p.in, NULL, p.far) == 0.5f);
    for (size_t i = 0; i < N; i++)
        p.w[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : 3e38f;
    assert_true(ckpi_aim(&p.in, NULL, p.far) == 0.5f);
    p.in.m = NULL;
    for (size_t n = 1; n < 70; n++) {
        p.in.grid.n = n;
        p.in.grid.rows = 1;
        for (size_t i = 0; i < n; i++)
            p.w[i] = 0.3f;
        const float near = ckpi_aim(&p.in, NULL, p.far);
        assert_true(near > 0.29f && near <= 0.3f + 0.01f);
    }
    piece_free(&p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_progress), cmocka_unit_test(test_strange)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
