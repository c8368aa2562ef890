/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the golden files of one format version, once: they are never written again, and every later library must decode them.
 *     cc -std=c11 -Iinclude tests/golden/generate.c -lckpress -o generate && ./generate tests/golden/v1 [NAME]
 * For each NAME.ckp there is a NAME.txt: "base FILE" lines, nearest first, then for each tensor "HASH NAME", HASH being XXH3-64 of its decoded bytes
 * in hex. For lossless tensors the hash is that of the bytes that were saved.
 */
#include <ckpress/ckpress.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static uint64_t rng = 88172645463325252u;

static void
must(ckp_status st, const ckp_error *err, const char *what)
{
    if (st == CKP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, err->text);
    exit(1);
}

static uint64_t
draw(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
}

/* About normal, deviation about 1: no libm, so that any machine makes the same numbers. */
static float
noise(void)
{
    float s = 0;
    for (int i = 0; i < 6; i++)
        s += (float)(draw() >> 40) * 0x1p-24f - 0.5f;
    return s * 1.4f;
}

static uint16_t
bf16(float f)
{
    uint32_t b;
    memcpy(&b, &f, 4);
    if ((b & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(b >> 16 | 0x40);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

/* A number in fp32 of which the word is the rounding to fp16, but not exactly. */
static float
near_f16(uint16_t h)
{
    const uint32_t b = (uint32_t)(h & 0x8000) << 16 | (((uint32_t)(h & 0x7fff) << 13) + (112u << 23) + (uint32_t)(draw() % 0x1000));
    float f;
    memcpy(&f, &b, 4);
    return f;
}

/* ---- writing down what must come out ---- */

static uint64_t
hash_of(ckp_checkpoint *ck, uint32_t index, const ckp_tensor_info *info)
{
    ckp_error err;
    void *p = malloc(info->raw_bytes + 1);
    const ckp_target t = {.index = index, .dtype = info->dtype, .ndim = info->ndim, .shape = info->shape, .data = p};
    if (info->numel == 0 || strcmp(info->name, "box") == 0 || strcmp(info->name, "range") == 0)     /* a part of its shape */
        must(ckp_checkpoint_read_range(ck, index, 0, info->numel, p, &err), &err, info->name);
    else
        must(ckp_checkpoint_read(ck, &t, 1, 1, &err), &err, info->name);
    const uint64_t h = XXH3_64bits(p, info->raw_bytes);
    free(p);
    return h;
}

/* Of a base that is given without one. */
static const char *
ending(const char *name)
{
    return strchr(name, '.') == NULL ? ".ckp" : "";
}

static void
write_expected(const char *dir, const char *name, const char *const *bases, size_t n_bases)
{
    char path[1024], base_path[64][1024];
    const char *base[64];
    ckp_checkpoint *ck;
    ckp_error err;
    for (size_t i = 0; i < n_bases; i++) {
        (void)snprintf(base_path[i], sizeof base_path[i], "%s/%s%s", dir, bases[i], ending(bases[i]));
        base[i] = base_path[i];
    }
    (void)snprintf(path, sizeof path, "%s/%s.ckp", dir, name);
    must(ckp_checkpoint_open_file(&ck, path, base, n_bases, &err), &err, path);
    (void)snprintf(path, sizeof path, "%s/%s.txt", dir, name);
    FILE *f = fopen(path, "w");
    for (size_t i = 0; i < n_bases; i++)
        fprintf(f, "base %s%s\n", bases[i], ending(bases[i]));
    for (uint32_t i = 0; i < ckp_checkpoint_count(ck); i++) {
        ckp_tensor_info info = {.size = sizeof info};
        must(ckp_checkpoint_tensor(ck, i, &info, &err), &err, name);
        fprintf(f, "%016llx %s\n", (unsigned long long)hash_of(ck, i, &info), info.name);
        printf("  %-28s %-8s %-24s %8.3f bits%s\n", info.name, ckp_dtype_name(info.dtype), info.codec != NULL ? info.codec : "-", info.bits_per_element,
               info.lossy ? " lossy" : "");
    }
    fclose(f);
    ckp_checkpoint_close(ck);
}

/* ---- states ---- */

static uint32_t
add(ckp_state *s, const char *name, ckp_role role, const char *owner, ckp_dtype dt, unsigned ndim, const uint64_t *shape, const void *data)
{
    ckp_tensor t = CKP_TENSOR_INIT;
    ckp_error err;
    uint32_t index;
    t.dtype = dt;
    t.ndim = ndim;
    t.shape = shape;
    t.data = data;
    must(ckp_state_add_tensor(s, name, role, owner, &t, &index, &err), &err, name);
    return index;
}

static void
node(ckp_state *s, ckp_tree_node n)
{
    ckp_error err;
    must(ckp_state_tree_put(s, &n, &err), &err, "tree");
}

#define STR(text) (ckp_tree_node){.type = CKP_TREE_STR, .data = text, .len = sizeof(text) - 1}

static void
all_nodes(ckp_state *s)
{
    node(s, (ckp_tree_node){.type = CKP_TREE_LIST, .count = 22});
    node(s, (ckp_tree_node){.type = CKP_TREE_NONE});
    node(s, (ckp_tree_node){.type = CKP_TREE_FALSE});
    node(s, (ckp_tree_node){.type = CKP_TREE_TRUE});
    node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = -7});
    node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = INT64_MIN});
    node(s, (ckp_tree_node){.type = CKP_TREE_BIGINT, .data = "\0\0\0\0\0\0\0\0\1", .len = 9});
    node(s, (ckp_tree_node){.type = CKP_TREE_FLOAT, .re = -0.0});
    node(s, (ckp_tree_node){.type = CKP_TREE_COMPLEX, .re = 1.5, .im = -2.5});
    node(s, STR("gr\xc3\xbc\xc3\x9f dich"));
    node(s, (ckp_tree_node){.type = CKP_TREE_BYTES, .data = "\xff\0\xfe", .len = 3});
    node(s, (ckp_tree_node){.type = CKP_TREE_BYTEARRAY, .data = "ab", .len = 2});
    node(s, (ckp_tree_node){.type = CKP_TREE_TUPLE, .count = 0});
    node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 1});
    node(s, STR("key"));
    node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = 5});
    node(s, (ckp_tree_node){.type = CKP_TREE_ORDERED_DICT, .count = 0});
    node(s, (ckp_tree_node){.type = CKP_TREE_SET, .count = 1});
    node(s, STR("member"));
    node(s, (ckp_tree_node){.type = CKP_TREE_FROZENSET, .count = 0});
    node(s, (ckp_tree_node){.type = CKP_TREE_TORCH_SIZE, .count = 2});
    node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = 3});
    node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = 4});
    node(s, (ckp_tree_node){.type = CKP_TREE_DTYPE, .data = "torch.float32", .len = 13});
    node(s, (ckp_tree_node){.type = CKP_TREE_DEVICE, .data = "cuda:0", .len = 6});
    node(s, (ckp_tree_node){.type = CKP_TREE_NUMPY_SCALAR, .data = "\0\0\x80\x3f", .len = 4, .name = "numpy.float32", .name_len = 13});
    node(s, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = 0, .as = CKP_AS_NUMPY});
    node(s, (ckp_tree_node){.type = CKP_TREE_NAMED, .data = "collections.Counter", .len = 19});
    node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 0});
}

/* Every dtype, every kind of place, every node, and bytes that suit each codec. */
static void
kinds(const char *dir)
{
    static uint8_t bytes[80 * 1024], sparse[20000], text[20000], runs[20000];
    static float matrix[96 * 120], rows[64 * 64];
    const uint64_t s34[2] = {3, 4}, empty[2] = {0, 4}, n20[1] = {20000}, m[2] = {96, 120}, r[2] = {64, 64}, whole[2] = {6, 4}, first[2] = {3, 0}, flat[2] = {1, 9};
    const int64_t turned[2] = {1, 3};
    ckp_state *s;
    ckp_error err;
    ckp_tensor t = CKP_TENSOR_INIT;
    char path[1024], name[64];
    ckp_coding coding = CKP_CODING_INIT;
    must(ckp_state_new(&s, &err), &err, "state");
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)draw();
    size_t at = 0;
    for (unsigned id = 1; id < 256; id++) {
        if (ckp_dtype_name((ckp_dtype)id) == NULL)
            continue;
        (void)snprintf(name, sizeof name, "dtype.%s", ckp_dtype_name((ckp_dtype)id));
        add(s, name, CKP_ROLE_OTHER, NULL, (ckp_dtype)id, 2, s34, bytes + at);
        at += 512;
    }
    for (size_t i = 0; i < 20000; i++) {
        sparse[i] = draw() % 50 == 0 ? (uint8_t)(1 + draw() % 3) : 0;
        text[i] = (uint8_t)"the quick brown fox jumps over the lazy dog and runs "[(i * i / 300 + i) % 53];
        runs[i] = (uint8_t)((draw() & draw() & draw()) % 200);
    }
    for (size_t i = 0; i < 96 * 120; i++)
        matrix[i] = noise() * (float)(1 + i / 120 % 7) * (float)(1 + i % 5);
    for (size_t i = 0; i < 64 * 64; i++)
        rows[i] = i / 64 % 3 == 0 ? 0.0f : (float)(int)(noise() * 8);
    add(s, "sparse", CKP_ROLE_OTHER, NULL, CKP_U8, 1, n20, sparse);
    add(s, "text", CKP_ROLE_OTHER, NULL, CKP_U8, 1, n20, text);
    add(s, "runs", CKP_ROLE_OTHER, NULL, CKP_U8, 1, n20, runs);
    add(s, "matrix", CKP_ROLE_WEIGHT, NULL, CKP_F32, 2, m, matrix);
    add(s, "rows", CKP_ROLE_WEIGHT, NULL, CKP_F32, 2, r, rows);
    add(s, "alias of matrix", CKP_ROLE_WEIGHT, NULL, CKP_F32, 2, m, matrix);
    add(s, "empty", CKP_ROLE_OTHER, NULL, CKP_F64, 2, empty, NULL);
    add(s, "scalar", CKP_ROLE_OTHER, NULL, CKP_I64, 0, NULL, bytes);
    t.dtype = CKP_F32;
    t.ndim = 2;
    t.shape = s34;
    t.strides = turned;
    t.data = matrix + 1000;
    must(ckp_state_add_tensor(s, "turned", CKP_ROLE_OTHER, NULL, &t, NULL, &err), &err, "turned");
    t.strides = NULL;
    t.global_shape = whole;
    t.box_first = first;
    t.data = matrix + 2000;
    must(ckp_state_add_tensor(s, "box", CKP_ROLE_OTHER, NULL, &t, NULL, &err), &err, "box");
    t.box_first = NULL;
    t.flat = true;
    t.flat_first = 5;
    t.shape = flat;
    t.data = matrix + 3000;
    must(ckp_state_add_tensor(s, "range", CKP_ROLE_OTHER, NULL, &t, NULL, &err), &err, "range");
    all_nodes(s);
    coding.effort = 2;
    (void)snprintf(path, sizeof path, "%s/kinds.ckp", dir);
    must(ckp_file_save(path, s, &coding, NULL, false, &err), &err, path);
    ckp_state_free(s);
    puts("kinds");
    write_expected(dir, "kinds", NULL, 0);
}

/* A training run, as far as a file can tell: weights that move, moments, a copy of a master, values that are not finite. */
enum { A = 80 * 110, B = 4100, C = 96 * 64, D = 66000, E = 300 };
typedef struct training {
    float a[A], am[A], av[A], b[B], bm[B], bv[B], c[C], cm[C], e[E], em[E], ev[E], master[C], mm[C], mv[C], step;
    uint16_t copy[C], d[D], d_average[D], half[B];
    float near_half[B];
    float a_average[A], e_average[E];
    uint32_t dice[625];
} training;

/* cols: gradients of a matrix, which have a direction; 0: of a vector. */
static void
advance(float *w, float *m, float *v, size_t n, size_t cols, float lr)
{
    for (size_t i = 0; i < n; i++) {
        const float along = cols == 0 ? 0.0f : (i / cols % 2 == 0) == (i % cols % 3 == 0) ? 0.05f : -0.05f;
        const float g = noise() * (float)(1 + i % 11) * 0.01f + along;
        m[i] = 0.9f * m[i] + 0.1f * g;
        if (v == NULL) {
            w[i] -= lr * m[i];
            continue;
        }
        v[i] = 0.95f * v[i] + 0.05f * g * g;
        w[i] -= lr * m[i] / (0.01f + v[i] * 100);
    }
}

static void
follow(float *average, const float *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        average[i] += 0.125f * (w[i] - average[i]);
}

static void
train(training *t)
{
    advance(t->a, t->am, t->av, A, 110, 0.01f);
    advance(t->b, t->bm, t->bv, B, 0, 0.01f);
    advance(t->c, t->cm, NULL, C, 64, 0.1f);
    advance(t->e, t->em, t->ev, E, 0, 0.01f);
    advance(t->master, t->mm, t->mv, C, 0, 0.01f);
    for (size_t i = 0; i < C; i++)
        t->copy[i] = bf16(t->master[i]);
    for (size_t i = 0; i < D; i++)
        if (draw() % 3 == 0)
            t->d[i] = (uint16_t)(t->d[i] + draw() % 9 - 4);
    for (size_t i = 0; i < 625; i++)
        t->dice[i] = (uint32_t)draw();
    follow(t->a_average, t->a, A);
    follow(t->e_average, t->e, E);
    for (size_t i = 0; i < D; i += 7)
        t->d_average[i] = t->d[i];
    for (size_t i = 0; i < B; i++) {
        t->half[i] = (uint16_t)(0x2400 + draw() % 0x1800 + (draw() % 2 << 15));
        t->near_half[i] = near_f16(t->half[i]);
    }
    t->step += 1;
}

static training *
new_training(void)
{
    training *t = calloc(1, sizeof *t);
    for (size_t i = 0; i < A; i++)
        t->a[i] = noise() * 0.1f;
    for (size_t i = 0; i < B; i++)
        t->b[i] = noise() * 0.1f;
    for (size_t i = 0; i < C; i++)
        t->c[i] = t->master[i] = noise() * 0.1f;
    for (size_t i = 0; i < E; i++)
        t->e[i] = 1 + noise() * 0.1f;
    for (size_t i = 0; i < D; i++)
        t->d[i] = bf16(noise() * 0.05f);
    memcpy(t->a_average, t->a, sizeof t->a);
    memcpy(t->e_average, t->e, sizeof t->e);
    memcpy(t->d_average, t->d, sizeof t->d);
    for (int i = 0; i < 5; i++)
        train(t);
    return t;
}

/* Two more copies: of a weight whose master says whose it is, and one that nobody declared. */
static void
add_copies(ckp_state *s, const training *t)
{
    const uint64_t b[1] = {B}, c[2] = {96, 64};
    add(s, "weight", CKP_ROLE_WEIGHT, NULL, CKP_BF16, 2, c, t->copy);
    add(s, "weight.master", CKP_ROLE_MASTER, "weight", CKP_F32, 2, c, t->master);
    add(s, "half", CKP_ROLE_OTHER, NULL, CKP_F16, 1, b, t->half);
    add(s, "half.master", CKP_ROLE_OTHER, NULL, CKP_F32, 1, b, t->near_half);
}

static ckp_state *
training_state(const training *t, bool averages, bool copies)
{
    const uint64_t a[2] = {80, 110}, b[1] = {B}, c[2] = {96, 64}, d[2] = {D / 100, 100}, e[1] = {E}, dice[1] = {625};
    ckp_state *s;
    ckp_error err;
    must(ckp_state_new(&s, &err), &err, "state");
    add(s, "a", CKP_ROLE_WEIGHT, NULL, CKP_F32, 2, a, t->a);
    add(s, "b", CKP_ROLE_WEIGHT, NULL, CKP_F32, 1, b, t->b);
    add(s, "c", CKP_ROLE_WEIGHT, NULL, CKP_F32, 2, c, t->c);
    add(s, "d", CKP_ROLE_WEIGHT, NULL, CKP_BF16, 2, d, t->d);
    add(s, "e", CKP_ROLE_WEIGHT, NULL, CKP_F32, 1, e, t->e);
    add(s, "copy", CKP_ROLE_COPY, "master", CKP_BF16, 2, c, t->copy);
    add(s, "a.m", CKP_ROLE_M, "a", CKP_F32, 2, a, t->am);
    add(s, "a.v", CKP_ROLE_V, "a", CKP_F32, 2, a, t->av);
    add(s, "b.m", CKP_ROLE_M, "b", CKP_F32, 1, b, t->bm);
    add(s, "b.v", CKP_ROLE_V, "b", CKP_F32, 1, b, t->bv);
    add(s, "c.momentum", CKP_ROLE_MOMENTUM, "c", CKP_F32, 2, c, t->cm);
    add(s, "e.m", CKP_ROLE_M, "e", CKP_F32, 1, e, t->em);
    add(s, "e.v", CKP_ROLE_V, "e", CKP_F32, 1, e, t->ev);
    add(s, "master", CKP_ROLE_MASTER, NULL, CKP_F32, 2, c, t->master);
    add(s, "master.m", CKP_ROLE_M, "master", CKP_F32, 2, c, t->mm);
    add(s, "master.v", CKP_ROLE_V, "master", CKP_F32, 2, c, t->mv);
    add(s, "step", CKP_ROLE_OTHER, NULL, CKP_F32, 0, NULL, &t->step);
    add(s, "dice", CKP_ROLE_OTHER, NULL, CKP_U32, 1, dice, t->dice);
    if (averages) {
        add(s, "average/a", CKP_ROLE_AVERAGE, NULL, CKP_F32, 2, a, t->a_average);
        add(s, "average/d", CKP_ROLE_AVERAGE, NULL, CKP_BF16, 2, d, t->d_average);
        add(s, "average/e", CKP_ROLE_AVERAGE, NULL, CKP_F32, 1, e, t->e_average);
    }
    if (copies)
        add_copies(s, t);
    static const char *const owner[] = {"a", "b", "e", "master"};
    for (size_t i = 0; i < 4; i++)
        must(ckp_state_set_adam(s, owner[i], 0.9, 0.95, (uint64_t)t->step, &err), &err, owner[i]);
    node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 1});
    node(s, STR("step"));
    node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = (int64_t)t->step});
    return s;
}

/* The newest checkpoint's shard under another name. */
static void
take_shard(const char *run, uint64_t step, const char *dir, const char *name)
{
    char want[64], cmd[4096];
    (void)snprintf(want, sizeof want, "step-%08llu-", (unsigned long long)step);
    DIR *d = opendir(run);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, want, strlen(want)) == 0) {
            (void)snprintf(cmd, sizeof cmd, "cp '%s/%s'/shard-00000-of-00001.ckp '%s/%s.ckp'", run, e->d_name, dir, name);
            if (system(cmd) != 0)
                exit(1);
        }
    closedir(d);
}

/* Weights that a run begins from, as safetensors: names with a component more, one in another dtype, some missing; the last has a master in the run. */
static void
write_model(const char *path, const training *t, bool copies)
{
    const size_t count = copies ? 5 : 4;
    float d[D];
    char header[1024];
    const struct { const char *name; unsigned rows, cols; const float *x; } all[] = {{"model.a", 80, 110, t->a}, {"model.b", B, 0, t->b},
                                                                                      {"model.c", 96, 64, t->c}, {"model.d", D / 100, 100, d},
                                                                                      {"model.copy", 96, 64, t->master}};
    size_t at = 0, len = 0;
    for (size_t i = 0; i < D; i++) {
        const uint32_t bits = (uint32_t)t->d[i] << 16;
        memcpy(&d[i], &bits, 4);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t n = (size_t)all[i].rows * (all[i].cols != 0 ? all[i].cols : 1) * 4;
        char shape[32];
        (void)snprintf(shape, sizeof shape, all[i].cols != 0 ? "%u,%u" : "%u", all[i].rows, all[i].cols);
        len += (size_t)snprintf(header + len, sizeof header - len, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                                i == 0 ? "{" : ",", all[i].name, shape, at, at + n);
        at += n;
    }
    header[len++] = '}';
    const uint64_t prefix = len;
    FILE *f = fopen(path, "wb");
    (void)fwrite(&prefix, 8, 1, f);
    (void)fwrite(header, 1, len, f);
    for (size_t i = 0; i < count; i++)
        (void)fwrite(all[i].x, 4, (size_t)all[i].rows * (all[i].cols != 0 ? all[i].cols : 1), f);
    fclose(f);
}

/* What a run is made with. how: by save, or NULL: grids; model: begins on a base model of that name; averages: has some of its weights;
   copies: has weights that are roundings of masters. */
typedef struct plan {
    const char *name;
    ckp_profile profile;
    int saves;
    const ckp_dynaquant *how;
    const ckp_tensor_step *steps;
    size_t n_steps;
    const char *model;
    bool averages, copies;
    ckp_optimizer_states states;
} plan;

static void
run_of(const char *dir, const plan *p)
{
    char run_dir[1024], model[1024], shard[64][64];
    const char *bases[64], *name = p->name;
    const int saves = p->saves;
    ckp_run_options opt = CKP_RUN_OPTIONS_INIT;
    ckp_run *run;
    ckp_error err;
    training *t = new_training();
    (void)snprintf(run_dir, sizeof run_dir, "%s/%s.run", dir, name);
    opt.coding.profile = p->profile;
    opt.coding.steps = p->steps;
    opt.coding.n_steps = p->n_steps;
    opt.coding.optimizer_states = p->states;
    if (p->model != NULL) {
        (void)snprintf(model, sizeof model, "%s/%s", dir, p->model);
        write_model(model, t, p->copies);
        opt.base_model = model;
        opt.key_every = 2;
        train(t);
    }
    must(ckp_run_open(&run, run_dir, &opt, &err), &err, run_dir);
    for (int i = 0; i < saves; i++) {
        ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
        so.wait = true;
        so.final = i == saves - 1;
        so.dynaquant = p->how != NULL ? &p->how[i] : NULL;
        if (i == 1) {            /* what no code can carry */
            const uint32_t odd[4] = {0x7fc01234, 0xff800000, 0x7f800000, 0x00000001};
            memcpy(&t->a[100], odd, sizeof odd);
            memcpy(&t->am[200], odd, sizeof odd);
            memcpy(&t->av[300], odd, sizeof odd);
            memset(t->bv, 0, 256 * sizeof t->bv[0]);
            for (size_t k = 0; p->copies && k < 4; k++) {
                memcpy(&t->master[10 + k], &odd[k], 4);
                t->copy[10 + k] = bf16(t->master[10 + k]);
                memcpy(&t->near_half[10 + k], &odd[k], 4);
                t->half[10 + k] = (uint16_t[]){0x7e00, 0xfc00, 0x7c00, 0}[k];
            }
        }
        ckp_state *s = training_state(t, p->averages, p->copies);
        must(ckp_run_save(run, (uint64_t)i, s, &so, NULL, &err), &err, "save");
        ckp_state_free(s);
        (void)snprintf(shard[i], sizeof shard[i], "%s-%d", name, i);
        take_shard(run_dir, (uint64_t)i, dir, shard[i]);
        for (int k = 0; k < i; k++)
            bases[k] = shard[i - 1 - k];
        bases[i] = p->model;
        printf("%s\n", shard[i]);
        write_expected(dir, shard[i], bases, (size_t)i + (p->model != NULL));
        train(t);
    }
    must(ckp_run_close(run, &err), &err, "close");
    free(t);
}

int
main(int argc, char **argv)
{
    if (argc != 2 && argc != 3)
        return 2;
    /* a key, a delta, one with more levels, one without pruned or kept values, exact weights on indices */
    static const char *const embeddings[] = {"c"};
    ckp_dynaquant how[5];
    for (int i = 0; i < 5; i++) {
        how[i] = (ckp_dynaquant)CKP_DYNAQUANT_INIT;
        how[i].bins = i < 2 ? 6 : 9;
        how[i].bins_embedding = 12;
        how[i].embeddings = embeddings;
        how[i].n_embeddings = 1;
        how[i].prune_by = i == 2 ? CKP_SCORE_SENSITIVITY : CKP_SCORE_MAGNITUDE;
        how[i].prune = how[i].protect = i == 3 ? 0 : 0.02 * (i + 1);
    }
    const ckp_tensor_step steps[] = {{"a", 0.01}, {"b", 0.003}, {"e", 0.02}, {"master", 0}};
    const plan all[] = {{.name = "lossless", .saves = 3},
                        {.name = "resume", .profile = CKP_PROFILE_RESUME, .saves = 5},
                        {.name = "small", .profile = CKP_PROFILE_SMALL, .saves = 3},
                        {.name = "dynaquant", .profile = CKP_PROFILE_RESUME, .saves = 5, .how = how},
                        {.name = "steps", .profile = CKP_PROFILE_RESUME, .saves = 4, .steps = steps, .n_steps = sizeof steps / sizeof *steps},
                        {.name = "tuned", .profile = CKP_PROFILE_RESUME, .saves = 4, .model = "tuned.safetensors"},
                        {.name = "averaged", .profile = CKP_PROFILE_RESUME, .saves = 4, .averages = true},
                        {.name = "copies", .saves = 3, .copies = true},
                        {.name = "cluster", .saves = 2, .states = CKP_STATES_CLUSTER},
                        {.name = "codebook", .saves = 2, .states = CKP_STATES_CODEBOOK},
                        {.name = "rounded", .profile = CKP_PROFILE_RESUME, .saves = 3, .copies = true},
                        {.name = "halves", .profile = CKP_PROFILE_RESUME, .saves = 4, .model = "halves.safetensors", .copies = true}};
    if (argc == 2)
        kinds(argv[1]);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (argc == 2 || strcmp(argv[2], all[i].name) == 0)
            run_of(argv[1], &all[i]);
    return 0;
}
