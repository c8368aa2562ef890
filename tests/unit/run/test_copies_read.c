/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of masters in files: read in parts and whole, exported, salvaged, based on; with memory that fails. */
#define _GNU_SOURCE
#include <ckpress/run_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "harness/failalloc.h"
#include "mixed.h"

/* ---- reading --------------------------------------------------------------------------------------------------------------- */

static ckp_checkpoint *
saved_file(void **state, model *m)
{
    const char *path = model_path(state, "file.ckp");
    ckp_checkpoint *ck = NULL;

    mixed(m, "reading", CKP_BF16, UNDECLARED);
    model_tensor *tied = model_add(m, "tied", CKP_ROLE_WEIGHT, NULL, CKP_BF16, SHAPE);
    free(tied->data);
    tied->data = find(m, "w")->data;          /* an alias of a copy */
    ckp_state *s = model_state(m);
    tied->alias = true;
    assert_ok(ckp_file_save(path, s, NULL, NULL, true, NULL));
    ckp_state_free(s);
    assert_true(needs_copies(path));
    assert_ok(ckp_checkpoint_open_file(&ck, path, NULL, 0, NULL));
    return ck;
}

static void
parts_and_aliases(void **state)
{
    static const char *const name[] = {"w", "tied"};
    uint16_t got[48 * 96], turned[48 * 96];
    model m;

    ckp_checkpoint *ck = saved_file(state, &m);
    for (size_t k = 0; k < 2; k++) {
        const uint32_t i = ckp_checkpoint_find(ck, name[k]);
        const uint16_t *want = find(&m, "w")->data;
        for (unsigned r = 0; r < 50; r++) {
            const uint64_t first = test_below(&m.rng, 48 * 96), count = test_below(&m.rng, 48 * 96 - first + 1);
            assert_ok(ckp_checkpoint_read_range(ck, i, first, count, got, NULL));
            assert_memory_equal(got, want + first, 2 * count);
        }
        /* into columns */
        const int64_t strides[2] = {1, 48};
        const ckp_target t = {i, CKP_BF16, 2, SHAPE, strides, turned};
        assert_ok(ckp_checkpoint_read(ck, &t, 1, 2, NULL));
        for (size_t y = 0; y < 48; y++)
            for (size_t x = 0; x < 96; x++)
                assert_int_equal(turned[x * 48 + y], want[y * 96 + x]);
    }
    ckp_checkpoint_close(ck);
    model_free(&m);
}

/* Out to a file of another kind and back: what comes out is what went in. */
static void
exported(void **state)
{
    ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
    const char *st = model_path(state, "out.safetensors"), *again = model_path(state, "again.ckp");
    model m, got;
    ckp_checkpoint *ck = saved_file(state, &m);

    m.n--;                                    /* the alias: safetensors may hold it as a tensor of its own */
    ckp_checkpoint_close(ck);
    assert_ok(ckp_decompress(model_path(state, "file.ckp"), st, &o, NULL, NULL));
    assert_ok(ckp_compress(st, again, &o, NULL, NULL));
    assert_true(needs_copies(again));
    assert_ok(ckp_checkpoint_open_file(&ck, again, NULL, 0, NULL));
    model_copy(&got, &m);
    model_clear(&got);
    assert_ok(model_read(ck, &got, NULL));
    assert_true(model_equal(&got, &m));
    ckp_checkpoint_close(ck);
    model_free(&got);
    model_free(&m);
}

static void
add_up(void *user, const char *tensor, uint64_t have, uint64_t of)
{
    uint64_t *sum = user;
    sum[0] += strcmp(tensor, "w") == 0 ? have : 0;
    sum[1] += strcmp(tensor, "w/master") == 0 ? have : 0;
    assert_true(have <= of);
}

/* What is left of a master gives the same part of its copy; of a whole one the whole. */
static void
salvaged(void **state)
{
    const char *cut = model_path(state, "cut.ckp"), *out = model_path(state, "out");
    bool some = false;
    model m;
    size_t n = 0;

    ckp_checkpoint_close(saved_file(state, &m));
    uint8_t *bytes = model_load_file(model_path(state, "file.ckp"), &n);
    for (size_t k = 1; k <= 8; k++) {
        uint64_t sum[2] = {0, 0};
        model_store_file(cut, bytes, n * k / 8);
        if (ckp_salvage(cut, NULL, 0, out, true, add_up, sum, NULL) != CKP_OK)
            continue;
        assert_int_equal(sum[0], sum[1]);
        some = some || sum[0] != 0;
    }
    assert_true(some);
    free(bytes);
    model_free(&m);
}

/* ---- deltas of files ---------------------------------------------------------------------------------------------------- */

static void
file_delta_names_what_changed(void **state)
{
    const char *delta = model_path(state, "delta.ckp");
    ckp_error e;
    model m, got;
    ckp_checkpoint *ck = saved_file(state, &m), *next = NULL;

    m.t[m.n - 1].alias = false;
    step(&m);
    ckp_state *s = model_state(&m);
    assert_ok(ckp_file_save(delta, s, NULL, ck, true, NULL));
    const char *base = model_path(state, "file.ckp");
    assert_ok(ckp_checkpoint_open_file(&next, delta, &base, 1, NULL));
    m.n--;
    model_copy(&got, &m);
    model_clear(&got);
    assert_ok(model_read(next, &got, NULL));
    assert_true(model_equal(&got, &m));
    ckp_checkpoint_close(next);
    ((uint16_t *)find(&m, "line")->data)[3] ^= 1;
    assert_int_equal(ckp_file_save(delta, s, NULL, ck, true, &e), CKP_EBASE);
    assert_string_equal(e.tensor, "line");
    ckp_state_free(s);
    ckp_checkpoint_close(ck);
    model_free(&got);
    model_free(&m);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------- */

typedef struct memory_case { const char *path; model *m, *got; } memory_case;

static ckp_status
save_and_read(void *user)
{
    const memory_case *c = user;
    ckp_checkpoint *ck = NULL;

    ckp_state *s = model_state(c->m);
    ckp_status st = s != NULL ? ckp_file_save(c->path, s, NULL, NULL, true, NULL) : CKP_ENOMEM;
    ckp_state_free(s);
    if (st == CKP_OK)
        st = ckp_checkpoint_open_file(&ck, c->path, NULL, 0, NULL);
    if (st == CKP_OK) {
        model_clear(c->got);
        st = model_read(ck, c->got, NULL);
        assert_true(st != CKP_OK || model_equal(c->got, c->m));
    }
    ckp_checkpoint_close(ck);
    return st;
}

static void
allocations_fail(void **state)
{
    model m, got;
    mixed(&m, "memory", CKP_BF16, UNDECLARED);
    model_copy(&got, &m);
    memory_case c = {model_path(state, "file.ckp"), &m, &got};
    assert_ok(save_and_read(&c));
    assert_true(failalloc_run(save_and_read, &c, 40, 3) > 40);
    model_free(&got);
    model_free(&m);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(parts_and_aliases), T(exported), T(salvaged), T(file_delta_names_what_changed), T(allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
