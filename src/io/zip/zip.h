/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zip archives as torch.save writes them: stored entries, Zip64. The directory and every local header must agree, entries must not
 * overlap, names must stay in the archive, and nothing may follow the end record. Compressed or encrypted entries are refused.
 */
#ifndef CKPI_IO_ZIP_H
#define CKPI_IO_ZIP_H
#include "io/arena.h"
#include "os/os.h"
#include "state/hindex.h"

typedef struct ckpi_zip_entry {
    const char *name;
    uint64_t header;         /* offset of the local header */
    uint64_t data, size;     /* where the bytes are */
    uint32_t crc;
} ckpi_zip_entry;

typedef struct ckpi_zip {
    ckpi_io_arena arena;     /* names */
    ckpi_zip_entry *entry;   /* by offset */
    size_t n;
    ckpi_hindex by_name;
} ckpi_zip;

/* *z is empty on failure. */
CKP_MUST_USE ckp_status ckpi_zip_open(ckpi_zip *z, ckpi_reader *r, ckp_error *err);
void ckpi_zip_free(ckpi_zip *z);
const ckpi_zip_entry *ckpi_zip_find(const ckpi_zip *z, const char *name);      /* NULL when absent */
/* Reads an entry through and compares its CRC-32. An entry without one (torch can leave it out: 0) passes. */
CKP_MUST_USE ckp_status ckpi_zip_check(ckpi_reader *r, const ckpi_zip_entry *e, ckp_error *err);

/* ---- writing (zip_write.c) ---- */

/*
 * Entries one after another, sizes known beforehand, CRC-32 behind each in a data descriptor, so that it streams. Data begin at
 * multiples of 64 bytes, by an extra field "FB" as torch pads.
 */
typedef struct ckpi_zip_writer ckpi_zip_writer;
CKP_MUST_USE ckp_status ckpi_zip_writer_new(ckpi_zip_writer **out, ckpi_writer *w, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_zip_begin(ckpi_zip_writer *z, const char *name, uint64_t size, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_zip_put(ckpi_zip_writer *z, const void *p, size_t n, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_zip_end(ckpi_zip_writer *z, ckp_error *err);
/* A whole small entry. */
CKP_MUST_USE ckp_status ckpi_zip_add(ckpi_zip_writer *z, const char *name, const void *p, size_t n, ckp_error *err);
/* Directory and end records. */
CKP_MUST_USE ckp_status ckpi_zip_finish(ckpi_zip_writer *z, ckp_error *err);
void ckpi_zip_writer_free(ckpi_zip_writer *z);

/* Record layouts that both sides use (PKWARE's APPNOTE 6.3, chapter 4). */
#define CKPI_ZIP_LOCAL 0x04034b50u
#define CKPI_ZIP_LOCAL_LEN 30
#define CKPI_ZIP_DESCRIPTOR 0x08074b50u
#define CKPI_ZIP_DIR 0x02014b50u
#define CKPI_ZIP_DIR_LEN 46
#define CKPI_ZIP_END 0x06054b50u
#define CKPI_ZIP_END_LEN 22
#define CKPI_ZIP_END64 0x06064b50u
#define CKPI_ZIP_END64_LEN 56
#define CKPI_ZIP_LOCATOR 0x07064b50u
#define CKPI_ZIP_LOCATOR_LEN 20
#define CKPI_ZIP_EXTRA64 0x0001
#define CKPI_ZIP_FLAG_DESCRIPTOR 0x0008
#define CKPI_ZIP_FLAG_UTF8 0x0800
#endif
