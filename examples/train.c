/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves and restores the state of a training: a small regression with Adam, a checkpoint every 10 steps. Run it twice: the second
 * time it goes on where the first one ended.
 *
 *     cc -std=c11 train.c -o train $(pkg-config --cflags --libs ckpress) -lm && ./train [RUN [STEPS [PROFILE]]]
 */
#include <ckpress/ckpress.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 96, OUT = 64, N = IN * OUT };

/* Weights and Adam's moments as a framework would hold them; done is what a scheduler would need. */
typedef struct training {
    float w[N], m[N], v[N];
    uint64_t done;
} training;

static int
failed(const char *what, const ckp_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    return 1;
}

static float
noise(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (float)(*s >> 40) * 0x1p-23f - 1.0f;
}

/* One step towards a fixed random matrix, by noisy gradients. Returns the loss before the step. */
static float
step(training *t)
{
    uint64_t truth = 1, seed = 2 + t->done++;
    const float c1 = 1.0f - powf(0.9f, (float)t->done), c2 = 1.0f - powf(0.99f, (float)t->done);
    float loss = 0;

    for (int i = 0; i < N; i++) {
        const float e = t->w[i] - noise(&truth), g = e + 0.5f * noise(&seed);
        loss += e * e / N;
        t->m[i] = 0.9f * t->m[i] + 0.1f * g;
        t->v[i] = 0.99f * t->v[i] + 0.01f * g * g;
        t->w[i] -= 0.02f * (t->m[i] / c1) / (sqrtf(t->v[i] / c2) + 1e-8f);
    }
    return loss;
}

/* Views of live memory: nothing is copied here. The tree holds the plain values. */
static ckp_status
describe(ckp_state **out, training *t, ckp_error *err)
{
    const uint64_t shape[2] = {IN, OUT};
    const struct { const char *name, *owner; ckp_role role; const float *data; } row[3] = {
        {"layer.weight", NULL, CKP_ROLE_WEIGHT, t->w},
        {"layer.weight/m", "layer.weight", CKP_ROLE_M, t->m},
        {"layer.weight/v", "layer.weight", CKP_ROLE_V, t->v},
    };
    ckp_status st = ckp_state_new(out, err);

    for (int i = 0; st == CKP_OK && i < 3; i++) {
        ckp_tensor tensor = CKP_TENSOR_INIT;
        tensor.dtype = CKP_F32;
        tensor.ndim = 2;
        tensor.shape = shape;
        tensor.data = row[i].data;
        st = ckp_state_add_tensor(*out, row[i].name, row[i].role, row[i].owner, &tensor, NULL, err);
    }
    if (st == CKP_OK)
        st = ckp_state_set_adam(*out, "layer.weight", 0.9, 0.99, t->done, err);
    if (st == CKP_OK) {
        const ckp_tree_node done = {.type = CKP_TREE_INT, .i = (int64_t)t->done};
        st = ckp_state_tree_put(*out, &done, err);
    }
    return st;
}

/* The newest valid checkpoint into *t, if there is one; the next save is then a delta against it. */
static ckp_status
restore(ckp_run *run, training *t, ckp_error *err)
{
    static const char *const name[3] = {"layer.weight", "layer.weight/m", "layer.weight/v"};
    const uint64_t shape[2] = {IN, OUT};
    float *const data[3] = {t->w, t->m, t->v};
    ckp_target target[3];
    ckp_checkpoint *ck = NULL;

    ckp_status st = ckp_checkpoint_open(&ck, run, CKP_STEP_NEWEST, err);
    if (st == CKP_ENOTFOUND)
        return CKP_OK;           /* a new run */
    if (st != CKP_OK)
        return st;
    for (int i = 0; i < 3; i++)
        target[i] = (ckp_target){ckp_checkpoint_find(ck, name[i]), CKP_F32, 2, shape, NULL, data[i]};
    st = ckp_checkpoint_read(ck, target, 3, 0, err);
    if (st == CKP_OK) {
        size_t len = 0;
        const void *tree = ckp_checkpoint_tree(ck, &len);
        ckp_tree_reader r;
        ckp_tree_node node;
        ckp_tree_reader_init(&r, tree, len);
        st = ckp_tree_next(&r, &node, err);
        t->done = st == CKP_OK ? (uint64_t)node.i : 0;
    }
    if (st == CKP_OK)
        st = ckp_run_adopt(run, ck, err);
    ckp_checkpoint_close(ck);
    return st;
}

static ckp_status
save(ckp_run *run, training *t, float loss, ckp_error *err)
{
    const ckp_metric metric = {"loss", (double)loss};   /* 'ckpress info' shows it */
    ckp_save_options opt = CKP_SAVE_OPTIONS_INIT;
    ckp_state *state = NULL;

    opt.metrics = &metric;
    opt.n_metrics = 1;
    ckp_status st = describe(&state, t, err);
    if (st == CKP_OK)
        st = ckp_run_save(run, t->done, state, &opt, NULL, err);   /* returns when the memory may change */
    ckp_state_free(state);
    return st;
}

/* Goes on from what is there for so many steps. */
static int
train(const char *dir, int steps, ckp_profile profile)
{
    static training t;           /* too large for some stacks */
    ckp_run *run = NULL;
    ckp_run_options opt = CKP_RUN_OPTIONS_INIT;
    ckp_error err;
    float loss = 0;

    (void)memset(&t, 0, sizeof t);
    opt.coding.profile = profile;
    opt.key_every = 4;
    ckp_status st = ckp_run_open(&run, dir, &opt, &err);
    if (st != CKP_OK)
        return failed("open", &err);
    st = restore(run, &t, &err);
    if (st == CKP_OK)
        printf("%s: going on after step %llu\n", dir, (unsigned long long)t.done);
    for (int i = 0; st == CKP_OK && i < steps; i++) {
        loss = step(&t);
        if (t.done % 10 == 0)
            st = save(run, &t, loss, &err);
    }
    if (st != CKP_OK) {
        (void)ckp_run_close(run, NULL);
        return failed("train", &err);
    }
    st = ckp_run_wait(run, &err);
    if (st == CKP_OK) {
        ckp_save_stats s = {.size = sizeof s};
        ckp_run_stats(run, &s);
        printf("step %llu, loss %.4f; the last checkpoint: %s, %llu bytes of %llu\n", (unsigned long long)t.done, (double)loss,
               s.is_key ? "a key" : "a delta", (unsigned long long)s.stored_bytes, (unsigned long long)s.raw_bytes);
    }
    const ckp_status closed = ckp_run_close(run, st == CKP_OK ? &err : NULL);
    return st != CKP_OK || closed != CKP_OK ? failed("close", &err) : 0;
}

static bool
find_profile(ckp_profile *out, const char *name)
{
    for (int p = 0; ckp_profile_name((ckp_profile)p) != NULL; p++)
        if (strcmp(name, ckp_profile_name((ckp_profile)p)) == 0) {
            *out = (ckp_profile)p;
            return true;
        }
    return false;
}

int
main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : "runs/toy";
    const int steps = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 60;
    ckp_profile profile = CKP_PROFILE_RESUME;

    if (argc > 3 && !find_profile(&profile, argv[3])) {
        fprintf(stderr, "no profile '%s'\n", argv[3]);
        return 1;
    }
    const int rc = train(dir, steps, profile);
    return rc != 0 || argc > 1 ? rc : train(dir, steps, profile);   /* without arguments: both times at once */
}
