/* SPDX-License-Identifier: Apache-2.0 */
/* Strided copies against the obvious loop over coordinates: every element size, views that are transposed, reversed, expanded, sliced. */
#include <stdlib.h>
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "state/state.h"

#define ROOM 4096

static uint8_t memory[ROOM * 32];

static uint64_t
offset_of(uint64_t index, const uint64_t *shape, const int64_t *strides, unsigned ndim)
{
    int64_t off = 0;
    for (unsigned i = ndim; i-- > 0;) {
        off += (int64_t)(index % shape[i]) * strides[i];
        index /= shape[i];
    }
    return (uint64_t)off;
}

static const ckp_dtype dtypes[] = {CKP_U8, CKP_F16, CKP_F32, CKP_F64, CKP_C128, CKP_C256};
static const size_t sizes[] = {1, 2, 4, 8, 16, 32};

typedef struct view { unsigned ndim; uint64_t shape[5]; int64_t strides[5]; size_t origin; uint64_t numel; } view;

/* A view into ROOM elements: dimensions with random order, direction, step and, now and then, step 0. */
static view
random_view(test_rng *rng)
{
    view v = {.ndim = 1 + (unsigned)test_below(rng, 5), .numel = 1};
    int64_t step = 1 + (int64_t)test_below(rng, 2);
    int64_t low = 0;
    unsigned order[5] = {0, 1, 2, 3, 4};
    for (unsigned i = v.ndim; i-- > 1;) {
        const unsigned k = (unsigned)test_below(rng, i + 1), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (unsigned i = 0; i < v.ndim; i++) {
        const unsigned d = order[i];
        v.shape[d] = 1 + test_below(rng, 4);
        v.strides[d] = test_below(rng, 8) == 0 ? 0 : test_below(rng, 3) == 0 ? -step : step;
        if (v.strides[d] < 0)
            low += v.strides[d] * (int64_t)(v.shape[d] - 1);
        step *= (int64_t)v.shape[d];
        v.numel *= v.shape[d];
    }
    v.origin = (size_t)-low;
    return v;
}

static void
check_view(test_rng *rng, const view *v, size_t k)
{
    const size_t size = sizes[k];
    ckp_state *s;
    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = dtypes[k];
    t.ndim = v->ndim;
    t.shape = v->shape;
    t.strides = v->strides;
    t.data = memory + v->origin * size;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckp_state_add_tensor(s, "t", CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    const uint64_t first = test_below(rng, v->numel), count = test_below(rng, v->numel - first + 1);
    uint8_t *dst = guard_alloc((size_t)count * size);
    assert_ok(ckpi_tensor_copy_out(&s->t[0], first, count, dst, NULL));
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *want = (const uint8_t *)t.data + (int64_t)offset_of(first + i, v->shape, v->strides, v->ndim) * (int64_t)size;
        if (memcmp(dst + i * size, want, size) != 0)
            fail_msg("element %llu of %llu", (unsigned long long)i, (unsigned long long)count);
    }
    const uint8_t *direct = ckpi_tensor_direct(&s->t[0], first);
    assert_true(direct == NULL || count == 0 || memcmp(direct, dst, (size_t)count * size) == 0);
    guard_free(dst);
    ckp_state_free(s);
}

/* What scatter writes is what copy_out reads, and nothing beside it changes. */
static void
check_scatter(test_rng *rng, const view *v, size_t k)
{
    static uint8_t target[ROOM * 32];
    const size_t size = sizes[k];
    for (unsigned i = 0; i < v->ndim; i++)
        if (v->strides[i] == 0)
            return;              /* elements that lie on each other have no one value */
    uint8_t *src = guard_alloc((size_t)v->numel * size);
    test_bytes(rng, src, (size_t)v->numel * size);
    memset(target, 0, sizeof target);
    const uint64_t first = test_below(rng, v->numel), count = v->numel - first;
    ckpi_scatter(target + v->origin * size, v->shape, v->strides, v->ndim, size, first, count, src);
    size_t touched = 0;
    for (uint64_t i = 0; i < count; i++) {
        const int64_t at = (int64_t)v->origin + (int64_t)offset_of(first + i, v->shape, v->strides, v->ndim);
        assert_memory_equal(target + (size_t)at * size, src + i * size, size);
        memset(target + (size_t)at * size, 0, size);
        touched++;
    }
    assert_int_equal(touched, count);
    for (size_t i = 0; i < sizeof target; i++)
        assert_int_equal(target[i], 0);
    guard_free(src);
}

static void
test_random_views(void **state)
{
    (void)state;
    test_rng rng = test_rng_new("copy");
    test_bytes(&rng, memory, sizeof memory);
    for (int round = 0; round < 3000; round++) {
        const view v = random_view(&rng);
        check_view(&rng, &v, (size_t)round % CHECK_COUNT(sizes));
        if (round % 8 == 0)
            check_scatter(&rng, &v, (size_t)round / 8 % CHECK_COUNT(sizes));
    }
}

static void
test_ranges(void **state)
{
    (void)state;
    ckp_state *s;
    ckp_tensor t = CKP_TENSOR_INIT;
    const uint64_t shape[1] = {10};
    uint8_t dst[16];
    ckp_error err;
    t.dtype = CKP_F4_PACKED;
    t.ndim = 1;
    t.shape = shape;
    t.data = memory;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckp_state_add_tensor(s, "t", CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    assert_ok(ckpi_tensor_copy_out(&s->t[0], 2, 4, dst, NULL));
    assert_memory_equal(dst, memory + 1, 2);
    assert_ptr_equal(ckpi_tensor_direct(&s->t[0], 4), memory + 2);
    assert_null(ckpi_tensor_direct(&s->t[0], 3));
    assert_status(ckpi_tensor_copy_out(&s->t[0], 1, 2, dst, &err), CKP_EINVAL);
    assert_status(ckpi_tensor_copy_out(&s->t[0], 0, 1, dst, &err), CKP_EINVAL);
    assert_status(ckpi_tensor_copy_out(&s->t[0], 0, 12, dst, &err), CKP_EINVAL);
    assert_status(ckpi_tensor_copy_out(&s->t[0], 11, 0, dst, &err), CKP_EINVAL);
    assert_status(ckpi_tensor_copy_out(&s->t[0], UINT64_MAX, 2, dst, &err), CKP_EINVAL);
    assert_ok(ckpi_tensor_copy_out(&s->t[0], 10, 0, NULL, &err));
    ckp_state_free(s);
    uint8_t out[8] = {0};
    ckpi_scatter(out, shape, NULL, 1, 2, 1, 2, "abcd");
    assert_memory_equal(out, "\0\0abcd\0\0", 8);
}

static ckp_status
pull(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    (void)err;
    memset(dst, (int)first, (size_t)count);
    ++*(int *)user;
    return first == 7 ? CKP_EIO : CKP_OK;
}

static void
test_pull(void **state)
{
    (void)state;
    ckp_state *s;
    ckp_tensor t = CKP_TENSOR_INIT;
    const uint64_t shape[1] = {10};
    uint8_t dst[4];
    int calls = 0;
    t.dtype = CKP_U8;
    t.ndim = 1;
    t.shape = shape;
    t.pull = pull;
    t.pull_user = &calls;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckp_state_add_tensor(s, "t", CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    assert_ok(ckpi_tensor_copy_out(&s->t[0], 3, 4, dst, NULL));
    assert_int_equal(dst[3], 3);
    assert_status(ckpi_tensor_copy_out(&s->t[0], 7, 1, dst, NULL), CKP_EIO);
    assert_null(ckpi_tensor_direct(&s->t[0], 0));
    assert_int_equal(calls, 2);
    ckp_state_free(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_views), cmocka_unit_test(test_ranges), cmocka_unit_test(test_pull)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
