/* SPDX-License-Identifier: Apache-2.0 */
#include "io/pickle/value.h"
#include <string.h>

bool
ckpi_pv_is_text(const ckpi_pv *v, const char *text)
{
    return (v->kind == PV_STR || v->kind == PV_STR2) && v->u.s.n == strlen(text) && memcmp(v->u.s.p, text, v->u.s.n) == 0;
}

bool
ckpi_pv_u64(const ckpi_pv *v, uint64_t *out)
{
    if (v->kind != PV_INT || v->u.i < 0)
        return false;
    *out = (uint64_t)v->u.i;
    return true;
}

bool
ckpi_pv_bool(const ckpi_pv *v, bool *out)
{
    *out = v->kind == PV_TRUE;
    return v->kind == PV_TRUE || v->kind == PV_FALSE;
}

bool
ckpi_pv_bytes(const ckpi_pv *v, const uint8_t **p, size_t *n)
{
    if (v->kind != PV_BYTES && v->kind != PV_BYTEARRAY && v->kind != PV_STR2)
        return false;
    *p = v->u.s.p;
    *n = v->u.s.n;
    return true;
}

bool
ckpi_pv_is_container(const ckpi_pv *v)
{
    return v->kind >= PV_LIST && v->kind <= PV_COUNTER;
}

bool
ckpi_pv_is_dict(const ckpi_pv *v)
{
    return v->kind >= PV_DICT && v->kind <= PV_COUNTER;
}
