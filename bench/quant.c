/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_quant [millions of parameters] [output.json]: the fused pass over w, m and v from memory beside a memcpy of the same bytes,
 * the decoders in cache, and the factor pass, per ISA level. One thread, fastest of several runs, all buffers touched before.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/cpu.h"
#include "base/rng.h"
#include "quant/quant.h"

#define COLS 1024
#define PIECE ((size_t)1 << 20)
#define CACHED ((size_t)1 << 14)

typedef struct model {
    size_t n;
    float *w, *m, *v, *wrec, *copy;
    int8_t *wcode, *mcode, *vcode, *vdiff;
    int16_t *row, *col;
    ckpi_scratch *ws;
} model;

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* About normal: the sum of four uniforms. */
static float
draw(uint32_t stream, size_t i)
{
    float s = 0;
    for (uint32_t k = 0; k < 4; k++)
        s += (float)ckpi_rng32(stream * 4 + k, (uint32_t)i) * 0x1p-32f;
    return (s - 2.0f) * 1.7320508f;
}

static void
fill(model *x)
{
    for (size_t i = 0; i < x->n; i++) {
        const float s = 1e-4f * expf(0.7f * draw(1, i) + 0.5f * sinf((float)(i % COLS)) + 0.4f * sinf((float)(i / COLS)));
        x->v[i] = s * s;
        x->m[i] = 0.22f * s * draw(2, i);
        x->w[i] = 0.02f * draw(3, i);
        x->wrec[i] = x->w[i] + 0.006f * draw(4, i);
        x->vcode[i] = 0;
    }
}

static void *
memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) {
        fprintf(stderr, "bench_quant: no memory\n");
        exit(1);
    }
    memset(p, 1, bytes);
    return p;
}

static model
model_new(size_t n)
{
    model x = {.n = n, .ws = ckpi_scratch_new()};
    float **floats[] = {&x.w, &x.m, &x.v, &x.wrec};
    int8_t **codes[] = {&x.wcode, &x.mcode, &x.vcode, &x.vdiff};
    for (size_t k = 0; k < 4; k++) {
        *floats[k] = memory(n * sizeof(float));
        *codes[k] = memory(n);
    }
    x.copy = memory(3 * n * sizeof(float));
    x.row = memory(n / COLS * sizeof *x.row);
    x.col = memory(n / PIECE * COLS * sizeof *x.col);
    fill(&x);
    return x;
}

static void
need(ckp_status st)
{
    if (st != CKP_OK) {
        fprintf(stderr, "bench_quant: %s\n", ckp_status_name(st));
        exit(1);
    }
}

static ckpi_grid
grid_at(const model *x, size_t at, size_t n)
{
    return (ckpi_grid){.n = n, .cols = COLS, .rows = n / COLS, .row = x->row + at / COLS, .col = x->col + at / PIECE * COLS, .vstep = 512, .has_v = true};
}

static void
factors(model *x, size_t at, size_t n, uint32_t cpu)
{
    need(ckpi_quant_factors(x->v + at, false, n, COLS, x->row + at / COLS, x->col + at / PIECE * COLS, x->ws, cpu, NULL));
}

static const ckpi_wstep steps = {0.024f * 0.01f, 0.006f, 0.036f};

static void
encode(model *x, size_t at, size_t n, uint32_t cpu)
{
    const ckpi_enc_in in = {.grid = grid_at(x, at, n), .w = x->w + at, .m = x->m + at, .v = x->v + at, .wrec = x->wrec + at, .w_dtype = CKP_F32,
                            .wstep = steps, .round = CKPI_ROUND_PHASE, .phase_key = 77, .first = (uint32_t)at, .mkind = CKPI_M_CLAMPED,
                            .kc = 1.0f, .mt = 0.5f, .wsq_exp = 32};
    ckpi_enc_out out = {.wcode = x->wcode + at, .mcode = x->mcode + at, .vdiff = x->vdiff + at, .vcode = x->vcode + at};
    need(ckpi_quant_encode(&in, &out, x->ws, cpu, NULL));
    ckpi_escapes_free(&out.wesc);
    ckpi_escapes_free(&out.mesc);
    ckpi_escapes_free(&out.vesc);
}

static void
decode_v(model *x, size_t at, size_t n, uint32_t cpu)
{
    const ckpi_grid g = grid_at(x, at, n);
    need(ckpi_quant_decode_v(&g, x->vcode + at, x->copy, x->ws, cpu, NULL));
}

static void
decode_m(model *x, size_t at, size_t n, uint32_t cpu)
{
    const ckpi_grid g = grid_at(x, at, n);
    need(ckpi_quant_decode_m(&g, x->vcode + at, x->mcode + at, 0.6f, false, x->copy, x->ws, cpu, NULL));
}

static void
decode_w(model *x, size_t at, size_t n, uint32_t cpu)
{
    const ckpi_grid g = grid_at(x, at, n);
    need(ckpi_quant_decode_w(&g, x->vcode + at, x->wcode + at, &steps, CKP_F32, false, x->wrec + at, x->ws, cpu, NULL));
}

static void
copy(model *x, size_t at, size_t n, uint32_t cpu)
{
    (void)cpu;
    memcpy(x->copy + 3 * at, x->w + at, n * sizeof(float));
    memcpy(x->copy + 3 * at + n, x->m + at, n * sizeof(float));
    memcpy(x->copy + 3 * at + 2 * n, x->v + at, n * sizeof(float));
}

typedef void (*pass)(model *x, size_t at, size_t n, uint32_t cpu);

/* ns an element over the whole model, in pieces. */
static double
from_memory(model *x, pass fn, uint32_t cpu)
{
    double best = 1e9;
    for (int rep = 0; rep < 7; rep++) {
        const double t = now();
        for (size_t at = 0; at < x->n; at += PIECE)
            fn(x, at, PIECE, cpu);
        best = fmin(best, now() - t);
    }
    return best / (double)x->n * 1e9;
}

/* ns an element over 16384 elements again and again. */
static double
in_cache(model *x, pass fn, uint32_t cpu)
{
    double best = 1e9;
    for (int rep = 0; rep < 20; rep++) {
        const double t = now();
        for (int k = 0; k < 32; k++)
            fn(x, 0, CACHED, cpu);
        best = fmin(best, now() - t);
    }
    return best / (32.0 * CACHED) * 1e9;
}

static void
bench_level(model *x, uint32_t cpu, FILE *json, bool first)
{
    const double mem = from_memory(x, copy, cpu), fac = from_memory(x, factors, cpu), enc = from_memory(x, encode, cpu);
    const double cached = in_cache(x, encode, cpu);
    const double v = in_cache(x, decode_v, cpu), m = in_cache(x, decode_m, cpu), w = in_cache(x, decode_w, cpu);
    printf("%-12s memcpy %.2f  encode %.2f ns/param = %.2f x memcpy (in cache %.2f)  factors %.2f  decode G/s: v %.2f m %.2f w %.2f\n",
           ckpi_cpu_name(cpu), mem, enc, enc / mem, cached, fac, 1 / v, 1 / m, 1 / w);
    if (json != NULL)
        fprintf(json, "%s{\"isa\": \"%s\", \"memcpy_ns\": %.3f, \"encode_ns\": %.3f, \"encode_over_memcpy\": %.3f, \"encode_cached_ns\": %.3f, "
                "\"factors_ns\": %.3f, \"decode_v_g_s\": %.3f, \"decode_m_g_s\": %.3f, \"decode_w_g_s\": %.3f}",
                first ? "" : ",\n ", ckpi_cpu_name(cpu), mem, enc, enc / mem, cached, fac, 1 / v, 1 / m, 1 / w);
}

int
main(int argc, char **argv)
{
    const uint32_t levels[] = {CKPI_CPU_AVX2 | CKPI_CPU_AVX512, CKPI_CPU_AVX2, 0};
    const size_t millions = argc > 1 ? strtoul(argv[1], NULL, 10) : 40;
    FILE *json = argc > 2 ? fopen(argv[2], "w") : NULL;
    model x = model_new((millions == 0 ? 1 : millions) * PIECE);
    bool first = true;
    if (json != NULL)
        fputs("[", json);
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if ((ckpi_cpu() & levels[i]) != levels[i])
            continue;
        bench_level(&x, levels[i], json, first);
        first = false;
    }
    if (json != NULL) {
        fputs("]\n", json);
        fclose(json);
    }
    return 0;
}
