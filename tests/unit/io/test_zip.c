/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives: what our writer writes, our reader takes; each rule has an archive that breaks it. Sizes beyond 4 GiB by a file that is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "harness/failalloc.h"
#include "harness/guard.h"
#include "io/zip/zip.h"

static void
make(ckpi_buf *out, size_t entries)
{
    ckpi_writer *w;
    ckpi_zip_writer *z;
    char name[32];
    assert_int_equal(ckpi_writer_mem(&w, out, NULL), CKP_OK);
    assert_int_equal(ckpi_zip_writer_new(&z, w, NULL), CKP_OK);
    for (size_t i = 0; i < entries; i++) {
        (void)snprintf(name, sizeof name, "a/data/%zu", i);
        assert_int_equal(ckpi_zip_add(z, name, "abcdefgh", i % 9, NULL), CKP_OK);
    }
    assert_int_equal(ckpi_zip_finish(z, NULL), CKP_OK);
    ckpi_zip_writer_free(z);
    ckpi_writer_free(w);
}

/* Opens a copy flush against unmapped memory and checks every entry. */
static ckp_status
read_all(const void *p, size_t n, ckp_error *err)
{
    ckpi_reader *r;
    ckpi_zip z;
    uint8_t *edge = guard_copy(p, n);
    ckp_status st = ckpi_reader_mem(&r, edge, n, "zip", err);
    if (st == CKP_OK) {
        st = ckpi_zip_open(&z, r, err);
        for (size_t i = 0; st == CKP_OK && i < z.n; i++)
            st = ckpi_zip_check(r, &z.entry[i], err);
        ckpi_zip_free(&z);
        ckpi_reader_free(r);
    }
    guard_free(edge);
    return st;
}

static void
test_roundtrip(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 10, 70000};      /* the last needs Zip64 end records */
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        ckpi_buf b = CKPI_BUF_INIT;
        ckpi_reader *r;
        ckpi_zip z;
        ckp_error err = {0};
        make(&b, counts[k]);
        assert_int_equal(ckpi_reader_mem(&r, b.data, b.len, "zip", &err), CKP_OK);
        assert_int_equal(ckpi_zip_open(&z, r, &err), CKP_OK);
        assert_int_equal(z.n, counts[k]);
        for (size_t i = 0; i < z.n; i++)
            assert_int_equal(z.entry[i].data % 64, 0);
        if (counts[k] == 10) {
            const ckpi_zip_entry *e = ckpi_zip_find(&z, "a/data/8");
            assert_non_null(e);
            assert_int_equal(e->size, 8);
            assert_memory_equal(b.data + e->data, "abcdefgh", 8);
            assert_null(ckpi_zip_find(&z, "a/data/10"));
        }
        ckpi_zip_free(&z);
        ckpi_reader_free(r);
        ckpi_buf_free(&b);
    }
}

/* Place of the k-th record with that signature */
static size_t
find_record(const ckpi_buf *b, uint32_t sig, size_t k)
{
    for (size_t i = 0; i + 4 <= b->len; i++)
        if (ckpi_ld32(b->data + i) == sig && k-- == 0)
            return i;
    fail_msg("no record");
    return 0;
}

typedef struct edit { const char *what; uint32_t sig; size_t k, at, len; uint64_t value; ckp_status st; } edit;

static const edit edits[] = {
    {"compressed", CKPI_ZIP_DIR, 1, 10, 2, 8, CKP_EUNSUPPORTED},
    {"encrypted", CKPI_ZIP_DIR, 1, 8, 2, 1, CKP_EUNSUPPORTED},
    {"another packed size", CKPI_ZIP_DIR, 2, 20, 4, 1, CKP_ECORRUPT},
    {"sizes into the next entry", CKPI_ZIP_DIR, 2, 20, 8, 200 | (uint64_t)200 << 32, CKP_ECORRUPT},
    {"a size beyond the file", CKPI_ZIP_DIR, 2, 20, 8, 0x7fffffff | (uint64_t)0x7fffffff << 32, CKP_ECORRUPT},
    {"Zip64 without its field", CKPI_ZIP_DIR, 2, 20, 8, UINT64_MAX, CKP_ECORRUPT},
    {"offset of another entry", CKPI_ZIP_DIR, 2, 42, 4, 0, CKP_ECORRUPT},
    {"offset beyond the directory", CKPI_ZIP_DIR, 2, 42, 4, 0xfffffff0, CKP_ECORRUPT},
    {"wrong CRC", CKPI_ZIP_DIR, 3, 16, 4, 12345, CKP_ECORRUPT},
    {"a name with a NUL", CKPI_ZIP_DIR, 1, 47, 1, 0, CKP_ECORRUPT},
    {"a name that leaves", CKPI_ZIP_DIR, 1, 46, 3, 0x2f2e2e, CKP_EPATH},
    {"an absolute name", CKPI_ZIP_DIR, 1, 46, 1, '/', CKP_EPATH},
    {"a long name", CKPI_ZIP_DIR, 1, 28, 2, 60000, CKP_ECORRUPT},
    {"another part", CKPI_ZIP_DIR, 1, 34, 2, 1, CKP_ECORRUPT},
    {"no directory entry", CKPI_ZIP_DIR, 1, 0, 4, 0, CKP_ECORRUPT},
    {"no local header", CKPI_ZIP_LOCAL, 1, 0, 4, 0, CKP_ECORRUPT},
    {"compressed in the local header", CKPI_ZIP_LOCAL, 1, 8, 2, 8, CKP_ECORRUPT},
    {"another name in the local header", CKPI_ZIP_LOCAL, 1, 30, 1, 'x', CKP_ECORRUPT},
    {"another size in the local header", CKPI_ZIP_LOCAL, 2, 22, 4, 77, CKP_ECORRUPT},
    {"a long extra field", CKPI_ZIP_LOCAL, 4, 28, 2, 65535, CKP_ECORRUPT},
    {"fewer entries", CKPI_ZIP_END, 0, 8, 4, 3 | 3 << 16, CKP_ECORRUPT},
    {"more entries", CKPI_ZIP_END, 0, 8, 4, 6 | 6 << 16, CKP_ECORRUPT},
    {"many entries", CKPI_ZIP_END, 0, 8, 4, 0xffffffff, CKP_ECORRUPT},
    {"two counts", CKPI_ZIP_END, 0, 8, 2, 4, CKP_ECORRUPT},
    {"a directory elsewhere", CKPI_ZIP_END, 0, 16, 4, 0, CKP_ECORRUPT},
    {"a longer directory", CKPI_ZIP_END, 0, 12, 4, 0xfffffff, CKP_ECORRUPT},
    {"a comment that is not there", CKPI_ZIP_END, 0, 20, 2, 1, CKP_ETRUNCATED},
    {"no end record", CKPI_ZIP_END, 0, 0, 4, 0, CKP_ETRUNCATED},
};

static void
test_edits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        const edit *e = &edits[i];
        ckpi_buf b = CKPI_BUF_INIT;
        ckp_error err = {0};
        uint8_t value[8];
        make(&b, 5);
        ckpi_st64(value, e->value);
        memcpy(b.data + find_record(&b, e->sig, e->k) + e->at, value, e->len);
        const ckp_status st = read_all(b.data, b.len, &err);
        if (st != e->st)
            fail_msg("%s gives %s: %s", e->what, ckp_status_name(st), err.text);
        ckpi_buf_free(&b);
    }
}

static void
test_same_name_twice(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    ckp_error err = {0};
    make(&b, 5);
    b.data[find_record(&b, CKPI_ZIP_DIR, 1) + 46 + 7] = '0';
    b.data[find_record(&b, CKPI_ZIP_LOCAL, 1) + 30 + 7] = '0';
    assert_int_equal(read_all(b.data, b.len, &err), CKP_ECORRUPT);
    assert_non_null(strstr(err.text, "twice"));
    ckpi_buf_free(&b);
}

static void
test_ends(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    make(&b, 3);
    for (size_t n = 0; n < b.len; n++)
        assert_int_not_equal(read_all(b.data, n, NULL), CKP_OK);
    ckpi_buf_u8(&b, 0);
    assert_int_not_equal(read_all(b.data, b.len, NULL), CKP_OK);      /* something behind the end */
    ckpi_buf_free(&b);
    make(&b, 3);
    uint8_t *p = ckpi_malloc(b.len + 1, 1);
    memcpy(p + 1, b.data, b.len);
    p[0] = 'P';
    assert_int_not_equal(read_all(p, b.len + 1, NULL), CKP_OK);       /* something before its start */
    free(p);
    ckpi_buf_free(&b);
}

static void
test_every_bit(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    make(&b, 3);
    for (size_t i = 0; i < b.len; i++)
        for (int k = 0; k < 8; k++) {
            b.data[i] ^= (uint8_t)(1 << k);
            (void)!read_all(b.data, b.len, NULL);      /* any answer, no fault */
            b.data[i] ^= (uint8_t)(1 << k);
        }
    assert_int_equal(read_all(b.data, b.len, NULL), CKP_OK);
    ckpi_buf_free(&b);
}

/* ---- beyond 4 GiB ---- */

/* A file system of one file, of which only what is not zero is kept: what stands before `hole` and after `back`. */
typedef struct sparse { ckpi_fs fs; ckpi_file file; ckpi_buf head, tail; uint64_t size, hole_end; } sparse;

static ckp_status
sp_open(ckpi_fs *fs, const char *name, ckpi_open_how how, ckpi_file **out, ckp_error *err)
{
    (void)name;
    (void)how;
    (void)err;
    sparse *s = (sparse *)fs;
    s->file.fs = fs;
    *out = &s->file;
    return CKP_OK;
}

static ckp_status
sp_write(ckpi_file *f, const void *src, size_t n, ckp_error *err)
{
    (void)err;
    sparse *s = (sparse *)f->fs;
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++, s->size++) {
        if (s->size < 4096)
            ckpi_buf_u8(&s->head, p[i]);
        else if (s->size >= s->hole_end)
            ckpi_buf_u8(&s->tail, p[i]);
        else if (s->size % 65536 == 0 && n - i >= 65536 && s->hole_end - s->size >= 65536) {
            s->size += 65535;      /* zeros, taken at a step */
            i += 65535;
        }
    }
    return CKP_OK;
}

static ckp_status
sp_read(ckpi_file *f, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err)
{
    (void)err;
    const sparse *s = (const sparse *)f->fs;
    uint8_t *d = dst;
    for (*got = 0; *got < n && off + *got < s->size; ++*got) {
        const uint64_t at = off + *got;
        d[*got] = at < s->head.len ? s->head.data[at] : at >= s->hole_end ? s->tail.data[at - s->hole_end] : 0;
    }
    return CKP_OK;
}

static ckp_status
sp_size(ckpi_file *f, uint64_t *size, ckp_error *err)
{
    (void)err;
    *size = ((const sparse *)f->fs)->size;
    return CKP_OK;
}

static ckp_status
sp_sync(ckpi_file *f, ckp_error *err)
{
    (void)f;
    (void)err;
    return CKP_OK;
}

static void
sp_close(ckpi_file *f)
{
    (void)f;
}

static const ckpi_fs_ops sparse_ops = {.name = "sparse", .open = sp_open, .read_at = sp_read, .write = sp_write, .size = sp_size,
                                       .sync = sp_sync, .close = sp_close};

static void
test_beyond_4_gib(void **state)
{
    (void)state;
    static uint8_t zeros[1 << 20];
    const uint64_t big = ((uint64_t)4 << 30) + 4;
    sparse s = {.fs = {&sparse_ops}, .hole_end = ((uint64_t)4 << 30) - 4096};
    ckpi_writer *w;
    ckpi_zip_writer *z;
    ckpi_reader *r;
    ckpi_zip zip;
    ckp_error err = {0};
    assert_int_equal(ckpi_writer_file(&w, &s.fs, "x", &err), CKP_OK);
    assert_int_equal(ckpi_zip_writer_new(&z, w, &err), CKP_OK);
    assert_int_equal(ckpi_zip_begin(z, "a/data/0", big, &err), CKP_OK);
    for (uint64_t left = big; left > 0;) {
        const size_t n = (size_t)CKPI_MIN(left, sizeof zeros);
        assert_int_equal(ckpi_zip_put(z, zeros, n, &err), CKP_OK);
        left -= n;
    }
    assert_int_equal(ckpi_zip_end(z, &err), CKP_OK);
    assert_int_equal(ckpi_zip_add(z, "a/data/1", "xyz", 3, &err), CKP_OK);
    assert_int_equal(ckpi_zip_finish(z, &err), CKP_OK);
    assert_int_equal(ckpi_writer_finish(w, &err), CKP_OK);
    assert_int_equal(ckpi_reader_file(&r, &s.fs, "x", &err), CKP_OK);
    assert_int_equal(ckpi_zip_open(&zip, r, &err), CKP_OK);
    assert_int_equal(zip.n, 2);
    assert_int_equal(zip.entry[0].size, big);
    assert_true(zip.entry[1].header > UINT32_MAX);
    assert_int_equal(ckpi_zip_check(r, &zip.entry[1], &err), CKP_OK);
    ckpi_zip_free(&zip);
    ckpi_reader_free(r);
    ckpi_zip_writer_free(z);
    ckpi_writer_free(w);
    ckpi_buf_free(&s.head);
    ckpi_buf_free(&s.tail);
}

static ckp_status
use(void *user)
{
    const ckpi_buf *b = user;
    ckpi_reader *r = NULL;
    ckpi_zip z = {0};
    ckp_status st = ckpi_reader_mem(&r, b->data, b->len, "zip", NULL);
    if (st == CKP_OK)
        st = ckpi_zip_open(&z, r, NULL);
    ckpi_zip_free(&z);
    ckpi_reader_free(r);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    make(&b, 5);
    assert_true(failalloc_run(use, &b, 4, 1) >= 4);
    ckpi_buf_free(&b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roundtrip), cmocka_unit_test(test_edits),        cmocka_unit_test(test_same_name_twice), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_every_bit), cmocka_unit_test(test_beyond_4_gib), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
