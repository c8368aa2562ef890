/* SPDX-License-Identifier: Apache-2.0 */
/* Building a state: names, views, aliases, owners, Adam's constants. */
#include <math.h>
#include <stdio.h>
#include "base/limits.h"
#include "harness/check.h"
#include "harness/failalloc.h"
#include "state/state.h"

static const float memory[64];
static const uint64_t s23[2] = {2, 3};

static ckp_tensor
view(const void *data)
{
    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = CKP_F32;
    t.ndim = 2;
    t.shape = s23;
    t.data = data;
    return t;
}

static ckp_state *
new_state(void)
{
    ckp_state *s;
    assert_ok(ckp_state_new(&s, NULL));
    return s;
}

static void
test_names(void **state)
{
    (void)state;
    static char longest[CKPI_MAX_NAME + 2];
    ckp_state *s = new_state();
    const ckp_tensor t = view(memory);
    uint32_t index = 9;
    assert_ok(ckp_state_add_tensor(s, "a", CKP_ROLE_WEIGHT, NULL, &t, &index, NULL));
    assert_int_equal(index, 0);
    memset(longest, 'x', CKPI_MAX_NAME + 1);
    ckp_error err;
    assert_status(ckp_state_add_tensor(s, "a", CKP_ROLE_WEIGHT, NULL, &t, NULL, &err), CKP_EINVAL);
    assert_non_null(strstr(err.text, "a:"));
    assert_status(ckp_state_add_tensor(s, "", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL), CKP_EINVAL);
    assert_status(ckp_state_add_tensor(s, NULL, CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL), CKP_EINVAL);
    assert_status(ckp_state_add_tensor(s, "\xff", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL), CKP_EINVAL);
    assert_status(ckp_state_add_tensor(s, longest, CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL), CKP_EINVAL);
    assert_status(ckp_state_add_tensor(s, "b", CKP_ROLE_WEIGHT, "", &t, NULL, NULL), CKP_EINVAL);
    assert_status(ckp_state_add_tensor(s, "b", (ckp_role)77, NULL, &t, NULL, NULL), CKP_EINVAL);
    assert_status(ckp_state_add_tensor(NULL, "b", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL), CKP_EINVAL);
    assert_status(ckp_state_add_tensor(s, "b", CKP_ROLE_WEIGHT, NULL, NULL, NULL, NULL), CKP_EINVAL);
    longest[CKPI_MAX_NAME] = 0;
    assert_ok(ckp_state_add_tensor(s, longest, CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    assert_int_equal(ckp_state_count(s), 2);
    assert_string_equal(ckp_state_name(s, 0), "a");
    assert_null(ckp_state_name(s, 2));
    assert_null(ckp_state_name(NULL, 0));
    ckp_state_free(s);
    ckp_state_free(NULL);
}

static ckp_status
pull_nothing(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    (void)user, (void)first, (void)count, (void)dst, (void)err;
    return CKP_OK;
}

static ckp_status
try_view(const ckp_tensor *t)
{
    ckp_state *s = new_state();
    ckp_error err;
    const ckp_status st = ckp_state_add_tensor(s, "t", CKP_ROLE_WEIGHT, NULL, t, NULL, &err);
    assert_int_equal(s->n, st == CKP_OK);
    if (st != CKP_OK)
        assert_string_equal(err.tensor, "t");
    ckp_state_free(s);
    return st;
}

static void
test_views(void **state)
{
    (void)state;
    const uint64_t huge[2] = {UINT64_C(1) << 40, UINT64_C(1) << 40}, empty[2] = {0, UINT64_MAX}, big[2] = {1u << 20, 1u << 20}, odd[2] = {3, 1};
    const uint64_t global[2] = {4, 3}, small[2] = {1, 3}, first[2] = {2, 0}, out[2] = {3, 0};
    const int64_t far[2] = {INT64_MAX, 1}, row_major[2] = {3, 1}, transposed[2] = {1, 2}, backwards[2] = {INT64_MIN, -1};
    ckp_tensor t;
#define TRY(want, change)                     \
    do {                                      \
        t = view(memory);                     \
        change;                               \
        assert_status(try_view(&t), want);    \
    } while (0)
    TRY(CKP_OK, (void)0);
    TRY(CKP_EINVAL, t.size = 8);
    TRY(CKP_EINVAL, t.dtype = (ckp_dtype)0);
    TRY(CKP_EINVAL, t.dtype = (ckp_dtype)250);
    TRY(CKP_EINVAL, t.ndim = 65);
    TRY(CKP_EINVAL, t.shape = NULL);
    TRY(CKP_EINVAL, t.shape = huge);
    TRY(CKP_EINVAL, t.data = NULL);
    TRY(CKP_OK, (t.data = NULL, t.shape = empty));
    TRY(CKP_OK, (t.data = NULL, t.pull = pull_nothing));
    TRY(CKP_OK, (t.data = NULL, t.ndim = 0, t.pull = pull_nothing, t.shape = NULL));
    TRY(CKP_EINVAL, (t.shape = big, t.strides = far));
    TRY(CKP_EINVAL, (t.strides = backwards));
    TRY(CKP_OK, t.strides = transposed);
    TRY(CKP_OK, t.strides = row_major);
    TRY(CKP_EINVAL, (t.dtype = CKP_F4_PACKED, t.strides = transposed));
    TRY(CKP_EINVAL, (t.dtype = CKP_F4_PACKED, t.shape = odd));
    TRY(CKP_OK, t.dtype = CKP_F4_PACKED);
    TRY(CKP_EINVAL, t.box_first = first);
    TRY(CKP_EINVAL, t.flat = true);
    TRY(CKP_OK, (t.global_shape = global, t.box_first = first));
    TRY(CKP_EINVAL, (t.global_shape = global, t.box_first = out));
    TRY(CKP_EINVAL, t.global_shape = small);
    TRY(CKP_EINVAL, (t.global_shape = huge));
    TRY(CKP_OK, (t.global_shape = global, t.flat = true, t.flat_first = 6));
    TRY(CKP_EINVAL, (t.global_shape = global, t.flat = true, t.flat_first = 7));
    TRY(CKP_EINVAL, (t.global_shape = global, t.flat = true, t.flat_first = UINT64_MAX));
    TRY(CKP_EINVAL, (t.global_shape = global, t.flat = true, t.box_first = first));
#undef TRY
}

/* A caller built against a later header: fields that this version does not know may be zero, nothing else. */
static void
test_newer_struct(void **state)
{
    (void)state;
    struct { ckp_tensor t; uint64_t tail[2]; } newer = {view(memory), {0, 0}};
    newer.t.size = sizeof newer;
    assert_ok(try_view(&newer.t));
    newer.tail[1] = 1;
    assert_status(try_view(&newer.t), CKP_EINVAL);
}

static void
test_aliases(void **state)
{
    (void)state;
    ckp_state *s = new_state();
    const int64_t row_major[2] = {3, 1}, transposed[2] = {1, 2};
    ckp_tensor t = view(memory);
    assert_ok(ckp_state_add_tensor(s, "first", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    t.strides = row_major;       /* the same view, said otherwise */
    assert_ok(ckp_state_add_tensor(s, "same", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    t.strides = transposed;
    assert_ok(ckp_state_add_tensor(s, "turned", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    assert_ok(ckp_state_add_tensor(s, "turned too", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    t = view(memory);
    t.dtype = CKP_I32;
    assert_ok(ckp_state_add_tensor(s, "other dtype", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    t = view(memory);
    t.pull = pull_nothing;
    assert_ok(ckp_state_add_tensor(s, "pulled", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    t = view(memory);
    assert_ok(ckp_state_add_tensor(s, "third", CKP_ROLE_COPY, "first", &t, NULL, NULL));
    static const uint32_t want[] = {CKPI_NO_TENSOR, 0, CKPI_NO_TENSOR, 2, CKPI_NO_TENSOR, CKPI_NO_TENSOR, 0};
    for (size_t i = 0; i < CHECK_COUNT(want); i++)
        assert_int_equal(s->t[i].alias_of, want[i]);
    assert_int_equal(s->t[6].role, CKP_ROLE_COPY);
    ckp_state_free(s);
}

static void
test_owners(void **state)
{
    (void)state;
    ckp_state *s = new_state();
    ckp_error err;
    const uint64_t s32[2] = {3, 2};
    ckp_tensor t = view(memory);
    /* The owner may come later. */
    assert_ok(ckp_state_add_tensor(s, "w.m", CKP_ROLE_M, "w", &t, NULL, NULL));
    assert_status(ckpi_state_seal(s, &err), CKP_EINVAL);
    assert_string_equal(err.tensor, "w.m");
    assert_non_null(strstr(err.text, "'w'"));
    t.data = memory + 10;
    assert_ok(ckp_state_add_tensor(s, "w", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    assert_ok(ckpi_state_seal(s, NULL));
    assert_ok(ckpi_state_seal(s, NULL));
    assert_int_equal(s->t[0].owner, 1);
    t.data = memory + 20;
    t.ndim = 0;
    t.shape = NULL;
    assert_ok(ckp_state_add_tensor(s, "w.step", CKP_ROLE_OTHER, "w", &t, NULL, NULL));
    assert_ok(ckpi_state_seal(s, NULL));
    t = view(memory + 30);
    t.shape = s32;
    assert_ok(ckp_state_add_tensor(s, "w.v", CKP_ROLE_V, "w", &t, NULL, NULL));
    assert_status(ckpi_state_seal(s, &err), CKP_EINVAL);
    ckp_state_free(s);
    s = new_state();
    assert_ok(ckp_state_add_tensor(s, "me", CKP_ROLE_M, "me", &t, NULL, NULL));
    assert_status(ckpi_state_seal(s, &err), CKP_EINVAL);
    ckp_state_free(s);
}

static void
test_adam(void **state)
{
    (void)state;
    ckp_state *s = new_state();
    const ckp_tensor t = view(memory);
    assert_ok(ckp_state_add_tensor(s, "w", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    assert_null(ckpi_state_adam(s, 0));
    assert_status(ckp_state_set_adam(s, "nobody", 0.9, 0.95, 1, NULL), CKP_EINVAL);
    assert_status(ckp_state_set_adam(s, "w", 1.0, 0.95, 1, NULL), CKP_EINVAL);
    assert_status(ckp_state_set_adam(s, "w", 0.9, (double)NAN, 1, NULL), CKP_EINVAL);
    assert_status(ckp_state_set_adam(s, "w", -0.1, 0.95, 1, NULL), CKP_EINVAL);
    assert_status(ckp_state_set_adam(s, "w", 0.9, 0.95, 0, NULL), CKP_EINVAL);
    assert_ok(ckp_state_set_adam(s, "w", 0.9, 0.95, 10, NULL));
    assert_ok(ckp_state_set_adam(s, "w", 0.9, 0.999, 11, NULL));
    assert_int_equal(s->n_adam, 1);
    assert_int_equal(ckpi_state_adam(s, 0)->step, 11);
    assert_null(ckpi_state_adam(s, 1));
    ckp_state_free(s);
}

/* Look-ups stay fast with very many tensors: this would take minutes if they were linear. */
static void
test_many(void **state)
{
    (void)state;
    ckp_state *s = new_state();
    ckp_tensor t = CKP_TENSOR_INIT;
    char name[32];
    static uint8_t bytes[100000];
    t.dtype = CKP_U8;
    for (uint32_t i = 0; i < 100000; i++) {
        (void)snprintf(name, sizeof name, "layers.%u.weight", i);
        t.data = bytes + i;
        assert_ok(ckp_state_add_tensor(s, name, CKP_ROLE_WEIGHT, i > 0 ? "layers.0.weight" : NULL, &t, NULL, NULL));
        assert_ok(ckp_state_set_adam(s, name, 0.9, 0.95, i + 1, NULL));
    }
    assert_ok(ckpi_state_seal(s, NULL));
    assert_int_equal(ckpi_state_find(s, "layers.99999.weight"), 99999);
    assert_int_equal(ckpi_state_adam(s, 77777)->step, 77778);
    ckp_state_free(s);
}

/* Rows close up, names are found under their new numbers, and an alias takes over the payload of one that goes. */
static void
test_drop(void **state)
{
    (void)state;
    ckp_state *s = new_state();
    const ckp_tensor t = view(memory), u = view(memory + 8);
    uint32_t index = 0;
    assert_ok(ckp_state_add_tensor(s, "first", CKP_ROLE_OTHER, NULL, &u, NULL, NULL));
    assert_ok(ckp_state_add_tensor(s, "payload", CKP_ROLE_M, "w", &t, NULL, NULL));
    assert_ok(ckp_state_add_tensor(s, "heir", CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    assert_ok(ckp_state_add_tensor(s, "alias", CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    assert_ok(ckp_state_add_tensor(s, "w", CKP_ROLE_WEIGHT, NULL, &u, NULL, NULL));
    assert_ok(ckpi_state_drop(s, (const uint32_t[]){0, CKPI_NO_TENSOR, 1, 2, 3}, NULL));
    assert_int_equal(ckp_state_count(s), 4);
    assert_int_equal(ckpi_state_find(s, "payload"), CKPI_NO_TENSOR);
    assert_int_equal(ckpi_state_find(s, "heir"), 1);
    assert_int_equal(s->t[1].alias_of, CKPI_NO_TENSOR);
    assert_int_equal(s->t[2].alias_of, 1);
    assert_int_equal(s->t[3].alias_of, 0);
    assert_ok(ckp_state_add_tensor(s, "payload", CKP_ROLE_OTHER, NULL, &t, &index, NULL));
    assert_int_equal(index, 4);
    assert_int_equal(s->t[4].alias_of, 1);
    assert_ok(ckp_state_set_adam(s, "w", 0.9, 0.95, 10, NULL));
    assert_status(ckpi_state_drop(s, (const uint32_t[]){0, CKPI_NO_TENSOR, 1, 2, 3}, NULL), CKP_EINVAL);
    ckp_state_free(s);
}

static ckp_status
drop_one(void *user)
{
    (void)user;
    ckp_state *s = NULL;
    const ckp_tensor t = view(memory);
    ckp_status st = ckp_state_new(&s, NULL);
    if (st == CKP_OK)
        st = ckp_state_add_tensor(s, "a", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL);
    if (st == CKP_OK)
        st = ckp_state_add_tensor(s, "b", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL);
    if (st == CKP_OK)
        st = ckpi_state_drop(s, (const uint32_t[]){CKPI_NO_TENSOR, 0}, NULL);
    if (st == CKP_OK)
        assert_int_equal(ckpi_state_find(s, "b"), 0);
    ckp_state_free(s);
    return st;
}

static ckp_status
build(void *user)
{
    (void)user;
    ckp_state *s = NULL;
    const ckp_tensor t = view(memory), u = view(memory + 8);
    ckp_status st = ckp_state_new(&s, NULL);
    if (st == CKP_OK)
        st = ckp_state_add_tensor(s, "w", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL);
    if (st == CKP_OK)
        st = ckp_state_add_tensor(s, "m", CKP_ROLE_M, "w", &u, NULL, NULL);
    if (st == CKP_OK)
        st = ckp_state_set_adam(s, "w", 0.9, 0.95, 10, NULL);
    if (st == CKP_OK)
        st = ckp_state_tree_put(s, &(ckp_tree_node){.type = CKP_TREE_NONE}, NULL);
    if (st == CKP_OK)
        st = ckpi_state_seal(s, NULL);
    ckp_state_free(s);
    return st;
}

static void
test_allocations_fail(void **state)
{
    (void)state;
    assert_true(failalloc_run(build, NULL, 8, 1) >= 8);
    assert_true(failalloc_run(drop_one, NULL, 8, 1) >= 8);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),  cmocka_unit_test(test_views), cmocka_unit_test(test_newer_struct), cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_owners), cmocka_unit_test(test_adam),  cmocka_unit_test(test_many),         cmocka_unit_test(test_drop),
        cmocka_unit_test(test_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
