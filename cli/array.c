/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "array.h"

static const struct { ckp_dtype dt; const char *npy, *safetensors; } rows[] = {
    {CKP_BOOL, "|b1", "BOOL"},      {CKP_U8, "|u1", "U8"},           {CKP_I8, "|i1", "I8"},           {CKP_U16, "<u2", "U16"},
    {CKP_I16, "<i2", "I16"},        {CKP_U32, "<u4", "U32"},         {CKP_I32, "<i4", "I32"},         {CKP_U64, "<u8", "U64"},
    {CKP_I64, "<i8", "I64"},        {CKP_F16, "<f2", "F16"},         {CKP_BF16, NULL, "BF16"},        {CKP_F32, "<f4", "F32"},
    {CKP_F64, "<f8", "F64"},        {CKP_F128, "<f16", NULL},        {CKP_C64, "<c8", "C64"},         {CKP_C128, "<c16", NULL},
    {CKP_C256, "<c32", NULL},       {CKP_F8E4M3FN, NULL, "F8_E4M3"}, {CKP_F8E5M2, NULL, "F8_E5M2"},   {CKP_F8E8M0FNU, NULL, "F8_E8M0"},
    {CKP_F4_PACKED, NULL, "F4"},    {CKP_F6E2M3_PACKED, NULL, "F6_E2M3"}, {CKP_F6E3M2_PACKED, NULL, "F6_E3M2"},
    {CKP_F8E4M3FNUZ, NULL, "F8_E4M3FNUZ"}, {CKP_F8E5M2FNUZ, NULL, "F8_E5M2FNUZ"},
};

static const char *
dtype_name(cli_format f, ckp_dtype dt)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dt == dt)
            return f == CLI_FORMAT_NPY ? rows[i].npy : rows[i].safetensors;
    return NULL;
}

bool
cli_format_holds(cli_format f, ckp_dtype dt)
{
    return f == CLI_FORMAT_BIN || dtype_name(f, dt) != NULL;
}

/* Appends; room was made for the longest. */
static size_t
shape_text(char *out, size_t cap, const cli_array *a)
{
    size_t n = 0;
    for (unsigned i = 0; i < a->ndim; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%llu", i != 0 ? ", " : "", (unsigned long long)a->shape[i]);
    return n;
}

/* Version 1.0: magic, version, length, a Python literal padded with blanks so that the elements begin at a multiple of 64. */
static char *
npy_head(const cli_array *a, size_t *len)
{
    const size_t cap = 256 + 24 * (size_t)a->ndim;
    char *out = cli_alloc(cap), *text = out + 10;

    size_t n = (size_t)snprintf(text, cap - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (", dtype_name(CLI_FORMAT_NPY, a->dtype));
    n += shape_text(text + n, cap - 10 - n, a);
    n += (size_t)snprintf(text + n, cap - 10 - n, "%s), }", a->ndim == 1 ? "," : "");
    while ((10 + n + 1) % 64 != 0)
        text[n++] = ' ';
    text[n++] = '\n';
    (void)memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)(n & 0xFF);
    out[9] = (char)(n >> 8);
    *len = 10 + n;
    return out;
}

static size_t
json_string(char *out, const char *s)
{
    char *p = out;
    for (; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\')
            *p++ = '\\';
        if ((unsigned char)*s < 0x20)
            p += snprintf(p, 7, "\\u%04x", (unsigned)*s);
        else
            *p++ = *s;
    }
    return (size_t)(p - out);
}

static char *
safetensors_head(const cli_array *a, size_t *len)
{
    const size_t cap = 256 + 24 * (size_t)a->ndim + 6 * strlen(a->name);
    char *out = cli_alloc(cap), *text = out + 8;

    size_t n = (size_t)snprintf(text, cap - 8, "{\"");
    n += json_string(text + n, a->name);
    n += (size_t)snprintf(text + n, cap - 8 - n, "\":{\"dtype\":\"%s\",\"shape\":[", dtype_name(CLI_FORMAT_SAFETENSORS, a->dtype));
    n += shape_text(text + n, cap - 8 - n, a);
    n += (size_t)snprintf(text + n, cap - 8 - n, "],\"data_offsets\":[0,%llu]}}", (unsigned long long)a->bytes);
    while (n % 8 != 0)
        text[n++] = ' ';
    for (unsigned i = 0; i < 8; i++)
        out[i] = (char)((uint64_t)n >> (8 * i) & 0xFF);
    *len = 8 + n;
    return out;
}

char *
cli_array_head(cli_format f, const cli_array *a, size_t *len)
{
    *len = 0;
    return f == CLI_FORMAT_NPY ? npy_head(a, len) : f == CLI_FORMAT_SAFETENSORS ? safetensors_head(a, len) : cli_alloc(1);
}

/* ---- widening ------------------------------------------------------------------------------------------------------ */

bool
cli_widens(ckp_dtype dt)
{
    return dt == CKP_F16 || dt == CKP_BF16 || dt == CKP_F32;
}

/* Bits of the f32 with the value of an f16's bits. */
static uint32_t
from_f16(uint32_t h)
{
    const uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 0x1F;
    uint32_t fraction = h & 0x3FF, e = 113;      /* 127 - 15 + 1: of the smallest normal */

    if (exponent == 0x1F)
        return sign | 0x7F800000 | fraction << 13;
    if (exponent != 0)
        return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0)
        return sign;
    for (; (fraction & 0x400) == 0; e--)         /* subnormal: f32 has it as a normal */
        fraction <<= 1;
    return sign | e << 23 | (fraction & 0x3FF) << 13;
}

void
cli_widen(ckp_dtype dt, uint8_t *dst, const uint8_t *src, size_t n)
{
    if (dt == CKP_F32) {
        (void)memcpy(dst, src, 4 * n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t h = (uint32_t)src[2 * i] | (uint32_t)src[2 * i + 1] << 8;
        const uint32_t w = dt == CKP_BF16 ? h << 16 : from_f16(h);
        for (unsigned k = 0; k < 4; k++)
            dst[4 * i + k] = (uint8_t)(w >> (8 * k));
    }
}
