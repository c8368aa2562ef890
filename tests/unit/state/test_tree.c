/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of plain values: every node type back and forth, and trees that nobody should be able to hand us. */
#include <stdlib.h>
#include "base/limits.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "state/state.h"

static ckp_state *
new_state(void)
{
    ckp_state *s;
    assert_ok(ckp_state_new(&s, NULL));
    return s;
}

#define BYTES(p) .data = (p), .len = sizeof(p) - 1
#define NODE(...) (ckp_tree_node){__VA_ARGS__}

static const ckp_tree_node every[] = {
    {.type = CKP_TREE_LIST, .count = 22},
    {.type = CKP_TREE_NONE},
    {.type = CKP_TREE_FALSE},
    {.type = CKP_TREE_TRUE},
    {.type = CKP_TREE_INT, .i = INT64_MIN},
    {.type = CKP_TREE_INT, .i = INT64_MAX},
    {.type = CKP_TREE_BIGINT, BYTES("\x00\x00\x00\x00\x00\x00\x00\x00\x01")},
    {.type = CKP_TREE_FLOAT, .re = -0.0},
    {.type = CKP_TREE_COMPLEX, .re = 1.5, .im = -2.5},
    {.type = CKP_TREE_STR, BYTES("gr\xc3\xbc\xc3\x9f dich \xed\xa0\x80")},
    {.type = CKP_TREE_STR, .data = "", .len = 0},
    {.type = CKP_TREE_BYTES, BYTES("\xff\x00\xfe")},
    {.type = CKP_TREE_BYTEARRAY, .data = NULL, .len = 0},
    {.type = CKP_TREE_TUPLE, .count = 0},
    {.type = CKP_TREE_DICT, .count = 1},
    {.type = CKP_TREE_STR, BYTES("k")},
    {.type = CKP_TREE_SET, .count = 1},
    {.type = CKP_TREE_INT, .i = 5},
    {.type = CKP_TREE_ORDERED_DICT, .count = 0},
    {.type = CKP_TREE_FROZENSET, .count = 0},
    {.type = CKP_TREE_TORCH_SIZE, .count = 2},
    {.type = CKP_TREE_INT, .i = 3},
    {.type = CKP_TREE_INT, .i = 4},
    {.type = CKP_TREE_DTYPE, BYTES("torch.float32")},
    {.type = CKP_TREE_DEVICE, BYTES("cuda:0")},
    {.type = CKP_TREE_NUMPY_SCALAR, BYTES("\x00\x00\x80\x3f"), .name = "numpy.float32", .name_len = 13},
    {.type = CKP_TREE_TENSOR, .tensor = 7, .as = CKP_AS_NUMPY},
    {.type = CKP_TREE_NAMED, BYTES("collections.Counter")},
    {.type = CKP_TREE_DICT, .count = 0},
};

static void
assert_same(const ckp_tree_node *a, const ckp_tree_node *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->i, b->i);
    assert_memory_equal(&a->re, &b->re, sizeof a->re);
    assert_memory_equal(&a->im, &b->im, sizeof a->im);
    assert_int_equal(a->len, b->len);
    if (a->len != 0)
        assert_memory_equal(a->data, b->data, a->len);
    assert_int_equal(a->name_len, b->name_len);
    assert_int_equal(a->tensor, b->tensor);
    assert_int_equal(a->as, b->as);
}

static void
test_every_node(void **state)
{
    (void)state;
    ckp_state *s = new_state();
    ckp_tree_reader r;
    ckp_tree_node node;
    for (size_t i = 0; i < CHECK_COUNT(every); i++) {
        ckp_error err;
        if (ckp_state_tree_put(s, &every[i], &err) != CKP_OK)
            fail_msg("node %zu: %s", i, err.text);
    }
    assert_status(ckp_state_tree_put(s, &every[1], NULL), CKP_EINVAL);
    ckp_tree_reader_init(&r, s->tree.data, s->tree.len);
    for (size_t i = 0; i < CHECK_COUNT(every); i++) {
        assert_ok(ckp_tree_next(&r, &node, NULL));
        assert_same(&node, &every[i]);
    }
    assert_status(ckp_tree_next(&r, &node, NULL), CKP_ENOTFOUND);
    assert_ok(ckpi_tree_check(s->tree.data, s->tree.len, 8, NULL));
    assert_status(ckpi_tree_check(s->tree.data, s->tree.len, 7, NULL), CKP_ECORRUPT);
    /* Every truncation is an error, flush against an unmapped page. */
    for (size_t n = 1; n < s->tree.len; n++) {
        uint8_t *p = guard_copy(s->tree.data, n);
        assert_status(ckpi_tree_check(p, n, 8, NULL), CKP_ECORRUPT);
        guard_free(p);
    }
    ckp_state_free(s);
}

static void
test_put_refuses(void **state)
{
    (void)state;
    static char name[300];
    memset(name, 'n', sizeof name);
    const ckp_tree_node bad[] = {
        {.type = (ckp_tree_type)99},
        {.type = CKP_TREE_STR, BYTES("\xff")},
        {.type = CKP_TREE_STR, .data = NULL, .len = 3},
        {.type = CKP_TREE_BIGINT, .data = "", .len = 0},
        {.type = CKP_TREE_DTYPE, .data = "", .len = 0},
        {.type = CKP_TREE_DEVICE, .data = name, .len = 256},
        {.type = CKP_TREE_NUMPY_SCALAR, BYTES("x")},
        {.type = CKP_TREE_TENSOR, .as = (ckp_tensor_as)40},
        {.type = CKP_TREE_DICT, .count = UINT64_MAX},
    };
    ckp_state *s = new_state();
    for (size_t i = 0; i < CHECK_COUNT(bad); i++)
        assert_status(ckp_state_tree_put(s, &bad[i], NULL), CKP_EINVAL);
    assert_int_equal(s->tree.len, 0);
    assert_status(ckp_state_tree_put(s, NULL, NULL), CKP_EINVAL);
    /* An unfinished tree, a torch.Size of something else, a tensor that is not there: seal finds them. */
    assert_ok(ckp_state_tree_put(s, &NODE(.type = CKP_TREE_LIST, .count = 2), NULL));
    assert_ok(ckp_state_tree_put(s, &NODE(.type = CKP_TREE_NONE), NULL));
    assert_status(ckpi_state_seal(s, NULL), CKP_EINVAL);
    ckp_state_tree_clear(s);
    assert_ok(ckpi_state_seal(s, NULL));
    assert_ok(ckp_state_tree_put(s, &NODE(.type = CKP_TREE_TENSOR, .tensor = 0), NULL));
    assert_status(ckpi_state_seal(s, NULL), CKP_EINVAL);
    ckp_state_tree_clear(s);
    assert_ok(ckp_state_tree_put(s, &NODE(.type = CKP_TREE_TORCH_SIZE, .count = 1), NULL));
    assert_ok(ckp_state_tree_put(s, &NODE(.type = CKP_TREE_NONE), NULL));
    assert_status(ckpi_state_seal(s, NULL), CKP_EINVAL);
    ckp_state_free(s);
    ckp_state_tree_clear(NULL);
}

static void
test_depth(void **state)
{
    (void)state;
    ckp_state *s = new_state();
    for (int i = 0; i < CKPI_MAX_TREE_DEPTH - 1; i++)
        assert_ok(ckp_state_tree_put(s, &NODE(.type = CKP_TREE_LIST, .count = 1), NULL));
    assert_status(ckp_state_tree_put(s, &NODE(.type = CKP_TREE_LIST, .count = 1), NULL), CKP_ELIMIT);
    assert_ok(ckp_state_tree_put(s, &NODE(.type = CKP_TREE_LIST, .count = 0), NULL));
    assert_ok(ckpi_state_seal(s, NULL));
    ckp_state_free(s);
    /* A million lists in one another, as bytes. */
    const size_t n = 1000000;
    uint8_t *p = malloc(2 * n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        p[2 * i] = CKP_TREE_LIST;
        p[2 * i + 1] = 1;
    }
    assert_status(ckpi_tree_check(p, 2 * n, 0, NULL), CKP_ELIMIT);
    for (size_t i = 0; i < n; i++)
        p[2 * i] = CKP_TREE_DICT;
    assert_status(ckpi_tree_check(p, 2 * n, 0, NULL), CKP_ELIMIT);
    free(p);
}

static void
test_hostile_bytes(void **state)
{
    (void)state;
    static const struct { const char *p; size_t n; } bad[] = {
        {"\x16", 1},                                         /* no such tag */
        {"\x09\x02\x00", 3},                                 /* two values, one there */
        {"\x0b\xff\xff\xff\xff\x01", 6},                     /* 2^29 pairs and no byte for them */
        {"\x09\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
        {"\x07\x05" "abc", 5},
        {"\x07\x02\xc3\x28", 4},
        {"\x03\x80\x00", 3},                                 /* a varint that is longer than it need be */
        {"\x05\x00\x00", 3},
        {"\x13\x01\x07", 3},                                 /* an unknown way to rebuild */
        {"\x12\x00\x00", 3},
        {"\x00\x00", 2},                                     /* something after the end */
        {"\x0f\x01\x00", 3},                                 /* torch.Size of None */
        {"\x04\x00", 2},
    };
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        uint8_t *p = guard_copy(bad[i].p, bad[i].n);
        ckp_error err;
        if (ckpi_tree_check(p, bad[i].n, 100, &err) != CKP_ECORRUPT)
            fail_msg("tree %zu was taken", i);
        assert_true(err.offset <= bad[i].n);
        guard_free(p);
    }
    assert_ok(ckpi_tree_check(NULL, 0, 0, NULL));
}

/* Random bytes never do more than fail; what passes can be walked again. */
static void
test_random_bytes(void **state)
{
    (void)state;
    test_rng rng = test_rng_new("tree");
    size_t good = 0;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[24];
        const size_t n = 1 + (size_t)test_below(&rng, sizeof bytes);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)test_below(&rng, 24);
        uint8_t *p = guard_copy(bytes, n);
        good += ckpi_tree_check(p, n, 30, NULL) == CKP_OK;
        guard_free(p);
    }
    assert_true(good > 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_node),    cmocka_unit_test(test_put_refuses),  cmocka_unit_test(test_depth),
        cmocka_unit_test(test_hostile_bytes), cmocka_unit_test(test_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
