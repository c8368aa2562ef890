/* SPDX-License-Identifier: Apache-2.0 */
/* Random test data from one seed per process. The seed is printed, and CKP_SEED=n repeats a run (scripts/test.sh
   sets it, to 1 unless told); without it, or with an empty one, each process draws its own. */
#ifndef CKP_TESTS_SEED_H
#define CKP_TESTS_SEED_H
#include <stddef.h>
#include <stdint.h>

typedef struct test_rng { uint64_t s; } test_rng;

uint64_t test_seed(void);                               /* prints "CKP_SEED=N" to stderr on its first call */
test_rng test_rng_new(const char *test);                /* a stream of its own for each test name */
uint64_t test_u64(test_rng *r);
uint64_t test_below(test_rng *r, uint64_t n);           /* uniform in [0, n); n > 0 */
double test_unit(test_rng *r);                          /* uniform in [0, 1) */
double test_normal(test_rng *r);                        /* mean 0, deviation 1 */
void test_bytes(test_rng *r, void *dst, size_t n);
/* Byte symbols with P(0) = p0 and the others geometric: like quantizer codes. */
void test_skewed(test_rng *r, uint8_t *dst, size_t n, double p0);
#endif
