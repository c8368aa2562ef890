/* SPDX-License-Identifier: Apache-2.0 */
/* Where a run lies: in a directory, or behind callbacks. */
#ifndef CKPI_RUN_PLACE_H
#define CKPI_RUN_PLACE_H
#include "objects/objects.h"

typedef struct ckpi_place {
    const char *name;            /* the directory; with objects: for messages */
    const ckp_objects *objects;  /* NULL: a directory */
} ckpi_place;

/* create: makes the directory when there is none. */
CKP_MUST_USE ckp_status ckpi_place_fs(ckpi_fs **out, const ckpi_place *place, bool create, ckp_error *err);
/* A table that outlives the caller's, after a look at it; *stage_dir: the string that it has then, or NULL, to be freed by free() whatever is returned. */
CKP_MUST_USE ckp_status ckpi_place_copy_objects(ckp_objects *out, char **stage_dir, const ckp_objects *in, ckp_error *err);
#endif
