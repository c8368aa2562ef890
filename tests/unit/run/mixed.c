/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mixed.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/float.h"

model_tensor *
find(model *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->t[i].name, name) == 0)
            return &m->t[i];
    fail_msg("no %s", name);
    return NULL;
}

/* What the specification says, element by element. */
void
round_to(model_tensor *copy, const model_tensor *master)
{
    for (uint64_t i = 0; i < copy->n; i++) {
        const float x = ((const float *)master->data)[i];
        ((uint16_t *)copy->data)[i] = copy->dtype == CKP_BF16 ? ckpi_f32_to_bf16(x) : ckpi_f32_to_f16(x);
    }
}

/* "w" and "line" in dtype with moments; "w/master" and "line/master" in f32. Undeclared, nothing says what belongs to what. */
void
mixed(model *m, const char *seed, ckp_dtype dtype, how h)
{
    static const char *const name[] = {"w", "line"};

    *m = (model){.rng = test_rng_new(seed), .step = 3};
    for (size_t k = 0; k < 2; k++) {
        char master[32];
        const uint64_t *shape = k == 0 ? SHAPE : LINE;
        (void)snprintf(master, sizeof master, "%s/master", name[k]);
        if (h == AS_COPY) {
            model_add_adam(m, master, CKP_F32, CKP_F32, shape);
            find(m, master)->role = CKP_ROLE_MASTER;
            (void)model_add(m, name[k], CKP_ROLE_COPY, master, dtype, shape);
            continue;
        }
        model_add_adam(m, name[k], dtype, CKP_F32, shape);
        model_tensor *f = model_add(m, master, h == UNDECLARED ? CKP_ROLE_OTHER : CKP_ROLE_MASTER, h == DECLARED ? name[k] : "", CKP_F32, shape);
        for (uint64_t i = 0; i < f->n; i++)
            model_set(f, i, (float)(0.05 * test_normal(&m->rng)));
    }
    round_to(find(m, "w"), find(m, "w/master"));
    round_to(find(m, "line"), find(m, "line/master"));
}

/* Masters move a little; copies follow. */
void
step(model *m)
{
    static const char *const name[][2] = {{"w", "w/master"}, {"line", "line/master"}};

    m->step++;
    for (size_t k = 0; k < 2; k++) {
        model_tensor *f = find(m, name[k][1]);
        for (uint64_t i = 0; i < f->n; i += 1 + test_below(&m->rng, 3))
            model_set(f, i, model_get(f, i) + 1e-4f * (float)test_normal(&m->rng));
        round_to(find(m, name[k][0]), f);
    }
}

ckp_tensor_info
info_of(const char *dir, const char *name)
{
    ckp_tensor_info t = {.size = sizeof t};
    ckp_checkpoint *ck = NULL;
    assert_ok(ckp_checkpoint_open_run(&ck, dir, CKP_STEP_NEWEST, true, NULL));
    assert_ok(ckp_checkpoint_tensor(ck, ckp_checkpoint_find(ck, name), &t, NULL));
    t.copy_of = t.copy_of != UINT32_MAX && t.copy_of == ckp_checkpoint_find(ck, strcmp(name, "w") == 0 ? "w/master" : "line/master");
    t.name = t.codec = NULL;
    t.shape = NULL;
    ckp_checkpoint_close(ck);
    return t;
}

/* Bit 2 of the features that are needed to read says that there are copies: older readers refuse such a file by it. */
bool
needs_copies(const char *path)
{
    size_t n = 0;
    uint8_t *p = model_load_file(path, &n);
    const bool set = (p[16] & 4) != 0;
    free(p);
    return set;
}

void
assert_derived(const char *dir, uint64_t at, const char *name, bool want)
{
    const ckp_tensor_info t = info_of(dir, name);
    assert_int_equal(t.copy_of, want);
    assert_int_equal(t.stored_bytes == 0, want);
    if (want)
        assert_true(needs_copies(model_shard(dir, at)));
}

/* model_path's memory goes round. */
char *
own_path(void **state, const char *name)
{
    char *p = strdup(model_path(state, name));
    assert_non_null(p);
    return p;
}
