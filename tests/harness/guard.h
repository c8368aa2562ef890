/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers flush against an unmapped page: one byte read or written beyond them is a fault, in any build. */
#ifndef CKP_TESTS_GUARD_H
#define CKP_TESTS_GUARD_H
#include <stddef.h>
#include <stdint.h>

uint8_t *guard_alloc(size_t n);                      /* ends at the unmapped page; filled with 0xA5 */
uint8_t *guard_alloc_front(size_t n);                /* begins right after an unmapped page; filled with 0xA5 */
uint8_t *guard_copy(const void *src, size_t n);      /* guard_alloc and memcpy */
void guard_readonly(void *p);                        /* from now on a write into it is a fault too */
void guard_free(void *p);                            /* accepts NULL */
#endif
