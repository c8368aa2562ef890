/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel for GPUs without one: its own functions, lane after lane and by threads with barriers, give the bits of steps on a CPU. */
#define _GNU_SOURCE                     /* barriers of pthreads */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include "base/float.h"
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "optim/cuda/job.h"
#include "optim/job.h"

static const unsigned widths[] = {2, 3, 4, 5, 6, 8};
static const ckp_adamw adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .seed = 5};
static const ckp_adamw adam = {.lr = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.01, .coupled = true, .maximize = true, .seed = 6};
static const ckp_momentum sgd = {.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.05, .seed = 5};
static const ckp_momentum nesterov = {.lr = 1e-2, .momentum = 0.9, .nesterov = true, .maximize = true, .seed = 5};
static const ckp_momentum lion = {.lr = 1e-3, .momentum = 0.99, .weight_decay = 0.1, .lion = true, .beta1 = 0.9, .seed = 5};

/* Of weights and of gradients. */
static const struct { ckp_dtype dtype; unsigned rest_bits; } kinds[] = {{CKP_F32, 0}, {CKP_BF16, 0}, {CKP_F16, 0}, {CKP_BF16, 8}, {CKP_BF16, 16}};
static const ckp_dtype g_types[] = {CKP_F32, CKP_BF16, CKP_F16};

/* ---- one parameter, its memory flush against unmapped pages ---- */

typedef struct shape {
    uint64_t numel, cols, first;
    bool by_column;
} shape;

typedef struct settings {
    const ckp_adamw *how;
    const ckp_momentum *momentum;
    unsigned m_bits, v_bits, kind, g_type;
} settings;

typedef struct param {
    ckp_optim_tensor t;
    size_t p_bytes, g_bytes, m_bytes, v_bytes, factors;
} param;

static void *
zeros(size_t n)
{
    void *p = guard_alloc(n);
    if (n != 0)
        memset(p, 0, n);
    return p;
}

static size_t
bytes_of(ckp_dtype d)
{
    return d == CKP_F32 ? 4 : 2;
}

static void
put(void *to, ckp_dtype d, size_t i, float x)
{
    if (d == CKP_F32)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = d == CKP_BF16 ? ckpi_f32_to_bf16(x) : ckpi_f32_to_f16(x);
}

static param
make(const shape *s, const settings *a)
{
    const uint64_t rows = (s->numel + s->cols - 1) / s->cols, tail = s->numel - (rows - 1) * s->cols;
    param x = {.factors = (size_t)rows};
    x.t = (ckp_optim_tensor){.name = "w", .how = a->how, .momentum = a->momentum, .id = 3, .numel = s->numel, .cols = s->cols, .first = s->first};
    x.t.p_dtype = kinds[a->kind].dtype;
    x.t.g_dtype = g_types[a->g_type];
    x.t.rest_bits = kinds[a->kind].rest_bits;
    x.t.m_bits = a->m_bits;
    x.t.v_bits = a->how != NULL ? a->v_bits : 0;
    if (a->how == NULL)
        x.factors = (size_t)((rows - 1) * ((s->cols + 63) / 64) + (tail + 63) / 64);
    x.p_bytes = (size_t)s->numel * bytes_of(x.t.p_dtype);
    x.g_bytes = (size_t)s->numel * bytes_of(x.t.g_dtype);
    x.m_bytes = (size_t)ckp_optim_state_bytes(s->numel, s->cols, x.t.m_bits);
    x.v_bytes = x.t.v_bits != 0 ? (size_t)ckp_optim_state_bytes(s->numel, s->cols, x.t.v_bits) : 0;
    x.t.p = zeros(x.p_bytes);
    x.t.g = zeros(x.g_bytes);
    x.t.m = zeros(x.m_bytes);
    x.t.v = a->how != NULL ? zeros(x.v_bytes) : NULL;
    x.t.row = zeros(x.factors);
    x.t.col = a->how != NULL && s->by_column ? zeros((size_t)s->cols) : NULL;
    x.t.rest = x.t.rest_bits != 0 ? zeros((size_t)s->numel * (x.t.rest_bits / 8)) : NULL;
    for (size_t i = 0; i < s->numel; i++)
        put(x.t.p, x.t.p_dtype, i, 0.01f * (float)(i % 11) - 0.03f);
    return x;
}

static void
drop(param *x)
{
    void *const all[] = {x->t.p, (void *)(uintptr_t)x->t.g, x->t.m, x->t.v, x->t.row, x->t.col, x->t.rest};
    for (size_t i = 0; i < CHECK_COUNT(all); i++)
        guard_free(all[i]);
}

/* Sizes differ by column and by row; a step a thousand times as large raises rows, one of zeros and what follows lowers them. */
static void
gradient(param *x, uint64_t step)
{
    test_rng r = {step * 1000003};
    const double size = step == 6 ? 1.0 : step == 9 ? 0.0 : 1e-3;
    void *g = (void *)(uintptr_t)x->t.g;
    for (uint64_t i = 0; i < x->t.numel; i++)
        put(g, x->t.g_dtype, i, (float)(size * exp2((double)(i % 29) / 7.0 - (double)(i / x->t.cols % 5)) * test_normal(&r)));
    for (int k = 0; step == 7 && k < 5; k++) {
        static const float odd[] = {NAN, INFINITY, -INFINITY};
        put(g, x->t.g_dtype, test_below(&r, x->t.numel), odd[k % 3]);
    }
}

static void
same(const param *a, const param *b)
{
    assert_memory_equal(a->t.p, b->t.p, a->p_bytes);
    assert_memory_equal(a->t.m, b->t.m, a->m_bytes);
    if (a->t.v != NULL)
        assert_memory_equal(a->t.v, b->t.v, a->v_bytes);
    assert_memory_equal(a->t.row, b->t.row, a->factors);
    if (a->t.col != NULL)
        assert_memory_equal(a->t.col, b->t.col, a->t.cols);
    if (a->t.rest != NULL)
        assert_memory_equal(a->t.rest, b->t.rest, a->t.numel * (a->t.rest_bits / 8));
    assert_true(a->t.m_corr == b->t.m_corr && a->t.v_corr == b->t.v_corr);
}

/* ---- the device: lanes one after the other ---- */

typedef struct device {
    unsigned lanes;                      /* 0: as many as the job says */
    size_t launches;
    const char *refuses;                 /* from the second launch on */
} device;

static void
one_row(const ckpi_o_gpu *j, uint64_t i, uint8_t *scratch, unsigned lanes)
{
    const ckpi_o_gpu_row r = ckpi_o_gpu_row_of(j, i, scratch);
    uint32_t most = 0;
    for (unsigned lane = 0; lane < lanes; lane++) {
        const ckpi_o_seen seen = ckpi_o_gpu_elements(j, &r, j->m_bits, j->v_bits, lane, lanes);
        most = seen.raw_max > most ? seen.raw_max : most;
        j->counts[0] += seen.unusable;
    }
    for (unsigned lane = lanes; lane-- > 0;)
        ckpi_o_gpu_follow(j, &r, most, lane, lanes);
    for (unsigned lane = 0; lane < lanes; lane++)
        ckpi_o_gpu_put(j, &r, j->m_bits, j->v_bits, lane, lanes);
    j->counts[1] += ckpi_o_gpu_row_factor(j, &r, most);
}

static void
one_piece(const ckpi_o_gpu *j, uint64_t i, unsigned lanes)
{
    const ckpi_o_gpu_piece b = ckpi_o_gpu_piece_of(j, i);
    float *fresh = (float *)guard_alloc(b.n * sizeof *fresh);
    int8_t *k = (int8_t *)guard_alloc(b.n);
    uint32_t most = 0;
    for (unsigned lane = 0; lane < lanes; lane++) {
        const ckpi_o_seen seen = ckpi_o_gpu_move(j, &b, fresh, lane, lanes);
        most = seen.raw_max > most ? seen.raw_max : most;
        j->counts[0] += seen.unusable;
    }
    for (unsigned lane = lanes; lane-- > 0;)
        ckpi_o_gpu_code(j, &b, most, fresh, k, lane, lanes);
    for (unsigned lane = 0; lane < lanes; lane++)
        ckpi_o_gpu_piece_put(j, &b, k, lane, lanes);
    j->counts[1] += ckpi_o_gpu_piece_factor(j, &b, most);
    guard_free(fresh);
    guard_free(k);
}

static const char *
emulated(const ckpi_o_gpu *j, void *user)
{
    device *d = user;
    const unsigned lanes = d->lanes != 0 ? d->lanes : j->lanes;
    assert_true(j->blocks != 0 && j->lanes % 32 == 0 && j->lanes != 0 && j->lanes <= CKPI_O_GPU_LANES);
    if (d->refuses != NULL && d->launches != 0)
        return d->refuses;
    d->launches++;
    if (j->momentum)
        for (uint64_t i = 0; i < ckpi_o_gpu_pieces(j); i++)
            one_piece(j, i, lanes);
    else {
        uint8_t *const own = j->scratch == NULL ? guard_alloc(j->place) : NULL;
        assert_true(own == NULL || j->place <= CKPI_O_GPU_SHARED);
        for (uint64_t i = 0; i < j->rows; i++)
            one_row(j, i, own != NULL ? own : j->scratch + i % j->blocks * j->place, lanes);
        guard_free(own);
    }
    return NULL;
}

/* ---- the device: a thread a lane, and the body that the kernel has ---- */

static pthread_barrier_t barrier;

static void
most_of(uint32_t *at, uint32_t x)
{
    for (uint32_t old = __atomic_load_n(at, __ATOMIC_RELAXED); old < x;)
        if (__atomic_compare_exchange_n(at, &old, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            break;
}

#define CKPI_O_GPU_FN static inline
#define CKPI_O_SYNC() pthread_barrier_wait(&barrier)
#define CKPI_O_MOST(at, x) most_of(at, x)
#define CKPI_O_ADD(at, x) (void)__atomic_fetch_add(at, x, __ATOMIC_RELAXED)
#define CKPI_O_COUNT(at, x) (void)__atomic_fetch_add(at, x, __ATOMIC_RELAXED)
#include "optim/cuda/block.h"

enum { THREADS = 3, BLOCKS = 2 };        /* of a warp's lanes as many as a small machine bears; blocks one after the other */

typedef struct lane_arg {
    const ckpi_o_gpu *j;
    ckpi_o_gpu_shared *s;
    uint8_t *own;
    unsigned lane;
} lane_arg;

static void *
lane_of(void *user)
{
    const lane_arg *a = user;
    for (unsigned block = 0; block < BLOCKS; block++)
        if (a->j->momentum)
            ckpi_o_gpu_momentum(a->j, block, BLOCKS, a->lane, THREADS, a->s);
        else
            ckpi_o_gpu_rows(a->j, a->j->m_bits, a->j->v_bits, block, BLOCKS, a->lane, THREADS, a->s, a->own != NULL ? a->own : a->j->scratch);
    return NULL;
}

static const char *
threaded(const ckpi_o_gpu *j, void *user)
{
    ckpi_o_gpu_shared s;
    uint8_t *const own = j->scratch == NULL && !j->momentum ? guard_alloc(j->place) : NULL;
    lane_arg a[THREADS];
    pthread_t t[THREADS];
    (void)user;
    memset(&s, 0xff, sizeof s);
    assert_ok(pthread_barrier_init(&barrier, NULL, THREADS));
    for (unsigned i = 0; i < THREADS; i++) {
        a[i] = (lane_arg){j, &s, own, i};
        assert_ok(pthread_create(&t[i], NULL, lane_of, &a[i]));
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    pthread_barrier_destroy(&barrier);
    guard_free(own);
    return NULL;
}

/* ---- both ways ---- */

static void
fit_columns(param *x)
{
    ckpi_o_work w = {0};
    ckpi_o_task k;
    ckp_error err;
    if (x->t.how == NULL || !ckpi_o_fits_columns(&x->t))
        return;
    assert_ok(ckpi_o_task_of(&k, &x->t, &ckpi_o_adamw_rule, &err));
    assert_true(ckpi_o_work_grow(&w, (size_t)x->t.cols));
    ckpi_o_fit_columns(&k, &w);
    ckpi_o_work_free(&w);
}

static void
gpu_step(param *x, uint64_t step, ckpi_o_gpu_launch launch, void *user)
{
    const uint64_t bytes = ckpi_o_gpu_scratch(&x->t, 1);
    uint8_t *scratch = guard_alloc((size_t)bytes);
    uint64_t *counts = zeros(16);
    ckp_error err;
    x->t.step = step;
    fit_columns(x);
    assert_ok(ckpi_o_gpu_step(&x->t, 1, counts, scratch, bytes, launch, user, &err));
    x->t.unusable = counts[0];
    x->t.raised = counts[1];
    guard_free(counts);
    guard_free(scratch);
}

typedef struct totals { uint64_t unusable, raised; } totals;

static void
both(ckp_optim *o, const shape *s, const settings *a, uint64_t steps, ckpi_o_gpu_launch launch, void *user, totals *sum)
{
    param cpu = make(s, a), gpu = make(s, a);
    ckp_error err;
    for (uint64_t step = 1; step <= steps; step++) {
        gradient(&cpu, step);
        gradient(&gpu, step);
        cpu.t.step = step;
        assert_ok(a->how != NULL ? ckp_optim_adamw(o, &cpu.t, 1, &err) : ckp_optim_momentum(o, &cpu.t, 1, &err));
        gpu_step(&gpu, step, launch, user);
        same(&cpu, &gpu);
        assert_int_equal(cpu.t.unusable, gpu.t.unusable);
        assert_int_equal(cpu.t.raised, gpu.t.raised);
        sum->unusable += gpu.t.unusable;
        sum->raised += gpu.t.raised;
    }
    drop(&cpu);
    drop(&gpu);
}

static const shape shapes[] = {
    {40 * 96, 96, 0, true},                             /* groups and a half */
    {17 * 100 - 3, 100, UINT64_C(0x300000001), true},   /* a shard; the last row is shorter */
    {5 * 256, 256, 512, false},
    {3 * 27, 27, 27 * 7, false},
    {9, 1, 0, false},
    {7 * 65 - 64, 65, 65, true},                        /* the last row has one element */
};

/* Every pair of widths, over shapes, types and numbers of lanes. */
static void
adamw_as_on_a_cpu(void **state)
{
    static const unsigned lanes[] = {1, 7, 32, 0};
    ckp_optim *o;
    ckp_error err;
    totals sum = {0, 0};
    unsigned n = 0;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (size_t m = 0; m < CHECK_COUNT(widths); m++)
        for (size_t v = 0; v < CHECK_COUNT(widths); v++)
            for (size_t k = 0; k < CHECK_COUNT(shapes); k++, n++) {
                device d = {.lanes = lanes[n / 2 % CHECK_COUNT(lanes)]};
                const settings a = {n % 2 == 0 ? &adamw : &adam, NULL, widths[m], widths[v], n % 5, n / 5 % 3};
                both(o, &shapes[k], &a, 17, emulated, &d, &sum);
            }
    assert_true(sum.unusable != 0 && sum.raised != 0);
    ckp_optim_free(o);
}

/* Every pair of types at some widths. */
static void
types_as_on_a_cpu(void **state)
{
    ckp_optim *o;
    ckp_error err;
    totals sum = {0, 0};
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (unsigned kind = 0; kind < CHECK_COUNT(kinds); kind++)
        for (unsigned g = 0; g < CHECK_COUNT(g_types); g++)
            for (unsigned k = 0; k < 2; k++) {
                device d = {.lanes = 0};
                const settings a = {&adamw, NULL, k == 0 ? 4 : 8, k == 0 ? 4 : 3, kind, g}, b = {NULL, k == 0 ? &sgd : &lion, k == 0 ? 4 : 5, 0, kind, g};
                both(o, &shapes[k], &a, 12, emulated, &d, &sum);
                both(o, &shapes[k], &b, 12, emulated, &d, &sum);
            }
    assert_true(sum.unusable != 0 && sum.raised != 0);
    ckp_optim_free(o);
}

static void
momentum_as_on_a_cpu(void **state)
{
    static const ckp_momentum *const how[] = {&sgd, &nesterov, &lion};
    static const unsigned lanes[] = {1, 7, 64, 0};
    ckp_optim *o;
    ckp_error err;
    totals sum = {0, 0};
    unsigned n = 0;
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (size_t m = 0; m < CHECK_COUNT(widths); m++)
        for (size_t h = 0; h < CHECK_COUNT(how); h++)
            for (size_t k = 0; k < CHECK_COUNT(shapes); k++, n++) {
                device d = {.lanes = lanes[n % CHECK_COUNT(lanes)]};
                const settings a = {NULL, how[h], widths[m], 0, n % 5, n / 5 % 3};
                both(o, &shapes[k], &a, 12, emulated, &d, &sum);
            }
    assert_true(sum.unusable != 0 && sum.raised != 0);
    ckp_optim_free(o);
}

/* Rows that no block's own memory holds. */
static void
long_rows_use_scratch_memory(void **state)
{
    static const shape s = {17 * 16000, 16000, 0, true};
    const settings a = {&adamw, NULL, 4, 5, 0, 0};
    device d = {.lanes = 0};
    ckp_optim *o;
    ckp_error err;
    totals sum = {0, 0};
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    both(o, &s, &a, 6, emulated, &d, &sum);
    param x = make(&s, &a);
    const uint64_t bytes = ckpi_o_gpu_scratch(&x.t, 1);
    uint64_t counts[2] = {0, 0};
    assert_int_equal(bytes, 17 * 48000);
    x.t.step = 1;
    uint8_t *scratch = guard_alloc((size_t)bytes);
    assert_status(ckpi_o_gpu_step(&x.t, 1, counts, scratch, bytes - 1, emulated, &d, &err), CKP_EINVAL);
    assert_status(ckpi_o_gpu_step(&x.t, 1, counts, NULL, bytes, emulated, &d, &err), CKP_EINVAL);
    x.t.numel = UINT64_C(16000) * 10000;
    assert_int_equal(ckpi_o_gpu_scratch(&x.t, 1), 48000 * CKPI_O_GPU_BLOCKS);
    x.t.cols = 0;
    assert_int_equal(ckpi_o_gpu_scratch(&x.t, 1), 0);
    x.t.cols = 16000;
    x.t.numel = s.numel;
    guard_free(scratch);
    drop(&x);
    ckp_optim_free(o);
}

/* The kernel's own body: barriers, the row's largest, counts. ThreadSanitizer finds no race in it either. */
static void
barriers_are_where_they_must_be(void **state)
{
    ckp_optim *o;
    ckp_error err;
    totals sum = {0, 0};
    (void)state;
    assert_ok(ckp_optim_new(&o, 1, &err));
    for (unsigned k = 2; k < CHECK_COUNT(shapes); k++) {
        const settings a = {&adamw, NULL, widths[k], widths[5 - k], k % 5, k % 3}, b = {NULL, k % 2 == 0 ? &sgd : &lion, widths[k], 0, k % 5, k % 3};
        both(o, &shapes[k], &a, 7, threaded, NULL, &sum);
        both(o, &shapes[k], &b, 7, threaded, NULL, &sum);
    }
    assert_true(sum.unusable != 0 && sum.raised != 0);
    ckp_optim_free(o);
}

static void
misuse_is_refused_before_anything_starts(void **state)
{
    const settings a = {&adamw, NULL, 4, 4, 0, 0};
    device d = {.lanes = 0};
    param x[3] = {make(&shapes[0], &a), make(&shapes[1], &a), make(&shapes[2], &a)};
    ckp_optim_tensor t[3];
    uint64_t counts[6] = {0};
    ckp_adamw bad = adamw;
    ckp_error err;
    (void)state;
    for (int i = 0; i < 3; i++) {
        x[i].t.step = 1;
        gradient(&x[i], 1);
        t[i] = x[i].t;
    }
    bad.lr = -1.0;
    t[1].name = "layer.weight";
    t[1].how = &bad;
    assert_status(ckpi_o_gpu_step(t, 3, counts, NULL, 0, emulated, &d, &err), CKP_EINVAL);
    assert_string_equal(err.tensor, "layer.weight");
    t[1].how = &adamw;
    t[1].m_bits = 32;
    assert_status(ckpi_o_gpu_step(t, 3, counts, NULL, 0, emulated, &d, &err), CKP_EINVAL);
    t[1].m_bits = 7;
    assert_status(ckpi_o_gpu_step(t, 3, counts, NULL, 0, emulated, &d, &err), CKP_EINVAL);
    t[1].m_bits = 4;
    assert_status(ckpi_o_gpu_step(NULL, 1, counts, NULL, 0, emulated, &d, &err), CKP_EINVAL);
    assert_status(ckpi_o_gpu_step(t, 1, NULL, NULL, 0, emulated, &d, &err), CKP_EINVAL);
    assert_true(d.launches == 0 && t[0].m_corr == 0.0);
    assert_ok(ckpi_o_gpu_step(NULL, 0, NULL, NULL, 0, emulated, &d, &err));

    /* A launch that fails: what was started before counts, nothing else does. */
    d.refuses = "out of everything";
    assert_status(ckpi_o_gpu_step(t, 3, counts, NULL, 0, emulated, &d, &err), CKP_ESTATE);
    assert_string_equal(err.tensor, "layer.weight");
    assert_non_null(strstr(err.text, "out of everything"));
    assert_true(d.launches == 1 && t[0].m_corr > 0.0 && t[1].m_corr == 0.0 && t[2].m_corr == 0.0);

    /* No elements: nothing to start, and the step counts. */
    t[0].numel = 0;
    t[0].m_corr = t[0].v_corr = 0.0;
    assert_ok(ckpi_o_gpu_step(t, 1, counts, NULL, 0, emulated, &d, &err));
    assert_true(d.launches == 1 && t[0].m_corr > 0.0);
    for (int i = 0; i < 3; i++)
        drop(&x[i]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_as_on_a_cpu),
        cmocka_unit_test(types_as_on_a_cpu),
        cmocka_unit_test(momentum_as_on_a_cpu),
        cmocka_unit_test(long_rows_use_scratch_memory),
        cmocka_unit_test(barriers_are_where_they_must_be),
        cmocka_unit_test(misuse_is_refused_before_anything_starts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
