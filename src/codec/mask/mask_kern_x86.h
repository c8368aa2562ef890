/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPI_CODEC_MASK_KERN_X86_H
#define CKPI_CODEC_MASK_KERN_X86_H
#include "codec/mask/mask_kern.h"

extern const ckpi_mask_ops ckpi_mask_ops_vbmi2, ckpi_mask_ops_avx2;
#endif
