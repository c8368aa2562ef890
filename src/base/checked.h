/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and products of numbers from outside. Each returns false on overflow and leaves *out untouched. */
#ifndef CKPI_BASE_CHECKED_H
#define CKPI_BASE_CHECKED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool
ckpi_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a > UINT64_MAX - b)
        return false;
    *out = a + b;
    return true;
}

static inline bool
ckpi_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b != 0 && a > UINT64_MAX / b)
        return false;
    *out = a * b;
    return true;
}

static inline bool
ckpi_mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b)
        return false;
    *out = a * b;
    return true;
}

static inline bool
ckpi_add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b)
        return false;
    *out = a + b;
    return true;
}
#endif
