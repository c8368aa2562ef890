/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file as a state: rows in file order, the header verbatim in the tree. */
#include "base/bytes.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/limits.h"
#include "io/foreign.h"
#include "io/safetensors/st.h"

/* A length that the file cannot hold is refused before anything is allocated for it; a pipe pays piece by piece. */
static ckp_status
read_header(ckpi_foreign *f, uint64_t len, ckpi_buf *header, ckp_error *err)
{
    const size_t step = (size_t)1 << 20;
    uint64_t size;
    if (len > CKPI_MAX_ST_HEADER)
        return ckpi_fail_at(err, CKP_ELIMIT, 0, "a safetensors header of %llu bytes: the format allows %u", (unsigned long long)len,
                            CKPI_MAX_ST_HEADER);
    if (ckpi_reader_seekable(f->file.r)) {
        const ckp_status st = ckpi_reader_size(f->file.r, &size, err);
        if (st != CKP_OK)
            return st;
        if (len > size - CKPI_ST_PREFIX)
            return ckpi_fail_at(err, CKP_ETRUNCATED, 0, "a safetensors header of %llu bytes in a file of %llu", (unsigned long long)len,
                                (unsigned long long)size);
    }
    while (header->len < len) {
        const size_t n = (size_t)CKPI_MIN(len - header->len, step);
        const uint64_t at = CKPI_ST_PREFIX + header->len;
        uint8_t *p = ckpi_buf_extend(header, n);
        if (p == NULL)
            return ckpi_buf_status(header, err, "safetensors header");
        const ckp_status st = ckpi_reader_read(f->file.r, at, p, n, err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

static ckp_status
check_end(ckpi_foreign *f, ckp_error *err)
{
    uint64_t size;
    if (!ckpi_reader_seekable(f->file.r))
        return CKP_OK;
    const ckp_status st = ckpi_reader_size(f->file.r, &size, err);
    if (st != CKP_OK)
        return st;
    if (size < f->end)
        return ckpi_fail_at(err, CKP_ETRUNCATED, size, "the file has %llu bytes, its tensors end at %llu", (unsigned long long)size,
                            (unsigned long long)f->end);
    if (size > f->end)
        return ckpi_fail_at(err, CKP_ECORRUPT, f->end, "%llu bytes follow the last tensor, which ends at %llu",
                            (unsigned long long)(size - f->end), (unsigned long long)f->end);
    return CKP_OK;
}

static ckp_status
add_tensor(ckpi_foreign *f, const ckpi_st_entry *e, uint64_t data_at, ckp_error *err)
{
    ckpi_source *s = ckpi_io_arena_get(&f->arena, 1, sizeof *s);
    char *name = ckpi_io_arena_copy(&f->arena, e->name, strlen(e->name));
    uint64_t *shape = ckpi_io_arena_copy(&f->arena, e->shape, e->ndim * sizeof *shape);
    if (s == NULL || name == NULL || shape == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "out of memory");
    *s = (ckpi_source){.file = &f->file, .name = name, .offset = data_at + e->begin, .dtype = e->dtype, .ndim = e->ndim, .shape = shape};
    (void)ckpi_shape_numel(shape, e->ndim, &s->numel);     /* the parser has checked it */

    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = e->dtype;
    t.ndim = e->ndim;
    t.shape = shape;
    t.pull = ckpi_source_pull;
    t.pull_user = s;
    return ckp_state_add_tensor(f->state, name, CKP_ROLE_WEIGHT, NULL, &t, NULL, err);
}

/* Bytes of the header stay as they are: order, metadata and padding come back with them. */
static ckp_status
put_tree(ckpi_foreign *f, const ckpi_buf *header, ckp_error *err)
{
    const ckp_tree_node named = {.type = CKP_TREE_NAMED, .data = CKPI_TREE_SAFETENSORS, .len = strlen(CKPI_TREE_SAFETENSORS)};
    const ckp_tree_node bytes = {.type = CKP_TREE_BYTES, .data = header->data, .len = header->len};
    const ckp_status st = ckp_state_tree_put(f->state, &named, err);
    return st == CKP_OK ? ckp_state_tree_put(f->state, &bytes, err) : st;
}

ckp_status
ckpi_st_open(ckpi_foreign *f, const uint8_t *head, size_t n, ckp_error *err)
{
    ckpi_buf header = CKPI_BUF_INIT;
    ckpi_st st = {0};
    const uint64_t len = n >= CKPI_ST_PREFIX ? ckpi_ld64(head) : 0;
    ckp_status rc = read_header(f, len, &header, err);
    if (rc != CKP_OK)
        goto done;
    rc = ckpi_st_parse(&st, header.data, header.len, err);
    if (rc != CKP_OK)
        goto done;
    if (!ckpi_add_u64(CKPI_ST_PREFIX + len, st.data_bytes, &f->end)) {
        rc = ckpi_fail(err, CKP_ECORRUPT, "tensors of more than 2^64 bytes");
        goto done;
    }
    rc = check_end(f, err);
    for (size_t i = 0; i < st.n && rc == CKP_OK; i++)
        rc = add_tensor(f, &st.t[i], CKPI_ST_PREFIX + len, err);
    if (rc == CKP_OK)
        rc = put_tree(f, &header, err);
done:
    ckpi_st_free(&st);
    ckpi_buf_free(&header);
    return rc;
}
