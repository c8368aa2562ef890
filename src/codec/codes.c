/* SPDX-License-Identifier: Apache-2.0 */
/* A quantizer's codes: split into mask and values, then the entropies of both ways, by counting, say which one to write. */
#include <string.h>

#include "base/fail.h"
#include "codec/mask/mask.h"
#include "codec/rans/rans.h"
#include "codec/rows.h"

/* Whether one stream of all codes would be smaller, by more than mask and values are faster: 0.5 % and 64 bytes in 2^20 codes. */
static bool
one_stream_wins(const ckpi_mask_parts *p)
{
    enum { SECOND_STREAM = 24 }; /* table and states of a small stream, roughly */
    uint32_t all[256];
    memcpy(all, p->value_hist, sizeof all);
    all[0] += (uint32_t)(p->n - p->count); /* there are some already when every code was kept */
    const uint64_t two = ckpi_rans_entropy_bytes(p->mask_hist) + ckpi_rans_entropy_bytes(p->value_hist) + SECOND_STREAM;
    return ckpi_rans_entropy_bytes(all) + p->n / 16384 < two - two / 200;
}

ckp_status
ckpi_codec_codes(const int8_t *codes, size_t n, uint8_t *dst, size_t cap, size_t *len, uint8_t *id, ckpi_scratch *ws, uint32_t cpu,
                 ckp_error *err)
{
    if (n > CKPI_RANS_MAX)
        return ckpi_fail(err, CKP_EINVAL, "codes: %zu of them in one chunk", n);
    const size_t mark = ckpi_scratch_mark(ws);
    const uint8_t *bytes = (const uint8_t *)codes;
    ckpi_mask_parts p;
    ckp_status st = ckpi_mask_split(&p, bytes, NULL, n, 1, ws, cpu, err);
    if (st != CKP_OK)
        goto done;
    if (p.count == 0) {
        *id = CKPI_CODEC_ZERO;
        *len = 0;
    } else if (one_stream_wins(&p)) {
        *id = CKPI_CODEC_RANS;
        p.value_hist[0] += (uint32_t)(n - p.count);
        st = ckpi_rans_encode(bytes, n, p.value_hist, dst, cap, len, ws, cpu, err);
    } else {
        *id = CKPI_CODEC_MASK;
        st = ckpi_mask_write(&p, dst, cap, len, ws, cpu, err);
    }
done:
    ckpi_scratch_release(ws, mark);
    return st;
}
