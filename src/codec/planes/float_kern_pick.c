/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"
#include "codec/planes/float_kern_rows.h"

const ckpi_float_kern *
ckpi_float_kern_pick(unsigned width, uint32_t cpu)
{
    const unsigned k = width == 2 ? 0 : width == 4 ? 1 : 2;
#if CKPI_X86
    if (k < 2 && (cpu & ckpi_float_kern_avx512[k].needs) == ckpi_float_kern_avx512[k].needs)
        return &ckpi_float_kern_avx512[k];
    if (k < 2 && (cpu & ckpi_float_kern_avx2[k].needs) == ckpi_float_kern_avx2[k].needs)
        return &ckpi_float_kern_avx2[k];
#else
    (void)cpu;
#endif
    return &ckpi_float_kern_ref[k];
}

size_t
ckpi_float_split(unsigned width, uint32_t cpu, const ckpi_float_row *r, const void *words, size_t n, uint8_t *sym, uint8_t *low, uint8_t *top)
{
    size_t escapes = 0;
    const size_t done = ckpi_float_kern_pick(width, cpu)->split(r, words, n, sym, low, top, &escapes);
    if (done < n) {
        ckpi_float_row rest = *r;
        rest.col += done;
        ckpi_float_kern_pick(width, 0)->split(&rest, (const uint8_t *)words + done * width, n - done, sym + done,
                                              low != NULL ? low + done * r->low_bytes : NULL, top != NULL ? top + done : NULL, &escapes);
    }
    return escapes;
}

void
ckpi_float_merge(unsigned width, uint32_t cpu, const ckpi_float_row *r, void *words, size_t n, const uint8_t *sym, const uint8_t *low,
                 const uint8_t *top)
{
    const size_t done = ckpi_float_kern_pick(width, cpu)->merge(r, words, n, sym, low, top);
    if (done < n) {
        ckpi_float_row rest = *r;
        rest.col += done;
        ckpi_float_kern_pick(width, 0)->merge(&rest, (uint8_t *)words + done * width, n - done, sym + done,
                                              low != NULL ? low + done * r->low_bytes : NULL, top != NULL ? top + done : NULL);
    }
}
