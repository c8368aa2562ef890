/* SPDX-License-Identifier: Apache-2.0 */
/* The contract: plain C for each word width. */
#include "base/bytes.h"
#include "codec/planes/float_kern.h"
#include "codec/planes/float_kern_rows.h"

#define NAME(f) f##_16_ref
#define WORD uint16_t
#define LOAD ckpi_ld16
#define STORE ckpi_st16
#include "codec/planes/float_kern.inc"
#define NAME(f) f##_16_ref
#define TARGET
#define WORD uint16_t
#define LOAD ckpi_ld16
#include "codec/planes/float_look.inc"

#define NAME(f) f##_32_ref
#define WORD uint32_t
#define LOAD ckpi_ld32
#define STORE ckpi_st32
#include "codec/planes/float_kern.inc"
#define NAME(f) f##_32_ref
#define TARGET
#define WORD uint32_t
#define LOAD ckpi_ld32
#include "codec/planes/float_look.inc"

#define NAME(f) f##_64_ref
#define WORD uint64_t
#define LOAD ckpi_ld64
#define STORE ckpi_st64
#include "codec/planes/float_kern.inc"
#define NAME(f) f##_64_ref
#define TARGET
#define WORD uint64_t
#define LOAD ckpi_ld64
#include "codec/planes/float_look.inc"

const ckpi_float_kern ckpi_float_kern_ref[3] = {
    {0, split_16_ref, merge_16_ref, scan_16_ref, sum_16_ref},
    {0, split_32_ref, merge_32_ref, scan_32_ref, sum_32_ref},
    {0, split_64_ref, merge_64_ref, scan_64_ref, sum_64_ref},
};
