/* SPDX-License-Identifier: Apache-2.0 */
#include "run/place.h"

ckp_status
ckpi_place_fs(ckpi_fs **out, const ckpi_place *place, bool create, ckp_error *err)
{
    return place->objects != NULL ? ckpi_fs_objects(out, place->objects, place->name, err) : ckpi_fs_posix(out, place->name, create, err);
}
