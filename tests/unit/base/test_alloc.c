/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include "harness/seed.h"
#include <stdlib.h>

static void
overflow_gives_null(void **state)
{
    (void)state;
    const size_t big = SIZE_MAX / 2 + 1;
    assert_null(ckpi_malloc(big, 2));
    assert_null(ckpi_calloc(big, 2));
    assert_null(ckpi_realloc(NULL, big, 4));
}

static void
zero_bytes_is_a_valid_pointer(void **state)
{
    (void)state;
    void *a = ckpi_malloc(0, 8), *b = ckpi_calloc(3, 0), *c = ckpi_realloc(NULL, 0, 0), *d = ckpi_aligned_alloc(0);
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    assert_non_null(d);
    free(a);
    free(b);
    free(c);
    ckpi_aligned_free(d);
    ckpi_aligned_free(NULL);
}

static void
strings(void **state)
{
    (void)state;
    char *a = ckpi_strdup("abc"), *b = ckpi_strndup("abcdef", 2), *c = ckpi_strndup("ab\0cd", 5), *d = ckpi_strndup("", 0);
    assert_string_equal(a, "abc");
    assert_string_equal(b, "ab");
    assert_string_equal(c, "ab");
    assert_string_equal(d, "");
    free(a);
    free(b);
    free(c);
    free(d);
}

/* Every piece is aligned, keeps its content until released, and overlaps no other. */
static void
scratch_pieces_stay_valid(void **state)
{
    (void)state;
    enum { PIECES = 200 };
    test_rng rng = test_rng_new("scratch");
    ckpi_scratch *s = ckpi_scratch_new();
    assert_non_null(s);
    for (int round = 0; round < 20; round++) {
        uint8_t *piece[PIECES];
        size_t size[PIECES];
        for (int i = 0; i < PIECES; i++) {
            size[i] = test_below(&rng, i % 10 == 0 ? 300000 : 3000);
            piece[i] = ckpi_scratch_get(s, size[i]);
            assert_non_null(piece[i]);
            assert_int_equal((uintptr_t)piece[i] % 64, 0);
            memset(piece[i], i, size[i]);
        }
        for (int i = 0; i < PIECES; i++)
            for (size_t k = 0; k < size[i]; k++)
                assert_int_equal(piece[i][k], (uint8_t)i);
        ckpi_scratch_reset(s);
    }
    ckpi_scratch_free(s);
    ckpi_scratch_free(NULL);
}

static void
scratch_marks_are_a_stack(void **state)
{
    (void)state;
    ckpi_scratch *s = ckpi_scratch_new();
    const size_t empty = ckpi_scratch_mark(s);
    uint8_t *first = ckpi_scratch_get(s, 100);
    memset(first, 7, 100);
    const size_t mark = ckpi_scratch_mark(s);
    uint8_t *a = ckpi_scratch_get(s, 50);
    for (int i = 0; i < 10; i++)
        assert_non_null(ckpi_scratch_get(s, 100000));   /* into later blocks and back */
    ckpi_scratch_release(s, mark);
    assert_int_equal(ckpi_scratch_mark(s), mark);
    assert_ptr_equal(ckpi_scratch_get(s, 50), a);
    assert_int_equal(first[99], 7);
    ckpi_scratch_release(s, empty);
    assert_ptr_equal(ckpi_scratch_get(s, 1), first);
    ckpi_scratch_free(s);
}

static void
scratch_mark_at_a_block_border(void **state)
{
    (void)state;
    ckpi_scratch *s = ckpi_scratch_new();
    uint8_t *first = ckpi_scratch_get(s, 64 * 1024);    /* fills the first block to its end */
    const size_t mark = ckpi_scratch_mark(s);
    uint8_t *second = ckpi_scratch_get(s, 64);
    second[0] = 1;
    first[0] = 2;
    ckpi_scratch_release(s, mark);
    uint8_t *again = ckpi_scratch_get(s, 64);
    again[0] = 3;
    assert_int_equal(first[0], 2);
    assert_ptr_equal(again, second);
    ckpi_scratch_free(s);
}

/* The same sequence a second time takes no memory from the system. */
static void
scratch_keeps_its_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {10, 70000, 64, 1 << 20, 3, 200000};
    ckpi_scratch *s = ckpi_scratch_new();
    for (int round = 0; round < 3; round++) {
        failalloc_begin(0);
        for (size_t i = 0; i < CHECK_COUNT(sizes); i++)
            assert_non_null(ckpi_scratch_get(s, sizes[i]));
        failalloc_end(NULL, NULL);
        if (round > 0)
            assert_int_equal(failalloc_count(), 0);
        ckpi_scratch_reset(s);
    }
    assert_in_range(ckpi_scratch_bytes(s), 1 << 20, 8 << 20);
    assert_null(ckpi_scratch_get(s, SIZE_MAX));
    assert_null(ckpi_scratch_get(s, SIZE_MAX - 100));
    assert_non_null(ckpi_scratch_get(s, 1));            /* a failure breaks nothing */
    ckpi_scratch_free(s);
}

static ckp_status
use_scratch(void *user)
{
    (void)user;
    ckpi_scratch *s = ckpi_scratch_new();
    if (s == NULL)
        return CKP_ENOMEM;
    ckp_status st = CKP_OK;
    for (size_t i = 0; i < 12 && st == CKP_OK; i++) {
        uint8_t *p = ckpi_scratch_get(s, (size_t)1000 << i);
        if (p == NULL)
            st = CKP_ENOMEM;
        else
            memset(p, 1, (size_t)1000 << i);
    }
    ckpi_scratch_free(s);
    return st;
}

static void
failing_allocations(void **state)
{
    (void)state;
    failalloc_run(use_scratch, NULL, 5, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflow_gives_null),
        cmocka_unit_test(zero_bytes_is_a_valid_pointer),
        cmocka_unit_test(strings),
        cmocka_unit_test(scratch_pieces_stay_valid),
        cmocka_unit_test(scratch_marks_are_a_stack),
        cmocka_unit_test(scratch_mark_at_a_block_border),
        cmocka_unit_test(scratch_keeps_its_memory),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
