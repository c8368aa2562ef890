/* SPDX-License-Identifier: Apache-2.0 */
/* How far two stretches of elements are from each other. */
#ifndef CKPI_RUN_DIFF_NUMBERS_H
#define CKPI_RUN_DIFF_NUMBERS_H
#include <stdbool.h>
#include <ckpress/base.h>

/* A sum of squares in three ranges, so that neither 1e-200 nor 1e200 is lost to an f64's exponent. */
typedef struct ckpi_squares { double mid, big, small; } ckpi_squares;

typedef struct ckpi_diff_sums {
    uint64_t differ, not_finite;
    double max_abs;
    ckpi_squares d, a;           /* of B - A, of A */
} ckpi_diff_sums;

/* Whether elements are numbers; others are compared as bytes. */
bool ckpi_diff_has_numbers(ckp_dtype dt);
/* Adds n elements, which begin and end on a byte. */
void ckpi_diff_add(ckpi_diff_sums *s, ckp_dtype dt, const void *a, const void *b, size_t n);
/* Root of the mean over n elements; 0 without any. */
double ckpi_squares_rms(const ckpi_squares *s, uint64_t n);
#endif
