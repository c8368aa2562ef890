/* SPDX-License-Identifier: Apache-2.0 */
/* Factors, moves, lifts and escapes on the wire, from our own hand and from a hostile one. */
#include "engine/params.h"
#include <stdlib.h>
#include "base/cpu.h"
#include "base/limits.h"
#include "engine/factors.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"

static const ckpi_piece pieces[] = {{0, 0, 640}, {1, 0, 300}, {2, 0, 17}, {3, 0, 1}};
static const size_t cols[] = {32, 0, 17, 0};
#define N_PIECES CHECK_COUNT(pieces)

static void
make(ckpi_factors *f, test_rng *r)
{
    ckp_error err;
    assert_ok(ckpi_factors_alloc(f, pieces, cols, N_PIECES, 512, &err));
    assert_int_equal(f->mem_n, 20 + 32 + 3 + 1 + 17 + 1);
    for (size_t i = 0; i < f->mem_n; i++)
        f->mem[i] = (int16_t)(((int)test_below(r, 400) - 200) * CKPI_FAC_UNIT);
    f->at[1].vstep = 1;
    f->at[2].vstep = 4096;
    for (size_t i = 0; i < N_PIECES; i++)
        f->at[i].lift = (int32_t)test_below(r, 256) - 128;
}

static void
test_factors(void **state)
{
    (void)state;
    test_rng r = test_rng_new("factors");
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_factors f, g = {0};
    ckpi_buf b = CKPI_BUF_INIT;
    ckp_error err;
    make(&f, &r);
    ckpi_params_put_factors(&b, &f, ws, ckpi_cpu());
    ckpi_params_put_lifts(&b, &f);
    assert_ok(ckpi_buf_status(&b, &err, "test"));
    for (size_t n = 0; n <= b.len; n++) {                /* every truncation is told */
        uint8_t *p = guard_copy(b.data, n);
        ckpi_rd rd = ckpi_rd_init(p, n, 1000);
        ckp_status st = ckpi_params_get_factors(&rd, &g, pieces, N_PIECES, ws, ckpi_cpu(), &err);
        if (st == CKP_OK) {
            ckpi_params_get_lifts(&rd, &g);
            st = ckpi_rd_done(&rd) ? CKP_OK : CKP_ECORRUPT;
        }
        assert_int_equal(st == CKP_OK, n == b.len);
        guard_free(p);
    }
    assert_memory_equal(f.mem, g.mem, f.mem_n * sizeof *f.mem);
    for (size_t i = 0; i < N_PIECES; i++)
        assert_true(f.at[i].vstep == g.at[i].vstep && f.at[i].lift == g.at[i].lift && f.at[i].blocks == g.at[i].blocks && f.at[i].cols == g.at[i].cols);
    ckpi_factors_free(&f);
    ckpi_factors_free(&g);
    ckpi_buf_free(&b);
    ckpi_scratch_free(ws);
}

/* What is added by hand is what a decoder adds, and stays within 16 bits. */
static void
test_moves(void **state)
{
    (void)state;
    test_rng r = test_rng_new("moves");
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_factors f, g;
    ckpi_buf b = CKPI_BUF_INIT;
    ckp_error err;
    int8_t moves[256];
    make(&f, &r);
    assert_ok(ckpi_factors_alloc(&g, pieces, cols, N_PIECES, 512, &err));
    memcpy(g.mem, f.mem, f.mem_n * sizeof *f.mem);
    for (size_t i = 0; i < f.mem_n; i++)
        moves[i] = (int8_t)(test_below(&r, 3) == 0 ? (int)test_below(&r, 255) - 127 : 0);
    f.mem[3] = g.mem[3] = INT16_MAX;
    f.mem[4] = g.mem[4] = INT16_MIN;
    moves[3] = 127;
    moves[4] = -127;
    ckpi_params_put_moves(&b, moves, f.mem_n, ws, ckpi_cpu());
    ckpi_rd rd = ckpi_rd_init(b.data, b.len, 0);
    assert_ok(ckpi_params_get_moves(&rd, &f, ws, ckpi_cpu(), &err));
    assert_true(ckpi_rd_done(&rd));
    assert_true(f.mem[3] == INT16_MAX && f.mem[4] == INT16_MIN);
    for (size_t i = 5; i < f.mem_n; i++)
        assert_int_equal(f.mem[i], g.mem[i] + moves[i] * CKPI_FAC_UNIT);
    for (size_t n = 0; n < b.len; n++) {
        uint8_t *p = guard_copy(b.data, n);
        rd = ckpi_rd_init(p, n, 0);
        assert_status(ckpi_params_get_moves(&rd, &f, ws, ckpi_cpu(), &err), CKP_ECORRUPT);
        guard_free(p);
    }
    ckpi_factors_free(&f);
    ckpi_factors_free(&g);
    ckpi_buf_free(&b);
    ckpi_scratch_free(ws);
}

/* 65536 pieces of one element do not pay for 65536 times a million columns. */
static void
test_columns_are_paid_for(void **state)
{
    (void)state;
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_factors f = {0};
    ckpi_buf b = CKPI_BUF_INIT;
    ckp_error err;
    ckpi_piece *p = calloc(CKPI_MAX_CHUNK_PIECES, sizeof *p);
    for (size_t i = 0; i < CKPI_MAX_CHUNK_PIECES; i++) {
        p[i] = (ckpi_piece){(uint32_t)i, 0, 1};
        ckpi_buf_varint(&b, CKPI_MAX_CHUNK_ELEMS);
        ckpi_buf_u8(&b, 9);
    }
    ckpi_buf_u8(&b, 2);
    ckpi_buf_varint(&b, 0);
    ckpi_rd rd = ckpi_rd_init(b.data, b.len, 0);
    assert_status(ckpi_params_get_factors(&rd, &f, p, CKPI_MAX_CHUNK_PIECES, ws, ckpi_cpu(), &err), CKP_ECORRUPT);
    ckpi_factors_free(&f);
    ckpi_buf_free(&b);
    ckpi_scratch_free(ws);
    free(p);
}

static void
test_escapes(void **state)
{
    (void)state;
    test_rng r = test_rng_new("escapes");
    for (size_t width = 2; width <= 4; width += 2)
        for (int round = 0; round < 200; round++) {
            ckpi_escape e[64];
            ckpi_escapes got = {0};
            ckpi_buf b = CKPI_BUF_INIT;
            ckp_error err;
            const uint64_t elems = 1 + test_below(&r, 3000);
            size_t n = 0;
            for (uint64_t at = test_below(&r, 50); at < elems && n < 64; at += 1 + test_below(&r, elems / 8 + 1))
                e[n++] = (ckpi_escape){(uint32_t)at, (uint32_t)test_u64(&r) & (width == 2 ? 0xffffU : 0xffffffffU)};
            ckpi_params_put_escapes(&b, e, n, width);
            for (size_t len = n == 0 ? 0 : 1; len <= b.len; len++) {
                uint8_t *p = guard_copy(b.data, len);
                const ckp_status st = ckpi_params_get_escapes(p, len, width, elems, &got, 7, &err);
                if (len == b.len) {
                    assert_ok(st);
                    assert_true(got.n == n && (n == 0 || memcmp(got.at, e, n * sizeof *e) == 0));
                } else {
                    assert_status(st, CKP_ECORRUPT);
                    assert_true(got.at == NULL && err.offset >= 7);
                }
                ckpi_escapes_free(&got);
                guard_free(p);
            }
            if (n != 0 && e[n - 1].index != 0)           /* of a smaller chunk the last one would be beyond the end */
                assert_status(ckpi_params_get_escapes(b.data, b.len, width, e[n - 1].index, &got, 7, &err), CKP_ECORRUPT);
            ckpi_buf_free(&b);
        }
}

static void
test_hostile_bytes(void **state)
{
    (void)state;
    test_rng r = test_rng_new("hostile params");
    ckpi_scratch *ws = ckpi_scratch_new();
    for (int round = 0; round < 20000; round++) {
        uint8_t raw[64];
        ckpi_factors f = {0};
        ckpi_escapes e = {0};
        ckp_error err;
        const size_t n = (size_t)test_below(&r, sizeof raw);
        test_bytes(&r, raw, n);
        for (size_t i = 0; i < n; i++)
            raw[i] &= (uint8_t)(test_below(&r, 2) != 0 ? 0x0f : 0xff);
        ckpi_scratch_reset(ws);
        ckpi_rd rd = ckpi_rd_init(raw, n, 0);
        (void)!ckpi_params_get_factors(&rd, &f, pieces, N_PIECES, ws, ckpi_cpu(), &err);
        ckpi_factors_free(&f);
        (void)!ckpi_params_get_escapes(raw, n, 4, 1 + test_below(&r, 100), &e, 0, &err);
        ckpi_escapes_free(&e);
    }
    ckpi_scratch_free(ws);
}

/* There and back; every truncation is told, and each rank and gain that cannot be. */
static void
test_directions(void **state)
{
    (void)state;
    test_rng r = test_rng_new("directions");
    ckpi_scratch *ws = ckpi_scratch_new();
    ckpi_factors f;
    int8_t a[4 * 20], c[4 * 32];
    ckpi_low low[N_PIECES] = {{0}}, got[N_PIECES];
    ckpi_buf b = CKPI_BUF_INIT;
    ckp_error err;
    make(&f, &r);
    test_bytes(&r, a, sizeof a);
    test_bytes(&r, c, sizeof c);
    low[0] = (ckpi_low){20, 32, 4, 0.25F, a, c};
    low[2] = (ckpi_low){1, 17, 1, -3.0F, a + 7, c + 3};
    ckpi_params_put_directions(&b, low, N_PIECES, ws, ckpi_cpu());
    assert_ok(ckpi_buf_status(&b, &err, "test"));
    for (size_t n = 0; n <= b.len; n++) {
        uint8_t *p = guard_copy(b.data, n);
        ckpi_rd rd = ckpi_rd_init(p, n, 1000);
        const ckp_status st = ckpi_params_get_directions(&rd, got, &f, ws, ckpi_cpu(), &err);
        assert_int_equal(st == CKP_OK, n == b.len);
        guard_free(p);
    }
    for (size_t i = 0; i < N_PIECES; i++) {
        assert_true(got[i].rank == low[i].rank && got[i].gain == low[i].gain);
        if (low[i].rank != 0) {
            assert_true(got[i].rows == low[i].rows && got[i].cols == low[i].cols);
            assert_memory_equal(got[i].a, low[i].a, low[i].rank * low[i].rows);
            assert_memory_equal(got[i].b, low[i].b, low[i].rank * low[i].cols);
        }
    }
    const struct { size_t at; uint8_t x; } bad[] = {{0, 5}, {0, 255}, {4, 0x7f}, {5, 1}, {4, 0xff}};
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        uint8_t *p = guard_copy(b.data, b.len);
        p[bad[i].at] = bad[i].x;
        if (bad[i].at == 4)
            p[3] = 0x80;         /* an infinite gain */
        ckpi_rd rd = ckpi_rd_init(p, b.len, 1000);
        assert_status(ckpi_params_get_directions(&rd, got, &f, ws, ckpi_cpu(), &err), CKP_ECORRUPT);
        guard_free(p);
    }
    ckpi_factors_free(&f);
    ckpi_buf_free(&b);
    ckpi_scratch_free(ws);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_factors), cmocka_unit_test(test_moves), cmocka_unit_test(test_columns_are_paid_for),
                                       cmocka_unit_test(test_escapes), cmocka_unit_test(test_directions), cmocka_unit_test(test_hostile_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
