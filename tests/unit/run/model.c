/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/float.h"

size_t
model_bytes(const model_tensor *t)
{
    return (size_t)t->n * ckp_dtype_bits(t->dtype) / 8;
}

model_tensor *
model_add(model *m, const char *name, ckp_role role, const char *owner, ckp_dtype dtype, const uint64_t shape[4])
{
    assert_true(m->n < MODEL_MAX);
    model_tensor *t = &m->t[m->n++];
    *t = (model_tensor){.role = role, .dtype = dtype, .n = 1};
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    (void)snprintf(t->owner, sizeof t->owner, "%s", owner != NULL ? owner : "");
    while (t->ndim < 4 && shape[t->ndim] != 0) {
        t->shape[t->ndim] = shape[t->ndim];
        t->n *= shape[t->ndim++];
    }
    t->data = calloc(model_bytes(t) + 1, 1);
    assert_non_null(t->data);
    return t;
}

float
model_get(const model_tensor *t, uint64_t i)
{
    float f;
    uint16_t h;
    if (t->dtype == CKP_F32) {
        (void)memcpy(&f, (const uint8_t *)t->data + 4 * i, 4);
        return f;
    }
    (void)memcpy(&h, (const uint8_t *)t->data + 2 * i, 2);
    return t->dtype == CKP_BF16 ? ckpi_bf16_to_f32(h) : ckpi_f16_to_f32(h);
}

void
model_set(model_tensor *t, uint64_t i, float x)
{
    if (t->dtype == CKP_F32) {
        (void)memcpy((uint8_t *)t->data + 4 * i, &x, 4);
        return;
    }
    const uint16_t h = t->dtype == CKP_BF16 ? ckpi_f32_to_bf16(x) : ckpi_f32_to_f16(x);
    (void)memcpy((uint8_t *)t->data + 2 * i, &h, 2);
}

void
model_add_adam(model *m, const char *name, ckp_dtype dtype, ckp_dtype mdtype, const uint64_t shape[4])
{
    char mom[64];
    model_tensor *w = model_add(m, name, CKP_ROLE_WEIGHT, NULL, dtype, shape);
    for (uint64_t i = 0; i < w->n; i++)
        model_set(w, i, (float)(0.05 * test_normal(&m->rng)));
    (void)snprintf(mom, sizeof mom, "%.50s/m", name);
    model_tensor *mm = model_add(m, mom, CKP_ROLE_M, name, mdtype, shape);
    (void)snprintf(mom, sizeof mom, "%.50s/v", name);
    model_tensor *v = model_add(m, mom, CKP_ROLE_V, name, mdtype, shape);
    for (uint64_t i = 0; i < w->n; i++) {
        const double g = 1e-3 * exp(test_normal(&m->rng)) * (1 + (double)(i % 7));
        model_set(mm, i, (float)(0.2 * g * test_normal(&m->rng)));
        model_set(v, i, (float)(g * g));
    }
}

void
model_small(model *m, const char *seed)
{
    *m = (model){.rng = test_rng_new(seed), .step = 1};
    model_add_adam(m, "a", CKP_F32, CKP_F32, (const uint64_t[4]){48, 96});
    model_add_adam(m, "b", CKP_F32, CKP_F32, (const uint64_t[4]){16, 20});
    model_add_adam(m, "c", CKP_F32, CKP_F32, (const uint64_t[4]){40});
    const model_tensor *t = model_add(m, "count", CKP_ROLE_OTHER, NULL, CKP_I64, (const uint64_t[4]){2});
    ((int64_t *)t->data)[1] = 7;
}

/* The tensor of a role of the same owner, or NULL. */
static model_tensor *
part_of(model *m, const char *owner, ckp_role role)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->t[i].role == role && strcmp(m->t[i].owner, owner) == 0)
            return &m->t[i];
    return NULL;
}

void
model_step(model *m)
{
    m->step++;
    for (size_t k = 0; k < m->n; k++) {
        model_tensor *w = &m->t[k], *mm = part_of(m, w->name, CKP_ROLE_M), *v = part_of(m, w->name, CKP_ROLE_V);
        if (w->role == CKP_ROLE_OTHER && w->dtype == CKP_I64)
            ((int64_t *)w->data)[0] = (int64_t)m->step;
        if (w->role != CKP_ROLE_WEIGHT || w->alias || mm == NULL || v == NULL)
            continue;
        for (uint64_t i = 0; i < w->n; i++) {
            const float v0 = model_get(v, i), g = (float)(sqrt((double)v0) * test_normal(&m->rng));
            const float m1 = 0.9f * model_get(mm, i) + 0.1f * g, v1 = 0.99f * v0 + 0.01f * g * g;
            model_set(mm, i, m1);
            model_set(v, i, v1);
            if (v1 > 0.0f && isfinite(m1))
                model_set(w, i, model_get(w, i) - 1e-3f * m1 / sqrtf(v1));
        }
    }
}

void
model_copy(model *dst, const model *src)
{
    *dst = *src;
    for (size_t i = 0; i < dst->n; i++) {
        dst->t[i].data = dst->t[i].alias ? dst->t[i - 1].data : malloc(model_bytes(&src->t[i]) + 1);
        assert_non_null(dst->t[i].data);
        (void)memcpy(dst->t[i].data, src->t[i].data, model_bytes(&src->t[i]));
    }
}

void
model_clear(model *m)
{
    for (size_t i = 0; i < m->n; i++)
        (void)memset(m->t[i].data, 0xA5, model_bytes(&m->t[i]));
}

void
model_free(model *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (!m->t[i].alias)
            free(m->t[i].data);
    m->n = 0;
}

bool
model_equal(const model *a, const model *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(a->t[i].data, b->t[i].data, model_bytes(&a->t[i])) != 0)
            return false;
    return a->n == b->n;
}

/* ---- states ------------------------------------------------------------------------------------------------------------ */

static ckp_status
pull(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    const model_tensor *t = user;
    const size_t width = ckp_dtype_bits(t->dtype) / 8;
    (void)err;
    (void)memcpy(dst, (const uint8_t *)t->data + width * first, width * count);
    return CKP_OK;
}

static ckp_status
add(ckp_state *s, const model *m, size_t i)
{
    const model_tensor *t = &m->t[i];
    ckp_tensor v = CKP_TENSOR_INIT;

    v.dtype = t->dtype;
    v.ndim = t->ndim;
    v.shape = t->shape;
    v.lossless = t->lossless;
    if (t->pull) {
        v.pull = pull;
        v.pull_user = (void *)(uintptr_t)t;
    } else {
        v.data = t->data;
    }
    ckp_status st = ckp_state_add_tensor(s, t->name, t->role, t->owner[0] != '\0' ? t->owner : NULL, &v, NULL, NULL);
    if (st == CKP_OK && t->role == CKP_ROLE_V)
        st = ckp_state_set_adam(s, t->owner, 0.9, 0.99, m->step, NULL);
    return st;
}

/* NULL when memory is short: tests that make allocations fail come through here too. */
ckp_state *
model_state(const model *m)
{
    ckp_state *s = NULL;
    const ckp_tree_node node = {.type = CKP_TREE_INT, .i = (int64_t)m->step};

    ckp_status st = ckp_state_new(&s, NULL);
    for (size_t i = 0; st == CKP_OK && i < m->n; i++)
        st = add(s, m, i);
    if (st == CKP_OK)
        st = ckp_state_tree_put(s, &node, NULL);
    assert_true(st == CKP_OK || st == CKP_ENOMEM);
    if (st != CKP_OK) {
        ckp_state_free(s);
        s = NULL;
    }
    return s;
}

ckp_run *
model_run(const char *dir, ckp_run_options opt)
{
    ckp_run *run = NULL;
    ckp_error e = {0};

    if (opt.coding.threads == 0)
        opt.coding.threads = 1;
    const ckp_status st = ckp_run_open(&run, dir, &opt, &e);
    if (st != CKP_OK)
        print_error("%s\n", e.text);
    assert_ok(st);
    return run;
}

ckp_status
model_save(ckp_run *run, const model *m, const ckp_save_options *opt, ckp_error *err)
{
    bool taken = false;
    ckp_save_options o = CKP_SAVE_OPTIONS_INIT;
    ckp_state *s = model_state(m);

    if (s == NULL)
        return CKP_ENOMEM;
    if (opt != NULL)
        o = *opt;
    o.wait = true;
    const ckp_status st = ckp_run_save(run, m->step, s, &o, &taken, err);
    ckp_state_free(s);
    return st;
}

ckp_status
model_read(ckp_checkpoint *ck, model *m, ckp_error *err)
{
    ckp_target t[MODEL_MAX];

    for (size_t i = 0; i < m->n; i++) {
        t[i] = (ckp_target){ckp_checkpoint_find(ck, m->t[i].name), m->t[i].dtype, m->t[i].ndim, m->t[i].shape, NULL, m->t[i].data};
        assert_true(t[i].index != UINT32_MAX);
    }
    return ckp_checkpoint_read(ck, t, m->n, 1, err);
}

uint64_t
model_tree_step(const ckp_checkpoint *ck)
{
    ckp_tree_reader r;
    ckp_tree_node node;
    size_t len = 0;

    const void *tree = ckp_checkpoint_tree(ck, &len);
    ckp_tree_reader_init(&r, tree, len);
    assert_ok(ckp_tree_next(&r, &node, NULL));
    assert_int_equal(node.type, CKP_TREE_INT);
    return (uint64_t)node.i;
}

void
model_restore(const char *dir, int64_t step, model *m)
{
    ckp_checkpoint *ck = NULL;
    ckp_error e = {0};

    ckp_status st = ckp_checkpoint_open_run(&ck, dir, step, true, &e);
    if (st == CKP_OK)
        st = model_read(ck, m, &e);
    if (st != CKP_OK)
        print_error("%s\n", e.text);
    assert_ok(st);
    m->step = model_tree_step(ck);
    ckp_checkpoint_close(ck);
}
