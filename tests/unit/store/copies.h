/* SPDX-License-Identifier: Apache-2.0 */
/* Copying between two disks in memory: shared by the tests of cp. */
#ifndef CKP_TESTS_COPIES_H
#define CKP_TESTS_COPIES_H
#include "runs.h"

/* A key and two deltas on it, a key and a delta, two shards each: everything in t is promised of a whole copy. */
void copies_source(fault_disk *d, trace *t);
/* Opens both and copies; NULL for a whole run. */
ckp_status copies_run(fault_disk *from, fault_disk *to, const ckpi_copy_ask *ask, ckpi_copied *done, ckp_error *err);
/* Steps saved on the newest of a run, each a delta if `delta`. */
void copies_train(fault_disk *d, uint64_t first, unsigned n, bool delta);
void copies_prune(fault_disk *d, uint32_t last);
/* Every checkpoint that a reader finds is the source's, whole with its chain and every byte. Returns how many there are. */
size_t copies_judge(fault_disk *d, const trace *t, const char *what);
/* Fails unless the steps are just these, by sequence. */
void copies_steps(fault_disk *d, const uint64_t *step, size_t n);
#endif
