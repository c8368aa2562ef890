/* SPDX-License-Identifier: Apache-2.0 */
/* From the end backwards: end record, directory, then each local header against it. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/crc32.h"
#include "io/zip/zip.h"

#define COMMENT_MAX 65535u

typedef struct ends { uint64_t dir, dir_len, entries, end; } ends;     /* end: where the directory must end */

static ckp_status
bad(ckp_error *err, uint64_t at, const char *what)
{
    return ckpi_fail_at(err, CKP_ECORRUPT, at, "zip archive: %s", what);
}

/* ---- the end ---- */

/* The last end record whose comment ends with the file. */
static ckp_status
find_end(ckpi_reader *r, uint64_t size, uint8_t rec[CKPI_ZIP_END_LEN], uint64_t *at, ckp_error *err)
{
    uint8_t *tail = NULL;
    const size_t n = (size_t)CKPI_MIN(size, CKPI_ZIP_END_LEN + COMMENT_MAX);
    if (n < CKPI_ZIP_END_LEN)
        return ckpi_fail_at(err, CKP_ETRUNCATED, size, "a zip archive of %llu bytes", (unsigned long long)size);
    tail = ckpi_malloc(n, 1);
    if (tail == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "zip: out of memory");
    ckp_status st = ckpi_reader_read(r, size - n, tail, n, err);
    size_t i = n - CKPI_ZIP_END_LEN + 1;
    bool found = false;
    while (st == CKP_OK && !found && i-- > 0)
        found = ckpi_ld32(tail + i) == CKPI_ZIP_END && ckpi_ld16(tail + i + 20) == n - i - CKPI_ZIP_END_LEN;
    if (found) {
        memcpy(rec, tail + i, CKPI_ZIP_END_LEN);
        *at = size - n + i;
    } else if (st == CKP_OK) {
        st = ckpi_fail_at(err, CKP_ETRUNCATED, size, "the zip archive's directory is missing: the file has %llu bytes and was cut, or something "
                          "follows its end", (unsigned long long)size);
    }
    free(tail);
    return st;
}

static ckp_status
read_end64(ckpi_reader *r, uint64_t end_at, ends *e, ckp_error *err)
{
    uint8_t loc[CKPI_ZIP_LOCATOR_LEN], rec[CKPI_ZIP_END64_LEN];
    if (end_at < CKPI_ZIP_LOCATOR_LEN + CKPI_ZIP_END64_LEN)
        return bad(err, end_at, "no room for a Zip64 end record");
    ckp_status st = ckpi_reader_read(r, end_at - sizeof loc, loc, sizeof loc, err);
    if (st != CKP_OK)
        return st;
    if (ckpi_ld32(loc) != CKPI_ZIP_LOCATOR)
        return bad(err, end_at - sizeof loc, "a Zip64 locator was expected");
    const uint64_t at = ckpi_ld64(loc + 8);
    if (at != end_at - sizeof loc - sizeof rec)
        return bad(err, end_at - sizeof loc, "a Zip64 locator that points elsewhere");
    st = ckpi_reader_read(r, at, rec, sizeof rec, err);
    if (st != CKP_OK)
        return st;
    if (ckpi_ld32(rec) != CKPI_ZIP_END64 || ckpi_ld64(rec + 4) != CKPI_ZIP_END64_LEN - 12 || ckpi_ld32(rec + 16) != 0 || ckpi_ld32(rec + 20) != 0 ||
        ckpi_ld64(rec + 24) != ckpi_ld64(rec + 32))
        return bad(err, at, "a Zip64 end record that is none, or an archive of several parts");
    *e = (ends){.dir = ckpi_ld64(rec + 48), .dir_len = ckpi_ld64(rec + 40), .entries = ckpi_ld64(rec + 32), .end = at};
    return CKP_OK;
}

/* Whether a locator stands before the end record: the narrow fields then say little. */
static ckp_status
has_end64(ckpi_reader *r, uint64_t end_at, bool *yes, ckp_error *err)
{
    uint8_t sig[4];
    *yes = false;
    if (end_at < CKPI_ZIP_LOCATOR_LEN)
        return CKP_OK;
    const ckp_status st = ckpi_reader_read(r, end_at - CKPI_ZIP_LOCATOR_LEN, sig, sizeof sig, err);
    *yes = st == CKP_OK && ckpi_ld32(sig) == CKPI_ZIP_LOCATOR;
    return st;
}

static ckp_status
read_end(ckpi_reader *r, uint64_t size, ends *e, ckp_error *err)
{
    uint8_t rec[CKPI_ZIP_END_LEN] = {0};
    uint64_t at = 0, sum;
    bool wide = false;
    ckp_status st = find_end(r, size, rec, &at, err);
    if (st == CKP_OK)
        st = has_end64(r, at, &wide, err);
    if (st != CKP_OK)
        return st;
    if (ckpi_ld16(rec + 4) != 0 || ckpi_ld16(rec + 6) != 0 || ckpi_ld16(rec + 8) != ckpi_ld16(rec + 10))
        return bad(err, at, "an archive of several parts");
    *e = (ends){.dir = ckpi_ld32(rec + 16), .dir_len = ckpi_ld32(rec + 12), .entries = ckpi_ld16(rec + 10), .end = at};
    if (wide && (st = read_end64(r, at, e, err)) != CKP_OK)
        return st;
    if (!ckpi_add_u64(e->dir, e->dir_len, &sum) || sum != e->end)
        return bad(err, at, "the directory does not end where the end record begins");
    if (e->entries > CKPI_MAX_ZIP_ENTRIES || e->dir_len > CKPI_MAX_TABLE)
        return ckpi_fail_at(err, CKP_ELIMIT, at, "a zip archive of %llu entries", (unsigned long long)e->entries);
    if (e->entries > e->dir_len / CKPI_ZIP_DIR_LEN)
        return bad(err, at, "more entries than the directory has room for");
    return CKP_OK;
}

/* ---- the directory ---- */

/* The fields that did not fit 32 bits, in the order of the specification. */
static bool
widen(const uint8_t *extra, size_t n, uint64_t *size, uint64_t *packed, uint64_t *header)
{
    uint64_t *field[3] = {size, packed, header};
    while (n >= 4) {
        const unsigned id = ckpi_ld16(extra);
        size_t len = ckpi_ld16(extra + 2);
        const uint8_t *p = extra + 4;
        if (len > n - 4)
            return false;
        extra += 4 + len;
        n -= 4 + len;
        if (id != CKPI_ZIP_EXTRA64)
            continue;
        for (int i = 0; i < 3; i++) {
            if (*field[i] != UINT32_MAX)
                continue;
            if (len < 8)
                return false;
            *field[i] = ckpi_ld64(p);
            p += 8;
            len -= 8;
        }
    }
    return n == 0;
}

static ckp_status
refuse_method(ckp_error *err, uint64_t at, unsigned flags, unsigned method, const char *name)
{
    if ((flags & 1) != 0)
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, at, "zip entry '%.200s' is encrypted", name);
    if (method != 0)
        return ckpi_fail_at(err, CKP_EUNSUPPORTED, at, "zip entry '%.200s' is compressed (method %u): torch.save stores its entries", name, method);
    return CKP_OK;
}

/* One entry at p (left bytes); *used: how long it is. */
static ckp_status
read_entry(ckpi_zip *z, const uint8_t *p, size_t left, uint64_t at, ckpi_zip_entry *e, size_t *used, ckp_error *err)
{
    if (left < CKPI_ZIP_DIR_LEN || ckpi_ld32(p) != CKPI_ZIP_DIR)
        return bad(err, at, "a directory entry was expected");
    const size_t name = ckpi_ld16(p + 28), extra = ckpi_ld16(p + 30), comment = ckpi_ld16(p + 32);
    uint64_t packed = ckpi_ld32(p + 20);
    *used = CKPI_ZIP_DIR_LEN + name + extra + comment;
    if (*used > left)
        return bad(err, at, "a directory entry that is cut");
    e->size = ckpi_ld32(p + 24);
    e->header = ckpi_ld32(p + 42);
    e->crc = ckpi_ld32(p + 16);
    char *text = ckpi_io_arena_copy(&z->arena, p + CKPI_ZIP_DIR_LEN, name);
    if (text == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "zip: out of memory");
    e->name = text;
    if (name == 0 || strlen(text) != name)
        return bad(err, at, "an entry without a name, or with a NUL in it");
    const ckp_status st = refuse_method(err, at, ckpi_ld16(p + 8), ckpi_ld16(p + 10), text);
    if (st != CKP_OK)
        return st;
    if (!widen(p + CKPI_ZIP_DIR_LEN + name, extra, &e->size, &packed, &e->header))
        return bad(err, at, "an entry's extra field that is broken");
    if (packed != e->size || ckpi_ld16(p + 34) != 0)
        return bad(err, at, "a stored entry of two sizes, or in another part");
    /* A folder's name ends in a slash; without it the name must be one that stays inside. */
    if (e->size == 0 && text[name - 1] == '/' && name > 1)
        text[name - 1] = 0;
    return ckpi_path_ok(text, err);
}

/* ---- local headers ---- */

static ckp_status
check_local(ckpi_reader *r, ckpi_zip_entry *e, uint64_t dir, ckp_error *err)
{
    uint8_t h[CKPI_ZIP_LOCAL_LEN], name[CKPI_PATH_MAX + 2];
    if (e->header > dir || dir - e->header < sizeof h)
        return bad(err, e->header, "an entry beyond the directory");
    ckp_status st = ckpi_reader_read(r, e->header, h, sizeof h, err);
    if (st != CKP_OK)
        return st;
    const size_t len = strlen(e->name), name_len = ckpi_ld16(h + 26), extra = ckpi_ld16(h + 28);
    if (ckpi_ld32(h) != CKPI_ZIP_LOCAL || ckpi_ld16(h + 8) != 0 || (ckpi_ld16(h + 6) & 1) != 0 || name_len < len || name_len > len + 1)
        return bad(err, e->header, "a local header that is none, or says other than the directory");
    e->data = e->header + sizeof h + name_len + extra;
    if (e->data > dir || dir - e->data < e->size)
        return ckpi_fail_at(err, CKP_ECORRUPT, e->header, "zip entry '%.200s' of %llu bytes runs into the directory", e->name,
                            (unsigned long long)e->size);
    st = ckpi_reader_read(r, e->header + sizeof h, name, name_len, err);
    if (st != CKP_OK)
        return st;
    if (memcmp(name, e->name, len) != 0 || (name_len > len && name[len] != '/'))
        return bad(err, e->header, "a local header with another name than the directory's");
    const uint32_t size = ckpi_ld32(h + 22);
    const bool later = (ckpi_ld16(h + 6) & CKPI_ZIP_FLAG_DESCRIPTOR) != 0;     /* sizes stand behind the data */
    if (size != UINT32_MAX && size != e->size && !(later && size == 0))
        return bad(err, e->header, "a local header with another size than the directory's");
    return CKP_OK;
}

static int
by_header(const void *a, const void *b)
{
    const ckpi_zip_entry *x = a, *y = b;
    return x->header < y->header ? -1 : x->header > y->header;
}

static ckp_status
check_all(ckpi_zip *z, ckpi_reader *r, uint64_t dir, ckp_error *err)
{
    uint64_t end = 0;
    if (z->n > 1)
        qsort(z->entry, z->n, sizeof *z->entry, by_header);
    for (size_t i = 0; i < z->n; i++) {
        ckpi_zip_entry *e = &z->entry[i];
        if (e->header < end)
            return ckpi_fail_at(err, CKP_ECORRUPT, e->header, "zip entry '%.200s' overlaps the one before it", e->name);
        const ckp_status st = check_local(r, e, dir, err);
        if (st != CKP_OK)
            return st;
        end = e->data + e->size;
        if (ckpi_zip_find(z, e->name) != NULL)
            return ckpi_fail_at(err, CKP_ECORRUPT, e->header, "zip entry '%.200s' comes twice", e->name);
        if (!ckpi_hindex_put(&z->by_name, ckpi_hash64(e->name, strlen(e->name)), (uint32_t)i))
            return ckpi_fail(err, CKP_ENOMEM, "zip: out of memory");
    }
    return CKP_OK;
}

static ckp_status
read_dir(ckpi_zip *z, ckpi_reader *r, const ends *e, ckp_error *err)
{
    uint8_t *dir = ckpi_malloc((size_t)e->dir_len, 1);
    size_t at = 0, used = 0;
    z->entry = ckpi_calloc((size_t)e->entries, sizeof *z->entry);
    ckp_status st = dir == NULL || z->entry == NULL ? ckpi_fail(err, CKP_ENOMEM, "zip: out of memory")
                                                    : ckpi_reader_read(r, e->dir, dir, (size_t)e->dir_len, err);
    for (; st == CKP_OK && z->n < e->entries; at += used) {
        st = read_entry(z, dir + at, (size_t)e->dir_len - at, e->dir + at, &z->entry[z->n], &used, err);
        z->n += st == CKP_OK;
    }
    if (st == CKP_OK && at != e->dir_len)
        st = bad(err, e->dir + at, "a directory that is longer than its entries");
    free(dir);
    return st;
}

ckp_status
ckpi_zip_open(ckpi_zip *z, ckpi_reader *r, ckp_error *err)
{
    ends e = {0};
    uint64_t size;
    *z = (ckpi_zip){0};
    ckp_status st = ckpi_reader_size(r, &size, err);
    if (st == CKP_OK)
        st = read_end(r, size, &e, err);
    if (st == CKP_OK)
        st = read_dir(z, r, &e, err);
    if (st == CKP_OK)
        st = check_all(z, r, e.dir, err);
    if (st != CKP_OK)
        ckpi_zip_free(z);
    return st;
}

void
ckpi_zip_free(ckpi_zip *z)
{
    free(z->entry);
    ckpi_hindex_free(&z->by_name);
    ckpi_io_arena_free(&z->arena);
    *z = (ckpi_zip){0};
}

const ckpi_zip_entry *
ckpi_zip_find(const ckpi_zip *z, const char *name)
{
    const uint64_t hash = ckpi_hash64(name, strlen(name));
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(&z->by_name, hash, &at)) != CKPI_HINDEX_NONE;)
        if (row < z->n && strcmp(z->entry[row].name, name) == 0)
            return &z->entry[row];
    return NULL;
}

ckp_status
ckpi_zip_check(ckpi_reader *r, const ckpi_zip_entry *e, ckp_error *err)
{
    const size_t step = (size_t)CKPI_MIN(e->size, (uint64_t)1 << 18);
    uint32_t crc = 0;
    ckpi_crc c;
    if (e->crc == 0 || e->size == 0)
        return CKP_OK;
    uint8_t *buf = ckpi_malloc(step, 1);
    if (buf == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "zip: out of memory");
    ckpi_crc_init(&c);
    ckp_status st = CKP_OK;
    for (uint64_t at = 0; at < e->size && st == CKP_OK; at += step) {
        const size_t n = (size_t)CKPI_MIN(e->size - at, step);
        st = ckpi_reader_read(r, e->data + at, buf, n, err);
        if (st == CKP_OK)
            crc = ckpi_crc_add(&c, crc, buf, n);
    }
    if (st == CKP_OK && crc != e->crc)
        st = ckpi_fail_at(err, CKP_ECORRUPT, e->data, "zip entry '%.200s' has CRC-32 %08x, its directory says %08x: the bytes were changed",
                          e->name, (unsigned)crc, (unsigned)e->crc);
    free(buf);
    return st;
}
