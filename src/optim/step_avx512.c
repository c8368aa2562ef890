/* SPDX-License-Identifier: Apache-2.0 */
/* The step for AVX512. */
#include "base/cpu.h"
#if CKPI_X86
#include <stdbool.h>
#include <string.h>
#include "base/float.h"
#include "optim/kern.h"
#include "optim/pack.h"
#include "optim/row.h"
#include "optim/vec_avx512.h"

CKPI_NO_CONTRACT

#define NAME(f) f##_avx512
#include "optim/step_kern.inc"
#include "optim/momentum_kern.inc"
#endif
