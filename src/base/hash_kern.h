/* SPDX-License-Identifier: Apache-2.0 */
/* xxHash as built for one level of the processor; hash.h picks. The hashes are the same. */
#ifndef CKPI_BASE_HASH_KERN_H
#define CKPI_BASE_HASH_KERN_H
#include "base/cpu.h"
#include "base/hash.h"

#if CKPI_X86
uint64_t ckpi_hash64_avx2(const void *p, size_t n);
ckpi_id ckpi_hash128_avx2(const void *p, size_t n);
void ckpi_hash_update_avx2(void *state, const void *p, size_t n);     /* an XXH3_state_t, which is the same at every level */
#endif
#endif
