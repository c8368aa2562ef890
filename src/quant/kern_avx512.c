/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for AVX-512. */
#include "base/cpu.h"
#if CKPI_X86
#include <float.h>
#include <math.h>
#include "quant/num.h"
#include "quant/vec_avx512.h"

CKPI_NO_CONTRACT

#define NAME(kernel) ckpi_q_##kernel##_avx512
#include "quant/kern_enc.inc"
#include "quant/kern_dec.inc"
#include "quant/kern_stat.inc"
#endif
