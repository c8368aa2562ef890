/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/sim.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/float.h"

static void
die(const char *what)
{
    (void)fprintf(stderr, "sim: %s\n", what);
    abort();
}

static void *
grab(size_t n)
{
    void *p = calloc(1, n + 64);
    if (p == NULL)
        die("no memory");
    return p;
}

/* A counter generator: element i of tensor t at a step has its own number, whatever else the model holds. */
static uint64_t
mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static float
noise(uint64_t key, uint64_t i)
{
    const uint64_t r = mix(key + i * 7919);
    /* the sum of three uniform numbers looks normal enough */
    return ((float)(r & 0xfffff) + (float)(r >> 20 & 0xfffff) + (float)(r >> 40 & 0xfffff)) / 524288.0F - 3.0F;
}

static uint64_t
key_of(const sim *m, uint32_t t)
{
    return mix(m->seed * 1000003 + t) ^ mix(m->step);
}

sim *
sim_new(uint64_t seed)
{
    sim *m = grab(sizeof *m);
    m->seed = seed;
    return m;
}

void
sim_free(sim *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        free(m->t[i].value);
        free(m->t[i].dense);
        free(m->t[i].live);
    }
    free(m->t);
    free(m);
}

static size_t
elem_bytes(const sim_tensor *t)
{
    return t->n != 0 ? t->bytes / (size_t)t->n : 1;
}

static bool
trains(ckp_dtype dt)
{
    return dt == CKP_F32 || dt == CKP_BF16 || dt == CKP_F16;
}

static void
to_dense(sim_tensor *t)
{
    if (t->dtype == CKP_F32)
        memcpy(t->dense, t->value, (size_t)t->n * 4);
    else if (t->dtype == CKP_BF16)
        ckpi_f32_to_bf16_n(t->dense, t->value, (size_t)t->n);
    else
        ckpi_f32_to_f16_n(t->dense, t->value, (size_t)t->n);
}

static uint8_t *
live_data(const sim_tensor *t)
{
    if (t->look == LOOK_ODD_ADDRESS)
        return t->live + 1;
    if (t->look == LOOK_REVERSED)
        return t->live + (size_t)(t->n - 1) * elem_bytes(t);
    return t->live;
}

/* The logical elements to where the look has them. */
static void
show(sim_tensor *t)
{
    const size_t e = elem_bytes(t);
    if (t->look == LOOK_TRANSPOSED)
        for (uint64_t i = 0; i < t->n; i++) {
            const uint64_t row = i / t->shape[1], col = i % t->shape[1];
            memcpy(t->live + (size_t)(col * t->shape[0] + row) * e, t->dense + (size_t)i * e, e);
        }
    else if (t->look == LOOK_REVERSED)
        for (uint64_t i = 0; i < t->n; i++)
            memcpy(t->live + (size_t)(t->n - 1 - i) * e, t->dense + (size_t)i * e, e);
    else if (t->look == LOOK_EXPANDED)
        memcpy(t->live, t->dense, e);
    else
        memcpy(live_data(t), t->dense, t->bytes);
}

static void
start(sim *m, uint32_t i)
{
    sim_tensor *t = &m->t[i];
    const uint64_t key = mix(m->seed * 1000003 + i);
    for (uint64_t k = 0; t->value == NULL && k < t->bytes; k++)
        t->dense[k] = (uint8_t)mix(key + k);
    /* rows of different size, as layers and channels have */
    const uint64_t cols = t->ndim > 1 && t->n != 0 ? t->n / t->shape[0] : 64;
    for (uint64_t k = 0; t->value != NULL && k < t->n; k++) {
        const float scale = 0.02F * (1.0F + (float)(mix(key ^ (k / cols)) % 8)) / 4.0F;
        t->value[k] = t->role == CKP_ROLE_WEIGHT || t->role == CKP_ROLE_MASTER || t->role == CKP_ROLE_OTHER ? scale * noise(key, k) : 0.0F;
    }
    if (t->value != NULL)
        to_dense(t);
}

uint32_t
sim_add(sim *m, const char *name, ckp_role role, uint32_t owner, ckp_dtype dt, unsigned ndim, const uint64_t *shape)
{
    sim_tensor *all = realloc(m->t, (m->n + 1) * sizeof *all);
    if (all == NULL)
        die("no memory");
    m->t = all;
    sim_tensor *t = &m->t[m->n];
    *t = (sim_tensor){.role = role, .owner = owner, .dtype = dt, .ndim = ndim, .n = 1};
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    for (unsigned i = 0; i < ndim; i++) {
        t->shape[i] = shape[i];
        t->n *= shape[i];
    }
    uint64_t bytes = 0;
    if (!ckpi_dtype_bytes(dt, t->n, &bytes))
        die("a tensor that does not end on a byte");
    t->bytes = (size_t)bytes;
    t->dense = grab(t->bytes);
    t->live = grab(t->bytes);
    t->value = trains(dt) ? grab((size_t)t->n * sizeof(float)) : NULL;
    start(m, m->n);
    show(t);
    return m->n++;
}

uint32_t
sim_add_weight(sim *m, const char *name, ckp_dtype w, ckp_dtype mm, ckp_dtype v, unsigned ndim, const uint64_t *shape)
{
    char other[64];
    const uint32_t i = sim_add(m, name, CKP_ROLE_WEIGHT, SIM_NONE, w, ndim, shape);
    if (mm != 0) {
        (void)snprintf(other, sizeof other, "%.40s/m", name);
        (void)sim_add(m, other, v != 0 ? CKP_ROLE_M : CKP_ROLE_MOMENTUM, i, mm, ndim, shape);
    }
    if (v != 0) {
        (void)snprintf(other, sizeof other, "%.40s/v", name);
        (void)sim_add(m, other, CKP_ROLE_V, i, v, ndim, shape);
    }
    return i;
}

void
sim_set_look(sim *m, uint32_t i, sim_look look)
{
    sim_tensor *t = &m->t[i];
    int64_t step = 1;
    t->look = look;
    for (unsigned d = t->ndim; d-- > 0;) {
        t->strides[d] = look == LOOK_EXPANDED ? 0 : look == LOOK_REVERSED ? -step : step;
        step *= (int64_t)t->shape[d];
    }
    if (look == LOOK_TRANSPOSED) {
        if (t->ndim != 2)
            die("only matrices are transposed");
        t->strides[0] = 1;
        t->strides[1] = (int64_t)t->shape[0];
    }
    if (look == LOOK_EXPANDED)
        for (uint64_t k = 1; k < t->n; k++) {
            memcpy(t->dense + (size_t)k * elem_bytes(t), t->dense, elem_bytes(t));
            if (t->value != NULL)
                t->value[k] = t->value[0];
        }
    show(t);
}

/* ---- training ---- */

static uint32_t
moment_of(const sim *m, uint32_t owner, ckp_role a, ckp_role b)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->t[i].owner == owner && (m->t[i].role == a || m->t[i].role == b) && m->t[i].value != NULL)
            return i;
    return SIM_NONE;
}

static void
train_weight(sim *m, uint32_t i)
{
    sim_tensor *w = &m->t[i];
    const uint32_t im = moment_of(m, i, CKP_ROLE_M, CKP_ROLE_MOMENTUM), iv = moment_of(m, i, CKP_ROLE_V, CKP_ROLE_V);
    float *mm = im != SIM_NONE ? m->t[im].value : NULL, *v = iv != SIM_NONE ? m->t[iv].value : NULL;
    const uint64_t key = key_of(m, i), cols = w->ndim > 1 && w->n != 0 ? w->n / w->shape[0] : 64;

    if (w->look == LOOK_EXPANDED)            /* one element seen many times: it stays */
        return;
    for (uint64_t k = 0; k < w->n; k++) {
        const float row = 1.0F + (float)(mix(m->seed + k / cols) % 16);
        const float g = 0.01F * row * noise(key, k);
        float d = g;
        if (mm != NULL)
            d = mm[k] = 0.9F * mm[k] + 0.1F * g;
        if (v != NULL) {
            v[k] = 0.95F * v[k] + 0.05F * g * g;
            d = 0.001F * d / (sqrtf(v[k]) + 1e-8F);
        }
        w->value[k] -= v != NULL ? d : 0.01F * d;
    }
}

void
sim_train(sim *m)
{
    m->step++;
    for (uint32_t i = 0; i < m->n; i++) {
        sim_tensor *t = &m->t[i];
        const uint64_t key = key_of(m, i);
        if (t->value != NULL && (t->role == CKP_ROLE_WEIGHT || t->role == CKP_ROLE_MASTER))
            train_weight(m, i);
        for (uint64_t k = 0; t->value == NULL && t->look != LOOK_EXPANDED && k < t->bytes; k++)
            if (mix(key + k) % 64 == 0)
                t->dense[k] ^= (uint8_t)(mix(key + k) >> 32);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->t[i].value != NULL)
            to_dense(&m->t[i]);
        show(&m->t[i]);
    }
}

void
sim_put_bits(sim *m, uint32_t t, uint64_t index, uint32_t bits)
{
    memcpy(&m->t[t].value[index], &bits, sizeof bits);
    to_dense(&m->t[t]);
    show(&m->t[t]);
}

void
sim_put(sim *m, uint32_t t, uint64_t index, float value)
{
    sim_put_bits(m, t, index, ckpi_f32_bits(value));
}

/* ---- the state ---- */

static ckp_status
pull(void *user, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    const sim_tensor *t = user;
    uint64_t from = 0, bytes = 0;
    (void)err;
    if (!ckpi_dtype_bytes(t->dtype, first, &from) || !ckpi_dtype_bytes(t->dtype, count, &bytes))
        die("a pull that does not end on a byte");
    memcpy(dst, t->live + from, (size_t)bytes);
    return CKP_OK;
}

static ckp_status
add(const sim *m, ckp_state *s, sim_tensor *t, ckp_error *err)
{
    ckp_tensor x = CKP_TENSOR_INIT;
    x.dtype = t->dtype;
    x.ndim = t->ndim;
    x.shape = t->shape;
    x.lossless = t->lossless;
    if (t->look == LOOK_PULL) {
        x.pull = pull;
        x.pull_user = t;
    } else {
        x.data = live_data(t);
        x.strides = t->look == LOOK_PLAIN || t->look == LOOK_ODD_ADDRESS ? NULL : t->strides;
    }
    return ckp_state_add_tensor(s, t->name, t->role, t->owner != SIM_NONE ? m->t[t->owner].name : NULL, &x, NULL, err);
}

ckp_status
sim_state_try(const sim *m, ckp_state **out, ckp_error *err)
{
    ckp_state *s = NULL;
    ckp_status st = ckp_state_new(&s, err);
    for (uint32_t i = 0; st == CKP_OK && i < m->n; i++)
        st = add(m, s, &m->t[i], err);
    for (uint32_t i = 0; st == CKP_OK && !m->no_adam && m->step != 0 && i < m->n; i++)
        if (m->t[i].role == CKP_ROLE_WEIGHT && moment_of(m, i, CKP_ROLE_V, CKP_ROLE_V) != SIM_NONE)
            st = ckp_state_set_adam(s, m->t[i].name, 0.9, 0.95, m->step, err);
    const ckp_tree_node node = {.type = CKP_TREE_INT, .i = (int64_t)m->step};
    if (st == CKP_OK)
        st = ckp_state_tree_put(s, &node, err);
    if (st != CKP_OK) {
        ckp_state_free(s);
        s = NULL;
    }
    *out = s;
    return st;
}

ckp_state *
sim_state(const sim *m)
{
    ckp_state *s = NULL;
    ckp_error err;
    if (sim_state_try(m, &s, &err) != CKP_OK)
        die(err.text);
    return s;
}
