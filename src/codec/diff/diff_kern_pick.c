/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/diff/diff_kern_rows.h"

const ckpi_diff_kern *
ckpi_diff_kern_pick(unsigned width, uint32_t cpu)
{
#if CKPI_X86
    if (width == 2 || width == 4) {
        const ckpi_diff_kern *const rows[] = {&ckpi_diff_kern_avx512[width / 4], &ckpi_diff_kern_avx2[width / 4]};
        for (unsigned i = 0; i < 2; i++) {
            if ((cpu & rows[i]->needs) == rows[i]->needs)
                return rows[i];
        }
    }
#else
    (void)cpu;
#endif
    return &ckpi_diff_kern_ref[width == 1 ? 0 : width == 2 ? 1 : width == 4 ? 2 : 3];
}

void
ckpi_diff_symbols(const ckpi_diff_par *p, const void *words, const void *base, size_t n, uint8_t *sym, void *magnitude, uint32_t cpu)
{
    const size_t done = ckpi_diff_kern_pick(p->width, cpu)->symbols(p, words, base, n, sym, magnitude), at = done * p->width;
    if (done < n)
        ckpi_diff_kern_pick(p->width, 0)->symbols(p, (const uint8_t *)words + at, (const uint8_t *)base + at, n - done, sym + done,
                                                  (uint8_t *)magnitude + at);
}
