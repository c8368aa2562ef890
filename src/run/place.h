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
#endif
