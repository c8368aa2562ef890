/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash_kern.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "harness/seed.h"

/* Published by xxHash's own sanity tests and computed with xxhsum: XXH3 without seed. */
static void
known_values(void **state)
{
    (void)state;
    assert_true(ckpi_hash64("", 0) == UINT64_C(0x2d06800538d394c2));
    const ckpi_id empty = ckpi_hash128("", 0);
    assert_true(empty.hi == UINT64_C(0x99aa06d3014798d8) && empty.lo == UINT64_C(0x6001c324468d497f));
    char hex[33];
    ckpi_id_hex(empty, hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
}

static void
streaming_equals_one_shot(void **state)
{
    (void)state;
    static uint8_t data[5000];
    test_rng rng = test_rng_new("stream");
    test_bytes(&rng, data, sizeof data);
    ckpi_hasher *h = ckpi_hasher_new();
    assert_non_null(h);
    for (size_t n = 0; n < sizeof data; n += n < 300 ? 1 : 97) {
        ckpi_hasher_reset(h);
        for (size_t at = 0; at < n;) {
            const size_t left = n - at, part = 1 + test_below(&rng, 700);
            ckpi_hasher_add(h, data + at, part < left ? part : left);
            at += part < left ? part : left;
        }
        ckpi_hasher_add(h, NULL, 0);
        assert_true(ckpi_hasher_64(h) == ckpi_hash64(data, n));
        assert_true(ckpi_id_eq(ckpi_hasher_128(h), ckpi_hash128(data, n)));
        assert_true(ckpi_hasher_64(h) == ckpi_hash64(data, n));   /* asking changes nothing */
    }
    ckpi_hasher_free(h);
    ckpi_hasher_free(NULL);
}

/* In parts that other kernels do not take. */
static void
add_in_parts(ckpi_hasher *h, const uint8_t *data, size_t n)
{
    enum { PART = 512 };
    ckpi_hasher_reset(h);
    for (size_t at = 0; at < n; at += PART)
        ckpi_hasher_add(h, data + at, n - at < PART ? n - at : PART);
}

/* By every kernel, between pages that may not be read. */
static void
long_inputs_are_hashed_alike(void **state)
{
    (void)state;
    static const size_t sizes[] = {239, 240, 241, 1023, 1024, 1025, 1087, 4096, 16383, 16384, 65537, 300001};
    test_rng rng = test_rng_new("long");
    ckpi_hasher *h = ckpi_hasher_new(), *whole = ckpi_hasher_new();
    assert_true(h != NULL && whole != NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i];
        uint8_t *const data = guard_alloc(n);
        test_bytes(&rng, data, n);
        add_in_parts(h, data, n);
        assert_true(ckpi_hash64(data, n) == ckpi_hasher_64(h));
        assert_true(ckpi_id_eq(ckpi_hash128(data, n), ckpi_hasher_128(h)));
        /* not from a block's beginning on */
        ckpi_hasher_reset(whole);
        ckpi_hasher_add(whole, data, i);
        ckpi_hasher_add(whole, data + i, n - i);
        assert_true(ckpi_hasher_64(whole) == ckpi_hasher_64(h));
#if CKPI_X86
        if ((ckpi_cpu() & CKPI_CPU_AVX2) != 0) {
            assert_true(ckpi_hash64_avx2(data, n) == ckpi_hasher_64(h));
            assert_true(ckpi_id_eq(ckpi_hash128_avx2(data, n), ckpi_hasher_128(h)));
        }
#endif
        guard_free(data);
    }
    ckpi_hasher_free(whole);
    ckpi_hasher_free(h);
}

static void
hex_round_trip(void **state)
{
    (void)state;
    test_rng rng = test_rng_new("hex");
    for (int i = 0; i < 100; i++) {
        const ckpi_id id = {.lo = test_u64(&rng), .hi = test_u64(&rng)};
        ckpi_id back;
        char hex[33];
        ckpi_id_hex(id, hex);
        assert_int_equal(strlen(hex), 32);
        assert_true(ckpi_id_parse(hex, &back) && ckpi_id_eq(id, back));
        hex[test_below(&rng, 32)] = "gG -/:@`"[test_below(&rng, 8)];
        assert_false(ckpi_id_parse(hex, &back));
    }
}

static void
only_32_digits_are_an_id(void **state)
{
    (void)state;
    ckpi_id id = {1, 2};
    assert_false(ckpi_id_parse("", &id));
    assert_false(ckpi_id_parse("0123456789abcdef0123456789abcde", &id));
    assert_false(ckpi_id_parse("0123456789abcdef0123456789abcdef0", &id));
    assert_false(ckpi_id_parse("0123456789ABCDEF0123456789abcdef", &id));
    assert_true(id.lo == 1 && id.hi == 2);
    assert_true(ckpi_id_parse("00000000000000000000000000000000", &id) && ckpi_id_is_zero(id));
}

static ckp_status
make_hasher(void *user)
{
    (void)user;
    ckpi_hasher *h = ckpi_hasher_new();
    ckpi_hasher_free(h);
    return h != NULL ? CKP_OK : CKP_ENOMEM;
}

static void
failing_allocations(void **state)
{
    (void)state;
    failalloc_run(make_hasher, NULL, 1, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(streaming_equals_one_shot),
        cmocka_unit_test(long_inputs_are_hashed_alike),
        cmocka_unit_test(hex_round_trip),
        cmocka_unit_test(only_32_digits_are_an_id),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
