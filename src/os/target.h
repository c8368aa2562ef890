/* SPDX-License-Identifier: Apache-2.0 */
/* What stands where an output is to go. */
#ifndef CKPI_OS_TARGET_H
#define CKPI_OS_TARGET_H
#include "os/os.h"

/*
 * The path that an output named `path` really has: the end of its symbolic links, so that a link is followed and not replaced. *out is freed by free().
 * CKP_EINVAL: a directory, device, pipe or socket stands there, which a file must not replace.
 */
CKP_MUST_USE ckp_status ckpi_target_path(char **out, const char *path, ckp_error *err);
/* Gives the new file `name` of fs at most the permissions of the file at `like`; best effort: "-" and missing files change nothing. */
void ckpi_target_mode(ckpi_fs *fs, const char *name, const char *like);
/* A number that changes when the file at a path is replaced or written to, as far as the system tells (device, inode, size, time); 0: there is none. */
uint64_t ckpi_target_stamp(const char *path);
/* Whether two paths name one file that is there. */
bool ckpi_target_same(const char *a, const char *b);
/* Whether what a path names, there or yet to be made, is the directory `dir` or lies in it. False where the system does not tell. */
bool ckpi_target_inside(const char *path, const char *dir);
#endif
