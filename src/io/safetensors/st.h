/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A safetensors file: u64 length, JSON header, data. Every rule of the format is checked here, before any tensor is believed:
 * the header begins with '{', is one strict UTF-8 JSON object and is padded with spaces only; no name comes twice (however escaped);
 * __metadata__ maps strings to strings; a tensor's bytes are what its dtype and shape make; in order of offset the tensors cover
 * the data without hole or overlap. That nothing follows the data is the opener's check: only he knows the file's end.
 */
#ifndef CKPI_IO_ST_H
#define CKPI_IO_ST_H
#include <stdbool.h>
#include <ckpress/base.h>
#include "io/arena.h"

#define CKPI_ST_PREFIX 8      /* bytes before the header */

typedef struct ckpi_st_entry {
    const char *name;
    ckp_dtype dtype;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t begin, end;      /* in the data, which starts behind the header */
    uint64_t at;              /* in the file, of the name in the header: for errors */
} ckpi_st_entry;

typedef struct ckpi_st {
    ckpi_io_arena arena;         /* names and shapes */
    ckpi_st_entry *t;         /* in file order: by offset */
    size_t n, cap;
    const char **meta;        /* __metadata__: keys and values in turn, by key */
    size_t n_meta;            /* pairs */
    uint64_t data_bytes;
} ckpi_st;

/* Parses the header (without its length). *out is empty on failure. */
CKP_MUST_USE ckp_status ckpi_st_parse(ckpi_st *out, const void *header, size_t len, ckp_error *err);
void ckpi_st_free(ckpi_st *st);

/* dtype names of the format, both ways: 0 and NULL when there is none. */
ckp_dtype ckpi_st_dtype(const char *name);
const char *ckpi_st_dtype_name(ckp_dtype dt);
#endif
