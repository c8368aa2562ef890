/* SPDX-License-Identifier: Apache-2.0 */
/* What comes back of every kind of value, in every profile. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "model.h"

static const uint64_t SHAPE[4] = {60, 80}, LINE[4] = {300};

/* Saves `saves` steps, restores the last into a copy. The model keeps what was saved last. */
static void
round_trip(void **state, const char *name, model *m, ckp_profile p, int saves, model *got)
{
    const char *dir = model_path(state, name);
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;

    o.coding.profile = p;
    ckp_run *run = model_run(dir, o);
    for (int i = 0; i < saves; i++) {
        if (i != 0)
            model_step(m);
        assert_ok(model_save(run, m, NULL, NULL));
    }
    assert_ok(ckp_run_close(run, NULL));
    model_copy(got, m);
    model_clear(got);
    model_restore(dir, CKP_STEP_NEWEST, got);
    assert_ok(ckp_verify(dir, NULL, 0, CKP_VERIFY_DECODE, 1, NULL, NULL, NULL));
}

static ckp_tensor_info
tensor_info(void **state, const char *run, const char *name)
{
    ckp_tensor_info t = {.size = sizeof t};
    ckp_checkpoint *ck = NULL;
    assert_ok(ckp_checkpoint_open_run(&ck, model_path(state, run), CKP_STEP_NEWEST, true, NULL));
    assert_ok(ckp_checkpoint_tensor(ck, ckp_checkpoint_find(ck, name), &t, NULL));
    ckp_checkpoint_close(ck);
    t.name = t.codec = NULL;     /* were the checkpoint's */
    t.shape = NULL;
    return t;
}

/* What was recorded about a weight is what can be measured. */
static void
check_errors(void **state, const char *run, const model_tensor *a, const model_tensor *b)
{
    const ckp_tensor_info t = tensor_info(state, run, a->name);
    double e2 = 0.0, s2 = 0.0, worst = 0.0;
    uint64_t n = 0;

    for (uint64_t i = 0; i < a->n; i++) {
        const double x = (double)model_get(a, i), y = (double)model_get(b, i);
        if (!isfinite(x))
            continue;
        e2 += (x - y) * (x - y);
        s2 += x * x;
        worst = fmax(worst, fabs(x - y));
        n++;
    }
    assert_true(t.lossy);
    /* recorded in few bits, rounded up */
    const double rms = sqrt(e2 / s2), max = worst / sqrt(s2 / (double)n);
    assert_true(t.rms_rel_error >= rms * 0.9999 && t.rms_rel_error <= rms * 1.01 + 1e-7);
    assert_true(t.max_rel_error >= max * 0.9999 && t.max_rel_error <= max * 1.01 + 1e-7);
}

/* A positive v never decodes to zero, a zero always does. A code stays while v is within 0.75 steps of two octaves in sqrt(v), three
   octaves of v, and the lift, below half an octave of sqrt(v), moves all of a piece: sixteen times at the most. */
static void
check_v(const model_tensor *a, const model_tensor *b)
{
    for (uint64_t i = 0; i < a->n; i++) {
        const double x = (double)model_get(a, i), y = (double)model_get(b, i);
        if (x == 0.0) {
            assert_true(y == 0.0);
        } else if (isfinite(x)) {
            assert_true(y > 0.0);
            assert_true(y / x < 16.0 && x / y < 16.0);
        }
    }
}

static const model_tensor *
find(const model *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->t[i].name, name) == 0)
            return &m->t[i];
    fail_msg("no %s", name);
    return NULL;
}

static void
adam_in_every_float(void **state)
{
    static const ckp_dtype types[][2] = {{CKP_F32, CKP_F32}, {CKP_BF16, CKP_F32}, {CKP_F16, CKP_F32}, {CKP_BF16, CKP_BF16}, {CKP_F32, CKP_F16}};

    for (size_t k = 0; k < CHECK_COUNT(types); k++)
        for (ckp_profile p = CKP_PROFILE_RESUME; p <= CKP_PROFILE_SMALL; p++) {
            char name[32];
            model m = {.rng = test_rng_new("floats"), .step = 10}, got;
            (void)snprintf(name, sizeof name, "run-%zu-%d", k, (int)p);
            model_add_adam(&m, "w", types[k][0], types[k][1], SHAPE);
            model_add_adam(&m, "line", types[k][0], types[k][1], LINE);
            if (types[k][1] == CKP_F16)          /* v would underflow: 1e-6 is near its least */
                for (uint64_t i = 0; i < m.t[2].n; i++)
                    model_set(&m.t[2], i, 0.01f + model_get(&m.t[2], i));
            round_trip(state, name, &m, p, 4, &got);
            check_errors(state, name, find(&m, "w"), find(&got, "w"));
            if (types[k][1] == CKP_F32)
                check_v(find(&m, "w/v"), find(&got, "w/v"));
            model_free(&m);
            model_free(&got);
        }
}

/* <u^, u> = <u, u>: what the optimizer needs of m is kept, seen with the decoded v. */
static void
m_keeps_its_projection(void **state)
{
    /* late enough that bias correction leaves a few percent of |u| above the threshold: none kept is a projection of 0 */
    model m = {.rng = test_rng_new("projection"), .step = 200}, got;
    double uu = 0.0, cross = 0.0;

    model_add_adam(&m, "w", CKP_F32, CKP_F32, (const uint64_t[4]){100, 200});
    round_trip(state, "run", &m, CKP_PROFILE_RESUME, 3, &got);
    const model_tensor *a = find(&m, "w/m"), *b = find(&got, "w/m"), *v = find(&got, "w/v");
    for (uint64_t i = 0; i < a->n; i++) {
        const double x = (double)model_get(a, i), y = (double)model_get(b, i), vv = (double)model_get(v, i);
        uu += x * x / vv;
        cross += x * y / vv;
    }
    assert_true(fabs(cross / uu - 1.0) < 0.03);
    model_free(&m);
    model_free(&got);
}

static void
odd_values_come_back(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_SMALL; p++) {
        model m = {.rng = test_rng_new("odd"), .step = 10}, got;
        static const uint32_t bits[] = {0x7fc00000, 0xffc12345, 0x7f800000, 0xff800000, 0x7f800001, 0x80000000, 1, 0x807fffff, 0x7f7fffff, 0xff7fffff};
        const char *name = ckp_profile_name(p);

        model_add_adam(&m, "w", CKP_F32, CKP_F32, SHAPE);
        model_add_adam(&m, "line", CKP_F32, CKP_F32, LINE);
        for (size_t k = 0; k < m.n; k++)
            for (size_t i = 0; i < CHECK_COUNT(bits) - 2; i++)      /* the last two only as weights: as v they are no sizes */
                (void)memcpy((uint8_t *)m.t[k].data + 4 * (7 + 31 * i), &bits[i], 4);
        for (size_t i = CHECK_COUNT(bits) - 2; i < CHECK_COUNT(bits); i++)
            (void)memcpy((uint8_t *)find(&m, "w")->data + 4 * (7 + 31 * i), &bits[i], 4);
        round_trip(state, name, &m, p, 3, &got);
        for (size_t k = 0; k < m.n; k++)
            for (uint64_t i = 0; i < m.t[k].n; i++) {
                uint32_t a, b;
                (void)memcpy(&a, (const uint8_t *)m.t[k].data + 4 * i, 4);
                (void)memcpy(&b, (const uint8_t *)got.t[k].data + 4 * i, 4);
                if (!isfinite(model_get(&m.t[k], i)) || p == CKP_PROFILE_LOSSLESS)
                    assert_int_equal(a, b);
                else
                    assert_true(isfinite(model_get(&got.t[k], i)));
            }
        if (p != CKP_PROFILE_LOSSLESS) {
            const ckp_tensor_info t = tensor_info(state, name, "w");
            assert_int_equal(t.n_nan, 3);
            assert_int_equal(t.n_inf, 2);
        }
        model_free(&m);
        model_free(&got);
    }
}

static void
zeros_stay_zeros(void **state)
{
    model m = {.rng = test_rng_new("zeros"), .step = 10}, got;

    model_add_adam(&m, "none", CKP_F32, CKP_F32, SHAPE);
    for (size_t k = 0; k < 3; k++)
        (void)memset(m.t[k].data, 0, model_bytes(&m.t[k]));
    model_add_adam(&m, "half", CKP_F32, CKP_F32, SHAPE);
    for (uint64_t i = 0; i < m.t[5].n; i += 2) {     /* unused rows of an embedding: no gradient ever */
        model_set(&m.t[4], i, 0.0f);
        model_set(&m.t[5], i, 0.0f);
    }
    round_trip(state, "run", &m, CKP_PROFILE_RESUME, 1, &got);
    for (size_t k = 0; k < 3; k++)
        for (uint64_t i = 0; i < m.t[k].n; i++)
            assert_true(model_get(&got.t[k], i) == 0.0f);
    check_v(find(&m, "half/v"), find(&got, "half/v"));
    for (uint64_t i = 0; i < m.t[4].n; i += 2)
        assert_true(model_get(find(&got, "half/m"), i) == 0.0f);
    model_free(&m);
    model_free(&got);
}

static void
v_over_ten_decades(void **state)
{
    model m = {.rng = test_rng_new("decades"), .step = 1000}, got;

    model_add_adam(&m, "w", CKP_F32, CKP_F32, SHAPE);
    for (uint64_t i = 0; i < m.t[2].n; i++)
        model_set(&m.t[2], i, (float)pow(10.0, -14.0 + 10.0 * test_unit(&m.rng)));
    round_trip(state, "run", &m, CKP_PROFILE_RESUME, 3, &got);
    check_v(find(&m, "w/v"), find(&got, "w/v"));
    model_free(&m);
    model_free(&got);
}

static void
momentum_without_v(void **state)
{
    for (ckp_profile p = CKP_PROFILE_RESUME; p <= CKP_PROFILE_SMALL; p++) {
        model m = {.rng = test_rng_new("momentum"), .step = 10}, got;
        const char *name = ckp_profile_name(p);
        model_tensor *w = model_add(&m, "w", CKP_ROLE_WEIGHT, NULL, CKP_F32, SHAPE);
        model_tensor *mo = model_add(&m, "w/momentum", CKP_ROLE_MOMENTUM, "w", CKP_F32, SHAPE);
        double xy = 0.0, xx = 0.0;

        for (uint64_t i = 0; i < w->n; i++) {
            model_set(w, i, (float)(0.05 * test_normal(&m.rng)));
            model_set(mo, i, (float)(1e-3 * test_normal(&m.rng)));
        }
        round_trip(state, name, &m, p, 3, &got);
        check_errors(state, name, find(&m, "w"), find(&got, "w"));
        for (uint64_t i = 0; i < mo->n; i++) {
            const double x = (double)model_get(find(&m, "w/momentum"), i), y = (double)model_get(find(&got, "w/momentum"), i);
            xy += x * y;
            xx += x * x;
        }
        /* few values, large ones, and the same projection: of m over its row's and column's scale, which is m's own only where those are equal */
        assert_true(xy / xx > 0.5 && xy / xx < 1.2);
        model_free(&m);
        model_free(&got);
    }
}

static void
weights_profile_drops_moments(void **state)
{
    model m = {.rng = test_rng_new("weights"), .step = 10};
    ckp_checkpoint *ck = NULL;
    ckp_coding c = CKP_CODING_INIT;
    const char *path = model_path(state, "w.ckp");

    model_add_adam(&m, "w", CKP_F32, CKP_F32, SHAPE);
    c.profile = CKP_PROFILE_WEIGHTS;
    ckp_state *s = model_state(&m);
    const ckp_status st = ckp_file_save(path, s, &c, NULL, false, NULL);
    ckp_state_free(s);
    assert_ok(st);
    assert_ok(ckp_checkpoint_open_file(&ck, path, NULL, 0, NULL));
    ckp_tensor_info t = {.size = sizeof t};
    assert_ok(ckp_checkpoint_tensor(ck, ckp_checkpoint_find(ck, "w"), &t, NULL));
    assert_true(t.lossy && t.rms_rel_error < 0.12 && t.bits_per_element < 6.0);
    ckp_checkpoint_close(ck);
    model_free(&m);
}

static void
marked_lossless_stays_exact(void **state)
{
    model m = {.rng = test_rng_new("marked"), .step = 10}, got;

    model_add_adam(&m, "w", CKP_F32, CKP_F32, SHAPE);
    model_add_adam(&m, "x", CKP_F32, CKP_F32, SHAPE);
    m.t[0].lossless = true;
    round_trip(state, "run", &m, CKP_PROFILE_RESUME, 3, &got);
    for (size_t k = 0; k < 3; k++)
        assert_memory_equal(m.t[k].data, got.t[k].data, model_bytes(&m.t[k]));
    assert_true(memcmp(m.t[3].data, got.t[3].data, model_bytes(&m.t[3])) != 0);
    model_free(&m);
    model_free(&got);
}

/* A callback gives the same file as memory does. */
static void
pulled_is_as_read(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        size_t n[2];
        uint8_t *bytes[2];
        for (int pulls = 0; pulls < 2; pulls++) {
            model m = {.rng = test_rng_new("pull"), .step = 10};
            ckp_coding c = CKP_CODING_INIT;
            char name[32];
            (void)snprintf(name, sizeof name, "%d-%d.ckp", (int)p, pulls);
            model_add_adam(&m, "w", CKP_F32, CKP_F32, SHAPE);
            model_add_adam(&m, "x", CKP_BF16, CKP_F32, LINE);
            for (size_t i = 0; i < m.n; i++)
                m.t[i].pull = pulls;
            c.profile = p;
            ckp_state *s = model_state(&m);
            assert_ok(ckp_file_save(model_path(state, name), s, &c, NULL, false, NULL));
            ckp_state_free(s);
            bytes[pulls] = model_load_file(model_path(state, name), &n[pulls]);
            model_free(&m);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        free(bytes[0]);
        free(bytes[1]);
    }
}

static void
aliases_are_stored_once(void **state)
{
    model m = {.rng = test_rng_new("alias"), .step = 10}, got;
    model_add_adam(&m, "w", CKP_F32, CKP_F32, SHAPE);
    model_tensor *head = model_add(&m, "head", CKP_ROLE_WEIGHT, NULL, CKP_F32, SHAPE);
    /* the alias stands right behind what it shares memory with: weights first */
    const model_tensor moments[2] = {m.t[1], m.t[2]};
    free(head->data);
    head->data = m.t[0].data;
    head->alias = true;
    m.t[1] = *head;
    m.t[2] = moments[0];
    m.t[3] = moments[1];
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        round_trip(state, ckp_profile_name(p), &m, p, 2, &got);
        const ckp_tensor_info t = tensor_info(state, ckp_profile_name(p), "head");
        assert_true(t.alias_of != UINT32_MAX && t.stored_bytes == 0);
        if (p == CKP_PROFILE_LOSSLESS)
            assert_true(model_equal(&got, &m));
        model_free(&got);
    }
    model_free(&m);
}

/* Strided memory on both sides: a transposed weight in, every second column out. */
static void
strides_in_and_out(void **state)
{
    enum { R = 50, C = 70 };
    float *src = malloc(sizeof(float) * R * C), *dst = malloc(sizeof(float) * R * C * 2);
    const uint64_t shape[2] = {C, R};
    const int64_t transposed[2] = {1, C}, spaced[2] = {2 * R, 2};
    const char *path = model_path(state, "s.ckp");
    ckp_tensor t = CKP_TENSOR_INIT;
    ckp_checkpoint *ck = NULL;
    ckp_state *s = NULL;

    assert_true(src != NULL && dst != NULL);
    for (int i = 0; i < R * C; i++)
        src[i] = (float)i * 0.5f;
    for (int i = 0; i < R * C * 2; i++)
        dst[i] = -1.0f;
    t.dtype = CKP_F32;
    t.ndim = 2;
    t.shape = shape;
    t.strides = transposed;
    t.data = src;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckp_state_add_tensor(s, "t", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    assert_ok(ckp_file_save(path, s, NULL, NULL, false, NULL));
    ckp_state_free(s);
    assert_ok(ckp_checkpoint_open_file(&ck, path, NULL, 0, NULL));
    const ckp_target to = {0, CKP_F32, 2, shape, spaced, dst};
    assert_ok(ckp_checkpoint_read(ck, &to, 1, 1, NULL));
    for (int c = 0; c < C; c++)
        for (int r = 0; r < R; r++) {
            assert_true(dst[c * 2 * R + 2 * r] == src[r * C + c]);
            assert_true(dst[c * 2 * R + 2 * r + 1] == -1.0f);
        }
    ckp_checkpoint_close(ck);
    free(src);
    free(dst);
}

/* A bf16 copy of an f32 master comes back as it was, or as the rounding of the master that comes back. */
static void
copies_fit_their_master(void **state)
{
    for (ckp_profile p = CKP_PROFILE_LOSSLESS; p <= CKP_PROFILE_RESUME; p++) {
        model m = {.rng = test_rng_new("master"), .step = 10}, got;
        model_add_adam(&m, "w", CKP_F32, CKP_F32, SHAPE);
        m.t[0].role = CKP_ROLE_MASTER;
        model_tensor *copy = model_add(&m, "w/copy", CKP_ROLE_COPY, "w", CKP_BF16, SHAPE);
        for (uint64_t i = 0; i < copy->n; i++)
            model_set(copy, i, model_get(&m.t[0], i));
        round_trip(state, ckp_profile_name(p), &m, p, 1, &got);
        model_tensor rounded = *copy;
        rounded.data = calloc(model_bytes(copy), 1);
        assert_non_null(rounded.data);
        for (uint64_t i = 0; i < copy->n; i++)
            model_set(&rounded, i, model_get(find(&got, "w"), i));
        const void *back = find(&got, "w/copy")->data;
        assert_true(memcmp(back, copy->data, model_bytes(copy)) == 0 || memcmp(back, rounded.data, model_bytes(copy)) == 0);
        free(rounded.data);
        model_free(&m);
        model_free(&got);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(adam_in_every_float), T(m_keeps_its_projection), T(odd_values_come_back), T(zeros_stay_zeros), T(v_over_ten_decades),
        T(momentum_without_v), T(weights_profile_drops_moments), T(marked_lossless_stays_exact), T(pulled_is_as_read),
        T(aliases_are_stored_once), T(strides_in_and_out), T(copies_fit_their_master),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
