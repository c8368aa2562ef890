/* SPDX-License-Identifier: Apache-2.0 */
/* The contract: plain C for each word width. */
#include "base/bytes.h"
#include "codec/diff/diff_kern_rows.h"

static inline uint8_t
load8(const void *p)
{
    return *(const uint8_t *)p;
}

static inline void
store8(void *p, uint8_t v)
{
    *(uint8_t *)p = v;
}

#define NAME(f) f##_8_ref
#define WORD uint8_t
#define LOAD load8
#define STORE store8
#define TARGET
#include "codec/diff/diff_simple.inc"
#include "codec/diff/diff_kern.inc"

#define NAME(f) f##_16_ref
#define WORD uint16_t
#define LOAD ckpi_ld16
#define STORE ckpi_st16
#define TARGET
#include "codec/diff/diff_simple.inc"
#include "codec/diff/diff_kern.inc"

#define NAME(f) f##_32_ref
#define WORD uint32_t
#define LOAD ckpi_ld32
#define STORE ckpi_st32
#define TARGET
#include "codec/diff/diff_simple.inc"
#include "codec/diff/diff_kern.inc"

#define NAME(f) f##_64_ref
#define WORD uint64_t
#define LOAD ckpi_ld64
#define STORE ckpi_st64
#define TARGET
#include "codec/diff/diff_simple.inc"
#include "codec/diff/diff_kern.inc"

const ckpi_diff_kern ckpi_diff_kern_ref[4] = {
    {0, symbols_8_ref, contexts_8_ref, words_8_ref},
    {0, symbols_16_ref, contexts_16_ref, words_16_ref},
    {0, symbols_32_ref, contexts_32_ref, words_32_ref},
    {0, symbols_64_ref, contexts_64_ref, words_64_ref},
};
