/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness/seed.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t
test_seed(void)
{
    static uint64_t seed;
    static int known;
    if (!known) {
        const char *text = getenv("CKP_SEED");
        if (text != NULL && *text != 0) {
            seed = strtoull(text, NULL, 0);
        } else {
            struct timespec t;
            clock_gettime(CLOCK_REALTIME, &t);
            seed = (uint64_t)t.tv_sec * 1000003u + (uint64_t)t.tv_nsec + (uint64_t)getpid();
            seed %= 1000000007u;
        }
        known = 1;
        fprintf(stderr, "CKP_SEED=%llu\n", (unsigned long long)seed);
    }
    return seed;
}

test_rng
test_rng_new(const char *test)
{
    test_rng r = {test_seed()};
    for (; *test != 0; test++)
        r.s = (r.s ^ (uint8_t)*test) * UINT64_C(0x100000001b3);
    return r;
}

/* SplitMix64 */
uint64_t
test_u64(test_rng *r)
{
    uint64_t z = (r->s += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t
test_below(test_rng *r, uint64_t n)
{
    return test_u64(r) % n;
}

double
test_unit(test_rng *r)
{
    return (double)(test_u64(r) >> 11) * 0x1p-53;
}

/* The sum of 12 uniforms: near enough, and the same everywhere because no libm is asked. */
double
test_normal(test_rng *r)
{
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += test_unit(r);
    return sum;
}

void
test_bytes(test_rng *r, void *dst, size_t n)
{
    uint8_t *p = dst;
    for (; n >= 8; n -= 8, p += 8) {
        const uint64_t v = test_u64(r);
        memcpy(p, &v, 8);
    }
    const uint64_t v = test_u64(r);
    memcpy(p, &v, n);
}

void
test_skewed(test_rng *r, uint8_t *dst, size_t n, double p0)
{
    for (size_t i = 0; i < n; i++) {
        unsigned symbol = 0;
        if (test_unit(r) >= p0)
            for (symbol = 1; symbol < 255 && test_unit(r) < 0.5; symbol++)
                ;
        dst[i] = (uint8_t)symbol;
    }
}
