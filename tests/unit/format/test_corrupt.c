/* SPDX-License-Identifier: Apache-2.0 */
/* Damage: every truncation and every flipped bit is noticed, and salvage gives back exactly the frames that are whole. */
#include <stdlib.h>
#include <unistd.h>
#include "fixture.h"
#include "harness/guard.h"
#include "os/os.h"

static ckpi_buf key = CKPI_BUF_INIT, delta = CKPI_BUF_INIT;

static int
setup(void **state)
{
    (void)state;
    ckpi_fmt_sum ks, ds;
    fx_file(&key, &(fx_opts){.chunk_elems = 16}, &ks);
    ckpi_fmt_file *f = fx_open(&key);
    const ckpi_file_info info = {.is_delta = 1, .chain = 1, .base_content = ks.content, .table_content = ks.content};
    fx_file(&delta, &(fx_opts){.chunk_elems = 24, .info = &info, .ref_table = f->table, .ref_tree = f->tree, .ref_tree_len = f->tree_len,
                               .step = 3}, &ds);
    ckpi_fmt_close(f);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    ckpi_buf_free(&key);
    ckpi_buf_free(&delta);
    return 0;
}

/* The delta, resolved against the sound key, and all its chunks. */
static ckp_status
read_delta(const void *p, size_t n)
{
    ckpi_fmt_file *k = fx_open(&key), *d = NULL;
    ckpi_reader *r;
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk c;
    assert_ok(ckpi_reader_mem(&r, p, n, "delta", NULL));
    ckp_status st = ckpi_fmt_open(&d, r, NULL);
    if (st == CKP_OK)
        st = ckpi_fmt_resolve(d, k, NULL);
    for (size_t i = 0; st == CKP_OK && i < d->n_chunks; i++)
        st = ckpi_fmt_read_chunk(d, i, &buf, &c, NULL);
    ckpi_buf_free(&buf);
    ckpi_fmt_close(d);
    ckpi_fmt_close(k);
    return st;
}

static bool
is_data_error(ckp_status st)
{
    return st == CKP_ECORRUPT || st == CKP_ETRUNCATED || st == CKP_EFORMAT || st == CKP_EVERSION || st == CKP_EUNSUPPORTED || st == CKP_ELIMIT ||
           st == CKP_EBASE;
}

/* Whole and damaged files lie flush against an unmapped page. */
static void
check_damaged(const uint8_t *p, size_t n, const char *what, size_t at)
{
    ckp_error err;
    size_t seen;
    uint64_t skipped;
    const ckp_status st = fx_read_all(p, n, &err);
    if (!is_data_error(st))
        fail_msg("%s %zu: open and read gave %d", what, at, st);
    if (err.code != st || err.text[0] == 0 || strcmp(err.file, "test.ckp") != 0)
        fail_msg("%s %zu: error not filled: '%s' in '%s'", what, at, err.text, err.file);
    const ckp_status streamed = fx_stream_all(p, n, false, &seen, &skipped, &err);
    if (!is_data_error(streamed))
        fail_msg("%s %zu: streaming gave %d", what, at, streamed);
    const ckp_status salvaged = fx_stream_all(p, n, true, &seen, &skipped, &err);
    if (salvaged != CKP_OK && !is_data_error(salvaged))
        fail_msg("%s %zu: salvage gave %d", what, at, salvaged);
}

static void
test_every_truncation(void **state)
{
    (void)state;
    for (size_t n = 0; n < key.len; n++) {
        uint8_t *p = guard_copy(key.data, n);
        check_damaged(p, n, "cut at", n);
        guard_free(p);
    }
    for (size_t n = 0; n < delta.len; n++)
        assert_true(is_data_error(read_delta(delta.data, n)));
}

static void
test_every_bit(void **state)
{
    (void)state;
    uint8_t *p = guard_copy(key.data, key.len);
    for (size_t bit = 0; bit < key.len * 8; bit++) {
        p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        check_damaged(p, key.len, "bit", bit);
        p[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    guard_free(p);
    for (size_t bit = 0; bit < delta.len * 8; bit++) {
        delta.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (!is_data_error(read_delta(delta.data, delta.len)))
            fail_msg("bit %zu of the delta was not noticed", bit);
        delta.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_ok(read_delta(delta.data, delta.len));
}

static void
test_appended(void **state)
{
    (void)state;
    ckpi_buf more = CKPI_BUF_INIT;
    ckpi_buf_put(&more, key.data, key.len);
    ckpi_buf_u8(&more, 0);
    check_damaged(more.data, more.len, "one byte more than", key.len);
    ckpi_buf_free(&more);
}

/* A front end of one file and a back end of another must not pass as one file. */
static void
test_spliced(void **state)
{
    (void)state;
    ckpi_buf other = CKPI_BUF_INIT, both = CKPI_BUF_INIT;
    fx_file(&other, &(fx_opts){.chunk_elems = 16, .step = 9}, NULL);
    ckpi_fmt_file *a = fx_open(&key), *b = fx_open(&other);
    const size_t cut = (size_t)a->chunk[0].offset, from = (size_t)b->chunk[0].offset;
    ckpi_fmt_close(a);
    ckpi_fmt_close(b);
    assert_int_equal(cut, from);
    ckpi_buf_put(&both, key.data, cut);
    ckpi_buf_put(&both, other.data + from, other.len - from);
    check_damaged(both.data, both.len, "spliced at", cut);
    ckpi_buf_free(&other);
    ckpi_buf_free(&both);
}

/* ---- salvage ---- */

static size_t
salvage(const void *p, size_t n, uint64_t *skipped)
{
    size_t seen;
    ckp_error err;
    if (fx_stream_all(p, n, true, &seen, skipped, &err) != CKP_OK)
        fail_msg("salvage: %s", err.text);
    return seen;
}

static void
test_salvage_damage(void **state)
{
    (void)state;
    ckpi_fmt_file *f = fx_open(&key);
    uint64_t skipped;
    for (size_t i = 0; i < f->n_chunks; i++) {
        const ckpi_chunk *c = &f->chunk[i];
        /* in the head, and in the body */
        for (size_t at = (size_t)c->offset; at < c->offset + c->frame_len; at += 3) {
            key.data[at] ^= 0x10;
            assert_int_equal(salvage(key.data, key.len, &skipped), f->n_chunks - 1);
            assert_int_equal(skipped, 1);
            key.data[at] ^= 0x10;
        }
    }
    /* Two places; and a lost index loses no chunk. */
    key.data[f->chunk[1].body_offset] ^= 1;
    key.data[f->chunk[4].offset + 9] ^= 1;
    assert_int_equal(salvage(key.data, key.len, &skipped), f->n_chunks - 2);
    assert_int_equal(skipped, 2);
    key.data[f->chunk[1].body_offset] ^= 1;
    key.data[f->chunk[4].offset + 9] ^= 1;
    key.data[key.len - 100] ^= 1;
    assert_int_equal(salvage(key.data, key.len, &skipped), f->n_chunks);
    assert_int_equal(skipped, 1);
    key.data[key.len - 100] ^= 1;
    assert_int_equal(salvage(key.data, key.len, &skipped), f->n_chunks);
    assert_int_equal(skipped, 0);
    ckpi_fmt_close(f);
}

static void
test_salvage_cut(void **state)
{
    (void)state;
    ckpi_fmt_file *f = fx_open(&key);
    uint64_t skipped;
    size_t whole = 0;
    for (size_t n = (size_t)f->chunk[0].offset; n < key.len; n++) {
        while (whole < f->n_chunks && f->chunk[whole].offset + f->chunk[whole].frame_len <= n)
            whole++;
        assert_int_equal(salvage(key.data, n, &skipped), whole);
    }
    ckpi_fmt_close(f);
}

static void
test_salvage_tree(void **state)
{
    (void)state;
    ckpi_fmt_file *f = fx_open(&key);
    uint64_t skipped;
    key.data[f->chunk[0].offset - 1] ^= 1;       /* the tree's last stored byte */
    assert_int_equal(salvage(key.data, key.len, &skipped), f->n_chunks);
    assert_int_equal(skipped, 1);
    key.data[f->chunk[0].offset - 1] ^= 1;
    ckpi_fmt_close(f);
}

/* ---- pipes ---- */

static void
test_pipe(void **state)
{
    (void)state;
    int fd[2];
    ckpi_reader *r;
    ckpi_fmt_stream *s;
    ckpi_fmt_file *f;
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk c;
    bool done = false;
    uint64_t skipped = 0;
    for (int damaged = 0; damaged < 2; damaged++) {
        assert_int_equal(pipe(fd), 0);
        key.data[key.len - 300] ^= (uint8_t)damaged;
        assert_int_equal(write(fd[1], key.data, key.len), (ssize_t)key.len);
        key.data[key.len - 300] ^= (uint8_t)damaged;
        assert_int_equal(close(fd[1]), 0);
        assert_ok(ckpi_reader_fd(&r, fd[0], "pipe", NULL));
        ckp_status st = ckpi_fmt_stream_open(&s, r, NULL);
        done = false;
        while (st == CKP_OK && !done)
            st = ckpi_fmt_stream_next(s, damaged != 0, &buf, &c, &done, &skipped, NULL);
        assert_status(st, damaged != 0 ? CKP_ECORRUPT : CKP_OK);
        ckpi_fmt_stream_free(s);
        ckpi_reader_free(r);
        assert_int_equal(close(fd[0]), 0);
    }
    assert_int_equal(pipe(fd), 0);
    assert_ok(ckpi_reader_fd(&r, fd[0], "pipe", NULL));
    assert_status(ckpi_fmt_open(&f, r, NULL), CKP_EUNSUPPORTED);
    assert_int_equal(close(fd[0]) | close(fd[1]), 0);
    ckpi_buf_free(&buf);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_truncation), cmocka_unit_test(test_every_bit),    cmocka_unit_test(test_appended),
        cmocka_unit_test(test_spliced),          cmocka_unit_test(test_salvage_damage), cmocka_unit_test(test_salvage_cut),
        cmocka_unit_test(test_salvage_tree),     cmocka_unit_test(test_pipe),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
