/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: written, opened from the end, streamed from the front, resolved against the file that has their table. */
#include "base/alloc.h"
#include "fixture.h"
#include "harness/failalloc.h"

static void
test_round_trip(void **state)
{
    (void)state;
    ckpi_buf file = CKPI_BUF_INIT, buf = CKPI_BUF_INIT;
    ckpi_fmt_sum sum;
    fx_file(&file, &(fx_opts){.chunk_elems = 16}, &sum);
    assert_int_equal(sum.length, file.len);
    assert_false(sum.table_is_ref);
    ckpi_fmt_file *f = fx_open(&file);
    assert_true(ckpi_id_eq(f->content, sum.content));
    assert_true(ckpi_id_eq(f->index_hash, sum.index_hash));
    assert_int_equal(f->table->n, 15);
    const ckpi_rec *r = f->table->rec;
    assert_string_equal(r[0].name, "layer.0.weight");
    assert_int_equal(r[2].alias_of, 0);
    assert_int_equal(r[4].copy_of, 5);
    assert_int_equal(r[3].numel, 0);
    assert_int_equal(r[12].bytes, 3);
    assert_int_equal(r[13].numel, 12);
    assert_int_equal(r[13].box_first[0], 3);
    assert_int_equal(r[13].shape[0], 6);
    assert_true(r[14].flat);
    assert_int_equal(r[14].flat_first, 5);
    assert_int_equal(ckpi_table_find(f->table, "half.master"), 5);
    assert_int_equal(ckpi_table_find(f->table, "nobody"), CKPI_NO_TENSOR);
    uint64_t frames = 0, roles = 0;
    for (size_t i = 0; i < f->n_chunks; i++) {
        ckpi_chunk c;
        assert_ok(ckpi_fmt_read_chunk(f, i, &buf, &c, NULL));
        assert_int_equal(ckpi_hash64(c.payload, c.payload_len), c.decoded_hash);
        frames += c.frame_len;
    }
    for (unsigned i = 0; i < CKP_ROLE_COUNT_; i++)
        roles += sum.stored_by_role[i];
    assert_int_equal(frames, roles);
    assert_int_equal(f->n_errs, 2);
    assert_int_equal(f->errs[0].tensor, 0);
    assert_true(f->errs[0].max_rel == 0.5f);
    assert_true(f->errs[0].rms_rel >= 0.001f && f->errs[0].rms_rel < 0.00101f);
    assert_int_equal(f->errs[1].n_inf, 3);
    ckpi_fmt_close(f);
    size_t seen;
    uint64_t skipped;
    assert_ok(fx_stream_all(file.data, file.len, false, &seen, &skipped, NULL));
    assert_true(seen > 5 && skipped == 0);
    ckpi_buf_free(&file);
    ckpi_buf_free(&buf);
}

/* A key and a delta that takes its table and its tree's dictionary from it. */
static void
write_pair(ckpi_buf *key, ckpi_buf *delta, ckpi_fmt_sum *sum)
{
    ckpi_fmt_sum ks;
    fx_file(key, &(fx_opts){.chunk_elems = 16}, &ks);
    ckpi_fmt_file *f = fx_open(key);
    ckp_state *s = fx_state(1);
    ckpi_table *t = fx_table(s);
    const ckpi_file_info info = {.is_delta = 1, .chain = 1, .base_content = ks.content, .table_content = ks.content};
    const fx_opts o = {.chunk_elems = 16, .info = &info, .ref_table = f->table, .ref_tree = f->tree, .ref_tree_len = f->tree_len, .step = 1};
    fx_write(delta, t, s, &o, sum);
    ckpi_table_free(t);
    ckp_state_free(s);
    ckpi_fmt_close(f);
}

static void
test_table_elsewhere(void **state)
{
    (void)state;
    ckpi_buf key = CKPI_BUF_INIT, delta = CKPI_BUF_INIT, buf = CKPI_BUF_INIT;
    ckpi_fmt_sum sum;
    ckp_error err;
    write_pair(&key, &delta, &sum);
    assert_true(sum.table_is_ref);
    assert_true(delta.len < key.len);
    ckpi_fmt_file *k = fx_open(&key), *d = fx_open(&delta);
    assert_null(d->table);
    ckpi_chunk c;
    /* Stored bytes can be checked without the table. */
    for (size_t i = 0; i < d->n_chunks; i++)
        assert_ok(ckpi_fmt_read_chunk(d, i, &buf, &c, NULL));
    assert_status(ckpi_fmt_resolve(d, d, &err), CKP_EBASE);
    assert_ok(ckpi_fmt_resolve(d, k, &err));
    assert_ok(ckpi_fmt_resolve(d, k, &err));
    assert_ptr_equal(d->table, k->table);
    ckpi_fmt_close(k);           /* the table outlives the file that it came from */
    assert_int_equal(d->table->n, 15);
    assert_int_equal(d->chunk[0].n_pieces, d->chunk[0].n_pieces);
    ckp_state *s = fx_state(1);
    assert_int_equal(d->tree_len, s->tree.len);
    assert_memory_equal(d->tree, s->tree.data, s->tree.len);
    ckp_state_free(s);
    ckpi_fmt_close(d);
    ckpi_buf_free(&key);
    ckpi_buf_free(&delta);
    ckpi_buf_free(&buf);
}

static void
test_stream_elsewhere(void **state)
{
    (void)state;
    ckpi_buf key = CKPI_BUF_INIT, delta = CKPI_BUF_INIT, buf = CKPI_BUF_INIT;
    ckpi_fmt_sum sum;
    ckpi_reader *r;
    ckpi_fmt_stream *s;
    ckpi_chunk c;
    bool done = false;
    uint64_t skipped = 0;
    write_pair(&key, &delta, &sum);
    ckpi_fmt_file *k = fx_open(&key);
    assert_ok(ckpi_reader_mem(&r, delta.data, delta.len, "delta", NULL));
    assert_ok(ckpi_fmt_stream_open(&s, r, NULL));
    assert_null(ckpi_fmt_stream_table(s));
    assert_int_equal(ckpi_fmt_stream_info(s)->chain, 1);
    assert_status(ckpi_fmt_stream_next(s, false, &buf, &c, &done, &skipped, NULL), CKP_ESTATE);
    assert_ok(ckpi_fmt_stream_resolve(s, k, NULL));
    size_t len, seen = 0;
    assert_non_null(ckpi_fmt_stream_tree(s, &len));
    while (!done) {
        assert_ok(ckpi_fmt_stream_next(s, false, &buf, &c, &done, &skipped, NULL));
        seen += !done;
    }
    assert_true(seen > 5);
    ckpi_fmt_stream_free(s);
    ckpi_reader_free(r);
    ckpi_fmt_close(k);
    ckpi_buf_free(&key);
    ckpi_buf_free(&delta);
    ckpi_buf_free(&buf);
}

static void
test_empty(void **state)
{
    (void)state;
    ckp_state *s;
    ckpi_buf file = CKPI_BUF_INIT;
    ckpi_fmt_sum sum;
    ckpi_writer *w;
    ckpi_fmt_writer *fw;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckpi_state_seal(s, NULL));
    ckpi_table *t = fx_table(s);
    assert_ok(ckpi_writer_mem(&w, &file, NULL));
    assert_ok(ckpi_fmt_writer_new(&fw, w, &(ckpi_file_info){0}, t, NULL, 0, NULL, NULL, 0, NULL));
    assert_ok(ckpi_fmt_writer_finish(fw, NULL, 0, &sum, NULL));
    assert_status(ckpi_fmt_writer_finish(fw, NULL, 0, &sum, NULL), CKP_ESTATE);
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
    ckpi_fmt_file *f = fx_open(&file);
    assert_int_equal(f->n_chunks, 0);
    assert_int_equal(f->table->n, 0);
    ckpi_fmt_close(f);
    ckpi_table_free(t);
    ckp_state_free(s);
    ckpi_buf_free(&file);
}

/* What the writer must refuse, because no reader would take it. */
static void
test_writer_refuses(void **state)
{
    (void)state;
    ckp_state *s = fx_state(0);
    ckpi_table *t = fx_table(s);
    ckpi_buf file = CKPI_BUF_INIT;
    ckpi_writer *w;
    ckpi_fmt_writer *fw;
    ckpi_fmt_sum sum;
    ckpi_piece two[2] = {{0, 0, 15}, {1, 0, 40}};
    const struct { ckpi_piece p; uint8_t role, quant, flags, dtype; } bad[] = {
        {{0, 0, 16}, CKP_ROLE_WEIGHT, 0, 0, CKP_F32},     /* leaves the tensor */
        {{0, 15, 1}, CKP_ROLE_WEIGHT, 0, 0, CKP_F32},
        {{0, 0, 0}, CKP_ROLE_WEIGHT, 0, 0, CKP_F32},
        {{99, 0, 1}, CKP_ROLE_WEIGHT, 0, 0, CKP_F32},
        {{2, 0, 15}, CKP_ROLE_WEIGHT, 0, 0, CKP_F32},     /* an alias */
        {{4, 0, 40}, CKP_ROLE_COPY, 0, 0, CKP_BF16},      /* a copy */
        {{0, 0, 15}, CKP_ROLE_M, 0, 0, CKP_F32},
        {{0, 0, 15}, CKP_ROLE_WEIGHT, 0, 0, CKP_F64},
        {{0, 0, 15}, CKP_ROLE_WEIGHT, 3, 0, CKP_F32},     /* quantized, not announced */
        {{0, 0, 15}, CKP_ROLE_WEIGHT, 0, 1, CKP_F32},     /* against the base of a key */
        {{0, 0, 15}, CKP_ROLE_WEIGHT, 0, 2, CKP_F32},
        {{12, 0, 1}, CKP_ROLE_OTHER, 0, 0, CKP_F4_PACKED}, /* half a byte */
    };
    assert_ok(ckpi_writer_mem(&w, &file, NULL));
    assert_ok(ckpi_fmt_writer_new(&fw, w, &(ckpi_file_info){0}, t, s->tree.data, s->tree.len, NULL, NULL, 0, NULL));
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        ckpi_piece p = bad[i].p;
        ckpi_chunk c = {.role = bad[i].role, .quant = bad[i].quant, .codec = 1, .flags = bad[i].flags, .dtype = bad[i].dtype, .piece = &p, .n_pieces = 1};
        assert_status(ckpi_fmt_writer_chunk(fw, &c, NULL), CKP_EINVAL);
    }
    ckpi_chunk c = {.role = CKP_ROLE_WEIGHT, .codec = 1, .dtype = CKP_F32, .piece = two, .n_pieces = 2};
    assert_ok(ckpi_fmt_writer_chunk(fw, &c, NULL));
    assert_int_equal(c.n, 55);
    ckp_error err;
    assert_status(ckpi_fmt_writer_finish(fw, NULL, 0, &sum, &err), CKP_EINTERNAL);
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
    ckpi_buf_free(&file);
    ckpi_table_free(t);
    ckp_state_free(s);
}

typedef struct fail_job { const ckpi_buf *key, *delta; const ckp_state *s; } fail_job;

static ckp_status
read_job(void *user)
{
    const fail_job *j = user;
    ckpi_reader *r = NULL;
    ckpi_fmt_file *k = NULL, *d = NULL;
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk c;
    ckp_status st = ckpi_reader_mem(&r, j->key->data, j->key->len, "key", NULL);
    if (st == CKP_OK)
        st = ckpi_fmt_open(&k, r, NULL);
    if (st == CKP_OK)
        st = ckpi_reader_mem(&r, j->delta->data, j->delta->len, "delta", NULL);
    if (st == CKP_OK)
        st = ckpi_fmt_open(&d, r, NULL);
    if (st == CKP_OK)
        st = ckpi_fmt_resolve(d, k, NULL);
    if (st == CKP_OK)
        st = ckpi_fmt_read_chunk(d, 0, &buf, &c, NULL);
    ckpi_fmt_close(d);
    ckpi_fmt_close(k);
    ckpi_buf_free(&buf);
    return st;
}

static ckp_status
stream_job(void *user)
{
    const fail_job *j = user;
    size_t seen;
    uint64_t skipped;
    return fx_stream_all(j->key->data, j->key->len, false, &seen, &skipped, NULL);
}

static ckp_status
write_job(void *user)
{
    const fail_job *j = user;
    ckpi_writer *w = NULL;
    ckpi_fmt_sum sum;
    ckpi_table *t = NULL;
    ckpi_fmt_writer *fw = NULL;
    ckpi_buf out = CKPI_BUF_INIT;
    ckp_status st = ckpi_table_from_state(&t, j->s, NULL);
    if (st == CKP_OK)
        st = ckpi_writer_mem(&w, &out, NULL);
    if (st == CKP_OK)
        st = ckpi_fmt_writer_new(&fw, w, &(ckpi_file_info){0}, t, j->s->tree.data, j->s->tree.len, NULL, NULL, 0, NULL);
    for (uint32_t i = 0; st == CKP_OK && i < t->n; i++) {
        const ckpi_rec *r = &t->rec[i];
        ckpi_piece p = {i, 0, r->numel};
        ckpi_chunk c = {.role = (uint8_t)r->role, .codec = 2, .dtype = (uint8_t)r->dtype, .piece = &p, .n_pieces = 1};
        if (r->alias_of == CKPI_NO_TENSOR && r->copy_of == CKPI_NO_TENSOR && r->numel != 0)
            st = ckpi_fmt_writer_chunk(fw, &c, NULL);
    }
    if (st == CKP_OK)
        st = ckpi_fmt_writer_finish(fw, NULL, 0, &sum, NULL);
    if (st == CKP_OK)
        st = ckpi_writer_finish(w, NULL);
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
    ckpi_table_free(t);
    ckpi_buf_free(&out);
    return st;
}

static void
test_allocations_fail(void **state)
{
    (void)state;
    ckpi_buf key = CKPI_BUF_INIT, delta = CKPI_BUF_INIT;
    ckpi_fmt_sum sum;
    write_pair(&key, &delta, &sum);
    fail_job j = {&key, &delta, fx_state(0)};
    assert_true(failalloc_run(read_job, &j, 20, 1) >= 20);
    assert_true(failalloc_run(stream_job, &j, 10, 1) >= 10);
    assert_true(failalloc_run(write_job, &j, 10, 1) >= 10);
    ckp_state_free((ckp_state *)(uintptr_t)j.s);
    ckpi_buf_free(&key);
    ckpi_buf_free(&delta);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_table_elsewhere), cmocka_unit_test(test_stream_elsewhere),
        cmocka_unit_test(test_empty),        cmocka_unit_test(test_writer_refuses),  cmocka_unit_test(test_allocations_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
