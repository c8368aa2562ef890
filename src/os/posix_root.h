/* SPDX-License-Identifier: Apache-2.0 */
/* The two POSIX calls that need a second way. Each returns 0 or an errno. */
#ifndef CKPI_OS_POSIX_ROOT_H
#define CKPI_OS_POSIX_ROOT_H

/* mkdir -p; the parent of each directory made is synced, so that the new directory survives a power cut. */
int ckpi_posix_make_dirs(const char *dir);
/* Atomic rename that never replaces (EEXIST): renameat2, or link and unlink where the file system lacks it. */
int ckpi_posix_rename_new(int from_dir, const char *from, int to_dir, const char *to);
/* The second way alone, for tests. */
int ckpi_posix_link_new(int from_dir, const char *from, int to_dir, const char *to);
#endif
