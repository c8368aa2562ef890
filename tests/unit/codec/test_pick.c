/* SPDX-License-Identifier: Apache-2.0 */
/* Picks: near the best of all codecs in sum, never larger than raw, the same on every ISA, and decoded by id alone. */
#include "harness/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "codec/rows.h"
#include "harness/failalloc.h"
#include "unit/codec/gen.h"
#include "unit/codec/mill.h"

typedef struct picked {
    uint8_t id;
    bool used_base;
    size_t len;
} picked;

static picked
pick(const ckpi_block *b, ckpi_effort effort, uint32_t cpu, uint8_t *dst)
{
    ckpi_scratch *ws = ckpi_scratch_new();
    picked p = {0};
    ckp_error err = {0};
    assert_ok(ckpi_codec_pick(b, effort, dst, ckpi_codec_pick_bound(b), &p.len, &p.id, &p.used_base, ws, cpu, &err));
    assert_true(p.len <= b->n * b->width + 64);
    ckpi_scratch_free(ws);
    return p;
}

static void
check_decodes(const ckpi_block *b, const picked *p, const uint8_t *coded)
{
    ckpi_scratch *ws = ckpi_scratch_new();
    uint8_t *back = malloc(b->n * b->width + 1);
    ckpi_block q = *b;
    q.data = NULL;
    if (!p->used_base)
        q.base = NULL;
    assert_ok(ckpi_codec_decode(p->id, &q, coded, p->len, back, ws, ckpi_cpu(), NULL));
    if (b->n != 0)
        assert_memory_equal(back, b->data, b->n * b->width);
    free(back);
    ckpi_scratch_free(ws);
}

static size_t
best(const ckpi_block *b, uint8_t *out)
{
    size_t least = b->n * b->width;
    ckpi_scratch *ws = ckpi_scratch_new();
    for (size_t i = 0; ckpi_codec_at(i) != NULL; i++) {
        const ckpi_codec *c = ckpi_codec_at(i);
        for (int with = 0; with <= (b->base != NULL && c->takes_base); with++) {
            ckpi_block q = *b;
            size_t len = 0;
            if (!with)
                q.base = NULL;
            if ((c->needs_base && !with) || !c->fits(&q))
                continue;
            assert_ok(c->encode(&q, out, c->bound(&q), &len, ws, ckpi_cpu(), NULL));
            ckpi_scratch_reset(ws);
            least = len < least ? len : least;
        }
    }
    ckpi_scratch_free(ws);
    return least;
}

/* Sums over blocks of every pattern. */
static void
sums(ckp_dtype dtype, size_t n, bool bases, size_t *ours, size_t *least)
{
    test_rng r = test_rng_new("pick");
    const unsigned width = gen_width(dtype);
    uint8_t *data = malloc(n * width + 1), *base = malloc(n * width + 1), *out = malloc(2 * n * width + 4096);
    for (unsigned g = 0; g < GEN_PATTERNS; g++) {
        for (unsigned k = 0; k < (bases ? (unsigned)GEN_BASES : 1u); k++) {
            gen_fill(&r, (gen_pattern)g, dtype, data, n, 128);
            if (bases)
                gen_base_fill(&r, (gen_base)k, dtype, base, data, n);
            const ckpi_block b = {.data = data, .base = bases ? base : NULL, .n = n, .width = width, .dtype = dtype, .cols = 128};
            const picked p = pick(&b, CKPI_EFFORT_FAST, ckpi_cpu(), out);
            check_decodes(&b, &p, out);
            *ours += p.len;
            const size_t all = best(&b, out);
            if (p.len > all + all / 100 + 64)
                print_message("%s %s n=%zu base %u: %s %zu, best %zu\n", gen_name((gen_pattern)g), ckpi_dtype_get(dtype)->name, n, bases ? k : 9,
                              ckpi_codec_find(p.id)->name, p.len, all);
            *least += all;
        }
    }
    free(out);
    free(base);
    free(data);
}

static void
test_near_the_best(void **state)
{
    (void)state;
    static const ckp_dtype dtypes[] = {CKP_F32, CKP_BF16, CKP_F16, CKP_I64, CKP_U8};
    size_t ours = 0, least = 0;
    for (size_t d = 0; d < CHECK_COUNT(dtypes); d++) {
        for (int bases = 0; bases < 2; bases++) {
            sums(dtypes[d], 3000, bases != 0, &ours, &least);
            sums(dtypes[d], 60000, bases != 0, &ours, &least);
        }
    }
    print_message("picks: %zu, best of all: %zu\n", ours, least);
    assert_true(ours <= least + least / 200);
}

/* Bits that say which of n words changed, and the words. */
static double
possible(size_t n, size_t changed, unsigned width)
{
    double bits = 8.0 * width * (double)changed;
    for (size_t i = 0; i < 2; i++) {
        const double k = (double)(i == 0 ? changed : n - changed);
        bits += k > 0.0 ? k * log2((double)n / k) : 0.0;
    }
    return bits / 8.0;
}

/* Weights of which some words have become others that have nothing to do with them: a mask and those words, and nothing where all have. */
static void
check_random_words(ckp_dtype dtype, size_t per_mille)
{
    enum { N = 100000 };
    test_rng r = test_rng_new("random words");
    const unsigned width = gen_width(dtype);
    uint8_t *base = malloc(N * width), *data = malloc(N * width), *out = malloc(N * width * 2 + 4096);
    size_t changed = 0;

    gen_fill(&r, GEN_NORMAL, dtype, base, N, 100);
    memcpy(data, base, N * width);
    for (size_t i = 0; i < N; i++)
        if (test_below(&r, 1000) < per_mille) {
            test_bytes(&r, data + i * width, width);
            changed++;
        }
    const ckpi_block b = {.data = data, .base = base, .n = N, .width = width, .dtype = dtype, .cols = 100};
    const picked p = pick(&b, CKPI_EFFORT_FAST, ckpi_cpu(), out);
    check_decodes(&b, &p, out);
    assert_int_equal(p.id, per_mille == 1000 ? CKPI_CODEC_RAW : CKPI_CODEC_MASK);
    assert_true((double)p.len <= possible(N, changed, width) * 1.01 + 300.0);
    free(out);
    free(data);
    free(base);
}

static void
test_random_words(void **state)
{
    (void)state;
    static const size_t per_mille[] = {20, 100, 500, 1000};
    for (size_t i = 0; i < CHECK_COUNT(per_mille); i++) {
        check_random_words(CKP_F16, per_mille[i]);
        check_random_words(CKP_BF16, per_mille[i]);
        check_random_words(CKP_F32, per_mille[i]);
    }
}

static void
test_small_tries_all(void **state)
{
    (void)state;
    enum { N = 30000 };
    test_rng r = test_rng_new("small");
    int32_t *data = malloc(N * sizeof *data);
    uint8_t *out = malloc(N * 8 + 4096);
    test_bytes(&r, data, N * sizeof *data);
    memcpy(data + N / 2, data, N / 2 * sizeof *data); /* a repeat that a sample cannot see */
    const ckpi_block b = {.data = data, .n = N, .width = 4, .dtype = CKP_I32};
    const picked p = pick(&b, CKPI_EFFORT_SMALL, ckpi_cpu(), out);
    check_decodes(&b, &p, out);
    assert_int_equal(p.id, CKPI_CODEC_LZ);
    free(out);
    free(data);
}

static void
test_same_on_every_isa(void **state)
{
    (void)state;
    enum { N = 40000 };
    test_rng r = test_rng_new("isa");
    uint32_t words[8];
    const size_t n_words = mill_words(words);
    uint16_t *data = malloc(N * sizeof *data), *base = malloc(N * sizeof *base);
    uint8_t *out[2] = {malloc(N * 4 + 4096), malloc(N * 4 + 4096)};
    for (unsigned g = 0; g < GEN_PATTERNS; g++) {
        for (unsigned k = 0; k < GEN_BASES; k++) {
            gen_fill(&r, (gen_pattern)g, CKP_BF16, data, N, 100);
            gen_base_fill(&r, (gen_base)k, CKP_BF16, base, data, N);
            const ckpi_block b = {.data = data, .base = base, .n = N, .width = 2, .dtype = CKP_BF16, .cols = 100};
            const picked p = pick(&b, CKPI_EFFORT_FAST, words[0], out[0]);
            for (size_t w = 1; w < n_words; w++) {
                const picked q = pick(&b, CKPI_EFFORT_FAST, words[w], out[1]);
                assert_true(p.id == q.id && p.used_base == q.used_base && p.len == q.len);
                assert_memory_equal(out[0], out[1], p.len);
            }
        }
    }
    free(out[0]);
    free(out[1]);
    free(base);
    free(data);
}

static void
test_edges(void **state)
{
    (void)state;
    uint8_t out[256], data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (size_t n = 0; n <= 2; n++) {
        const ckpi_block b = {.data = data, .n = n, .width = 4, .dtype = CKP_F32};
        const picked p = pick(&b, CKPI_EFFORT_FAST, ckpi_cpu(), out);
        check_decodes(&b, &p, out);
    }
    const ckpi_block b = {.data = data, .n = 2, .width = 4, .dtype = CKP_F32};
    ckpi_scratch *ws = ckpi_scratch_new();
    picked p;
    ckp_error err = {0};
    assert_status(ckpi_codec_pick(&b, CKPI_EFFORT_FAST, out, 8, &p.len, &p.id, &p.used_base, ws, 0, &err), CKP_EINVAL);
    assert_status(ckpi_codec_decode(200, &b, out, 0, out, ws, 0, &err), CKP_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "200"));
    assert_status(ckpi_codec_decode(CKPI_CODEC_DIFF, &b, out, 0, out, ws, 0, &err), CKP_ECORRUPT);
    ckpi_scratch_free(ws);
}

static ckp_status
pick_with_faults(void *user)
{
    const ckpi_block *b = user;
    ckpi_scratch *ws = ckpi_scratch_new();
    uint8_t *out = malloc(ckpi_codec_pick_bound(b));
    ckp_status st = CKP_ENOMEM;
    picked p;
    if (ws != NULL && out != NULL)
        st = ckpi_codec_pick(b, CKPI_EFFORT_FAST, out, ckpi_codec_pick_bound(b), &p.len, &p.id, &p.used_base, ws, ckpi_cpu(), NULL);
    free(out);
    ckpi_scratch_free(ws);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    enum { N = 30000 };
    test_rng r = test_rng_new("pick memory");
    float *data = malloc(N * sizeof *data), *base = malloc(N * sizeof *base);
    gen_fill(&r, GEN_SCALED, CKP_F32, data, N, 100);
    gen_base_fill(&r, GEN_BASE_NEAR, CKP_F32, base, data, N);
    ckpi_block b = {.data = data, .base = base, .n = N, .width = 4, .dtype = CKP_F32, .cols = 100};
    failalloc_run(pick_with_faults, &b, 3, 1);
    free(base);
    free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_the_best), cmocka_unit_test(test_random_words), cmocka_unit_test(test_small_tries_all), cmocka_unit_test(test_same_on_every_isa),
        cmocka_unit_test(test_edges),         cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
