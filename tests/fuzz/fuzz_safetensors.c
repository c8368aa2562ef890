/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file of any bytes. What is accepted must come back byte for byte. */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "io/io.h"
#include "state/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Accepted, so the tensors' data lie in the input: it is never more than that. */
static void
feed(ckpi_export *e, const ckp_state *s)
{
    for (uint32_t i; (i = ckpi_export_next(e)) != UINT32_MAX;) {
        const ckpi_tensor *t = &s->t[i];
        uint8_t *p = malloc((size_t)t->bytes + 1);
        if (p == NULL || ckpi_tensor_copy_out(t, 0, t->numel, p, NULL) != CKP_OK || ckpi_export_begin(e, i, NULL) != CKP_OK ||
            ckpi_export_put(e, p, (size_t)t->bytes, NULL) != CKP_OK)
            abort();
        free(p);
    }
}

static void
write_back(const ckp_state *s, const uint8_t *data, size_t size)
{
    ckpi_out_tensor *rows = calloc(s->n + 1, sizeof *rows);
    ckpi_buf out = CKPI_BUF_INIT;
    ckpi_writer *w;
    ckpi_export *e;
    const void *header;
    size_t len;
    if (rows == NULL || ckpi_tree_st_header(s->tree.data, s->tree.len, &header, &len, NULL) != CKP_OK)
        abort();
    for (size_t i = 0; i < s->n; i++)
        rows[i] = (ckpi_out_tensor){s->t[i].name, s->t[i].dtype, s->t[i].ndim, s->t[i].shape, s->t[i].bytes, UINT32_MAX};
    if (ckpi_writer_mem(&w, &out, NULL) != CKP_OK || ckpi_export_st_same(&e, w, header, len, rows, s->n, NULL) != CKP_OK)
        abort();
    feed(e, s);
    if (ckpi_export_finish(e, NULL) != CKP_OK || out.len != size || memcmp(out.data, data, size) != 0)
        abort();
    ckpi_export_free(e);
    ckpi_writer_free(w);
    ckpi_buf_free(&out);
    free(rows);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpi_reader *r;
    ckpi_foreign *f;
    if (ckpi_reader_mem(&r, data, size, "fuzz", NULL) != CKP_OK)
        return 0;
    if (ckpi_foreign_open(&f, r, NULL, NULL) == CKP_OK) {
        if (ckpi_foreign_what(f) == CKPI_FOREIGN_SAFETENSORS)
            write_back(ckpi_foreign_state(f), data, size);
        ckpi_foreign_close(f);
    }
    ckpi_reader_free(r);
    return 0;
}
