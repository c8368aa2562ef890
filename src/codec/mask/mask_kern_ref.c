/* SPDX-License-Identifier: Apache-2.0 */
/* The contract, once for each width. */
#include <string.h>

#include "codec/mask/mask_kern.h"

#define WIDTH 1
#define NAME(f) f##1
#include "codec/mask/mask_kern_ref.inc"
#define WIDTH 2
#define NAME(f) f##2
#include "codec/mask/mask_kern_ref.inc"
#define WIDTH 4
#define NAME(f) f##4
#include "codec/mask/mask_kern_ref.inc"

const ckpi_mask_ops ckpi_mask_ops_ref = {
    .split = {split1, split2, split4},
    .join = {join1, join2, join4},
};
