/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_plan FILE: parts of the planner on the f32 numbers of FILE, one thread, fastest of several runs, all memory touched
 * before; prints one line "name value" a figure. bench/plan.py makes the file, runs this, and puts numpy and scikit-learn beside it.
 *   sketch     all numbers into a sketch and five quantiles read
 *   fit        the first 10^7: sketch, points, and the best codebooks of 1 to 32 levels at once
 *   assign     codes of the same 10^7 by 32 levels
 *   search     evaluations that the searches for a configuration need on made-up losses (common_search.c)
 *   codes      2^20 codes that moved a little from 2^20 others: rearranged, beside their differences through ckpi_codec_codes
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "codec/codec.h"
#include "common_search.h"
#include "machine.h"
#include "quant/codebook.h"

enum { ROUNDS = 7, CODES = 1 << 20, LEVELS = 32 };
#define FIT ((size_t)10000000)

typedef struct bench {
    float *x;
    size_t n;
    ckpi_scratch *ws;
    ckpi_sketch *sketch;
    ckpi_codebook codebook;
} bench;

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void
must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "bench_plan: %s\n", what);
    exit(1);
}

static void
least(double *best, double t)
{
    *best = t < *best ? t : *best;
}

static void
read_numbers(bench *b, const char *path)
{
    FILE *f = fopen(path, "rb");
    must(f != NULL && fseek(f, 0, SEEK_END) == 0, "cannot open the file");
    const long size = ftell(f);
    must(size > 0 && fseek(f, 0, SEEK_SET) == 0, "cannot read the file");
    b->n = (size_t)size / sizeof *b->x;
    b->x = malloc(b->n * sizeof *b->x);
    must(b->x != NULL && fread(b->x, sizeof *b->x, b->n, f) == b->n, "cannot read the file");
    (void)fclose(f);
}

static void
bench_sketch(bench *b)
{
    static const double qs[] = {0.1, 0.3, 0.5, 0.99, 0.9995};
    double best = 1e9;
    float q[5] = {0};
    for (unsigned r = 0; r < ROUNDS; r++) {
        const double t = now();
        ckpi_sketch_clear(b->sketch);
        must(ckpi_sketch_add(b->sketch, b->x, b->n, b->ws, ckpi_cpu(), NULL) == CKP_OK, "sketch");
        for (unsigned k = 0; k < 5; k++)
            q[k] = ckpi_sketch_quantile(b->sketch, qs[k], false);
        least(&best, now() - t);
    }
    printf("sketch_s %.6f\n", best);
    for (unsigned k = 0; k < 5; k++)
        printf("quantile_%g %.9g\n", qs[k], (double)q[k]);
}

static void
bench_fit(bench *b)
{
    const size_t n = b->n < FIT ? b->n : FIT;
    double best = 1e9, best_fit = 1e9;
    for (unsigned r = 0; r < ROUNDS; r++) {
        ckpi_points p;
        ckpi_codebook_fit f;
        ckpi_scratch_reset(b->ws);
        double t = now();
        const double start = t;
        ckpi_sketch_clear(b->sketch);
        must(ckpi_sketch_add(b->sketch, b->x, n, b->ws, ckpi_cpu(), NULL) == CKP_OK, "sketch");
        t = now();
        must(ckpi_points_of(&p, b->sketch, 0, ckpi_sketch_above(b->sketch, 0), b->ws, NULL) == CKP_OK, "points");
        must(ckpi_codebook_fit_all(&f, &p, LEVELS, b->ws, NULL) == CKP_OK, "fit");
        ckpi_codebook_take(&b->codebook, &f, LEVELS);
        least(&best_fit, now() - t);
        least(&best, now() - start);
        if (r == 0)
            printf("fit_points %zu\n", p.n);
    }
    printf("fit_s %.6f\nfit_alone_s %.6f\n", best, best_fit);
    for (uint32_t k = 0; k < b->codebook.k; k++)
        printf("centre_%u %.9g\n", (unsigned)k, (double)b->codebook.centre[k]);
}

static void
bench_assign(bench *b)
{
    const size_t n = b->n < FIT ? b->n : FIT;
    static const ckpi_partition part = {.prune_below = 0.001f, .keep_from = 4.0f};
    int8_t *code = malloc(n);
    uint16_t *kept = malloc(n * sizeof *kept);
    must(code != NULL && kept != NULL, "no memory");
    memset(code, 1, n);
    memset(kept, 1, n * sizeof *kept);
    const uint32_t cpus[] = {ckpi_cpu(), ckpi_cpu() & ~(CKPI_CPU_AVX512 | CKPI_CPU_VBMI2)};
    for (unsigned c = 0; c < 2; c++) {
        double best = 1e9;
        for (unsigned r = 0; r < ROUNDS; r++) {
            const double t = now();
            (void)ckpi_codebook_assign(&b->codebook, &part, b->x, NULL, n, code, kept, cpus[c]);
            least(&best, now() - t);
        }
        printf("assign_%s_gps %.3f\n", c ? "avx2" : "best", (double)n / best * 1e-9);
    }
    free(code);
    free(kept);
}

/* ---- codes under the base's ------------------------------------------------------------------------------------------------ */

/* About normal: the sum of four uniforms. */
static double
draw(uint64_t *rng)
{
    double s = 0;
    for (unsigned k = 0; k < 4; k++) {
        *rng ^= *rng << 13;
        *rng ^= *rng >> 7;
        *rng ^= *rng << 17;
        s += (double)(*rng >> 11) * 0x1p-53;
    }
    return (s - 2) * 1.7320508;
}

static int8_t
nearest(double x)
{
    return (int8_t)((int)(x + 1000.5) - 1000);
}

/* Codes of second moments two octaves apart: they move by a hundredth of a step and back towards their mean. */
static void
draw_codes(uint8_t *base, uint8_t *code, double spread, double moved)
{
    uint64_t rng = 88172645463325252u;
    for (uint32_t i = 0; i < CODES; i++) {
        const double x = spread * draw(&rng);
        base[i] = (uint8_t)nearest(x);
        code[i] = (uint8_t)nearest(x * (1 - moved) + moved * draw(&rng));
    }
}

typedef struct figures {
    double encode_s, decode_s;
    size_t size;
} figures;

static void
run_rearranged(bench *b, const ckpi_block *blk, uint8_t *out, uint8_t *back, uint32_t cpu, figures *f)
{
    const ckpi_codec *c = ckpi_codec_find(CKPI_CODEC_REARRANGED);
    ckpi_block q = *blk;
    double t = now();
    must(c->encode(blk, out, c->bound(blk), &f->size, b->ws, cpu, NULL) == CKP_OK, "encode");
    least(&f->encode_s, now() - t);
    q.data = NULL;
    t = now();
    must(c->decode(&q, out, f->size, back, b->ws, cpu, NULL) == CKP_OK, "decode");
    least(&f->decode_s, now() - t);
    must(memcmp(back, blk->data, blk->n) == 0, "codes came back wrong");
}

static size_t
size_of_differences(bench *b, const uint8_t *code, const uint8_t *base, int8_t *diff, uint8_t *out)
{
    size_t len = 0;
    uint8_t id = 0;
    for (size_t i = 0; i < CODES; i++)
        diff[i] = (int8_t)(code[i] - base[i]);
    must(ckpi_codec_codes(diff, CODES, out, 2 * CODES, &len, &id, b->ws, ckpi_cpu(), NULL) == CKP_OK, "codes");
    return len;
}

static void
bench_codes(bench *b)
{
    static const struct law { const char *name; double spread, moved; } laws[] = {{"v", 0.8, 0.01}, {"v_far", 0.8, 0.1}, {"index", 6, 0.02}};
    uint8_t *memory = calloc(7, CODES);
    must(memory != NULL, "no memory");
    uint8_t *base = memory, *code = base + CODES, *back = code + CODES, *out = back + CODES;
    for (unsigned l = 0; l < sizeof laws / sizeof *laws; l++) {
        draw_codes(base, code, laws[l].spread, laws[l].moved);
        const ckpi_block blk = {.data = code, .base = base, .n = CODES, .width = 1, .dtype = CKP_I8};
        const uint32_t cpus[] = {ckpi_cpu(), ckpi_cpu() & ~(CKPI_CPU_AVX512 | CKPI_CPU_VBMI2)};
        for (unsigned c = 0; c < 2; c++) {
            figures f = {1e9, 1e9, 0};
            for (unsigned r = 0; r < 3 * ROUNDS; r++)
                run_rearranged(b, &blk, out, back, cpus[c], &f);
            printf("codes_%s_%s_encode_gps %.3f\ncodes_%s_%s_decode_gps %.3f\n", laws[l].name, c ? "avx2" : "best", CODES / f.encode_s * 1e-9,
                   laws[l].name, c ? "avx2" : "best", CODES / f.decode_s * 1e-9);
            if (c == 0)
                printf("codes_%s_bits %.4f\n", laws[l].name, 8.0 * (double)f.size / CODES);
        }
        const size_t differences = size_of_differences(b, code, base, (int8_t *)back, out);
        printf("codes_%s_difference_bits %.4f\n", laws[l].name, 8.0 * (double)differences / CODES);
    }
    free(memory);
}

int
main(int argc, char **argv)
{
    bench b = {.ws = ckpi_scratch_new(), .sketch = ckpi_sketch_new()};
    must(argc == 2 && b.ws != NULL && b.sketch != NULL, "usage: bench_plan FILE");
    read_numbers(&b, argv[1]);
    ckpb_machine(stderr);
    bench_sketch(&b);
    bench_fit(&b);
    bench_assign(&b);
    bench_codes(&b);
    must(ckpb_search(), "a search failed, or missed the optimum");
    ckpi_sketch_free(b.sketch);
    ckpi_scratch_free(b.ws);
    free(b.x);
    return 0;
}
