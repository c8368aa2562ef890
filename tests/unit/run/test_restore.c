/* SPDX-License-Identifier: Apache-2.0 */
/* Reading into the caller's memory: what fits, what is refused, ranges, looks, threads. */
#define _GNU_SOURCE
#include "help.h"
#include <math.h>
#include <pthread.h>
#include <unistd.h>
#include <ckpress/run_file.h>
#include "base/stream.h"

typedef struct fixture { char *dir; sim *m; ckp_checkpoint *ck; } fixture;

/* Lossless, so that every read can be compared; a delta, so that the chain is read. */
static fixture
make(void)
{
    static const uint64_t six[2] = {8, 12}, bigger[2] = {1100, 1000};
    fixture f = {.dir = help_dir(), .m = help_model(3, false)};
    ckp_error err;
    (void)sim_add(f.m, "packed", CKP_ROLE_OTHER, SIM_NONE, CKP_F6E2M3_PACKED, 2, six);
    (void)sim_add(f.m, "large", CKP_ROLE_OTHER, SIM_NONE, CKP_F32, 2, bigger);
    ckp_run *run = help_open(f.dir, CKP_PROFILE_LOSSLESS, 32, 0);
    help_save(run, f.m, NULL);
    sim_train(f.m);
    help_save(run, f.m, NULL);
    OK_OR_FAIL(ckp_run_close(run, &err));
    OK_OR_FAIL(ckp_checkpoint_open_run(&f.ck, f.dir, CKP_STEP_NEWEST, true, &err));
    return f;
}

static void
unmake(fixture *f)
{
    ckp_checkpoint_close(f->ck);
    sim_free(f->m);
    help_remove(f->dir);
}

static void
test_refused(void **state)
{
    (void)state;
    fixture f = make();
    ckp_error err;
    const sim_tensor *a = &f.m->t[0];
    float *mem = calloc((size_t)a->n, sizeof *mem);
    const uint64_t other[2] = {a->shape[0], a->shape[1] + 1}, flat[1] = {a->n};
    const int64_t strides[2] = {12, 1};
    const ckp_target good = {.index = 0, .dtype = CKP_F32, .ndim = 2, .shape = a->shape, .data = mem};
    const uint32_t packed = ckp_checkpoint_find(f.ck, "packed");

    ckp_target t[2] = {good, good};
    t[1].dtype = CKP_I32;
    assert_status(ckp_checkpoint_read(f.ck, t, 2, 1, &err), CKP_EMISMATCH);
    assert_string_equal(err.tensor, "a.weight");
    t[1] = good;
    t[1].shape = other;
    assert_status(ckp_checkpoint_read(f.ck, t, 2, 1, &err), CKP_EMISMATCH);
    t[1] = good;
    t[1].ndim = 1;
    t[1].shape = flat;
    assert_status(ckp_checkpoint_read(f.ck, t, 2, 1, &err), CKP_EMISMATCH);
    t[1] = good;
    t[1].data = NULL;
    assert_status(ckp_checkpoint_read(f.ck, t, 2, 1, &err), CKP_EINVAL);
    t[1] = good;
    t[1].index = 1000;
    assert_status(ckp_checkpoint_read(f.ck, t, 2, 1, &err), CKP_ENOTFOUND);
    t[1] = (ckp_target){.index = packed, .dtype = CKP_F6E2M3_PACKED, .ndim = 2, .shape = f.m->t[packed].shape, .strides = strides, .data = mem};
    assert_status(ckp_checkpoint_read(f.ck, t, 2, 1, &err), CKP_EINVAL);
    assert_status(ckp_checkpoint_read(f.ck, NULL, 1, 1, &err), CKP_EINVAL);
    assert_status(ckp_checkpoint_read(NULL, t, 1, 1, &err), CKP_EINVAL);
    for (size_t i = 0; i < a->n; i++)
        assert_true(mem[i] == 0.0F);             /* nothing was written, not even of the good one */
    assert_ok(ckp_checkpoint_read(f.ck, NULL, 0, 1, &err));
    assert_ok(ckp_checkpoint_read(f.ck, t, 1, 1, &err));
    assert_memory_equal(mem, a->dense, a->bytes);
    free(mem);
    unmake(&f);
}

static void
test_strides(void **state)
{
    (void)state;
    fixture f = make();
    ckp_error err;
    const sim_tensor *a = &f.m->t[ckp_checkpoint_find(f.ck, "large")];
    const size_t rows = (size_t)a->shape[0], cols = (size_t)a->shape[1], n = rows * cols;
    float *mem = calloc(2 * n, sizeof *mem);
    const struct { int64_t s[2]; size_t start; } looks[] = {
        {{(int64_t)cols, 1}, 0},
        {{1, (int64_t)rows}, 0},
        {{-(int64_t)cols, -1}, n - 1},
        {{2 * (int64_t)cols, 2}, 0},
    };
    for (size_t k = 0; k < CHECK_COUNT(looks); k++) {
        memset(mem, 0, 2 * n * sizeof *mem);
        const ckp_target t = {.index = ckp_checkpoint_find(f.ck, "large"), .dtype = CKP_F32, .ndim = 2, .shape = a->shape,
                              .strides = looks[k].s, .data = mem + looks[k].start};
        OK_OR_FAIL(ckp_checkpoint_read(f.ck, &t, 1, 3, &err));
        for (size_t i = 0; i < n; i += 37) {
            const int64_t at = (int64_t)looks[k].start + looks[k].s[0] * (int64_t)(i / cols) + looks[k].s[1] * (int64_t)(i % cols);
            assert_memory_equal(&mem[at], a->dense + 4 * i, 4);
        }
    }
    free(mem);
    unmake(&f);
}

static void
test_ranges(void **state)
{
    (void)state;
    fixture f = make();
    ckp_error err;
    for (uint32_t i = 0; i < f.m->n; i++) {
        const sim_tensor *t = &f.m->t[i];
        const size_t unit = t->dtype == CKP_F6E2M3_PACKED ? 4 : 1;
        uint8_t *mem = calloc(1, t->bytes + 8);
        for (uint64_t first = 0; first < t->n; first += unit * (1 + t->n / 7)) {
            const uint64_t count = t->n - first > 2 * unit ? (t->n - first) / 2 / unit * unit : t->n - first;
            memset(mem, 0xee, t->bytes + 8);
            OK_OR_FAIL(ckp_checkpoint_read_range(f.ck, i, first, count, mem, &err));
            const size_t from = (size_t)(first * t->bytes / t->n), len = (size_t)(count * t->bytes / t->n);
            assert_memory_equal(mem, t->dense + from, len);
            assert_int_equal(mem[len], 0xee);
        }
        assert_status(ckp_checkpoint_read_range(f.ck, i, t->n, 1, mem, &err), CKP_EINVAL);
        assert_status(ckp_checkpoint_read_range(f.ck, i, UINT64_MAX, 2, mem, &err), CKP_EINVAL);
        assert_status(ckp_checkpoint_read_range(f.ck, i, 1, UINT64_MAX, mem, &err), CKP_EINVAL);
        assert_ok(ckp_checkpoint_read_range(f.ck, i, t->n, 0, NULL, &err));
        if (unit != 1)
            assert_status(ckp_checkpoint_read_range(f.ck, i, 1, 4, mem, &err), CKP_EINVAL);
        if (t->n != 0)
            assert_status(ckp_checkpoint_read_range(f.ck, i, 0, unit, NULL, &err), CKP_EINVAL);
        free(mem);
    }
    assert_status(ckp_checkpoint_read_range(f.ck, 99, 0, 1, &err, &err), CKP_ENOTFOUND);
    unmake(&f);
}

/* The same memory under two names, and two targets for one tensor. */
static void
test_aliases(void **state)
{
    (void)state;
    char *dir = help_dir();
    ckp_error err;
    ckp_state *s = NULL;
    ckp_run *run = help_open(dir, CKP_PROFILE_RESUME, 32, 0);
    static float w[2000], x[2000], y[2000], z[2000];
    static const uint64_t shape[2] = {50, 40};
    for (int i = 0; i < 2000; i++)
        w[i] = sinf((float)i);
    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = CKP_F32;
    t.ndim = 2;
    t.shape = shape;
    t.data = w;
    OK_OR_FAIL(ckp_state_new(&s, &err));
    OK_OR_FAIL(ckp_state_add_tensor(s, "a", CKP_ROLE_WEIGHT, NULL, &t, NULL, &err));
    OK_OR_FAIL(ckp_state_add_tensor(s, "b", CKP_ROLE_WEIGHT, NULL, &t, NULL, &err));
    OK_OR_FAIL(ckp_run_save(run, 1, s, NULL, NULL, &err));
    OK_OR_FAIL(ckp_run_close(run, &err));
    ckp_state_free(s);
    ckp_checkpoint *ck = NULL;
    OK_OR_FAIL(ckp_checkpoint_open_run(&ck, dir, 1, true, &err));
    ckp_target to[3] = {{.index = 0, .dtype = CKP_F32, .ndim = 2, .shape = shape, .data = x},
                        {.index = 1, .dtype = CKP_F32, .ndim = 2, .shape = shape, .data = y},
                        {.index = 1, .dtype = CKP_F32, .ndim = 2, .shape = shape, .data = z}};
    OK_OR_FAIL(ckp_checkpoint_read(ck, to, 3, 2, &err));
    assert_memory_equal(x, w, sizeof w);
    assert_memory_equal(y, w, sizeof w);
    assert_memory_equal(z, w, sizeof w);
    memset(z, 0, sizeof z);
    OK_OR_FAIL(ckp_checkpoint_read_range(ck, 1, 100, 50, z, &err));
    assert_memory_equal(z, w + 100, 50 * sizeof *z);
    ckp_checkpoint_close(ck);
    help_remove(dir);
}

/* What a shard of several holds: nothing of a tensor, a range of one, a box of one. */
static const uint64_t whole[2] = {6, 4}, part_shape[3][2] = {{0, 0}, {1, 9}, {3, 4}}, box_first[2] = {3, 0};
static const float part_data[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const char *const part_name[3] = {"absent", "range", "box"};

static ckp_state *
parts_of_tensors(void)
{
    ckp_state *s = NULL;
    assert_ok(ckp_state_new(&s, NULL));
    for (size_t i = 0; i < 3; i++) {
        ckp_tensor t = CKP_TENSOR_INIT;
        t.dtype = CKP_F32;
        t.ndim = 2;
        t.shape = part_shape[i];
        t.global_shape = whole;
        t.flat = i < 2;
        t.flat_first = i == 1 ? 5 : 0;
        t.box_first = i == 2 ? box_first : NULL;
        t.data = part_data;
        assert_ok(ckp_state_add_tensor(s, part_name[i], CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    }
    return s;
}

/* Memory for the whole tensor must not come back as it was: parts are refused, but by who has saved them, by ranges, and in a box's own shape. */
static void
test_parts(void **state)
{
    (void)state;
    char *dir = help_dir(), *file = strdup(help_path(dir, "x.ckp"));
    ckp_state *s = parts_of_tensors();
    ckp_checkpoint *ck[2] = {NULL};
    ckp_error err;
    float mem[24] = {0};

    OK_OR_FAIL(ckp_file_save(file, s, NULL, NULL, false, &err));
    ckp_run *run = help_open(help_path(dir, "run"), CKP_PROFILE_LOSSLESS, 2, 0);
    OK_OR_FAIL(ckp_run_save(run, 1, s, NULL, NULL, &err));
    OK_OR_FAIL(ckp_run_wait(run, &err));
    OK_OR_FAIL(ckp_checkpoint_open_file(&ck[0], file, NULL, 0, &err));
    OK_OR_FAIL(ckp_checkpoint_open(&ck[1], run, 1, &err));
    for (uint32_t i = 0; i < 3; i++) {
        const ckp_target t = {.index = i, .dtype = CKP_F32, .ndim = 2, .shape = whole, .data = mem};
        const uint64_t n = part_shape[i][0] * part_shape[i][1];
        assert_status(ckp_checkpoint_read(ck[0], &t, 1, 1, &err), CKP_EUNSUPPORTED);
        assert_string_equal(err.tensor, part_name[i]);
        assert_true(mem[0] == 0.0F);
        OK_OR_FAIL(ckp_checkpoint_read_range(ck[0], i, 0, n, mem, &err));
        assert_memory_equal(mem, part_data, n * sizeof *mem);
        memset(mem, 0, sizeof mem);
        const ckp_target own = {.index = i, .dtype = CKP_F32, .ndim = 2, .shape = i == 2 ? part_shape[2] : whole, .data = mem};
        OK_OR_FAIL(ckp_checkpoint_read(ck[1], &own, 1, 1, &err));
        assert_memory_equal(mem, part_data, n * sizeof *mem);
        assert_true(mem[n] == 0.0F);
        memset(mem, 0, sizeof mem);
    }
    const ckp_target box = {.index = 2, .dtype = CKP_F32, .ndim = 2, .shape = part_shape[2], .data = mem};
    OK_OR_FAIL(ckp_checkpoint_read(ck[0], &box, 1, 1, &err));
    assert_memory_equal(mem, part_data, 12 * sizeof *mem);
    assert_status(ckp_decompress(file, help_path(dir, "y.safetensors"), NULL, NULL, &err), CKP_EUNSUPPORTED);
    assert_int_equal(access(help_path(dir, "y.safetensors"), F_OK), -1);
    ckp_checkpoint_close(ck[0]);
    ckp_checkpoint_close(ck[1]);
    assert_ok(ckp_run_close(run, NULL));
    ckp_state_free(s);
    free(file);
    help_remove(dir);
}

static void *
read_it(void *arg)
{
    fixture *f = arg;
    help_image *x = help_read(f->ck);
    const bool same = help_is_model(x, f->m);
    help_image_free(x);
    return same ? arg : NULL;
}

/* Many readers of one handle. */
static void
test_readers(void **state)
{
    (void)state;
    fixture f = make();
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, read_it, &f), 0);
    for (int i = 0; i < 4; i++) {
        void *ok = NULL;
        assert_int_equal(pthread_join(t[i], &ok), 0);
        assert_non_null(ok);
    }
    unmake(&f);
}

static void
test_not_there(void **state)
{
    (void)state;
    char *dir = help_dir();
    ckp_checkpoint *ck = NULL;
    ckp_error err;
    assert_status(ckp_checkpoint_open_run(&ck, help_path(dir, "no"), CKP_STEP_NEWEST, true, &err), CKP_ENOTFOUND);
    assert_status(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, &err), CKP_ENOTFOUND);
    assert_status(ckp_checkpoint_open_run(&ck, dir, -7, true, &err), CKP_EINVAL);
    assert_status(ckp_checkpoint_open_file(&ck, help_path(dir, "no.ckp"), NULL, 0, &err), CKP_ENOTFOUND);
    help_write(help_path(dir, "empty.ckp"), "", 0);
    assert_int_not_equal(ckp_checkpoint_open_file(&ck, help_path(dir, "empty.ckp"), NULL, 0, &err), 0);
    assert_null(ck);
    ckp_run *run = help_open(help_path(dir, "run"), CKP_PROFILE_LOSSLESS, 2, 0);
    OK_OR_FAIL(ckp_run_close(run, &err));
    assert_status(ckp_checkpoint_open_run(&ck, help_path(dir, "run"), CKP_STEP_NEWEST, true, &err), CKP_ENOTFOUND);
    assert_status(ckp_checkpoint_open_run(&ck, help_path(dir, "run"), 5, true, &err), CKP_ENOTFOUND);
    ckp_checkpoint_close(NULL);
    help_remove(dir);
}

/* More than caches hold is written past them: one tensor into 16 places, no two of one alignment to a line, with nothing written around them. */
static void
test_large(void **state)
{
    (void)state;
    enum { PLACES = 16 };
    fixture f = make();
    ckp_error err;
    const uint32_t index = ckp_checkpoint_find(f.ck, "large");
    const sim_tensor *large = &f.m->t[index];
    const size_t room = (size_t)large->n + 2 * PLACES;
    float *mem = calloc(PLACES * room, sizeof *mem);
    ckp_target t[PLACES];

    assert_non_null(mem);
    assert_true(PLACES * large->n * sizeof *mem >= CKPI_STREAM_FROM);
    for (size_t i = 0; i < PLACES; i++)
        t[i] = (ckp_target){.index = index, .dtype = CKP_F32, .ndim = 2, .shape = large->shape, .data = mem + i * room + 1 + i};
    assert_ok(ckp_checkpoint_read(f.ck, t, PLACES, 2, &err));
    for (size_t i = 0; i < PLACES; i++) {
        const float *at = mem + i * room, *to = at + 1 + i;
        assert_memory_equal(to, large->dense, large->bytes);
        for (const float *p = at; p < at + room; p++)
            assert_true((p >= to && p < to + large->n) || *p == 0.0F);
    }
    free(mem);
    unmake(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused), cmocka_unit_test(test_strides), cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_aliases), cmocka_unit_test(test_parts),   cmocka_unit_test(test_readers),
        cmocka_unit_test(test_not_there), cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
