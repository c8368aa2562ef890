/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/dtype.h"
#include "state/state.h"

/* ---- a state ---- */

static const float backing[512];

static uint32_t
add(ckp_state *s, const char *name, ckp_role role, const char *owner, ckp_dtype dt, unsigned ndim, const uint64_t *shape, size_t at)
{
    ckp_tensor t = CKP_TENSOR_INIT;
    uint32_t index;
    t.dtype = dt;
    t.ndim = ndim;
    t.shape = shape;
    t.data = (const uint8_t *)backing + at;
    assert_ok(ckp_state_add_tensor(s, name, role, owner, &t, &index, NULL));
    return index;
}

static void
put(ckp_state *s, ckp_tree_node node)
{
    assert_ok(ckp_state_tree_put(s, &node, NULL));
}

static void
put_str(ckp_state *s, const char *text)
{
    put(s, (ckp_tree_node){.type = CKP_TREE_STR, .data = text, .len = strlen(text)});
}

static void
put_tree(ckp_state *s, int step)
{
    put(s, (ckp_tree_node){.type = CKP_TREE_DICT, .count = 3});
    put_str(s, "step");
    put(s, (ckp_tree_node){.type = CKP_TREE_INT, .i = step});
    put_str(s, "lr");
    put(s, (ckp_tree_node){.type = CKP_TREE_FLOAT, .re = 0.001 / (1 + step)});
    put_str(s, "state");
    put(s, (ckp_tree_node){.type = CKP_TREE_LIST, .count = s->n});
    for (size_t i = 0; i < s->n; i++)
        put(s, (ckp_tree_node){.type = CKP_TREE_TENSOR, .tensor = (uint32_t)i});
}

static void
add_parts(ckp_state *s)
{
    const uint64_t whole[2] = {6, 4}, box[2] = {3, 4}, first[2] = {3, 0}, range[2] = {1, 9};
    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = CKP_F32;
    t.ndim = 2;
    t.data = backing + 200;
    t.global_shape = whole;
    t.shape = box;
    t.box_first = first;
    assert_ok(ckp_state_add_tensor(s, "box", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    t.shape = range;
    t.box_first = NULL;
    t.flat = true;
    t.flat_first = 5;
    t.data = backing + 230;
    assert_ok(ckp_state_add_tensor(s, "range", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
}

ckp_state *
fx_state(int step)
{
    ckp_state *s;
    const uint64_t s35[2] = {3, 5}, s40[1] = {40}, s0[2] = {0, 7}, s6[1] = {6};
    assert_ok(ckp_state_new(&s, NULL));
    add(s, "layer.0.weight", CKP_ROLE_WEIGHT, NULL, CKP_F32, 2, s35, 0);
    add(s, "layer.1.weight", CKP_ROLE_WEIGHT, NULL, CKP_F32, 1, s40, 64);
    add(s, "tied.weight", CKP_ROLE_WEIGHT, NULL, CKP_F32, 2, s35, 0);
    add(s, "empty", CKP_ROLE_OTHER, NULL, CKP_F32, 2, s0, 0);
    add(s, "half.weight", CKP_ROLE_COPY, "half.master", CKP_BF16, 1, s40, 400);
    add(s, "half.master", CKP_ROLE_MASTER, "half.weight", CKP_F32, 1, s40, 500);
    for (int i = 0; i < 2; i++) {
        const char *owner = i == 0 ? "layer.0.weight" : "layer.1.weight";
        char name[64];
        const unsigned ndim = i == 0 ? 2 : 1;
        const uint64_t *shape = i == 0 ? s35 : s40;
        (void)snprintf(name, sizeof name, "state.%d.step", i);
        add(s, name, CKP_ROLE_OTHER, owner, CKP_F32, 0, NULL, 700 + 4 * (size_t)i);
        (void)snprintf(name, sizeof name, "state.%d.exp_avg", i);
        add(s, name, CKP_ROLE_M, owner, CKP_F32, ndim, shape, 708 + 200 * (size_t)i);
        (void)snprintf(name, sizeof name, "state.%d.exp_avg_sq", i);
        add(s, name, CKP_ROLE_V, owner, CKP_F32, ndim, shape, 1108 + 200 * (size_t)i);
    }
    add(s, "packed", CKP_ROLE_OTHER, NULL, CKP_F4_PACKED, 1, s6, 1600);
    add_parts(s);
    put_tree(s, step);
    assert_ok(ckpi_state_seal(s, NULL));
    return s;
}

ckpi_table *
fx_table(const ckp_state *s)
{
    ckpi_table *t;
    assert_ok(ckpi_table_from_state(&t, s, NULL));
    for (size_t i = 0; i < t->n; i++)
        assert_int_equal(t->rec[i].copy_of, CKPI_NO_TENSOR);
    uint32_t *master = malloc((t->n + 1) * sizeof *master);
    for (uint32_t i = 0; i < t->n; i++)
        master[i] = s->t[i].role == CKP_ROLE_COPY ? ckpi_state_find(s, s->t[i].owner_name) : CKPI_NO_TENSOR;
    assert_ok(ckpi_table_link_copies(t, master, NULL));
    free(master);
    return t;
}

/* ---- a file ---- */

typedef struct builder {
    ckpi_fmt_writer *fw;
    const ckpi_table *t;
    ckpi_chunk c;
    ckpi_piece piece[64];
    uint64_t most;
    uint8_t *payload;
    int step;
    ckp_status st;
    ckp_error *err;
} builder;

static bool
stored(const ckpi_rec *r)
{
    return r->alias_of == CKPI_NO_TENSOR && r->copy_of == CKPI_NO_TENSOR && r->numel != 0;
}

static void
flush(builder *b)
{
    uint64_t bytes = 0;
    if (b->c.n_pieces == 0 || b->st != CKP_OK)
        return;
    assert_true(ckpi_dtype_bytes((ckp_dtype)b->c.dtype, b->c.n, &bytes));
    for (size_t i = 0; i < bytes; i++)
        b->payload[i] = (uint8_t)(b->piece[0].tensor * 31 + (b->piece[0].first + i) * 7 + (size_t)b->step);
    b->c.codec = 1;
    b->c.piece = b->piece;
    b->c.payload = b->payload;
    b->c.payload_len = (size_t)bytes;
    b->c.decoded_hash = ckpi_hash64(b->payload, (size_t)bytes);
    b->st = ckpi_fmt_writer_chunk(b->fw, &b->c, b->err);
    b->c.n_pieces = 0;
    b->c.n = 0;
}

static void
add_tensor(builder *b, uint32_t i)
{
    const ckpi_rec *r = &b->t->rec[i];
    if (b->c.role != r->role || b->c.dtype != r->dtype)
        flush(b);
    b->c.role = (uint8_t)r->role;
    b->c.dtype = (uint8_t)r->dtype;
    for (uint64_t first = 0; first < r->numel;) {
        uint64_t n = r->numel - first;
        if (n > b->most - b->c.n)
            n = b->most - b->c.n;
        b->piece[b->c.n_pieces++] = (ckpi_piece){i, first, n};
        b->c.n += n;
        first += n;
        if (b->c.n == b->most || b->c.n_pieces == 64)
            flush(b);
    }
}

ckp_status
fx_write_to(ckpi_writer *w, const ckpi_table *t, const ckp_state *s, const fx_opts *o, ckpi_fmt_sum *sum, ckp_error *err)
{
    const ckpi_file_info key = {.features = CKPI_FEAT_LOSSY};
    const ckpi_file_info *info = o->info != NULL ? o->info : &key;
    builder b = {.t = t, .most = o->chunk_elems != 0 ? o->chunk_elems : 1u << 20, .step = o->step, .err = err};
    const ckpi_errrec errs[2] = {{1, 0.25f, 0.1f, 0, 3}, {0, 0.5f, 0.001f, 0, 0}};
    b.payload = malloc(32u << 20);
    assert_non_null(b.payload);
    b.st = ckpi_fmt_writer_new(&b.fw, w, info, t, s->tree.data, s->tree.len, o->ref_table, o->ref_tree, o->ref_tree_len, err);
    for (unsigned role = 0; role < CKP_ROLE_COUNT_; role++) {
        for (uint32_t i = 0; i < t->n && b.st == CKP_OK; i++)
            if (stored(&t->rec[i]) && t->rec[i].role == role)
                add_tensor(&b, i);
        flush(&b);
    }
    if (b.st == CKP_OK)
        b.st = ckpi_fmt_writer_finish(b.fw, errs, 2, sum, err);
    ckpi_fmt_writer_free(b.fw);
    free(b.payload);
    return b.st;
}

void
fx_write(ckpi_buf *out, const ckpi_table *t, const ckp_state *s, const fx_opts *o, ckpi_fmt_sum *sum)
{
    ckpi_writer *w;
    ckp_error err;
    ckpi_fmt_sum unused;
    assert_ok(ckpi_writer_mem(&w, out, NULL));
    const ckp_status st = fx_write_to(w, t, s, o, sum != NULL ? sum : &unused, &err);
    if (st != CKP_OK)
        fail_msg("%s", err.text);
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_writer_free(w);
}

void
fx_file(ckpi_buf *out, const fx_opts *o, ckpi_fmt_sum *sum)
{
    ckp_state *s = fx_state(o->step);
    ckpi_table *t = fx_table(s);
    fx_write(out, t, s, o, sum);
    ckpi_table_free(t);
    ckp_state_free(s);
}

/* ---- reading ---- */

static ckp_status
open_mem(ckpi_fmt_file **f, const void *p, size_t n, ckp_error *err)
{
    ckpi_reader *r;
    *f = NULL;
    const ckp_status st = ckpi_reader_mem(&r, p, n, "test.ckp", err);
    return st == CKP_OK ? ckpi_fmt_open(f, r, err) : st;
}

ckpi_fmt_file *
fx_open(const ckpi_buf *file)
{
    ckpi_fmt_file *f;
    ckp_error err;
    if (open_mem(&f, file->data, file->len, &err) != CKP_OK)
        fail_msg("%s", err.text);
    return f;
}

ckp_status
fx_read_all(const void *p, size_t n, ckp_error *err)
{
    ckpi_fmt_file *f;
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk c;
    ckp_status st = open_mem(&f, p, n, err);
    for (size_t i = 0; st == CKP_OK && i < f->n_chunks; i++)
        st = ckpi_fmt_read_chunk(f, i, &buf, &c, err);
    ckpi_buf_free(&buf);
    ckpi_fmt_close(f);
    return st;
}

ckp_status
fx_stream_all(const void *p, size_t n, bool salvage, size_t *seen, uint64_t *skipped, ckp_error *err)
{
    ckpi_reader *r;
    ckpi_fmt_stream *s = NULL;
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk c;
    bool done = false;
    *seen = 0;
    *skipped = 0;
    ckp_status st = ckpi_reader_mem(&r, p, n, "test.ckp", err);
    if (st != CKP_OK)
        return st;
    st = ckpi_fmt_stream_open(&s, r, err);
    while (st == CKP_OK && !done) {
        st = ckpi_fmt_stream_next(s, salvage, &buf, &c, &done, skipped, err);
        *seen += st == CKP_OK && !done;
    }
    ckpi_buf_free(&buf);
    ckpi_fmt_stream_free(s);
    ckpi_reader_free(r);
    return st;
}
