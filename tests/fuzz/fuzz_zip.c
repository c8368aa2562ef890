/* SPDX-License-Identifier: Apache-2.0 */
/* A file of torch.save (zip or legacy) of any bytes: opened, matched, sealed, and a part of every tensor read. */
#include "io/io.h"
#include "state/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
read_some(ckp_state *s)
{
    uint8_t buf[64 * 32];
    if (ckpi_state_seal(s, NULL) != CKP_OK)
        return;
    for (size_t i = 0; i < s->n; i++) {
        const uint64_t n = s->t[i].numel < 64 ? s->t[i].numel : 64;
        (void)!ckpi_tensor_copy_out(&s->t[i], s->t[i].numel - n, n, buf, NULL);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const ckpi_foreign_options opts = {.check_crc = true};
    ckpi_reader *r;
    ckpi_foreign *f;
    if (ckpi_reader_mem(&r, data, size, "fuzz", NULL) != CKP_OK)
        return 0;
    if (ckpi_foreign_open(&f, r, &opts, NULL) == CKP_OK) {
        read_some(ckpi_foreign_state(f));
        ckpi_foreign_close(f);
    }
    ckpi_reader_free(r);
    return 0;
}
