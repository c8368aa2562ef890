/* SPDX-License-Identifier: Apache-2.0 */
/* A directory for each test of the os room, removed afterwards. */
#ifndef CKP_TESTS_OS_TMPDIR_H
#define CKP_TESTS_OS_TMPDIR_H
#include "harness/check.h"
#include "os/os.h"

int tmpdir_setup(void **state);       /* *state: the directory's path */
int tmpdir_teardown(void **state);
ckpi_fs *tmpdir_fs(void **state);     /* freed by the test */
/* Path of a file in it; valid until the next but one call. */
const char *tmpdir_path(void **state, const char *name);
void tmpdir_write(void **state, const char *name, const void *p, size_t n);
#endif
