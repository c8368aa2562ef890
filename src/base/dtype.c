/* SPDX-License-Identifier: Apache-2.0 */
/* The table of element types: one row a dtype, and everything else looks it up. */
#include "base/checked.h"
#include "base/dtype.h"
#include <string.h>

#define UINT(id, name, bits) {id, name, bits, CKPI_KIND_UINT, (bits) / 8, 0, 0, false}
#define INT(id, name, bits) {id, name, bits, CKPI_KIND_INT, (bits) / 8, 0, 0, true}
#define FLOAT(id, name, bits, e, m, s) {id, name, bits, CKPI_KIND_FLOAT, (bits) / 8, e, m, s}
#define COMPLEX(id, name, bits, e, m) {id, name, bits, CKPI_KIND_COMPLEX, (bits) / 16, e, m, true}
#define OPAQUE(id, name, bits, part) {id, name, bits, CKPI_KIND_OPAQUE, part, 0, 0, false}
/* one small number in a byte of its own */
#define SMALL(id, name, kind, e, m, s) {id, name, 8, kind, 1, e, m, s}

static const ckpi_dtype_info table[] = {
    UINT(CKP_BOOL, "bool", 8),
    UINT(CKP_U8, "u8", 8),
    INT(CKP_I8, "i8", 8),
    UINT(CKP_U16, "u16", 16),
    INT(CKP_I16, "i16", 16),
    UINT(CKP_U32, "u32", 32),
    INT(CKP_I32, "i32", 32),
    UINT(CKP_U64, "u64", 64),
    INT(CKP_I64, "i64", 64),
    FLOAT(CKP_F16, "f16", 16, 5, 10, true),
    FLOAT(CKP_BF16, "bf16", 16, 8, 7, true),
    FLOAT(CKP_F32, "f32", 32, 8, 23, true),
    FLOAT(CKP_F64, "f64", 64, 11, 52, true),
    /* x87 or IEEE quad, as the machine that saved it had: bytes with no inner layout that we may rely on */
    OPAQUE(CKP_F128, "f128", 128, 16),
    COMPLEX(CKP_C32, "c32", 32, 5, 10),
    COMPLEX(CKP_C64, "c64", 64, 8, 23),
    COMPLEX(CKP_C128, "c128", 128, 11, 52),
    OPAQUE(CKP_C256, "c256", 256, 16),
    FLOAT(CKP_F8E4M3FN, "f8e4m3fn", 8, 4, 3, true),
    FLOAT(CKP_F8E5M2, "f8e5m2", 8, 5, 2, true),
    FLOAT(CKP_F8E4M3FNUZ, "f8e4m3fnuz", 8, 4, 3, true),
    FLOAT(CKP_F8E5M2FNUZ, "f8e5m2fnuz", 8, 5, 2, true),
    FLOAT(CKP_F8E8M0FNU, "f8e8m0fnu", 8, 8, 0, false),
    FLOAT(CKP_F8E4M3, "f8e4m3", 8, 4, 3, true),
    FLOAT(CKP_F8E3M4, "f8e3m4", 8, 3, 4, true),
    FLOAT(CKP_F8E4M3B11FNUZ, "f8e4m3b11fnuz", 8, 4, 3, true),
    SMALL(CKP_F6E2M3FN, "f6e2m3fn", CKPI_KIND_FLOAT, 2, 3, true),
    SMALL(CKP_F6E3M2FN, "f6e3m2fn", CKPI_KIND_FLOAT, 3, 2, true),
    SMALL(CKP_F4E2M1FN, "f4e2m1fn", CKPI_KIND_FLOAT, 2, 1, true),
    SMALL(CKP_I4, "i4", CKPI_KIND_INT, 0, 0, true),
    SMALL(CKP_U4, "u4", CKPI_KIND_UINT, 0, 0, false),
    SMALL(CKP_I2, "i2", CKPI_KIND_INT, 0, 0, true),
    SMALL(CKP_U2, "u2", CKPI_KIND_UINT, 0, 0, false),
    SMALL(CKP_I1, "i1", CKPI_KIND_INT, 0, 0, true),
    SMALL(CKP_U1, "u1", CKPI_KIND_UINT, 0, 0, false),
    OPAQUE(CKP_F4_PACKED, "f4_packed", 4, 1),
    OPAQUE(CKP_F6E2M3_PACKED, "f6e2m3_packed", 6, 1),
    OPAQUE(CKP_F6E3M2_PACKED, "f6e3m2_packed", 6, 1),
    OPAQUE(CKP_F4E2M1FN_X2, "f4e2m1fn_x2", 8, 1),
    OPAQUE(CKP_BITS8, "bits8", 8, 1),
    OPAQUE(CKP_BITS16, "bits16", 16, 2),
    INT(CKP_QINT8, "qint8", 8),
    UINT(CKP_QUINT8, "quint8", 8),
    INT(CKP_QINT32, "qint32", 32),
    OPAQUE(CKP_QUINT4X2, "quint4x2", 8, 1),
    OPAQUE(CKP_QUINT2X4, "quint2x4", 8, 1),
    INT(CKP_DATETIME64, "datetime64", 64),
    INT(CKP_TIMEDELTA64, "timedelta64", 64),
};

enum { TABLE_ROWS = sizeof table / sizeof table[0] };

const ckpi_dtype_info *
ckpi_dtype_at(size_t i)
{
    return i < TABLE_ROWS ? &table[i] : NULL;
}

const ckpi_dtype_info *
ckpi_dtype_get(ckp_dtype dt)
{
    for (size_t i = 0; i < TABLE_ROWS; i++)
        if (table[i].id == dt)
            return &table[i];
    return NULL;
}

bool
ckpi_dtype_bytes(ckp_dtype dt, uint64_t n, uint64_t *bytes)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(dt);
    if (info == NULL)
        return false;
    if (info->bits % 8 == 0)
        return ckpi_mul_u64(n, info->bits / 8u, bytes);
    /* Packed: whole groups of 8 elements, then the rest, so that the bits themselves cannot overflow first. */
    const uint64_t rest_bits = n % 8 * info->bits;
    uint64_t whole;
    if (rest_bits % 8 != 0 || !ckpi_mul_u64(n / 8, info->bits, &whole))
        return false;
    return ckpi_add_u64(whole, rest_bits / 8, bytes);
}

bool
ckpi_shape_numel(const uint64_t *shape, unsigned ndim, uint64_t *n)
{
    uint64_t product = 1;
    bool zero = false;
    for (unsigned i = 0; i < ndim; i++) {
        /* An empty dimension makes the tensor empty whatever the others claim. */
        if (shape[i] == 0)
            zero = true;
        else if (!zero && !ckpi_mul_u64(product, shape[i], &product))
            return false;
    }
    *n = zero ? 0 : product;
    return true;
}

unsigned
ckp_dtype_bits(ckp_dtype dt)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(dt);
    return info != NULL ? info->bits : 0;
}

const char *
ckp_dtype_name(ckp_dtype dt)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(dt);
    return info != NULL ? info->name : NULL;
}

ckp_dtype
ckp_dtype_find(const char *name)
{
    for (size_t i = 0; name != NULL && i < TABLE_ROWS; i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].id;
    return (ckp_dtype)0;
}
