/* SPDX-License-Identifier: Apache-2.0 */
/* Files and directories of benches. */
#ifndef CKPB_COMMON_FILES_H
#define CKPB_COMMON_FILES_H
#include <stdbool.h>
#include <stdint.h>

void ckpb_remove_tree(const char *dir);
/* Whether the n bytes at a_off of one file are those at b_off of another; n 0: both to their ends, which must be the same. */
bool ckpb_same_bytes(const char *a, long a_off, const char *b, long b_off, uint64_t n);
#endif
