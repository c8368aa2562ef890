/* SPDX-License-Identifier: Apache-2.0 */
/* Object stores as a file system: the store's code runs on callbacks as it does on a disk. */
#ifndef CKPI_OBJECTS_H
#define CKPI_OBJECTS_H
#include <ckpress/objects.h>
#include "os/os.h"

/*
 * A file system over a table, which it copies (not `user`). name: of the run, for messages. CKP_EINVAL: a table of another size, or without a callback.
 * New files are staged and sent by sync, under temporary names (os/host.h) by publish. Directories are made of the names below them.
 */
CKP_MUST_USE ckp_status ckpi_fs_objects(ckpi_fs **out, const ckp_objects *table, const char *name, ckp_error *err);
/* CKP_EINVAL: see there. */
CKP_MUST_USE ckp_status ckpi_objects_check(const ckp_objects *table, ckp_error *err);
#endif
