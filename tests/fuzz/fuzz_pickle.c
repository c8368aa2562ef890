/* SPDX-License-Identifier: Apache-2.0 */
/* A pickle of any bytes: read, made a state, matched, and written as a pickle again, which must be readable. */
#include <stdlib.h>
#include "io/torch/pt_write.h"
#include "io/torch/torch.h"
#include "state/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BYTES_MAX ((uint64_t)1 << 20)

/* Zeros for every tensor, if they are few. */
static void
write_back(const ckp_state *s)
{
    static const uint8_t zeros[4096];
    ckpi_buf out = CKPI_BUF_INIT;
    ckpi_writer *w = NULL;
    ckpi_export *e = NULL;
    ckpi_out_tensor *rows = calloc(s->n + 1, sizeof *rows);
    uint64_t sum = 0;
    if (rows == NULL)
        abort();
    for (size_t i = 0; i < s->n; i++) {
        rows[i] = (ckpi_out_tensor){s->t[i].name, s->t[i].dtype, s->t[i].ndim, s->t[i].shape, s->t[i].bytes, s->t[i].alias_of};
        sum += s->t[i].bytes < BYTES_MAX ? s->t[i].bytes : BYTES_MAX;
    }
    if (ckpi_writer_mem(&w, &out, NULL) != CKP_OK)
        abort();
    if (sum < BYTES_MAX && ckpi_export_pt(&e, w, "a", rows, s->n, s->tree.data, s->tree.len, NULL) == CKP_OK) {
        for (uint32_t i; (i = ckpi_export_next(e)) != UINT32_MAX;) {
            if (ckpi_export_begin(e, i, NULL) != CKP_OK)
                abort();
            for (uint64_t left = rows[i].bytes; left > 0;) {
                const size_t n = (size_t)(left < sizeof zeros ? left : sizeof zeros);
                if (ckpi_export_put(e, zeros, n, NULL) != CKP_OK)
                    abort();
                left -= n;
            }
        }
        (void)!ckpi_export_finish(e, NULL);
    }
    ckpi_export_free(e);
    ckpi_writer_free(w);
    ckpi_buf_free(&out);
    free(rows);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpi_foreign f = {.kind = CKPI_FOREIGN_TORCH_ZIP};
    ckpi_pickle p;
    ckpi_pv *root;
    if (ckp_state_new(&f.state, NULL) != CKP_OK)
        return 0;
    if (ckpi_pickle_init(&p, &f.arena, data, size, 0, NULL) == CKP_OK && ckpi_pickle_load(&p, &root) == CKP_OK) {
        for (size_t i = 0; i < p.n_storage; i++)
            p.storage[i]->placed = true;
        if (ckpi_pt_emit(&f, &p, root, NULL) == CKP_OK && ckpi_state_seal(f.state, NULL) == CKP_OK)
            write_back(f.state);
    }
    ckpi_pickle_free(&p);
    ckp_state_free(f.state);
    ckpi_io_arena_free(&f.arena);
    return 0;
}
