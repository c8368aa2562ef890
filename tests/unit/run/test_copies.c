/* SPDX-License-Identifier: Apache-2.0 */
/* Low-precision copies of masters: derived where every element is the master's, rounded; stored as any tensor where not. */
#include <ckpress/run_file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mixed.h"

static void
assert_restores(const char *dir, const model *m)
{
    model got;
    model_copy(&got, m);
    model_clear(&got);
    model_restore(dir, CKP_STEP_NEWEST, &got);
    assert_true(model_equal(&got, m));
    model_free(&got);
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
}

static unsigned
chain_of(const char *dir)
{
    ckp_checkpoint_info i = {.size = sizeof i};
    ckp_checkpoint *ck = NULL;
    assert_ok(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, NULL));
    ckp_checkpoint_get_info(ck, &i);
    ckp_checkpoint_close(ck);
    return i.chain;
}

static ckp_run *
open_lossless(const char *dir)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = CKP_PROFILE_LOSSLESS;
    return model_run(dir, o);
}

/* ---- lossless ---------------------------------------------------------------------------------------------------------- */

static void
derived_over_a_run(void **state)
{
    static const ckp_dtype dtype[] = {CKP_BF16, CKP_F16};

    for (size_t d = 0; d < 2; d++)
        for (how h = DECLARED; h <= UNDECLARED; h++) {
            char name[32];
            model m;
            (void)snprintf(name, sizeof name, "run-%zu-%d", d, (int)h);
            char *dir = own_path(state, name);
            mixed(&m, name, dtype[d], h);
            ckp_run *run = open_lossless(dir);
            for (unsigned i = 0; i < 4; i++) {
                assert_ok(model_save(run, &m, NULL, NULL));
                assert_derived(dir, m.step, "w", true);
                assert_derived(dir, m.step, "line", true);
                assert_int_equal(chain_of(dir), i);
                assert_restores(dir, &m);
                step(&m);
            }
            assert_ok(ckp_run_close(run, NULL));
            model_free(&m);
            free(dir);
        }
}

/* A training that is stopped and goes on keeps its deltas. */
static void
derived_after_a_restore(void **state)
{
    char *dir = own_path(state, "run");
    ckp_checkpoint *ck = NULL;
    model m;

    mixed(&m, "restore", CKP_BF16, UNDECLARED);
    ckp_run *run = open_lossless(dir);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_ok(ckp_run_close(run, NULL));
    run = open_lossless(dir);
    assert_ok(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, NULL));
    assert_ok(ckp_run_adopt(run, ck, NULL));
    ckp_checkpoint_close(ck);
    step(&m);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_int_equal(chain_of(dir), 1);
    assert_derived(dir, m.step, "w", true);
    assert_restores(dir, &m);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
    free(dir);
}

/* One bit of one element is enough; each is tried at a border. The save becomes a key, and the next may find the copy again. */
static void
stored_where_one_element_differs(void **state)
{
    static const uint64_t at[] = {0, 1, 47 * 96, 48 * 96 - 1};

    for (size_t k = 0; k < CHECK_COUNT(at); k++)
        for (how h = DECLARED; h <= UNDECLARED; h++) {
            char name[32];
            model m;
            (void)snprintf(name, sizeof name, "run-%zu-%d", k, (int)h);
            char *dir = own_path(state, name);
            mixed(&m, name, CKP_BF16, h);
            ckp_run *run = open_lossless(dir);
            assert_ok(model_save(run, &m, NULL, NULL));
            step(&m);
            ((uint16_t *)find(&m, "w")->data)[at[k]] ^= 1;
            assert_ok(model_save(run, &m, NULL, NULL));
            assert_derived(dir, m.step, "w", false);
            assert_derived(dir, m.step, "line", true);
            assert_int_equal(chain_of(dir), 0);
            assert_restores(dir, &m);
            step(&m);                        /* equal again: this delta's table stays its base's */
            assert_ok(model_save(run, &m, NULL, NULL));
            assert_derived(dir, m.step, "w", false);
            assert_int_equal(chain_of(dir), 1);
            assert_restores(dir, &m);
            ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
            o.key = true;
            step(&m);
            assert_ok(model_save(run, &m, &o, NULL));
            assert_derived(dir, m.step, "w", true);
            assert_restores(dir, &m);
            assert_ok(ckp_run_close(run, NULL));
            model_free(&m);
            free(dir);
        }
}

/* NaNs of any payload become quiet and keep sign and upper bits; infinities, zeros with sign, subnormals, overflow, ties. */
static void
odd_values(void **state)
{
    static const uint32_t odd[] = {0x7fc00000, 0xffc00001, 0x7f800001, 0xffa5a5a5, 0x7fffffff, 0x7f800000, 0xff800000, 0x00000000, 0x80000000, 0x00000001,
                                   0x807fffff, 0x7f7fffff, 0xff7fffff, 0x3f808000, 0x3f818000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0xb8800fff};

    for (int d = 0; d < 2; d++) {
        char *dir = own_path(state, d == 0 ? "bf16" : "f16");
        model m;
        mixed(&m, "odd", d == 0 ? CKP_BF16 : CKP_F16, DECLARED);
        model_tensor *f = find(&m, "w/master");
        for (size_t i = 0; i < f->n; i++)
            if (i % 3 == 0)
                (void)memcpy((float *)f->data + i, &odd[i / 3 % CHECK_COUNT(odd)], 4);
        round_to(find(&m, "w"), f);
        ckp_run *run = open_lossless(dir);
        assert_ok(model_save(run, &m, NULL, NULL));
        assert_derived(dir, m.step, "w", true);
        assert_restores(dir, &m);
        /* a NaN of another payload than the rounding's is no copy */
        m.step++;
        ((uint16_t *)find(&m, "w")->data)[0] ^= 1;
        assert_ok(model_save(run, &m, NULL, NULL));
        assert_derived(dir, m.step, "w", false);
        assert_restores(dir, &m);
        assert_ok(ckp_run_close(run, NULL));
        model_free(&m);
        free(dir);
    }
}

/* What is all one value says nothing of where it comes from; nor do moments and averages. Declared, it counts. */
static void
not_found_by_chance(void **state)
{
    for (how h = DECLARED; h <= UNDECLARED; h++) {
        char name[32];
        model m;
        (void)snprintf(name, sizeof name, "run-%d", (int)h);
        char *dir = own_path(state, name);
        mixed(&m, name, CKP_BF16, h);
        model_tensor *f = find(&m, "line/master");
        for (uint64_t i = 0; i < f->n; i++)
            model_set(f, i, 1.0f);
        round_to(find(&m, "line"), f);
        ckp_run *run = open_lossless(dir);
        assert_ok(model_save(run, &m, NULL, NULL));
        assert_derived(dir, m.step, "line", h != UNDECLARED);
        assert_restores(dir, &m);
        assert_ok(ckp_run_close(run, NULL));
        model_free(&m);
        free(dir);
    }
    model m;
    char *dir = own_path(state, "moments");
    mixed(&m, "moments", CKP_BF16, UNDECLARED);
    find(&m, "w/master")->role = CKP_ROLE_AVERAGE;
    ckp_run *run = open_lossless(dir);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_derived(dir, m.step, "w", false);
    assert_ok(ckp_run_close(run, NULL));
    model_free(&m);
    free(dir);
}

/* More elements than are compared, and than are coded, in one go; the last of them counts. Pulled tensors too. */
static void
large_and_pulled(void **state)
{
    for (int k = 0; k < 4; k++) {
        const bool pulled = (k & 1) != 0, differs = (k & 2) != 0;
        char name[32];
        model m = {.rng = test_rng_new("large"), .step = 1};
        (void)snprintf(name, sizeof name, "run-%d", k);
        char *dir = own_path(state, name);
        const uint64_t shape[4] = {1200, 1001};
        model_tensor *w = model_add(&m, "w", CKP_ROLE_WEIGHT, NULL, CKP_BF16, shape);
        model_tensor *f = model_add(&m, "w/master", CKP_ROLE_OTHER, NULL, CKP_F32, shape);
        w->pull = f->pull = pulled;
        for (uint64_t i = 0; i < f->n; i++)
            ((float *)f->data)[i] = (float)i * 1.37e-5f - 3.0f;
        round_to(w, f);
        ((uint16_t *)w->data)[w->n - 1] ^= differs;
        ckp_run *run = open_lossless(dir);
        assert_ok(model_save(run, &m, NULL, NULL));
        assert_derived(dir, m.step, "w", !differs);
        assert_restores(dir, &m);
        assert_ok(ckp_run_close(run, NULL));
        model_free(&m);
        free(dir);
    }
}

/* The same bytes with any number of threads. */
static void
threads_do_not_show(void **state)
{
    uint8_t *first = NULL;
    size_t n_first = 0;

    for (unsigned t = 1; t <= 4; t += 3) {
        const char *path = model_path(state, t == 1 ? "one.ckp" : "four.ckp");
        ckp_coding c = CKP_CODING_INIT;
        model m;
        size_t n = 0;
        mixed(&m, "threads", CKP_BF16, UNDECLARED);
        c.threads = t;
        ckp_state *s = model_state(&m);
        assert_ok(ckp_file_save(path, s, &c, NULL, false, NULL));
        ckp_state_free(s);
        uint8_t *bytes = model_load_file(path, &n);
        if (first != NULL) {
            assert_int_equal(n, n_first);
            assert_memory_equal(bytes, first, n);
            free(bytes);
        } else {
            first = bytes;
            n_first = n;
        }
        model_free(&m);
    }
    free(first);
}

/* ---- lossy ---------------------------------------------------------------------------------------------------------------- */

/* The copy is the rounding of the master that comes back; the moments are the master's, which is coded with them. */
static void
rounded_from_what_comes_back(void **state)
{
    for (ckp_profile p = CKP_PROFILE_RESUME; p <= CKP_PROFILE_SMALL; p++)
        for (how h = DECLARED; h <= AS_COPY; h++) {
            char name[32];
            model m, got;
            (void)snprintf(name, sizeof name, "run-%d-%d", (int)p, (int)h);
            char *dir = own_path(state, name);
            mixed(&m, name, CKP_BF16, h);
            ckp_run_options o = CKP_RUN_OPTIONS_INIT;
            o.coding.profile = p;
            ckp_run *run = model_run(dir, o);
            double bits = 0;
            for (int i = 0; i < 3; i++) {
                assert_ok(model_save(run, &m, NULL, NULL));
                assert_derived(dir, m.step, "w", true);
                assert_int_equal(chain_of(dir), i);
                model_copy(&got, &m);
                model_clear(&got);
                model_restore(dir, CKP_STEP_NEWEST, &got);
                model_tensor rounded = *find(&m, "w");
                rounded.data = calloc(model_bytes(&rounded), 1);
                assert_non_null(rounded.data);
                round_to(&rounded, find(&got, "w/master"));
                assert_memory_equal(rounded.data, find(&got, "w")->data, model_bytes(&rounded));
                const ckp_tensor_info master = info_of(dir, "w/master");
                assert_true(master.lossy && info_of(dir, "w").lossy);
                bits += master.bits_per_element;

                free(rounded.data);
                model_free(&got);
                step(&m);
            }
            assert_true(bits / 3 < 12.0);    /* one save may be dear, by where the draws fall; exact ones take 26 and more */
            assert_ok(ckp_run_close(run, NULL));
            model_free(&m);
            free(dir);
        }
}

/* A staged save shows its copies as a restore will. */
static void
staged(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        char *dir = own_path(state, ckp_profile_name(p));
        uint16_t seen[48 * 96], got[48 * 96];
        ckp_run_options o = CKP_RUN_OPTIONS_INIT;
        ckp_checkpoint *ck = NULL;
        bool is = false;
        model m;
        mixed(&m, "staged", CKP_BF16, DECLARED);
        o.coding.profile = p;
        ckp_run *run = model_run(dir, o);
        ckp_state *s = model_state(&m);
        assert_ok(ckp_run_stage(run, m.step, s, NULL, &is, NULL));
        assert_true(is);
        const ckp_target t = {0, CKP_BF16, 2, SHAPE, NULL, seen};
        assert_ok(ckp_run_staged_read(run, &t, 1, NULL));
        assert_ok(ckp_run_commit(run, NULL, 0, NULL));
        assert_ok(ckp_run_wait(run, NULL));
        assert_ok(ckp_run_close(run, NULL));
        ckp_state_free(s);
        assert_derived(dir, m.step, "w", true);
        assert_ok(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, NULL));
        assert_ok(ckp_checkpoint_read_range(ck, 0, 0, 48 * 96, got, NULL));
        assert_memory_equal(got, seen, sizeof got);
        ckp_checkpoint_close(ck);
        model_free(&m);
        free(dir);
    }
}

/* What must stay exact keeps its master exact. */
static void
exact_copy_means_exact_master(void **state)
{
    char *dir = own_path(state, "run");
    model m, got;

    mixed(&m, "exact", CKP_BF16, DECLARED);
    find(&m, "w")->lossless = true;
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    o.coding.profile = CKP_PROFILE_SMALL;
    ckp_run *run = model_run(dir, o);
    assert_ok(model_save(run, &m, NULL, NULL));
    assert_ok(ckp_run_close(run, NULL));
    assert_derived(dir, m.step, "w", true);
    model_copy(&got, &m);
    model_clear(&got);
    model_restore(dir, CKP_STEP_NEWEST, &got);
    assert_memory_equal(find(&got, "w")->data, find(&m, "w")->data, model_bytes(find(&m, "w")));
    assert_memory_equal(find(&got, "w/master")->data, find(&m, "w/master")->data, model_bytes(find(&m, "w/master")));
    model_free(&got);
    model_free(&m);
    free(dir);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(derived_over_a_run), T(derived_after_a_restore), T(stored_where_one_element_differs), T(odd_values), T(not_found_by_chance),
        T(large_and_pulled), T(threads_do_not_show),
        T(rounded_from_what_comes_back), T(staged), T(exact_copy_means_exact_master),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
