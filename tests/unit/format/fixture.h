/* SPDX-License-Identifier: Apache-2.0 */
/* Small files in memory, with everything the format has: aliases, copies, boxes, ranges, packed and empty tensors, a tree. */
#ifndef CKP_TESTS_FORMAT_FIXTURE_H
#define CKP_TESTS_FORMAT_FIXTURE_H
#include "base/buf.h"
#include "format/format.h"
#include "harness/check.h"

typedef struct fx_opts {
    uint64_t chunk_elems;        /* at most this many in a chunk; 0: 2^20 */
    const ckpi_file_info *info;  /* NULL: a lossy-capable key */
    const ckpi_table *ref_table;
    const void *ref_tree;
    size_t ref_tree_len;
    int step;                    /* changes tree and payloads */
} fx_opts;

/* A state of every kind of tensor (payload bytes are made up by fx_write, not read from it). */
ckp_state *fx_state(int step);
ckpi_table *fx_table(const ckp_state *s);
/* A whole file: every stored tensor in raw chunks. Statuses other than CKP_OK come from allocations or the writer. */
ckp_status fx_write_to(ckpi_writer *w, const ckpi_table *t, const ckp_state *s, const fx_opts *o, ckpi_fmt_sum *sum, ckp_error *err);
void fx_write(ckpi_buf *out, const ckpi_table *t, const ckp_state *s, const fx_opts *o, ckpi_fmt_sum *sum);
/* State, table and file in one go. */
void fx_file(ckpi_buf *out, const fx_opts *o, ckpi_fmt_sum *sum);

ckpi_fmt_file *fx_open(const ckpi_buf *file);
/* Opens and reads every chunk; the first failure, if any. */
ckp_status fx_read_all(const void *p, size_t n, ckp_error *err);
/* The same front to back. seen: chunks that came out. */
ckp_status fx_stream_all(const void *p, size_t n, bool salvage, size_t *seen, uint64_t *skipped, ckp_error *err);
#endif
