/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every codec of the registry through one mill. A codec that has no row in `rows` fails here: adding a codec means adding
 * its row, and gets round trips on every ISA, guard pages, truncation and bit flips by that.
 */
#include "harness/check.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "codec/rows.h"
#include "harness/failalloc.h"
#include "harness/seed.h"
#include "unit/codec/gen.h"
#include "unit/codec/mill.h"

#define ANY (1u << GEN_PATTERNS) - 1

static const struct row {
    uint8_t id;
    unsigned patterns;   /* bit g: pattern g can be coded (where fits() agrees) */
    bool coded;          /* has a payload that truncation can hurt */
} rows[] = {
    {CKPI_CODEC_RAW, ANY, true},    {CKPI_CODEC_ZERO, 1u << GEN_ZERO, false}, {CKPI_CODEC_RANS, ANY, true}, {CKPI_CODEC_PLANES, ANY, true},
    {CKPI_CODEC_MASK, ANY, true},   {CKPI_CODEC_DIFF, ANY, true},             {CKPI_CODEC_LZ, ANY, true},
    {CKPI_CODEC_REARRANGED, ANY, true},
};

/* The first few stand for the others in tests that take long. */
enum { FEW_DTYPES = 4 };
static const ckp_dtype dtypes[] = {CKP_F32, CKP_BF16, CKP_U8,   CKP_I64,      CKP_F16,       CKP_F64,
                                   CKP_I32, CKP_I16,  CKP_BOOL, CKP_F8E4M3FN, CKP_F8E8M0FNU, CKP_F128};

typedef void visit_fn(const ckpi_codec *c, const struct row *row, const ckpi_block *b);

static const struct row *
row_of(const ckpi_codec *c)
{
    for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
        if (rows[i].id == c->id)
            return &rows[i];
    }
    return NULL;
}

static void
with_bases(test_rng *r, const ckpi_codec *c, const struct row *row, const ckpi_block *b, visit_fn *visit)
{
    if (!c->needs_base && c->fits(b))
        visit(c, row, b);
    if (!c->takes_base)
        return;
    uint8_t *base = malloc(b->n * b->width + 1);
    for (unsigned g = 0; g < GEN_BASES; g++) {
        ckpi_block q = *b;
        gen_base_fill(r, (gen_base)g, b->dtype, base, b->data, b->n);
        q.base = base;
        if (c->fits(&q))
            visit(c, row, &q);
    }
    free(base);
}

static void
for_all(const size_t *lengths, size_t n_lengths, size_t n_dtypes, size_t cols, const char *test, visit_fn *visit)
{
    test_rng r = test_rng_new(test);
    for (size_t i = 0; ckpi_codec_at(i) != NULL; i++) {
        const ckpi_codec *c = ckpi_codec_at(i);
        const struct row *row = row_of(c);
        assert_non_null(row);
        for (size_t d = 0; d < n_dtypes; d++) {
            for (size_t l = 0; l < n_lengths; l++) {
                uint8_t *data = malloc(lengths[l] * 32 + 1);
                for (unsigned g = 0; g < GEN_PATTERNS; g++) {
                    if (!(row->patterns >> g & 1))
                        continue;
                    gen_fill(&r, (gen_pattern)g, dtypes[d], data, lengths[l], cols);
                    const ckpi_block b = {.data = data, .n = lengths[l], .width = gen_width(dtypes[d]), .dtype = dtypes[d], .cols = cols};
                    with_bases(&r, c, row, &b, visit);
                }
                free(data);
            }
        }
    }
}

static void
visit_round_trip(const ckpi_codec *c, const struct row *row, const ckpi_block *b)
{
    (void)row;
    mill_round_trip(c, b, NULL);
}

static void
visit_corrupt(const ckpi_codec *c, const struct row *row, const ckpi_block *b)
{
    uint8_t *enc = malloc(c->bound(b) + 1);
    const size_t len = mill_round_trip(c, b, enc);
    if (row->coded)
        mill_corrupt(c, b, enc, len);
    free(enc);
}

static void
test_every_codec_has_a_row(void **state)
{
    (void)state;
    size_t n = 0;
    for (; ckpi_codec_at(n) != NULL; n++) {
        assert_non_null(row_of(ckpi_codec_at(n)));
        assert_ptr_equal(ckpi_codec_find(ckpi_codec_at(n)->id), ckpi_codec_at(n));
    }
    assert_int_equal(n, CHECK_COUNT(rows));
    assert_null(ckpi_codec_find(0));
    assert_null(ckpi_codec_find(255));
}

static void
test_round_trip_short(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 7, 17, 64, 127, 200};
    for_all(lengths, CHECK_COUNT(lengths), CHECK_COUNT(dtypes), 0, "short", visit_round_trip);
}

static void
test_round_trip_rows(void **state)
{
    (void)state;
    static const size_t lengths[] = {300, 1999};
    for_all(lengths, CHECK_COUNT(lengths), CHECK_COUNT(dtypes), 96, "rows", visit_round_trip);
}

static void
test_round_trip_long(void **state)
{
    (void)state;
    static const size_t lengths[] = {70001};
    for_all(lengths, CHECK_COUNT(lengths), CHECK_COUNT(dtypes), 192, "long", visit_round_trip);
}

static void
test_corrupt(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 24};
    for_all(lengths, CHECK_COUNT(lengths), FEW_DTYPES, 0, "corrupt", visit_corrupt);
}

/* Larger payloads have what small ones lack (rows, factors, contexts): flip bits in a sample of places. */
static void
visit_flip_some(const ckpi_codec *c, const struct row *row, const ckpi_block *b)
{
    (void)row;
    test_rng r = test_rng_new(c->name);
    uint8_t *enc = malloc(c->bound(b) + 1), *dst = malloc(b->n * b->width + 1);
    ckpi_scratch *ws = ckpi_scratch_new();
    const size_t len = mill_round_trip(c, b, enc);
    ckpi_block q = *b;
    q.data = NULL;
    for (unsigned i = 0; len != 0 && i < 60; i++) {
        const size_t at = test_below(&r, 3) ? test_below(&r, len) : test_below(&r, len < 300 ? len : 300);
        const uint8_t was = enc[at];
        enc[at] ^= (uint8_t)(1u << test_below(&r, 8));
        const ckp_status st = c->decode(&q, enc, len, dst, ws, i % 2 ? ckpi_cpu() : 0, NULL);
        assert_true(st == CKP_OK || st == CKP_ECORRUPT || st == CKP_ETRUNCATED || st == CKP_EUNSUPPORTED);
        enc[at] = was;
    }
    ckpi_scratch_free(ws);
    free(dst);
    free(enc);
}

static void
test_flips_long(void **state)
{
    (void)state;
    static const size_t lengths[] = {9000};
    for_all(lengths, CHECK_COUNT(lengths), FEW_DTYPES, 70, "flips", visit_flip_some);
}

/* Allocation failures: encode and decode with every codec. */
static ckp_status
use_with_faults(void *user)
{
    const ckpi_block *b = user;
    ckp_status st = CKP_ENOMEM;
    ckpi_scratch *ws = ckpi_scratch_new();
    if (ws == NULL)
        return st;
    uint8_t *out = malloc(b->n * b->width * 2 + 200), *back = malloc(b->n * b->width + 1);
    for (size_t i = 0; out != NULL && back != NULL && ckpi_codec_at(i) != NULL; i++) {
        const ckpi_codec *c = ckpi_codec_at(i);
        size_t len = 0;
        if (!c->fits(b))
            continue;
        st = c->encode(b, out, b->n * b->width * 2 + 200, &len, ws, ckpi_cpu(), NULL);
        if (st == CKP_OK)
            st = c->decode(b, out, len, back, ws, ckpi_cpu(), NULL);
        if (st != CKP_OK)
            break;
    }
    free(back);
    free(out);
    ckpi_scratch_free(ws);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    enum { N = 20000 };
    test_rng r = test_rng_new("no memory");
    float *data = malloc(N * sizeof *data), *base = malloc(N * sizeof *base);
    gen_fill(&r, GEN_SHORT, CKP_F32, data, N, 100);
    gen_base_fill(&r, GEN_BASE_NEAR, CKP_F32, base, data, N);
    ckpi_block b = {.data = data, .base = base, .n = N, .width = 4, .dtype = CKP_F32, .cols = 100};
    failalloc_run(use_with_faults, &b, 5, 1);
    free(base);
    free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_codec_has_a_row), cmocka_unit_test(test_round_trip_short), cmocka_unit_test(test_round_trip_rows),
        cmocka_unit_test(test_round_trip_long),       cmocka_unit_test(test_corrupt),          cmocka_unit_test(test_flips_long),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
