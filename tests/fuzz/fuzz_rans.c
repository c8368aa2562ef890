/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a rANS stream: no crash, and every instruction set agrees on status and symbols. The first two bytes give the number
 * of symbols. The same bytes as symbols come back from a stream of their own.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "codec/rans/rans.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(int ok)
{
    if (!ok)
        abort();
}

static void
round_trip(const uint8_t *data, size_t n, ckpi_scratch *ws)
{
    const size_t cap = ckpi_rans_bound(n);
    uint8_t *enc = malloc(cap + 1), *dst = malloc(n + 1);
    size_t len = 0;
    require(enc != NULL && dst != NULL);
    require(ckpi_rans_encode(data, n, NULL, enc, cap, &len, ws, ckpi_cpu(), NULL) == CKP_OK);
    require(ckpi_rans_decode(enc, len, dst, n, ws, 0, NULL) == CKP_OK && memcmp(dst, data, n) == 0);
    free(enc);
    free(dst);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const size_t n = (size_t)data[0] << 8 | data[1];
    ckpi_scratch *ws = ckpi_scratch_new();
    uint8_t *a = malloc(n + 1), *b = malloc(n + 1);
    require(ws != NULL && a != NULL && b != NULL);
    const ckp_status st = ckpi_rans_decode(data + 2, size - 2, a, n, ws, 0, NULL);
    require(st == CKP_OK || st == CKP_ECORRUPT);
    const uint32_t words[2] = {ckpi_cpu() & (CKPI_CPU_AVX2 | CKPI_CPU_NEON), ckpi_cpu()};
    for (int i = 0; i < 2; i++) {
        require(ckpi_rans_decode(data + 2, size - 2, b, n, ws, words[i], NULL) == st);
        require(st != CKP_OK || memcmp(a, b, n) == 0);
    }
    round_trip(data, size, ws);
    free(a);
    free(b);
    ckpi_scratch_free(ws);
    return 0;
}
