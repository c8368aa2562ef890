/* SPDX-License-Identifier: Apache-2.0 */
/* The step for NEON. */
#include "base/cpu.h"
#if CKPI_ARM
#include <string.h>
#include "base/float.h"
#include "optim/kern.h"
#include "optim/pack.h"
#include "optim/row.h"
#include "optim/vec_neon.h"

CKPI_NO_CONTRACT

#define NAME(f) f##_neon
#include "optim/step_kern.inc"
#include "optim/momentum_kern.inc"
#endif
