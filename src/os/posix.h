/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two halves of the POSIX file system: names (posix_fs.c) and open files (posix_file.c). */
#ifndef CKPI_OS_POSIX_H
#define CKPI_OS_POSIX_H
#include <sys/types.h>
#include "os/os.h"

typedef struct posix_fs {
    ckpi_fs fs;
    int root;          /* handle of the root directory: every name is resolved below it */
    pid_t owner;       /* the process that made this handle (invariant 11) */
    char *path;        /* of the root as the caller gave it, for messages only */
    bool is_private;   /* files are `user`'s alone (private.c) */
    uid_t user;
} posix_fs;

/* Takes root, a handle of the directory, also on failure. */
CKP_MUST_USE ckp_status ckpi_posix_fs_new(posix_fs **out, int root, const char *dir, ckp_error *err);
/* Whether fs is one of these. */
bool ckpi_posix_is(const ckpi_fs *fs);
/* In a private one: whether what was opened is a plain file that nobody else could have written. */
bool ckpi_posix_is_mine(const posix_fs *fs, int fd);

/* Fills err for errno `e` of a call on `name`; a symbolic link where none may be is CKP_EPATH. */
ckp_status ckpi_posix_error(const posix_fs *fs, const char *name, int e, const char *what, ckp_error *err);

/* Wraps fd (taken, also on failure). */
ckp_status ckpi_posix_file(ckpi_file **out, posix_fs *fs, int fd, const char *name, ckp_error *err);

ckp_status ckpi_posix_read_at(ckpi_file *f, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err);
ckp_status ckpi_posix_write(ckpi_file *f, const void *src, size_t n, ckp_error *err);
ckp_status ckpi_posix_size(ckpi_file *f, uint64_t *size, ckp_error *err);
ckp_status ckpi_posix_sync(ckpi_file *f, ckp_error *err);
void ckpi_posix_close(ckpi_file *f);
#endif
