/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fails the n-th allocation. The linker sends malloc, calloc, realloc, free, posix_memalign and aligned_alloc of our own
 * objects (and of static libraries) through this file (--wrap), so the library has no hooks.
 */
#ifndef CKP_TESTS_FAILALLOC_H
#define CKP_TESTS_FAILALLOC_H
#include <ckpress/base.h>
#include <stdbool.h>

/* One whole use of an API: makes, uses and frees what it needs, on success and on failure. Returns what the API returned. */
typedef ckp_status (*failalloc_fn)(void *user);

/*
 * Runs fn with allocation 1, 2, 3 ... failing, until a run in which no fault fired. Aborts with a message when
 *   - a run with a fault returns anything but CKP_ENOMEM or CKP_OK (a fallback is allowed), or the last one not CKP_OK;
 *   - a run leaks, even the last;
 *   - nothing was ever allocated, so that no fault could fire (pass 0 for `at_least` where that is right).
 * Returns how many faults fired. step > 1 samples: allocations 1, 1 + step, ...; CKP_FAIL_EVERY=1 in the environment
 * (make test-full) makes any step 1.
 */
unsigned failalloc_run(failalloc_fn fn, void *user, unsigned at_least, unsigned step);

/* By hand: fail the n-th allocation from now (1: the next one); 0: none. From then on allocations are counted and tracked. */
void failalloc_begin(unsigned long n);
/* Ends it. Gives the allocations that are still live, and whether the fault fired; each may be NULL. */
void failalloc_end(unsigned long *live, bool *fired);
/* Allocations since begin: proves that a hot path allocates nothing. */
unsigned long failalloc_count(void);
#endif
