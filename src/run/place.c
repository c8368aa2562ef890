/* SPDX-License-Identifier: Apache-2.0 */
#include "run/place.h"
#include "base/alloc.h"
#include "base/fail.h"

ckp_status
ckpi_place_fs(ckpi_fs **out, const ckpi_place *place, bool create, ckp_error *err)
{
    return place->objects != NULL ? ckpi_fs_objects(out, place->objects, place->name, err) : ckpi_fs_posix(out, place->name, create, err);
}

ckp_status
ckpi_place_copy_objects(ckp_objects *out, char **stage_dir, const ckp_objects *in, ckp_error *err)
{
    const ckp_status st = ckpi_objects_check(in, err);
    if (st != CKP_OK)
        return st;
    *out = *in;
    if (in->stage_dir == NULL)
        return CKP_OK;
    *stage_dir = ckpi_strdup(in->stage_dir);
    out->stage_dir = *stage_dir;
    return *stage_dir != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
}
