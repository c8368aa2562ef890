/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: budgets that files keep, errors that are as expected, what decides, the same plan everywhere, and what is refused. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "model.h"

/* Weights of several sizes and spreads, without moments. */
static void
plain(model *m)
{
    static const struct { const char *name; uint64_t shape[4]; double rms; ckp_dtype dt; } rows[] = {
        {"wte", {1200, 100}, 0.05, CKP_F32}, {"up", {300, 200}, 0.02, CKP_F32}, {"down", {200, 300}, 0.08, CKP_F32},
        {"half", {150, 200}, 0.03, CKP_BF16}, {"bias", {300}, 0.01, CKP_F32}, {"gain", {200}, 1.0, CKP_F32}};
    *m = (model){.rng = test_rng_new("plan")};
    for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
        model_tensor *t = model_add(m, rows[i].name, CKP_ROLE_WEIGHT, NULL, rows[i].dt, rows[i].shape);
        for (uint64_t k = 0; k < t->n; k++)
            model_set(t, k, (float)(rows[i].rms * test_normal(&m->rng)));
    }
    const model_tensor *n = model_add(m, "count", CKP_ROLE_OTHER, NULL, CKP_I64, (const uint64_t[4]){3});
    (void)n;
}

static ckp_plan_options
options(ckp_plan_target target, double value)
{
    ckp_plan_options o = CKP_PLAN_OPTIONS_INIT;
    o.coding.profile = CKP_PROFILE_WEIGHTS;
    o.coding.threads = 1;
    o.target = target;
    o.value = value;
    return o;
}

static ckp_plan *
plan_of(const model *m, const ckp_plan_options *o)
{
    ckp_plan *p = NULL;
    ckp_error e = {0};
    ckp_state *s = model_state(m);
    if (ckp_plan_state(&p, s, o, &e) != CKP_OK)
        fail_msg("%s", e.text);
    ckp_state_free(s);
    return p;
}

static ckp_plan_info
info_of(const ckp_plan *p)
{
    ckp_plan_info i = {.size = sizeof i};
    ckp_plan_get_info(p, &i);
    return i;
}

static ckp_plan_row
row_of(const ckp_plan *p, const char *name)
{
    ckp_plan_row r = {.size = sizeof r};
    for (size_t i = 0; i < ckp_plan_count(p); i++) {
        ckp_plan_get_row(p, i, &r);
        if (strcmp(r.name, name) == 0)
            return r;
    }
    fail_msg("no row of %s", name);
    return r;
}

/* Saves with the plan; bytes of the file, and what comes back in *got. */
static uint64_t
saved(const char *path, const model *m, const ckp_plan *p, ckp_profile profile, model *got)
{
    ckp_coding c = CKP_CODING_INIT;
    ckp_error e = {0};
    ckp_checkpoint *ck = NULL;
    struct stat sb;
    c.profile = profile;
    c.threads = 1;
    c.steps = ckp_plan_steps(p, &c.n_steps);
    ckp_state *s = model_state(m);
    if (ckp_file_save(path, s, &c, NULL, true, &e) != CKP_OK)
        fail_msg("%s: %s", e.tensor, e.text);
    ckp_state_free(s);
    assert_ok(ckp_checkpoint_open_file(&ck, path, NULL, 0, &e));
    assert_ok(model_read(ck, got, &e));
    ckp_checkpoint_close(ck);
    assert_int_equal(stat(path, &sb), 0);
    return (uint64_t)sb.st_size;
}

static double
relative_error(const model_tensor *a, const model_tensor *b)
{
    double err = 0, sum = 0;
    for (uint64_t i = 0; i < a->n; i++) {
        const double x = (double)model_get(a, i), d = x - (double)model_get(b, i);
        err += d * d;
        sum += x * x;
    }
    return sqrt(err / sum);
}

static void
sizes_are_kept(void **state)
{
    const char *path = model_path(state, "x.ckp");
    const struct { ckp_plan_target target; double value; } cases[] = {
        {CKP_PLAN_BITS, 2.5}, {CKP_PLAN_BITS, 4.0}, {CKP_PLAN_BITS, 5.5}, {CKP_PLAN_RATIO, 8.0}, {CKP_PLAN_BYTES, 120000}};
    model m, got;
    plain(&m);
    model_copy(&got, &m);
    for (size_t i = 0; i < CHECK_COUNT(cases); i++) {
        const ckp_plan_options o = options(cases[i].target, cases[i].value);
        ckp_plan *p = plan_of(&m, &o);
        const ckp_plan_info info = info_of(p);
        const double want = cases[i].target == CKP_PLAN_BITS    ? cases[i].value * (double)info.params / 8
                            : cases[i].target == CKP_PLAN_RATIO ? (double)info.raw_bytes / cases[i].value
                                                                : cases[i].value;
        const double bytes = (double)saved(path, &m, p, CKP_PROFILE_WEIGHTS, &got);
        assert_true(info.met && info.encodes == 2);
        assert_true(fabs(bytes / want - 1.0) < 0.01);
        assert_true(fabs(bytes / (double)info.bytes - 1.0) < 0.005);
        assert_true(fabs(info.bits_all - 8.0 * (double)info.bytes / (double)info.params) < 1e-3);
        ckp_plan_free(p);
    }
    model_free(&m);
    model_free(&got);
}

static void
errors_are_as_expected(void **state)
{
    const char *path = model_path(state, "x.ckp");
    const ckp_plan_options o = options(CKP_PLAN_ERROR, 0.1);
    double sum = 0, n = 0;
    model m, got;
    plain(&m);
    model_copy(&got, &m);
    ckp_plan *p = plan_of(&m, &o);
    (void)saved(path, &m, p, CKP_PROFILE_WEIGHTS, &got);
    for (size_t i = 0; i < m.n; i++) {
        if (m.t[i].role != CKP_ROLE_WEIGHT)
            continue;
        const double e = relative_error(&m.t[i], &got.t[i]);
        const ckp_plan_row r = row_of(p, m.t[i].name);
        if (m.t[i].n > 10000)
            assert_true(fabs(e / r.error - 1.0) < 0.05);
        sum += e * e * (double)m.t[i].n;
        n += (double)m.t[i].n;
    }
    const ckp_plan_info info = info_of(p);
    assert_true(info.met && info.encodes == 0 && info.bytes == 0);
    assert_true(info.error <= 0.1 && info.error > 0.099);
    assert_true(fabs(sqrt(sum / n) / 0.1 - 1.0) < 0.03);
    ckp_plan_free(p);
    model_free(&m);
    model_free(&got);
}

/* Steps in proportion to the square root of the size, small tensors finer, scores in proportion to their inverse square root. */
static void
what_decides(void **state)
{
    (void)state;
    ckp_plan_options o = options(CKP_PLAN_BITS, 5.0);
    model m;
    plain(&m);
    ckp_plan *p = plan_of(&m, &o);
    const double plain_up = row_of(p, "up").step;
    assert_true(fabs(row_of(p, "down").step / plain_up / 2.0 - 1.0) < 0.15);
    assert_string_equal(row_of(p, "up").why, "multiplier");
    assert_string_equal(row_of(p, "bias").why, "small: 16 times finer");
    assert_true(row_of(p, "bias").step < plain_up / 8);
    assert_true(row_of(p, "bias").error < 0.05);
    assert_int_equal(ckp_plan_count(p), 6);
    ckp_plan_free(p);
    const ckp_tensor_score scores[] = {{"wte", 1.0}, {"up", 16.0}, {"down", 1.0}, {"half", 1.0}, {"bias", 1.0}, {"gain", 1.0}};
    o.scores = scores;
    o.n_scores = 6;
    p = plan_of(&m, &o);
    assert_true(fabs(row_of(p, "down").step / row_of(p, "up").step / 4.0 - 1.0) < 0.15);
    assert_true(fabs(row_of(p, "wte").step / row_of(p, "down").step - 1.0) < 0.15);
    ckp_plan_free(p);
    /* of 16 and 0: as given */
    const ckp_tensor_step given[] = {{"up", 0.0123}, {"half", 0.0}};
    o.coding.steps = given;
    o.coding.n_steps = 2;
    p = plan_of(&m, &o);
    assert_true(row_of(p, "up").step == 0.0123 && row_of(p, "half").step == 0.0);
    assert_string_equal(row_of(p, "up").why, "given");
    assert_string_equal(row_of(p, "half").why, "given");
    size_t n = 0;
    (void)ckp_plan_steps(p, &n);
    assert_int_equal(n, 6);
    ckp_plan_free(p);
    model_free(&m);
}

/* With second moments the expected loss is what comes of the errors that are really made. */
static void
second_moments_weigh(void **state)
{
    const char *path = model_path(state, "x.ckp");
    ckp_plan_options o = options(CKP_PLAN_LOSS, 0.0);
    model m, got;
    m = (model){.rng = test_rng_new("fisher"), .step = 1};
    model_add_adam(&m, "a", CKP_F32, CKP_F32, (const uint64_t[4]){100, 80});
    model_add_adam(&m, "b", CKP_F32, CKP_F32, (const uint64_t[4]){100, 80});
    /* a weight whose gradients are ten times as large */
    for (uint64_t i = 0; i < m.t[5].n; i++)
        model_set(&m.t[5], i, 100.0F * model_get(&m.t[5], i));
    assert_string_equal(m.t[5].name, "b/v");
    model_copy(&got, &m);
    o.coding.profile = CKP_PROFILE_RESUME;
    o.target = CKP_PLAN_BITS;
    o.value = 6.0;
    ckp_plan *p = plan_of(&m, &o);
    const ckp_plan_info info = info_of(p);
    o.target = CKP_PLAN_LOSS;
    o.value = 0.5 * info.loss;
    ckp_plan *q = plan_of(&m, &o);
    assert_true(info_of(q).met && fabs(info_of(q).loss / o.value - 1.0) < 0.02);
    (void)saved(path, &m, q, CKP_PROFILE_RESUME, &got);
    double loss = 0;
    for (size_t k = 0; k < m.n; k++) {
        if (m.t[k].role != CKP_ROLE_WEIGHT)
            continue;
        const model_tensor *v = &m.t[k + 2];
        for (uint64_t i = 0; i < m.t[k].n; i++) {
            const double e = (double)model_get(&m.t[k], i) - (double)model_get(&got.t[k], i);
            loss += 0.5 * (double)model_get(v, i) * e * e;
        }
    }
    loss /= 1.0 - 0.99;          /* v's bias after the model's first step */
    /* a few elements of large v make most of it, and where in its step each falls is chance */
    assert_true(fabs(info_of(q).loss / loss - 1.0) < 0.3);
    assert_true(row_of(q, "b").step_rms < row_of(q, "a").step_rms);
    ckp_plan_free(p);
    ckp_plan_free(q);
    model_free(&m);
    model_free(&got);
}

static void
the_same_plan_with_any_threads(void **state)
{
    (void)state;
    ckp_plan_options o = options(CKP_PLAN_BITS, 3.0);
    model m;
    plain(&m);
    ckp_plan *p = plan_of(&m, &o);
    for (unsigned threads = 2; threads <= 5; threads++) {
        o.coding.threads = threads;
        ckp_plan *q = plan_of(&m, &o);
        size_t n = 0, k = 0;
        const ckp_tensor_step *a = ckp_plan_steps(p, &n), *b = ckp_plan_steps(q, &k);
        assert_int_equal(n, k);
        for (size_t i = 0; i < n; i++)
            assert_true(a[i].step == b[i].step);
        ckp_plan_free(q);
    }
    ckp_plan_free(p);
    model_free(&m);
}

/* A budget that no steps meet: said, with the nearest. */
static void
budgets_that_cannot_be_met(void **state)
{
    (void)state;
    model m;
    plain(&m);
    for (int i = 0; i < 3; i++) {
        const ckp_plan_options o = options(i == 0 ? CKP_PLAN_BITS : i == 1 ? CKP_PLAN_RATIO : CKP_PLAN_ERROR, i == 0 ? 0.01 : i == 1 ? 1e6 : 1e-7);
        ckp_plan *p = plan_of(&m, &o);
        assert_false(info_of(p).met);
        assert_string_equal(row_of(p, "wte").why, i < 2 ? "coarsest step" : "finest step");
        assert_true(row_of(p, "wte").step > 0.0);
        ckp_plan_free(p);
    }
    model_free(&m);
}

/* All zero, constant, two values, one outlier, NaN and infinities, very large and very small: a plan is made and what it codes comes back
   within steps or exactly. */
static void
odd_tensors(void **state)
{
    const char *path = model_path(state, "odd.ckp");
    static const char *const names[] = {"zero", "constant", "two", "outlier", "nan", "large", "tiny"};
    model m = {.rng = test_rng_new("odd")}, got;
    for (size_t k = 0; k < CHECK_COUNT(names); k++) {
        model_tensor *t = model_add(&m, names[k], CKP_ROLE_WEIGHT, NULL, CKP_F32, (const uint64_t[4]){80, 90});
        for (uint64_t i = 0; i < t->n; i++) {
            const float x = (float)test_normal(&m.rng);
            const float v[] = {0.0F, 0.5F, i % 2 == 0 ? -1.0F : 1.0F, i == 77 ? 1e6F : x, i % 5 == 0 ? NAN : i % 7 == 0 ? INFINITY : x, x * 1e30F, x * 1e-35F};
            model_set(t, i, v[k]);
        }
    }
    model_copy(&got, &m);
    for (int i = 0; i < 2; i++) {
        const ckp_plan_options o = options(i == 0 ? CKP_PLAN_BITS : CKP_PLAN_ERROR, i == 0 ? 6.0 : 0.05);
        ckp_plan *p = plan_of(&m, &o);
        (void)saved(path, &m, p, CKP_PROFILE_WEIGHTS, &got);
        for (size_t k = 0; k < m.n; k++) {
            const double step = row_of(p, m.t[k].name).step;
            assert_true(isfinite(step) && step > 0.0);
            for (uint64_t n = 0; n < m.t[k].n; n++) {
                const float a = model_get(&m.t[k], n), b = model_get(&got.t[k], n);
                assert_true(isfinite(a) ? fabs((double)a - (double)b) <= 0.5001 * step : memcmp(&a, &b, 4) == 0);
            }
        }
        ckp_plan_free(p);
    }
    model_free(&m);
    model_free(&got);
}

/* One plan whether the weights come as a state, in a .ckp, or in a file of others. */
static void
files_are_planned_as_states(void **state)
{
    char ckp[512], st[512];
    ckp_coding c = CKP_CODING_INIT;
    ckp_convert_options co = CKP_CONVERT_OPTIONS_INIT;
    ckp_plan_options o = options(CKP_PLAN_BITS, 3.5);
    ckp_error e = {0};
    model m;
    (void)snprintf(ckp, sizeof ckp, "%s", model_path(state, "m.ckp"));
    (void)snprintf(st, sizeof st, "%s", model_path(state, "m.safetensors"));
    plain(&m);
    ckp_plan *p = plan_of(&m, &o), *q[2] = {NULL, NULL};
    ckp_state *s = model_state(&m);
    assert_ok(ckp_file_save(ckp, s, &c, NULL, false, &e));
    ckp_state_free(s);
    assert_ok(ckp_decompress(ckp, st, &co, NULL, &e));
    for (int i = 0; i < 2; i++) {
        if (ckp_plan_file(&q[i], i == 0 ? ckp : st, &o, &e) != CKP_OK)
            fail_msg("%s", e.text);
        /* neighbours share chunks in files, whatever is like in states: a few bytes of the rest can move a choice by 1/16 octave */
        assert_true(fabs(row_of(q[i], "up").step / row_of(p, "up").step - 1.0) < 0.06);
        assert_true(info_of(q[i]).met && fabs(info_of(q[i]).bits_all - 3.5) < 0.02);
        ckp_plan_free(q[i]);
    }
    /* compressed with it: the size that a dry run tells, and nothing is there after that one */
    ckp_plan *f = NULL;
    assert_ok(ckp_plan_file(&f, st, &o, &e));
    co.coding.profile = CKP_PROFILE_WEIGHTS;
    co.coding.steps = ckp_plan_steps(f, &co.coding.n_steps);
    ckp_convert_result dry = {.size = sizeof dry}, wet = dry;
    const char *out = model_path(state, "out.ckp");
    struct stat sb;
    co.dry_run = true;
    assert_ok(ckp_compress(st, NULL, &co, &dry, &e));
    assert_ok(ckp_compress(st, out, &co, &dry, &e));
    assert_int_not_equal(stat(out, &sb), 0);
    assert_status(ckp_decompress(ckp, NULL, &co, NULL, &e), CKP_EINVAL);
    co.dry_run = false;
    assert_status(ckp_compress(st, NULL, &co, NULL, &e), CKP_EINVAL);
    assert_ok(ckp_compress(st, out, &co, &wet, &e));
    assert_int_equal(stat(out, &sb), 0);
    assert_int_equal(dry.out_bytes, (uint64_t)sb.st_size);
    assert_int_equal(wet.out_bytes, dry.out_bytes);
    assert_int_equal(wet.lossy, dry.lossy);
    ckp_plan_free(f);
    ckp_plan_free(p);
    model_free(&m);
}

static void
refused(const model *m, const ckp_plan_options *o, const char *tensor)
{
    ckp_plan *p = NULL;
    ckp_error e = {0};
    ckp_state *s = model_state(m);
    assert_status(ckp_plan_state(&p, s, o, &e), CKP_EINVAL);
    assert_null(p);
    assert_string_equal(e.tensor, tensor);
    ckp_state_free(s);
}

static void
what_is_refused(void **state)
{
    const ckp_plan_options good = options(CKP_PLAN_BITS, 3.0);
    const double values[] = {0.0, -1.0, NAN, INFINITY};
    ckp_plan_options o = good;
    ckp_plan *p = NULL;
    ckp_error e = {0};
    model m;
    plain(&m);
#define REFUSED(change, tensor)    \
    do {                           \
        o = good;                  \
        change;                    \
        refused(&m, &o, tensor);   \
    } while (0)
    for (size_t i = 0; i < CHECK_COUNT(values); i++)
        REFUSED(o.value = values[i], "");
    REFUSED(o.size = 8, "");
    REFUSED(o.target = (ckp_plan_target)9, "");
    REFUSED(o.encodes = 0, "");
    REFUSED(o.encodes = 4, "");
    REFUSED(o.coding.profile = CKP_PROFILE_LOSSLESS, "");
    REFUSED(o.coding.quality = 0.5, "");
    REFUSED(o.coding.profile = CKP_PROFILE_RESUME, "");         /* no moments: nothing would be lossy */
    REFUSED(o.n_scores = 1, "");
    const ckp_tensor_score bad[] = {{"up", 0.0}, {"nobody", 1.0}, {"count", 1.0}, {"up", INFINITY}};
    static const char *const named[] = {"up", "nobody", "count", "up"};
    for (size_t i = 0; i < CHECK_COUNT(bad); i++)
        REFUSED(o.scores = &bad[i]; o.n_scores = 1, named[i]);
    assert_status(ckp_plan_state(NULL, NULL, &good, &e), CKP_EINVAL);
    assert_status(ckp_plan_file(&p, model_path(state, "nothing"), &good, &e), CKP_ENOTFOUND);
    model_store_file(model_path(state, "text"), "no such file format", 19);
    assert_status(ckp_plan_file(&p, model_path(state, "text"), &good, &e), CKP_EFORMAT);
    assert_null(p);
    ckp_plan_free(NULL);
    assert_int_equal(ckp_plan_count(NULL), 0);
    model_free(&m);
}

#define T(f) cmocka_unit_test_setup_teardown(f, model_setup, model_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        T(sizes_are_kept), T(errors_are_as_expected), T(what_decides), T(second_moments_weigh), T(the_same_plan_with_any_threads),
        T(budgets_that_cannot_be_met), T(odd_tensors), T(files_are_planned_as_states), T(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
