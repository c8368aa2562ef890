/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
/* safetensors: what is accepted comes back byte for byte; every rule of the format has a file that breaks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/limits.h"
#include "io/safetensors/st.h"
#include "io_help.h"

/* In the header, b stands before a; in the file, behind it. Odd spacing, escapes, metadata and padding must all come back. */
static const char good[] =
    "{ \"__metadata__\":{\"format\":\"pt\",\"k\\u00e9\":\"\\ud83d\\ude00\"},\n"
    "\"b\":{\"dtype\":\"F32\", \"shape\":[1,2],\"data_offsets\":[8,16]},\t\"e\":{\"dtype\":\"F16\",\"shape\":[3,0,2],\"data_offsets\":[16,16]},"
    "\"a\":{\"data_offsets\":[0,8],\"dtype\":\"I64\",\"shape\":[],\"extra\":[1,{\"x\":-1.5e3},null,true]},"
    "\"f4\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[16,19]}}    ";

static void
test_same_bytes(void **state)
{
    (void)state;
    ckpi_buf in = CKPI_BUF_INIT, out = CKPI_BUF_INIT;
    ckp_error err = {0};
    ckpi_foreign *f;
    ckpi_reader *r;
    ckpi_writer *w;
    ckpi_export *e;
    const void *header;
    size_t len;
    help_safetensors(&in, good, "abcdefghijklmnopqrs", 19);
    assert_int_equal(help_open(&f, &r, in.data, in.len, &err), CKP_OK);
    assert_int_equal(ckpi_foreign_what(f), CKPI_FOREIGN_SAFETENSORS);
    ckp_state *s = ckpi_foreign_state(f);
    assert_int_equal(ckpi_state_seal(s, &err), CKP_OK);
    assert_int_equal(s->n, 4);
    assert_string_equal(s->t[0].name, "a");
    assert_string_equal(s->t[1].name, "b");
    assert_string_equal(s->t[2].name, "e");
    assert_string_equal(s->t[3].name, "f4");
    assert_int_equal(s->t[0].ndim, 0);
    assert_int_equal(s->t[2].numel, 0);
    assert_int_equal(s->t[3].bytes, 3);
    assert_int_equal(ckpi_tree_st_header(s->tree.data, s->tree.len, &header, &len, &err), CKP_OK);
    ckpi_out_tensor *rows = help_rows(s);
    assert_int_equal(ckpi_writer_mem(&w, &out, &err), CKP_OK);
    assert_int_equal(ckpi_export_st_same(&e, w, header, len, rows, s->n, &err), CKP_OK);
    assert_int_equal(ckpi_export_begin(e, 1, &err), CKP_ESTATE);
    assert_int_equal(help_feed(e, s, 2, &err), CKP_OK);
    assert_int_equal(ckpi_writer_finish(w, &err), CKP_OK);
    assert_int_equal(out.len, in.len);
    assert_memory_equal(out.data, in.data, in.len);
    ckpi_export_free(e);
    /* A table that is not the header's. */
    rows[1].name = "c";
    assert_int_equal(ckpi_export_st_same(&e, w, header, len, rows, s->n, &err), CKP_EMISMATCH);
    free(rows);
    ckpi_writer_free(w);
    ckpi_foreign_close(f);
    ckpi_reader_free(r);
    ckpi_buf_free(&in);
    ckpi_buf_free(&out);
}

typedef struct bad { const char *json; size_t data; ckp_status st; const char *says; } bad;
#define T(shape, from, to) "{\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static const bad bads[] = {
    {"{\"a\":" T("[1]", 0, 1) ",\"a\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "duplicate"},
    {"{\"a\":" T("[1]", 0, 1) ",\"a\":" T("[1]", 1, 2) "}", 2, CKP_ECORRUPT, "duplicate"},
    {"{\"a\":" T("[1]", 0, 1) ",\"\\u0061\":" T("[1]", 1, 2) "}", 2, CKP_ECORRUPT, "duplicate"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, CKP_ECORRUPT, "duplicate"},
    {"{\"__metadata__\":{\"k\":\"1\",\"\\u006b\":\"2\"}}", 0, CKP_ECORRUPT, "duplicate"},
    {"{\"__metadata__\":{\"k\":1}}", 0, CKP_ECORRUPT, "'k' is not a string"},
    {"{\"__metadata__\":{\"k\":null}}", 0, CKP_ECORRUPT, "'k' is not a string"},
    {"{\"__metadata__\":{\"k\":{}}}", 0, CKP_ECORRUPT, "'k' is not a string"},
    {"{\"__metadata__\":null}", 0, CKP_ECORRUPT, "expected"},
    {"{\"a\":" T("[1]", 1, 2) "}", 2, CKP_ECORRUPT, "hole"},
    {"{\"a\":" T("[2]", 0, 2) ",\"b\":" T("[2]", 1, 3) "}", 3, CKP_ECORRUPT, "overlap"},
    {"{\"a\":" T("[2]", 0, 2) ",\"b\":" T("[2]", 0, 2) "}", 2, CKP_ECORRUPT, "overlap"},
    {"{\"a\":" T("[2]", 0, 2) "}", 3, CKP_ECORRUPT, "1 bytes follow"},
    {"{\"a\":" T("[2]", 0, 2) "}", 1, CKP_ETRUNCATED, "tensors end at"},
    {"{\"a\":" T("[2]", 0, 3) "}", 3, CKP_ECORRUPT, "make 2 bytes"},
    {"{\"a\":" T("[2]", 3, 1) "}", 3, CKP_ECORRUPT, "make 2 bytes"},
    {"{\"a\":" T("[4294967296,4294967296]", 0, 0) "}", 0, CKP_ECORRUPT, "2^64"},
    {"{\"a\":" T("[1000000000000000000]", 0, 1000) "}", 1000, CKP_ECORRUPT, "make 1000000000000000000 bytes"},
    {"{\"a\":" T("[1000000000000000000]", 0, 1000000000000000000) "}", 1000, CKP_ETRUNCATED, "tensors end"},
    {"{\"a\":" T("[18446744073709551615]", 0, 18446744073709551615) "}", 8, CKP_ECORRUPT, "2^64"},
    {"{\"a\":" T("[18446744073709551616]", 0, 1) "}", 1, CKP_ECORRUPT, "beyond 64 bits"},
    {"{\"a\":" T("[-1]", 0, 1) "}", 1, CKP_ECORRUPT, "non-negative"},
    {"{\"a\":" T("[1.0]", 0, 1) "}", 1, CKP_ECORRUPT, "integer"},
    {"{\"a\":" T("[01]", 0, 1) "}", 1, CKP_ECORRUPT, "leading zero"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3,5],\"data_offsets\":[0,8]}}", 8, CKP_ECORRUPT, "end on a byte"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, CKP_ECORRUPT, "end on a byte"},
    {"{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, CKP_ECORRUPT, "end on a byte"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, CKP_EUNSUPPORTED, "F33"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, CKP_ECORRUPT, "without data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, CKP_ECORRUPT, "without shape"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, CKP_ECORRUPT, "without dtype"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, CKP_ECORRUPT, "duplicate"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, CKP_ECORRUPT, "two offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[]}}", 1, CKP_ECORRUPT, "two offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, CKP_ECORRUPT, "two offsets"},
    {"{\"a\":[]}", 0, CKP_ECORRUPT, "expected"},
    {"{}x", 0, CKP_ECORRUPT, "only spaces"},
    {"{}\t", 0, CKP_ECORRUPT, "only spaces"},
    {"{} {}", 0, CKP_ECORRUPT, "only spaces"},
    {" {}", 0, CKP_EFORMAT, ""},
    {"{\"a\":" T("[1]", 0, 1) ",}", 1, CKP_ECORRUPT, "after ','"},
    {"{,}", 0, CKP_ECORRUPT, "expected"},
    {"{\"a\" " T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "':'"},
    {"{'a':" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "expected"},
    {"{\"a\":" T("[1]", 0, 1) " \"b\":" T("[1]", 1, 2) "}", 2, CKP_ECORRUPT, "','"},
    {"{\"a\":" T("[1]", 0, 1), 1, CKP_ECORRUPT, "','"},
    {"{\"a", 0, CKP_ECORRUPT, "does not end"},
    {"{\"a\\", 0, CKP_ECORRUPT, "does not end"},
    {"{\"\xff\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "UTF-8"},
    {"{\"\xc0\x80\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "UTF-8"},
    {"{\"\xed\xa0\x80\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "UTF-8"},
    {"{\"\\ud800\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "surrogate"},
    {"{\"\\ud800\\u0041\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "surrogate"},
    {"{\"\\u0000\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "u0000"},
    {"{\"\\u00\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "hex"},
    {"{\"\\x\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "escape"},
    {"{\"a\nb\":" T("[1]", 0, 1) "}", 1, CKP_ECORRUPT, "control"},
    {"{\"\":" T("[1]", 0, 1) "}", 1, CKP_ELIMIT, "name"},
    {"{\"a\":{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0, CKP_ECORRUPT, "too deep"},
    {"{\"a\":{\"x\":tru", 0, CKP_ECORRUPT, "value"},
    {"{\"a\":{\"x\":1e", 0, CKP_ECORRUPT, "digit"},
};

static void
test_bad(void **state)
{
    (void)state;
    uint8_t data[1000] = {0};
    for (size_t i = 0; i < sizeof bads / sizeof *bads; i++) {
        ckpi_buf in = CKPI_BUF_INIT;
        ckp_error err = {0};
        help_safetensors(&in, bads[i].json, data, bads[i].data);
        uint8_t *edge = guard_copy(in.data, in.len);
        const ckp_status st = help_read_all(edge, in.len, &err);
        if (st != bads[i].st || strstr(err.text, bads[i].says) == NULL)
            fail_msg("%s\ngives %s: %s", bads[i].json, ckp_status_name(st), err.text);
        assert_non_null(strstr(err.text, "file under test"));
        guard_free(edge);
        ckpi_buf_free(&in);
    }
}

static void
test_lengths(void **state)
{
    (void)state;
    static const uint64_t lens[] = {(uint64_t)1 << 63, UINT64_MAX, CKPI_MAX_ST_HEADER + 1u, CKPI_MAX_ST_HEADER, 10, 3};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint8_t file[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        ckp_error err = {0};
        ckpi_st64(file, lens[i]);
        assert_int_equal(help_read_all(file, sizeof file, &err), lens[i] > CKPI_MAX_ST_HEADER ? CKP_ELIMIT : CKP_ETRUNCATED);
    }
}

static void
test_cut_anywhere(void **state)
{
    (void)state;
    ckpi_buf in = CKPI_BUF_INIT;
    help_safetensors(&in, good, "abcdefghijklmnopqrs", 19);
    for (size_t n = 0; n < in.len; n++) {
        ckp_error err = {0};
        uint8_t *edge = guard_copy(in.data, n);
        assert_int_not_equal(help_read_all(edge, n, &err), CKP_OK);
        assert_true(err.code == CKP_ETRUNCATED || err.code == CKP_EFORMAT);
        guard_free(edge);
    }
    ckpi_buf_free(&in);
}

static void
test_pipe(void **state)
{
    (void)state;
    for (size_t extra = 0; extra < 2; extra++) {
        ckpi_buf in = CKPI_BUF_INIT;
        ckpi_reader *r;
        ckpi_foreign *f;
        ckp_error err = {0};
        uint8_t got[8];
        int fd[2];
        help_safetensors(&in, good, "abcdefghijklmnopqrst", 19 + extra);
        assert_int_equal(pipe(fd), 0);
        assert_int_equal(write(fd[1], in.data, in.len), (ssize_t)in.len);
        close(fd[1]);
        assert_int_equal(ckpi_reader_fd(&r, fd[0], "pipe", &err), CKP_OK);
        assert_int_equal(ckpi_foreign_open(&f, r, NULL, &err), CKP_OK);
        const ckp_state *s = ckpi_foreign_state(f);
        for (size_t i = 0; i < s->n; i++)
            assert_int_equal(ckpi_tensor_copy_out(&s->t[i], 0, s->t[i].numel, got, &err), CKP_OK);
        assert_memory_equal(got, "qrs", 3);
        assert_int_equal(ckpi_foreign_finish(f, &err), extra != 0 ? CKP_ECORRUPT : CKP_OK);
        ckpi_foreign_close(f);
        ckpi_reader_free(r);
        close(fd[0]);
        ckpi_buf_free(&in);
    }
}

static void
test_fresh(void **state)
{
    (void)state;
    static const uint64_t one[] = {3}, two[] = {2, 1};
    const ckpi_out_tensor t[] = {
        {"byte", CKP_U8, 1, one, 3, UINT32_MAX},
        {"wide\"\\\n", CKP_F64, 0, NULL, 8, UINT32_MAX},
        {"alias", CKP_F64, 0, NULL, 8, 1},
        {"f4", CKP_F4E2M1FN_X2, 2, two, 2, UINT32_MAX},
    };
    ckpi_buf out = CKPI_BUF_INIT;
    ckpi_writer *w;
    ckpi_export *e;
    ckpi_st st;
    ckp_error err = {0};
    assert_int_equal(ckpi_writer_mem(&w, &out, &err), CKP_OK);
    assert_int_equal(ckpi_export_st_new(&e, w, t, 4, &err), CKP_OK);
    static const uint32_t order[] = {2, 1, 0, 3};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ckpi_export_next(e), order[i]);
        assert_int_equal(ckpi_export_begin(e, order[i], &err), CKP_OK);
        assert_int_equal(ckpi_export_put(e, "12345678", (size_t)t[order[i]].bytes, &err), CKP_OK);
        assert_int_equal(ckpi_export_put(e, "x", 1, &err), CKP_EINVAL);
    }
    assert_int_equal(ckpi_export_finish(e, &err), CKP_OK);
    assert_int_equal(help_read_all(out.data, out.len, &err), CKP_OK);
    const size_t len = (size_t)ckpi_ld64(out.data);
    assert_int_equal(len % 8, 0);
    assert_int_equal(ckpi_st_parse(&st, out.data + 8, len, &err), CKP_OK);
    assert_string_equal(st.t[1].name, "wide\"\\\n");
    assert_int_equal(st.t[3].dtype, CKP_F4_PACKED);
    assert_int_equal(st.t[3].shape[1], 2);
    ckpi_st_free(&st);
    ckpi_export_free(e);
    const ckpi_out_tensor c128 = {"z", CKP_C128, 0, NULL, 16, UINT32_MAX};
    assert_int_equal(ckpi_export_st_new(&e, w, &c128, 1, &err), CKP_EUNSUPPORTED);
    assert_string_equal(err.tensor, "z");
    ckpi_writer_free(w);
    ckpi_buf_free(&out);
}

/* 1.3 million tiny tensors need more header than the format allows (safetensors issue 668): refused before a byte is written. */
static void
test_header_limit(void **state)
{
    (void)state;
    const size_t n = 1300000;
    ckpi_out_tensor *t = ckpi_malloc(n, sizeof *t);
    char (*names)[48] = ckpi_malloc(n, sizeof *names);
    ckpi_buf out = CKPI_BUF_INIT;
    ckpi_writer *w;
    ckpi_export *e;
    ckp_error err = {0};
    assert_true(t != NULL && names != NULL);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "model.layers.%zu.mlp.experts.weight", i);
        t[i] = (ckpi_out_tensor){names[i], CKP_U8, 0, NULL, 1, UINT32_MAX};
    }
    assert_int_equal(ckpi_writer_mem(&w, &out, &err), CKP_OK);
    assert_int_equal(ckpi_export_st_new(&e, w, t, n, &err), CKP_ELIMIT);
    assert_int_equal(out.len, 0);
    ckpi_writer_free(w);
    ckpi_buf_free(&out);
    free(names);
    free(t);
}

/* A tensor of more than 4 GiB, in a file that is mostly a hole. */
static void
test_beyond_4_gib(void **state)
{
    (void)state;
    const uint64_t n = ((uint64_t)1 << 30) + 1;
    ckpi_buf head = CKPI_BUF_INIT;
    ckpi_reader *r;
    ckpi_foreign *f;
    ckp_error err = {0};
    char json[128], got[8];
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"F32\",\"shape\":[%llu],\"data_offsets\":[0,%llu]}}", (unsigned long long)n,
                   (unsigned long long)n * 4);
    help_safetensors(&head, json, "", 0);
    assert_int_equal(pwrite(fileno(file), head.data, head.len, 0), (ssize_t)head.len);
    assert_int_equal(pwrite(fileno(file), "abcdefgh", 8, (off_t)(head.len + n * 4 - 8)), 8);
    assert_int_equal(lseek(fileno(file), 0, SEEK_SET), 0);
    assert_int_equal(ckpi_reader_fd(&r, fileno(file), "sparse", &err), CKP_OK);
    assert_int_equal(ckpi_foreign_open(&f, r, NULL, &err), CKP_OK);
    const ckpi_tensor *t = &ckpi_foreign_state(f)->t[0];
    assert_int_equal(t->bytes, n * 4);
    assert_int_equal(ckpi_tensor_copy_out(t, n - 2, 2, got, &err), CKP_OK);
    assert_memory_equal(got, "abcdefgh", 8);
    assert_int_equal(ckpi_tensor_copy_out(t, n - 1, 2, got, &err), CKP_EINVAL);
    ckpi_foreign_close(f);
    ckpi_reader_free(r);
    ckpi_buf_free(&head);
    fclose(file);
}

static ckp_status
use_it(void *user)
{
    const ckpi_buf *in = user;
    return help_read_all(in->data, in->len, NULL);
}

static void
test_no_memory(void **state)
{
    (void)state;
    ckpi_buf in = CKPI_BUF_INIT;
    help_safetensors(&in, good, "abcdefghijklmnopqrs", 19);
    assert_true(failalloc_run(use_it, &in, 5, 1) >= 5);
    ckpi_buf_free(&in);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_bad),   cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_cut_anywhere), cmocka_unit_test(test_pipe), cmocka_unit_test(test_fresh),
        cmocka_unit_test(test_header_limit), cmocka_unit_test(test_no_memory), cmocka_unit_test(test_beyond_4_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
