/* SPDX-License-Identifier: Apache-2.0 */
/* A ckpi_fs over another one that counts calls and raises SIGKILL instead of doing the at-th. A publish counts twice: before and after. */
#ifndef CKP_TESTS_KILLFS_H
#define CKP_TESTS_KILLFS_H
#include "os/os.h"

/* Takes inner. at 0: never. */
ckpi_fs *killfs_wrap(ckpi_fs *inner, uint64_t at);
#endif
