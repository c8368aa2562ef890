/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file costs beside its payload: a model of 1.85 M parameters in 50 tensors under AdamW, as a key and as a delta.
 * The bar is 0.03 bit a parameter at 2 M parameters (DESIGN section 5): 7.5 KB; a delta is meant to stay near 3 KB.
 */
#include <stdio.h>
#include <stdlib.h>
#include "fixture.h"
#include "state/state.h"

#define PARAMS 50u

static char names[PARAMS][64];
static uint64_t shapes[PARAMS][2];
static uint8_t rng_state[5056];

static void
name_params(void)
{
    static const char *const part[8] = {"ln_1.weight", "attn.c_attn.weight", "attn.c_proj.weight", "ln_2.weight",
                                        "mlp.c_fc.weight", "mlp.c_proj.weight", "attn.c_attn.bias", "mlp.c_fc.bias"};
    for (unsigned i = 0; i < 48; i++) {
        (void)snprintf(names[i], sizeof names[i], "transformer.h.%u.%s", i / 8, part[i % 8]);
        shapes[i][0] = 192;
        shapes[i][1] = i % 8 == 0 || i % 8 == 3 || i % 8 > 5 ? 1 : i % 8 == 2 ? 192 : 576;
    }
    (void)snprintf(names[48], sizeof names[48], "transformer.wte.weight");
    (void)snprintf(names[49], sizeof names[49], "transformer.wpe.weight");
    shapes[48][0] = 256;
    shapes[49][0] = 256;
    shapes[48][1] = shapes[49][1] = 192;
}

static void
node(ckp_state *s, ckp_tree_node n)
{
    assert_ok(ckp_state_tree_put(s, &n, NULL));
}

static void
text(ckp_state *s, const char *p)
{
    node(s, (ckp_tree_node){.type = CKP_TREE_STR, .data = p, .len = strlen(p)});
}

static uint32_t
tensor(ckp_state *s, const char *name, ckp_role role, const char *owner, ckp_dtype dt, unsigned ndim, const uint64_t *shape)
{
    static uint8_t at[4096];     /* only addresses matter, and they must differ */
    ckp_tensor t = CKP_TENSOR_INIT;
    uint32_t index;
    t.dtype = dt;
    t.ndim = ndim;
    t.shape = shape;
    t.data = at + s->n;
    assert_ok(ckp_state_add_tensor(s, name, role, owner, &t, &index, NULL));
    return index;
}

/* {"model": {name: tensor}, "optimizer": {"state": {i: {...}}, "param_groups": [...]}, "rng": [...]} */
static ckp_state *
training_state(int step)
{
    ckp_state *s;
    const uint64_t rng_len[1] = {sizeof rng_state}, mt_len[1] = {625};
    char name[96];
    assert_ok(ckp_state_new(&s, NULL));
    node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 4});
    text(s, "model");
    node(s, (ckp_tree_node){.type = CKP_TREE_ORDERED_DICT, .count = PARAMS});
    for (unsigned i = 0; i < PARAMS; i++) {
        text(s, names[i]);
        const uint32_t at = tensor(s, names[i], CKP_ROLE_WEIGHT, NULL, CKP_F32, shapes[i][1] == 1 ? 1 : 2, shapes[i]);
        node(s, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = at});
    }
    text(s, "optimizer");
    node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 2});
    text(s, "state");
    node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = PARAMS});
    for (unsigned i = 0; i < PARAMS; i++) {
        static const char *const what[3] = {"step", "exp_avg", "exp_avg_sq"};
        static const ckp_role role[3] = {CKP_ROLE_OTHER, CKP_ROLE_M, CKP_ROLE_V};
        node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = (int64_t)i});
        node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 3});
        for (unsigned k = 0; k < 3; k++) {
            (void)snprintf(name, sizeof name, "optimizer.state.%u.%s", i, what[k]);
            text(s, what[k]);
            const unsigned ndim = k == 0 ? 0 : shapes[i][1] == 1 ? 1 : 2;
            node(s, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = tensor(s, name, role[k], names[i], CKP_F32, ndim, shapes[i])});
        }
    }
    text(s, "param_groups");
    node(s, (ckp_tree_node){.type = CKP_TREE_LIST, .count = 1});
    node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 2});
    text(s, "lr");
    node(s, (ckp_tree_node){.type = CKP_TREE_FLOAT, .re = 3e-4 / (1 + step)});
    text(s, "params");
    node(s, (ckp_tree_node){.type = CKP_TREE_LIST, .count = PARAMS});
    for (unsigned i = 0; i < PARAMS; i++)
        node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = (int64_t)i});
    text(s, "scheduler");
    node(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 1});
    text(s, "last_epoch");
    node(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = step});
    text(s, "rng");
    node(s, (ckp_tree_node){.type = CKP_TREE_LIST, .count = 3});
    node(s, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = tensor(s, "rng.torch", CKP_ROLE_OTHER, NULL, CKP_U8, 1, rng_len)});
    node(s, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = tensor(s, "rng.numpy", CKP_ROLE_OTHER, NULL, CKP_U32, 1, mt_len)});
    node(s, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = tensor(s, "rng.python", CKP_ROLE_OTHER, NULL, CKP_U32, 1, mt_len)});
    assert_ok(ckpi_state_seal(s, NULL));
    return s;
}

/* All tensors of a role and dtype, in chunks of at most 2^20 elements. Payload: one byte; only the rest counts. */
static void
put_role(ckpi_fmt_writer *fw, const ckpi_table *t, ckp_role role, ckp_dtype dt, uint64_t *hash, unsigned *chunks)
{
    static ckpi_piece piece[256];
    ckpi_chunk c = {.role = (uint8_t)role, .codec = 1, .dtype = (uint8_t)dt, .piece = piece, .payload = rng_state, .payload_len = 60000};
    uint64_t n = 0;
    static uint8_t body[60000];
    c.payload = body;
    for (uint32_t i = 0; i <= t->n; i++) {
        const bool fits = i < t->n && t->rec[i].role == role && t->rec[i].dtype == dt;
        if (c.n_pieces != 0 && (i == t->n || (fits && n + t->rec[i].numel > 1u << 20))) {
            c.decoded_hash = *hash = *hash * 6364136223846793005u + 1442695040888963407u;
            body[0] = (uint8_t)*hash;
            assert_ok(ckpi_fmt_writer_chunk(fw, &c, NULL));
            ++*chunks;
            c.n_pieces = 0;
            n = 0;
        }
        if (fits) {
            piece[c.n_pieces++] = (ckpi_piece){i, 0, t->rec[i].numel};
            n += t->rec[i].numel;
        }
    }
}

static void
write_file(ckpi_buf *out, const ckp_state *s, const ckpi_table *t, const ckpi_file_info *info, const ckpi_fmt_file *ref, ckpi_fmt_sum *sum,
           unsigned *chunks)
{
    static const struct { ckp_role role; ckp_dtype dt; } kinds[] = {{CKP_ROLE_V, CKP_F32}, {CKP_ROLE_M, CKP_F32}, {CKP_ROLE_WEIGHT, CKP_F32},
                                                                    {CKP_ROLE_OTHER, CKP_F32}, {CKP_ROLE_OTHER, CKP_U8}, {CKP_ROLE_OTHER, CKP_U32}};
    ckpi_writer *w;
    ckpi_fmt_writer *fw;
    ckpi_errrec errs[3 * PARAMS];
    uint64_t hash = info->chain + 12345;
    size_t n = 0;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->rec[i].role != CKP_ROLE_OTHER)
            errs[n++] = (ckpi_errrec){i, 0.5f + 0.001f * (float)i, 0.3f / (1.0f + (float)(i * 7 % 13)), 0, 0};
    assert_int_equal(n, 3 * PARAMS);
    assert_ok(ckpi_writer_mem(&w, out, NULL));
    assert_ok(ckpi_fmt_writer_new(&fw, w, info, t, s->tree.data, s->tree.len, ref != NULL ? ref->table : NULL, ref != NULL ? ref->tree : NULL,
                                  ref != NULL ? ref->tree_len : 0, NULL));
    for (size_t i = 0; i < CHECK_COUNT(kinds); i++)
        put_role(fw, t, kinds[i].role, kinds[i].dt, &hash, chunks);
    assert_ok(ckpi_fmt_writer_finish(fw, errs, n, sum, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
}

static void
test_overhead(void **state)
{
    (void)state;
    ckpi_buf key = CKPI_BUF_INIT, delta = CKPI_BUF_INIT;
    ckpi_fmt_sum ks, ds;
    unsigned chunks = 0;
    uint64_t params = 0;
    name_params();
    ckp_state *a = training_state(100), *b = training_state(125);
    ckpi_table *ta = fx_table(a), *tb = fx_table(b);
    for (size_t i = 0; i < ta->n; i++)
        params += ta->rec[i].role == CKP_ROLE_WEIGHT ? ta->rec[i].numel : 0;
    write_file(&key, a, ta, &(ckpi_file_info){.features = CKPI_FEAT_LOSSY}, NULL, &ks, &chunks);
    ckpi_fmt_file *k = fx_open(&key);
    const ckpi_file_info info = {.is_delta = 1, .chain = 1, .features = CKPI_FEAT_LOSSY, .base_content = ks.content, .table_content = ks.content};
    chunks = 0;
    write_file(&delta, b, tb, &info, k, &ds, &chunks);
    assert_true(ds.table_is_ref);
    printf("%llu parameters, %zu tensors, %u chunks: overhead of a key %llu bytes, of a delta %llu bytes: %.4f bit a parameter\n",
           (unsigned long long)params, ta->n, chunks, (unsigned long long)ks.overhead, (unsigned long long)ds.overhead,
           8.0 * (double)ds.overhead / (double)params);
    assert_true(ds.overhead <= 3072);
    assert_true(8.0 * (double)ds.overhead / (double)params <= 0.03);
    ckpi_fmt_close(k);
    ckpi_table_free(ta);
    ckpi_table_free(tb);
    ckp_state_free(a);
    ckp_state_free(b);
    ckpi_buf_free(&key);
    ckpi_buf_free(&delta);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_overhead)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
