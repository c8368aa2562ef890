/* SPDX-License-Identifier: Apache-2.0 */
/* Files that torch wrote (tests/fuzz/seeds/zip, made by make_io_seeds.py): read, written again, read again; damaged; short of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/dtype.h"
#include "harness/failalloc.h"
#include "harness/seed.h"
#include "io_help.h"

static const char *const files[] = {"attributes", "conj", "grad", "numpy", "odd", "parameter", "plain", "python", "quantized", "sparse", "tensor",
                                    "tied", "train", "views", "checked", "legacy"};

static void
read_file(const char *name, ckpi_buf *b)
{
    char path[4096], block[4096];
    const char *dir = getenv("CKP_SOURCE_DIR");
    size_t n;
    (void)snprintf(path, sizeof path, "%s/tests/fuzz/seeds/zip/%s.pt", dir != NULL ? dir : ".", name);
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot open %s", path);
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        ckpi_buf_put(b, block, n);
    fclose(f);
}

static ckp_status
write_pt(const ckp_state *s, uint64_t step, ckpi_buf *out, ckp_error *err)
{
    ckpi_writer *w = NULL;
    ckpi_export *e = NULL;
    ckpi_out_tensor *rows = help_rows(s);
    ckp_status st = rows == NULL ? CKP_ENOMEM : ckpi_writer_mem(&w, out, err);
    if (st == CKP_OK)
        st = ckpi_export_pt(&e, w, "archive", rows, s->n, s->tree.data, s->tree.len, err);
    if (st == CKP_OK)
        st = help_feed(e, s, step, err);
    ckpi_export_free(e);
    ckpi_writer_free(w);
    free(rows);
    return st;
}

static void
same_tensor(const ckpi_tensor *a, const ckpi_tensor *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_int_equal(a->alias_of, b->alias_of);
    assert_int_equal(a->role, b->role);
    assert_int_equal(a->bytes, b->bytes);
    uint8_t *p = ckpi_malloc((size_t)a->bytes, 1), *q = ckpi_malloc((size_t)a->bytes, 1);
    assert_int_equal(ckpi_tensor_copy_out(a, 0, a->numel, p, NULL), CKP_OK);
    assert_int_equal(ckpi_tensor_copy_out(b, 0, b->numel, q, NULL), CKP_OK);
    assert_memory_equal(p, q, a->bytes);
    free(p);
    free(q);
}

static void
test_written_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ckpi_buf in = CKPI_BUF_INIT, out = CKPI_BUF_INIT;
        ckpi_foreign *f = NULL, *g = NULL;
        ckpi_reader *r = NULL, *q = NULL;
        ckp_error err = {0};
        read_file(files[i], &in);
        if (help_open(&f, &r, in.data, in.len, &err) != CKP_OK || ckpi_state_seal(ckpi_foreign_state(f), &err) != CKP_OK)
            fail_msg("%s: %s", files[i], err.text);
        const ckp_state *s = ckpi_foreign_state(f);
        if (write_pt(s, i % 2 != 0 ? 3 : 1000, &out, &err) != CKP_OK || help_open(&g, &q, out.data, out.len, &err) != CKP_OK)
            fail_msg("%s: %s", files[i], err.text);
        const ckp_state *t = ckpi_foreign_state(g);
        assert_int_equal(s->n, t->n);
        assert_int_equal(s->tree.len, t->tree.len);
        assert_memory_equal(s->tree.data, t->tree.data, s->tree.len);
        for (size_t k = 0; k < s->n; k++)
            same_tensor(&s->t[k], &t->t[k]);
        ckpi_foreign_close(g);
        ckpi_reader_free(q);
        ckpi_foreign_close(f);
        ckpi_reader_free(r);
        ckpi_buf_free(&in);
        ckpi_buf_free(&out);
    }
}

static void
test_matched(void **state)
{
    (void)state;
    static const char *const which[] = {"train", "legacy"};
    for (size_t i = 0; i < 2; i++) {
        ckpi_buf in = CKPI_BUF_INIT;
        ckpi_foreign *f;
        ckpi_reader *r;
        read_file(which[i], &in);
        assert_int_equal(help_open(&f, &r, in.data, in.len, NULL), CKP_OK);
        assert_int_equal(ckpi_foreign_what(f), i == 0 ? CKPI_FOREIGN_TORCH_ZIP : CKPI_FOREIGN_TORCH_LEGACY);
        const ckp_state *s = ckpi_foreign_state(f);
        const uint32_t v = ckpi_state_find(s, "optimizer/state/5/exp_avg_sq");
        assert_int_not_equal(v, CKPI_NO_TENSOR);
        assert_int_equal(s->t[v].role, CKP_ROLE_V);
        assert_string_equal(s->t[v].owner_name, "model/2.bias");
        const ckpi_adam *a = ckpi_state_adam(s, ckpi_state_find(s, "model/2.bias"));
        assert_non_null(a);
        assert_int_equal(a->step, 3);
        ckpi_foreign_close(f);
        ckpi_reader_free(r);
        ckpi_buf_free(&in);
    }
}

static void
test_cut(void **state)
{
    (void)state;
    static const char *const which[] = {"checked", "legacy"};
    for (size_t i = 0; i < 2; i++) {
        ckpi_buf in = CKPI_BUF_INIT;
        read_file(which[i], &in);
        for (size_t n = 0; n < in.len; n += n < 600 || in.len - n < 300 ? 1 : 37) {
            ckp_error err = {0};
            assert_int_not_equal(help_read_all(in.data, n, &err), CKP_OK);
            assert_non_null(strstr(err.text, "file under test"));
        }
        ckpi_buf_free(&in);
    }
}

/* A bit of the pickle, or anywhere: any answer, no fault. */
static void
test_flips(void **state)
{
    (void)state;
    test_rng rng = test_rng_new("torch flips");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ckpi_buf in = CKPI_BUF_INIT;
        read_file(files[i], &in);
        for (int k = 0; k < 1500; k++) {
            const size_t at = (size_t)test_below(&rng, in.len);
            const uint8_t bit = (uint8_t)(1u << test_below(&rng, 8));
            in.data[at] ^= bit;
            (void)!help_read_all(in.data, in.len, NULL);
            in.data[at] ^= bit;
        }
        ckpi_buf_free(&in);
    }
}

static void
test_pipe(void **state)
{
    (void)state;
    ckpi_buf in = CKPI_BUF_INIT;
    read_file("tied", &in);
    for (uint64_t most = 0; most < 3; most++) {
        const ckpi_foreign_options opts = {.spool_max = most == 0 ? 0 : most == 1 ? in.len : in.len - 1};
        ckpi_reader *r;
        ckpi_foreign *f = NULL;
        ckp_error err = {0};
        int fd[2];
        assert_int_equal(pipe(fd), 0);
        assert_int_equal(write(fd[1], in.data, in.len), (ssize_t)in.len);
        close(fd[1]);
        assert_int_equal(ckpi_reader_fd(&r, fd[0], "pipe", &err), CKP_OK);
        assert_int_equal(ckpi_foreign_open(&f, r, &opts, &err), most == 2 ? CKP_ELIMIT : CKP_OK);
        if (f != NULL) {
            assert_int_equal(ckpi_foreign_state(f)->n, 2);
            assert_int_equal(ckpi_foreign_state(f)->t[1].alias_of, 0);
            assert_int_equal(ckpi_foreign_finish(f, &err), CKP_OK);
        }
        ckpi_foreign_close(f);
        ckpi_reader_free(r);
        close(fd[0]);
    }
    ckpi_buf_free(&in);
}

static void
test_others(void **state)
{
    (void)state;
    static const struct { const char *bytes; size_t n; ckp_status st; const char *says; } rows[] = {
        {"", 0, CKP_ETRUNCATED, "empty"},
        {"abc", 3, CKP_ETRUNCATED, "3 bytes"},
        {"hello, this is a text", 21, CKP_EFORMAT, "neither"},
        {"GGUF\3\0\0\0\0\0\0\0", 12, CKP_EUNSUPPORTED, "GGUF"},
        {"\x89HDF\r\n\x1a\n\0\0\0", 11, CKP_EUNSUPPORTED, "HDF5"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, CKP_EUNSUPPORTED, "LFS"},
        {"PK\3\4", 4, CKP_ETRUNCATED, "zip"},
        {"\x80\2]q\0.........", 15, CKP_EFORMAT, "neither"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckp_error err = {0};
        const ckp_status st = help_read_all(rows[i].bytes, rows[i].n, &err);
        if (st != rows[i].st || strstr(err.text, rows[i].says) == NULL)
            fail_msg("number %zu gives %s: %s", i, ckp_status_name(st), err.text);
    }
    char tar[512] = "pickle";
    ckp_error err = {0};
    memcpy(tar + 257, "ustar", 5);
    assert_int_equal(help_read_all(tar, sizeof tar, &err), CKP_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "tar"));
}

typedef struct job { ckpi_buf in; } job;

static ckp_status
read_and_write(void *user)
{
    const job *j = user;
    ckpi_foreign *f;
    ckpi_reader *r;
    ckpi_buf out = CKPI_BUF_INIT;
    ckp_status st = help_open(&f, &r, j->in.data, j->in.len, NULL);
    if (st == CKP_OK)
        st = ckpi_state_seal(ckpi_foreign_state(f), NULL);
    if (st == CKP_OK)
        st = write_pt(ckpi_foreign_state(f), 1000, &out, NULL);
    ckpi_buf_free(&out);
    ckpi_foreign_close(f);
    ckpi_reader_free(r);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    static const char *const which[] = {"train", "numpy", "sparse", "python", "legacy"};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        job j = {.in = CKPI_BUF_INIT};
        read_file(which[i], &j.in);
        assert_true(failalloc_run(read_and_write, &j, 20, i == 0 ? 7 : 1) >= 20);
        ckpi_buf_free(&j.in);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_again), cmocka_unit_test(test_matched), cmocka_unit_test(test_cut),       cmocka_unit_test(test_flips),
        cmocka_unit_test(test_pipe),          cmocka_unit_test(test_others),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
