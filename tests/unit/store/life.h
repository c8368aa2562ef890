/* SPDX-License-Identifier: Apache-2.0 */
/* A writer's life (open with its sweep, saves, refresh, retention, close), met by a fault at each of its calls, and the judge after each. */
#ifndef CKP_TESTS_LIFE_H
#define CKP_TESTS_LIFE_H
#include "runs.h"

typedef fault_disk *(*disk_fn)(void);                    /* fault_disk_new or fault_objects_new */
typedef void (*after_fn)(fault_disk *d, uint64_t seed);  /* between the life and the judge */

/* How far apart the calls are that a table tries: `sampled`, more under sanitizers; 1 with CKP_FAIL_EVERY=1. */
uint64_t life_stride(uint64_t sampled);

/* Every `every`-th call unless CKP_FAIL_EVERY=1. */
void life_all(disk_fn make, fault_kind kind, uint64_t every, bool lasting, after_fn after, uint64_t seeds, const char *name);
/* The very first opening of a run, before it has an identity, with a fault at each call. */
void life_first_open(disk_fn make, fault_kind kind, after_fn after);

/*
 * The process dies while a put is on its way, at each put; it arrives with some call of the next writer's life, which opens, saves and closes, or after it.
 * Nothing that is whole may be lost, and the writer after that finds all in order. Every second call unless CKP_FAIL_EVERY=1.
 */
void life_orphans(void);

void life_heal(fault_disk *d, uint64_t seed);
void life_restart(fault_disk *d, uint64_t seed);
void life_cut_all(fault_disk *d, uint64_t seed);
void life_cut_none(fault_disk *d, uint64_t seed);
void life_cut_torn(fault_disk *d, uint64_t seed);
void life_cut_reordered(fault_disk *d, uint64_t seed);
#endif
