/* SPDX-License-Identifier: Apache-2.0 */
/* zstd at a chosen level; the registry's row uses the fast one. */
#ifndef CKPI_CODEC_LZ_H
#define CKPI_CODEC_LZ_H
#include "codec/codec.h"

enum { CKPI_LZ_FAST = 1, CKPI_LZ_SMALL = 12 };

/* cap: at least the row's bound. CKP_OK, CKP_EINVAL, CKP_ENOMEM. */
CKP_MUST_USE ckp_status ckpi_lz_encode(const ckpi_block *b, int level, uint8_t *dst, size_t cap, size_t *len, ckp_error *err);
#endif
