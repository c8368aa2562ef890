/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for NEON. */
#include "base/cpu.h"
#if CKPI_ARM
#include <float.h>
#include <math.h>
#include "quant/num.h"
#include "quant/vec_neon.h"

CKPI_NO_CONTRACT

#define NAME(kernel) ckpi_q_##kernel##_neon
#include "quant/kern_enc.inc"
#include "quant/kern_dec.inc"
#include "quant/kern_stat.inc"
#endif
