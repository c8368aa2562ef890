/* SPDX-License-Identifier: Apache-2.0 */
#include "io/dtypes.h"
#include <string.h>

static const ckpi_torch_dtype torch_rows[] = {
    {"float32", CKP_F32, "FloatStorage", false},
    {"bfloat16", CKP_BF16, "BFloat16Storage", false},
    {"float16", CKP_F16, "HalfStorage", false},
    {"float64", CKP_F64, "DoubleStorage", false},
    {"int64", CKP_I64, "LongStorage", false},
    {"int32", CKP_I32, "IntStorage", false},
    {"int16", CKP_I16, "ShortStorage", false},
    {"int8", CKP_I8, "CharStorage", false},
    {"uint8", CKP_U8, "ByteStorage", false},
    {"bool", CKP_BOOL, "BoolStorage", false},
    {"complex64", CKP_C64, "ComplexFloatStorage", false},
    {"complex128", CKP_C128, "ComplexDoubleStorage", false},
    {"qint8", CKP_QINT8, "QInt8Storage", false},
    {"quint8", CKP_QUINT8, "QUInt8Storage", false},
    {"qint32", CKP_QINT32, "QInt32Storage", false},
    {"quint4x2", CKP_QUINT4X2, "QUInt4x2Storage", false},
    {"quint2x4", CKP_QUINT2X4, "QUInt2x4Storage", false},
    {"complex32", CKP_C32, NULL, false},
    {"uint16", CKP_U16, NULL, false},
    {"uint32", CKP_U32, NULL, false},
    {"uint64", CKP_U64, NULL, false},
    {"float8_e4m3fn", CKP_F8E4M3FN, NULL, false},
    {"float8_e5m2", CKP_F8E5M2, NULL, false},
    {"float8_e4m3fnuz", CKP_F8E4M3FNUZ, NULL, false},
    {"float8_e5m2fnuz", CKP_F8E5M2FNUZ, NULL, false},
    {"float8_e8m0fnu", CKP_F8E8M0FNU, NULL, false},
    {"float4_e2m1fn_x2", CKP_F4E2M1FN_X2, NULL, false},
    {"bits8", CKP_BITS8, NULL, false},
    {"bits16", CKP_BITS16, NULL, false},
    {"bits1x8", CKP_BITS8, NULL, true},
    {"bits2x4", CKP_BITS8, NULL, true},
    {"bits4x2", CKP_BITS8, NULL, true},
    {"int1", CKP_BITS8, NULL, true},
    {"int2", CKP_BITS8, NULL, true},
    {"int3", CKP_BITS8, NULL, true},
    {"int4", CKP_BITS8, NULL, true},
    {"int5", CKP_BITS8, NULL, true},
    {"int6", CKP_BITS8, NULL, true},
    {"int7", CKP_BITS8, NULL, true},
    {"uint1", CKP_BITS8, NULL, true},
    {"uint2", CKP_BITS8, NULL, true},
    {"uint3", CKP_BITS8, NULL, true},
    {"uint4", CKP_BITS8, NULL, true},
    {"uint5", CKP_BITS8, NULL, true},
    {"uint6", CKP_BITS8, NULL, true},
    {"uint7", CKP_BITS8, NULL, true},
};
enum { N_TORCH = sizeof torch_rows / sizeof *torch_rows };

static bool
same(const char *a, const char *b, size_t len)
{
    return a != NULL && strlen(a) == len && memcmp(a, b, len) == 0;
}

const ckpi_torch_dtype *
ckpi_torch_dtype_by_name(const char *name, size_t len)
{
    for (size_t i = 0; i < N_TORCH; i++)
        if (same(torch_rows[i].name, name, len))
            return &torch_rows[i];
    return NULL;
}

const ckpi_torch_dtype *
ckpi_torch_dtype_by_storage(const char *name, size_t len)
{
    for (size_t i = 0; i < N_TORCH; i++)
        if (same(torch_rows[i].storage, name, len))
            return &torch_rows[i];
    return NULL;
}

const ckpi_torch_dtype *
ckpi_torch_dtype_of(ckp_dtype dt)
{
    for (size_t i = 0; i < N_TORCH; i++)
        if (torch_rows[i].dt == dt && !torch_rows[i].opaque)
            return &torch_rows[i];
    return NULL;
}

static const ckpi_numpy_dtype numpy_rows[] = {
    {"numpy", "bool", "b1", CKP_BOOL, 1},
    {"numpy", "uint8", "u1", CKP_U8, 1},
    {"numpy", "int8", "i1", CKP_I8, 1},
    {"numpy", "uint16", "u2", CKP_U16, 2},
    {"numpy", "int16", "i2", CKP_I16, 2},
    {"numpy", "uint32", "u4", CKP_U32, 4},
    {"numpy", "int32", "i4", CKP_I32, 4},
    {"numpy", "uint64", "u8", CKP_U64, 8},
    {"numpy", "int64", "i8", CKP_I64, 8},
    {"numpy", "float16", "f2", CKP_F16, 2},
    {"numpy", "float32", "f4", CKP_F32, 4},
    {"numpy", "float64", "f8", CKP_F64, 8},
    {"numpy", "float128", "f16", CKP_F128, 16},
    {"numpy", "complex64", "c8", CKP_C64, 4},
    {"numpy", "complex128", "c16", CKP_C128, 8},
    {"numpy", "complex256", "c32", CKP_C256, 16},
    {"ml_dtypes", "bfloat16", "V2", CKP_BF16, 2},
    {"ml_dtypes", "float8_e4m3fn", "V1", CKP_F8E4M3FN, 1},
    {"ml_dtypes", "float8_e5m2", "V1", CKP_F8E5M2, 1},
    {"ml_dtypes", "float8_e4m3fnuz", "V1", CKP_F8E4M3FNUZ, 1},
    {"ml_dtypes", "float8_e5m2fnuz", "V1", CKP_F8E5M2FNUZ, 1},
    {"ml_dtypes", "float8_e8m0fnu", "V1", CKP_F8E8M0FNU, 1},
    {"ml_dtypes", "float8_e4m3", "V1", CKP_F8E4M3, 1},
    {"ml_dtypes", "float8_e3m4", "V1", CKP_F8E3M4, 1},
    {"ml_dtypes", "float8_e4m3b11fnuz", "V1", CKP_F8E4M3B11FNUZ, 1},
    {"ml_dtypes", "float6_e2m3fn", "V1", CKP_F6E2M3FN, 1},
    {"ml_dtypes", "float6_e3m2fn", "V1", CKP_F6E3M2FN, 1},
    {"ml_dtypes", "float4_e2m1fn", "V1", CKP_F4E2M1FN, 1},
    {"ml_dtypes", "int4", "V1", CKP_I4, 1},
    {"ml_dtypes", "uint4", "V1", CKP_U4, 1},
    {"ml_dtypes", "int2", "V1", CKP_I2, 1},
    {"ml_dtypes", "uint2", "V1", CKP_U2, 1},
    {"ml_dtypes", "int1", "V1", CKP_I1, 1},
    {"ml_dtypes", "uint1", "V1", CKP_U1, 1},
};
enum { N_NUMPY = sizeof numpy_rows / sizeof *numpy_rows };

const ckpi_numpy_dtype *
ckpi_numpy_dtype_by_name(const char *module, const char *name, size_t len)
{
    for (size_t i = 0; i < N_NUMPY; i++)
        if (strcmp(numpy_rows[i].module, module) == 0 && same(numpy_rows[i].name, name, len))
            return &numpy_rows[i];
    return NULL;
}

const ckpi_numpy_dtype *
ckpi_numpy_dtype_by_code(const char *code, size_t len)
{
    for (size_t i = 0; i < N_NUMPY; i++)
        if (!ckpi_numpy_is_ml(&numpy_rows[i]) && same(numpy_rows[i].code, code, len))
            return &numpy_rows[i];
    return NULL;
}

const ckpi_numpy_dtype *
ckpi_numpy_dtype_of(ckp_dtype dt)
{
    for (size_t i = 0; i < N_NUMPY; i++)
        if (numpy_rows[i].dt == dt)
            return &numpy_rows[i];
    return NULL;
}

bool
ckpi_numpy_is_ml(const ckpi_numpy_dtype *d)
{
    return d->module[0] == 'm';
}
