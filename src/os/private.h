/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that hold one user's files in a place that all users share, such as shared memory. */
#ifndef CKPI_OS_PRIVATE_H
#define CKPI_OS_PRIVATE_H
#include "os/os.h"

/* Where this system keeps shared memory: files that outlive a process, but not the machine. */
#define CKPI_SHARED_MEMORY "/dev/shm"

int64_t ckpi_user(void);         /* the effective user id */

/*
 * A POSIX file system at dir that trusts nothing that another user could have put there: dir is no symbolic link, is `user`'s, and nobody else may
 * enter it (CKP_EACCESS, CKP_EPATH); files are made with mode 0600, and one that is not a plain file of `user`'s is not opened (CKP_EACCESS).
 * create: makes the directory (not its parents) when it is missing.
 */
CKP_MUST_USE ckp_status ckpi_fs_private(ckpi_fs **out, const char *dir, int64_t user, bool create, ckp_error *err);
/* Says that the directory is in use, until this handle is freed and all processes that were forked from this one have ended. false: by somebody else. */
bool ckpi_private_claim(ckpi_fs *fs);
/* Seconds since a file in it was made or removed; negative when nobody knows. */
int64_t ckpi_private_age(ckpi_fs *fs);

/*
 * Bytes that files in dir may still take before something else lacks memory: the least of what the file system, the machine and this process's
 * control group have left. 0: dir is not there.
 */
uint64_t ckpi_memory_room(const char *dir);
#endif
