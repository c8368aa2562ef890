/* SPDX-License-Identifier: Apache-2.0 */
/* LZ beyond the mill: repeats that no other codec sees, and frames that zstd accepts but a chunk must not be. */
#include "harness/check.h"

#include <stdlib.h>
#include <zstd.h>

#include "codec/lz/lz.h"
#include "codec/rows.h"
#include "unit/codec/gen.h"
#include "unit/codec/mill.h"

enum { N = 20000 };

static void
test_repeats_shrink(void **state)
{
    (void)state;
    test_rng r = test_rng_new("repeats");
    uint32_t *data = malloc(N * sizeof *data);
    test_bytes(&r, data, N * sizeof *data);
    memcpy(data + N / 2, data, N / 2 * sizeof *data);
    const ckpi_block b = {.data = data, .n = N, .width = 4, .dtype = CKP_I32};
    assert_true(mill_round_trip(&ckpi_codec_lz, &b, NULL) < N * sizeof *data * 51 / 100);
    free(data);
}

static void
test_levels(void **state)
{
    (void)state;
    test_rng r = test_rng_new("levels");
    int64_t *data = malloc(N * sizeof *data);
    for (size_t i = 0; i < N; i++)
        data[i] = (int64_t)(i * 3 + test_below(&r, 3));
    const ckpi_block b = {.data = data, .n = N, .width = 8, .dtype = CKP_I64};
    const size_t cap = ckpi_codec_lz.bound(&b);
    uint8_t *out = malloc(cap);
    size_t fast = 0, small = 0;
    assert_ok(ckpi_lz_encode(&b, CKPI_LZ_FAST, out, cap, &fast, NULL));
    assert_ok(ckpi_lz_encode(&b, CKPI_LZ_SMALL, out, cap, &small, NULL));
    assert_true(small < fast);
    assert_status(ckpi_lz_encode(&b, CKPI_LZ_FAST, out, cap - 1, &fast, NULL), CKP_EINVAL);
    free(out);
    free(data);
}

static ckp_status
decode(const void *frame, size_t len, size_t n)
{
    uint8_t *dst = malloc(n + 1);
    const ckpi_block b = {.n = n, .width = 1, .dtype = CKP_U8};
    ckp_error err = {0};
    const ckp_status st = ckpi_codec_lz.decode(&b, frame, len, dst, NULL, 0, &err);
    if (st != CKP_OK)
        assert_int_equal(err.code, st);
    free(dst);
    return st;
}

static void
test_foreign_frames(void **state)
{
    (void)state;
    uint8_t data[1000] = {1, 2, 3}, frame[2100];
    const size_t len = ZSTD_compress(frame, sizeof frame, data, sizeof data, 3);
    assert_ok(decode(frame, len, 1000));
    assert_status(decode(frame, len, 999), CKP_ECORRUPT);
    assert_status(decode(frame, len, 1001), CKP_ECORRUPT);
    assert_status(decode(frame, len + 1, 1000), CKP_ECORRUPT);
    memcpy(frame + len, frame, len); /* two frames after each other */
    assert_status(decode(frame, 2 * len, 2000), CKP_ECORRUPT);
    assert_status(decode(frame, 0, 0), CKP_ECORRUPT);
    assert_status(decode("\x50\x2A\x4D\x18\x00\x00\x00\x00", 8, 0), CKP_ECORRUPT); /* a frame to skip */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeats_shrink),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_foreign_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
