/* SPDX-License-Identifier: Apache-2.0 */
/* Rearranged: what it saves against differences, every part's form, hostile heads. Round trips of all kinds: test_registry.c. */
#include "harness/check.h"

#include <math.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "codec/rearranged/rearranged.h"
#include "codec/rows.h"
#include "harness/seed.h"
#include "unit/codec/mill.h"

enum { N = 1 << 18 };

static ckpi_block
block_of(const uint8_t *code, const uint8_t *base, size_t n)
{
    return (ckpi_block){.data = code, .base = base, .n = n, .width = 1, .dtype = CKP_I8};
}

static size_t
size_of(const uint8_t *code, const uint8_t *base, size_t n, uint8_t *enc)
{
    const ckpi_block b = block_of(code, base, n);
    return mill_round_trip(&ckpi_codec_rearranged, &b, enc);
}

/* Codes around 0 of which few move, mostly back: what v does. */
static void
draw_pair(test_rng *r, uint8_t *base, uint8_t *code, size_t n, double spread, double moved)
{
    for (size_t i = 0; i < n; i++) {
        const double x = spread * test_normal(r);
        base[i] = (uint8_t)(int8_t)rint(x);
        code[i] = (uint8_t)(int8_t)rint(x * (1 - moved) + moved * test_normal(r));
    }
}

/* Entropy of code given base, in bytes. */
static double
conditional_bytes(const uint8_t *code, const uint8_t *base, size_t n)
{
    static double pair[256][256];
    double bits = 0;
    memset(pair, 0, sizeof pair);
    for (size_t i = 0; i < n; i++)
        pair[base[i]][code[i]]++;
    for (unsigned b = 0; b < 256; b++) {
        double all = 0;
        for (unsigned c = 0; c < 256; c++)
            all += pair[b][c];
        for (unsigned c = 0; c < 256; c++)
            bits -= pair[b][c] > 0 ? pair[b][c] * log2(pair[b][c] / all) : 0;
    }
    return bits / 8;
}

static void
test_size(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rearranged size");
    uint8_t *base = malloc(N), *code = malloc(N), *diff = malloc(N), *out = malloc(2 * N);
    ckpi_scratch *ws = ckpi_scratch_new();
    static const double laws[][2] = {{0.8, 0.01}, {0.8, 0.1}, {1.5, 0.03}, {6, 0.02}, {40, 0.01}};
    for (size_t l = 0; l < CHECK_COUNT(laws); l++) {
        draw_pair(&r, base, code, N, laws[l][0], laws[l][1]);
        const double h = conditional_bytes(code, base, N);
        const size_t len = size_of(code, base, N, NULL);
        size_t differences;
        uint8_t id;
        for (size_t i = 0; i < N; i++)
            diff[i] = (uint8_t)(code[i] - base[i]);
        assert_ok(ckpi_codec_codes((const int8_t *)diff, N, out, 2 * N, &differences, &id, ws, ckpi_cpu(), NULL));
        if (getenv("CKP_VERBOSE") != NULL)
            print_message("spread %.1f moved %.2f: entropy %.0f, rearranged %zu, differences %zu\n", laws[l][0], laws[l][1], h, len, differences);
        assert_true(len <= differences + differences / 100 + 16);
        if (laws[l][0] < 2)
            assert_true((double)len < 1.04 * h + 600 && (double)len < 0.95 * (double)differences);
    }
    ckpi_scratch_free(ws);
    free(out);
    free(diff);
    free(code);
    free(base);
}

static void
test_forms(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rearranged forms");
    enum { MANY = 5000 };
    uint8_t base[MANY], code[MANY], enc[MANY + 1];
    for (size_t i = 0; i < MANY; i++)
        base[i] = code[i] = (uint8_t)(test_below(&r, 4) - 2);
    assert_true(size_of(code, base, MANY, enc) <= 40); /* nothing moved */
    code[MANY / 2]++;
    code[MANY - 1]--;
    assert_true(size_of(code, base, MANY, enc) <= 60);
    test_bytes(&r, code, MANY);
    assert_int_equal(size_of(code, base, MANY, enc), MANY + 1); /* stored */
    assert_int_equal(enc[0], CKPI_REARRANGED_STORED);
    test_bytes(&r, base, MANY);
    memcpy(code, base, MANY);
    assert_true(size_of(code, base, MANY, enc) <= 4); /* many values, none with a part of its own */
    assert_int_equal(size_of(code, base, 0, enc), 1);
}

/* One value of the base decides the code entirely: a part of its own costs nothing. */
static void
test_decided(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rearranged decided");
    uint8_t *base = malloc(N), *code = malloc(N);
    static const uint8_t to[8] = {3, 7, 0, 250, 1, 9, 128, 127};
    for (size_t i = 0; i < N; i++) {
        base[i] = (uint8_t)(test_below(&r, 8) * 30);
        code[i] = to[base[i] / 30];
    }
    assert_true(size_of(code, base, N, NULL) < 100);
    free(code);
    free(base);
}

/* Runs alone: gaps of every length, to the last symbol. */
static void
test_runs(void **state)
{
    (void)state;
    test_rng r = test_rng_new("rearranged runs");
    ckpi_scratch *ws = ckpi_scratch_new();
    uint8_t *sym = malloc(N), *back = malloc(N), *bytes = malloc(2 * N);
    for (unsigned round = 0; round < 200; round++) {
        const size_t n = 1 + test_below(&r, round % 10 ? 3000 : N);
        size_t count = 0;
        memset(sym, 0, n);
        for (size_t k = 1 + test_below(&r, 50); k-- > 0;)
            sym[test_below(&r, n)] = (uint8_t)(1 + test_below(&r, 255));
        sym[n - 1] = round % 2 ? 1 : sym[n - 1];
        for (size_t i = 0; i < n; i++)
            count += sym[i] != 0;
        ckpi_buf out = {.data = bytes, .cap = 2 * N, .max = 2 * N};
        assert_ok(ckpi_runs_put(&out, sym, n, count, ws, ckpi_cpu(), NULL));
        ckpi_rd in = ckpi_rd_init(bytes, out.len, 0);
        assert_ok(ckpi_runs_get(&in, back, n, ws, ckpi_cpu(), NULL));
        assert_memory_equal(back, sym, n);
        if (sym[n - 1] != 0 && n > 1) { /* one symbol less than was coded */
            in = ckpi_rd_init(bytes, out.len, 0);
            assert_status(ckpi_runs_get(&in, back, n - 1, ws, ckpi_cpu(), NULL), CKP_ECORRUPT);
        }
        ckpi_buf small = {.data = bytes, .cap = out.len - 1, .max = out.len - 1};
        assert_status(ckpi_runs_put(&small, sym, n, count, ws, ckpi_cpu(), NULL), CKP_ELIMIT);
    }
    ckpi_scratch_free(ws);
    free(bytes);
    free(back);
    free(sym);
}

static void
test_hostile(void **state)
{
    (void)state;
    static const uint8_t base[4] = {0, 1, 0, 5};
    static const struct bad { size_t len; uint8_t bytes[12]; } bads[] = {
        {0, {0}},
        {1, {1}},
        {1, {2}},                         /* an unknown form */
        {2, {1, 41}},                     /* too many parts */
        {4, {1, 2, 1, 1}},                /* values that do not rise */
        {4, {1, 2, 1, 0}},
        {4, {1, 0, 1, 0}},                /* an unknown kind */
        {3, {1, 0, 3}},                   /* cut */
        {4, {1, 0, 2, 0}},                /* bytes left over */
        {4, {0, 1, 2, 3}},                /* one byte short */
        {7, {1, 0, 0, 3, 5, 0, 0}},       /* more runs than symbols */
        {9, {1, 0, 0, 5, 1, 0, 4, 0, 1}}, /* a run beyond the end */
        {10, {1, 0, 0, 6, 1, 0, 3, 0, 1, 7}}, /* bits that no run wants */
        {9, {1, 0, 0, 5, 1, 0, 255, 0, 1}},
    };
    ckpi_scratch *ws = ckpi_scratch_new();
    uint8_t out[4];
    const ckpi_block b = block_of(NULL, base, 4);
    for (size_t i = 0; i < CHECK_COUNT(bads); i++)
        assert_status(ckpi_codec_rearranged.decode(&b, bads[i].bytes, bads[i].len, out, ws, ckpi_cpu(), NULL), CKP_ECORRUPT);
    /* The example of the README. */
    static const uint8_t good[] = {1, 1, 0, 0, 5, 1, 0, 1, 0, 2, 2};
    static const uint8_t want[4] = {0, 3, 0, 5};
    const uint8_t swapped[] = {1, 1, 0, 0, 5, 1, 0, 0, 0, 2, 2};
    assert_ok(ckpi_codec_rearranged.decode(&b, swapped, sizeof swapped, out, ws, ckpi_cpu(), NULL));
    assert_memory_equal(out, want, 4);
    assert_ok(ckpi_codec_rearranged.decode(&b, good, sizeof good, out, ws, ckpi_cpu(), NULL));
    assert_true(out[1] == 1 && out[3] == 7);
    ckpi_block none = b;
    none.base = NULL;
    assert_status(ckpi_codec_decode(CKPI_CODEC_REARRANGED, &none, good, sizeof good, out, ws, 0, NULL), CKP_ECORRUPT);
    ckpi_scratch_free(ws);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size), cmocka_unit_test(test_forms),   cmocka_unit_test(test_decided),
        cmocka_unit_test(test_runs), cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
