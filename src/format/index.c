/* SPDX-License-Identifier: Apache-2.0 */
#include "format/index.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/limits.h"
#include "base/float.h"
#include "format/section.h"

#define FRONT_BYTES 40u
#define MIN_ERRREC 5u

static void
put_front(uint8_t out[FRONT_BYTES], const ckpi_front *front)
{
    ckpi_st64(out, front->header_hash);
    ckpi_st_id(out + 8, front->table);
    ckpi_st_id(out + 24, front->tree);
}

void
ckpi_index_put(ckpi_buf *b, const ckpi_front *front, size_t n_chunks, const ckpi_buf *heads)
{
    uint8_t bytes[FRONT_BYTES];
    put_front(bytes, front);
    ckpi_buf_put(b, bytes, sizeof bytes);
    ckpi_buf_varint(b, n_chunks);
    ckpi_buf_put(b, heads->data, heads->len);
}

size_t
ckpi_index_begin(ckpi_rd *rd, const ckpi_front *front, uint64_t most_chunks)
{
    uint8_t want[FRONT_BYTES];
    put_front(want, front);
    const uint8_t *got = ckpi_rd_bytes(rd, FRONT_BYTES);
    if (got != NULL && memcmp(got, want, FRONT_BYTES) != 0)
        ckpi_rd_fail(rd, "the index of this header, table and tree");
    return (size_t)ckpi_rd_varint(rd, most_chunks);
}

bool
ckpi_index_matches(ckpi_rd *rd, const ckpi_front *front, size_t n_chunks, const ckpi_buf *heads)
{
    const size_t n = ckpi_index_begin(rd, front, n_chunks);
    const uint8_t *got = ckpi_rd_bytes(rd, heads->len);
    return ckpi_rd_ok(rd) && n == n_chunks && (heads->len == 0 || memcmp(got, heads->data, heads->len) == 0);
}

/* ---- error records: what precision a reader needs of them is two digits, so each error takes 16 bits ---- */

static uint16_t
bf16_up(float f)
{
    const uint32_t bits = ckpi_f32_bits(f);
    if (f != f)
        return 0x7fc0;
    /* Errors are not negative, so a larger pattern is a larger number, and the largest finite one goes to infinity. */
    return (uint16_t)((bits & 0x80000000u) != 0 ? 0 : (bits >> 16) + ((bits & 0xffff) != 0));
}

static int
by_tensor(const void *pa, const void *pb)
{
    const ckpi_errrec *a = pa, *b = pb;
    return a->tensor < b->tensor ? -1 : a->tensor > b->tensor;
}

static ckp_status
put_sorted(ckpi_buf *b, const ckpi_errrec *e, size_t n, size_t n_tensors, ckp_error *err)
{
    int64_t last = -1;
    ckpi_buf_varint(b, n);
    for (size_t i = 0; i < n; i++) {
        const bool odd = (e[i].n_nan | e[i].n_inf) != 0;
        if ((int64_t)e[i].tensor == last || e[i].tensor >= n_tensors)
            return ckpi_fail(err, CKP_EINVAL, "error records: tensor %u twice, or not in the table", e[i].tensor);
        ckpi_buf_varint(b, (uint64_t)((int64_t)e[i].tensor - last - 1) << 1 | odd);
        ckpi_buf_u16(b, bf16_up(e[i].max_rel));
        ckpi_buf_u16(b, bf16_up(e[i].rms_rel));
        if (odd) {
            ckpi_buf_varint(b, e[i].n_nan);
            ckpi_buf_varint(b, e[i].n_inf);
        }
        last = e[i].tensor;
    }
    return CKP_OK;
}

ckp_status
ckpi_errrecs_put(ckpi_buf *b, const ckpi_errrec *e, size_t n, size_t n_tensors, ckp_error *err)
{
    ckpi_errrec *sorted = ckpi_malloc(n, sizeof *sorted);
    if (sorted == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "error records: out of memory");
    if (n != 0) {
        memcpy(sorted, e, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, by_tensor);
    }
    const ckp_status st = put_sorted(b, sorted, n, n_tensors, err);
    free(sorted);
    return st;
}

ckp_status
ckpi_errrecs_get(ckpi_rd *rd, ckpi_errrec **out, size_t *n, size_t n_tensors, ckp_error *err)
{
    uint64_t next = 0;
    *out = NULL;
    *n = (size_t)ckpi_rd_varint(rd, n_tensors);
    if (*n > ckpi_rd_left(rd) / MIN_ERRREC)
        ckpi_rd_fail(rd, "as many error records as the count says");
    if (!ckpi_rd_ok(rd) || *n == 0)
        return CKP_OK;           /* the caller asks the cursor */
    ckpi_errrec *e = ckpi_calloc(*n, sizeof *e);
    if (e == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "error records: out of memory");
    for (size_t i = 0; i < *n && ckpi_rd_ok(rd); i++) {
        const uint64_t head = ckpi_rd_varint(rd, 2 * (uint64_t)CKPI_MAX_TENSORS);
        next += head >> 1;
        if (next >= n_tensors)
            ckpi_rd_fail(rd, "a tensor of the table");
        e[i].tensor = (uint32_t)next++;
        e[i].max_rel = ckpi_f32_from_bits((uint32_t)ckpi_rd_u16(rd) << 16);
        e[i].rms_rel = ckpi_f32_from_bits((uint32_t)ckpi_rd_u16(rd) << 16);
        if ((head & 1) != 0) {
            e[i].n_nan = ckpi_rd_varint(rd, UINT64_MAX);
            e[i].n_inf = ckpi_rd_varint(rd, UINT64_MAX);
        }
    }
    *out = e;
    return CKP_OK;
}
