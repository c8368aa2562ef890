/* SPDX-License-Identifier: Apache-2.0 */
/* Between diff_bits*.c only. */
#ifndef CKPI_CODEC_DIFF_BITS_ROWS_H
#define CKPI_CODEC_DIFF_BITS_ROWS_H
#include "base/cpu.h"
#include "codec/diff/diff.h"

#if CKPI_X86
/* ckpi_diff_join for a leading part of n elements of 2 or 4 bytes: returns its length, *bits how far it has read. */
size_t ckpi_diff_join_vbmi2(const ckpi_diff_par *p, void *words, const void *base, const uint8_t *src, size_t len, const uint8_t *sym,
                            size_t n, uint64_t *bits);
#endif
#endif
