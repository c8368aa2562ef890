/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of ARM. */
#ifndef CKPI_CODEC_RANS_KERN_ARM_H
#define CKPI_CODEC_RANS_KERN_ARM_H
#include "codec/rans/rans_kern.h"

/* small: up to 16 symbols; medium: up to 64; class: CLASSES and BITS */
ckpi_rans_dec_fn ckpi_rans_dec_small_neon, ckpi_rans_dec_medium_neon, ckpi_rans_dec_class_neon;
#endif
