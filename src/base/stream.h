/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPI_BASE_STREAM_H
#define CKPI_BASE_STREAM_H
#include <stddef.h>

/* From so many bytes on, what is written is not wanted back from the caches. */
#define CKPI_STREAM_FROM ((size_t)64 << 20)

/* memcpy past the caches, where the machine can: for parts of something large that is written once. Other threads see it as they do memcpy's. */
void ckpi_stream(void *restrict dst, const void *restrict src, size_t n);
#endif
