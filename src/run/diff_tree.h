/* SPDX-License-Identifier: Apache-2.0 */
/* Plain values of two trees, by path. */
#ifndef CKPI_RUN_DIFF_TREE_H
#define CKPI_RUN_DIFF_TREE_H
#include <ckpress/run_diff.h>

/*
 * Calls fn for each path whose value differs, in the order of paths (numbers in them as text). CKP_ECANCELLED when fn returns other than 0;
 * CKP_ECORRUPT: a tree; CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_diff_trees(const void *a, size_t a_len, const void *b, size_t b_len, int (*fn)(void *user, const ckp_diff_value *v),
                                        void *user, ckp_error *err);
#endif
