/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation with overflow checks, alignment, and scratch memory that is reused from call to call. */
#ifndef CKPI_BASE_ALLOC_H
#define CKPI_BASE_ALLOC_H
#include <ckpress/base.h>

/* n * size bytes, not cleared / cleared; NULL on overflow or lack of memory. Freed by free(). n * size = 0 gives a valid pointer. */
void *ckpi_malloc(size_t n, size_t size);
void *ckpi_calloc(size_t n, size_t size);
void *ckpi_realloc(void *p, size_t n, size_t size);
char *ckpi_strdup(const char *s);
char *ckpi_strndup(const char *s, size_t n);
/* 64-byte aligned; freed by ckpi_aligned_free (accepts NULL) */
void *ckpi_aligned_alloc(size_t bytes);
void ckpi_aligned_free(void *p);

/*
 * Scratch: one per worker thread. get() hands out 64-byte aligned pieces that stay valid until reset(); memory is kept
 * for the next use, so hot paths allocate nothing after their first run. A mark allows stack-like release.
 */
typedef struct ckpi_scratch ckpi_scratch;
ckpi_scratch *ckpi_scratch_new(void);
void ckpi_scratch_free(ckpi_scratch *s);
void *ckpi_scratch_get(ckpi_scratch *s, size_t bytes);  /* NULL on lack of memory */
size_t ckpi_scratch_mark(const ckpi_scratch *s);
void ckpi_scratch_release(ckpi_scratch *s, size_t mark);
void ckpi_scratch_reset(ckpi_scratch *s);
size_t ckpi_scratch_bytes(const ckpi_scratch *s);       /* held now, for memory accounts */
#endif
