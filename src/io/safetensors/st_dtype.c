/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "io/safetensors/st.h"

static const struct { ckp_dtype dt; const char *name; } rows[] = {
    {CKP_BOOL, "BOOL"},
    {CKP_F4_PACKED, "F4"},
    {CKP_F6E2M3_PACKED, "F6_E2M3"},
    {CKP_F6E3M2_PACKED, "F6_E3M2"},
    {CKP_U8, "U8"},
    {CKP_I8, "I8"},
    {CKP_F8E5M2, "F8_E5M2"},
    {CKP_F8E4M3FN, "F8_E4M3"},
    {CKP_F8E8M0FNU, "F8_E8M0"},
    {CKP_F8E4M3FNUZ, "F8_E4M3FNUZ"},
    {CKP_F8E5M2FNUZ, "F8_E5M2FNUZ"},
    {CKP_I16, "I16"},
    {CKP_U16, "U16"},
    {CKP_F16, "F16"},
    {CKP_BF16, "BF16"},
    {CKP_I32, "I32"},
    {CKP_U32, "U32"},
    {CKP_F32, "F32"},
    {CKP_C64, "C64"},
    {CKP_F64, "F64"},
    {CKP_I64, "I64"},
    {CKP_U64, "U64"},
};

ckp_dtype
ckpi_st_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].dt;
    return (ckp_dtype)0;
}

const char *
ckpi_st_dtype_name(ckp_dtype dt)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dt == dt)
            return rows[i].name;
    return NULL;
}
