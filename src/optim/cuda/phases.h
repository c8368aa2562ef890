/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step on a GPU, in phases: what one lane of `lanes` does to a row (a momentum's: to a block of 64 elements) between two barriers. C11 and C++, so
 * that tests run these very functions on a CPU, lane after lane. Which phase may begin when is block.h's affair.
 *
 * A row's raw codes of v and codes of m wait in scratch memory, raw ones first, until the row's largest is known; then they are packed, a byte a lane.
 */
#ifndef CKPI_OPTIM_CUDA_PHASES_H
#define CKPI_OPTIM_CUDA_PHASES_H
#include <ckpress/base.h>
#include "optim/element.h"
#include "optim/pack.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

/* A parameter's step, as a kernel gets it; memory is the device's. */
typedef struct ckpi_o_gpu {
    ckpi_o_par par;                      /* of AdamW's rule */
    ckpi_o_mpar mpar;                    /* of a momentum's */
    ckpi_vgrid vg;
    uint64_t rows, cols, last;           /* last: elements of the last row */
    uint64_t first;                      /* index of the first element in the whole parameter */
    uint64_t m_bytes, v_bytes;           /* of a whole row, packed */
    uint32_t key, p_key;
    unsigned m_bits, v_bits, rest_bits;
    unsigned p_dtype, g_dtype;           /* ckp_dtype */
    void *p, *rest;
    const void *g;
    uint8_t *m, *v, *row;
    const int8_t *col;                   /* or NULL */
    uint64_t *counts;                    /* elements without use and factors raised: added to */
    uint8_t *scratch;                    /* place bytes for each block; NULL: a block's own memory has as much */
    uint64_t place;                      /* for the codes of a row */
    bool momentum;
    unsigned blocks, lanes;              /* lanes: whole warps */
} ckpi_o_gpu;

/* ---- numbers of 16 bits ---- */

CKPI_O_FN float
ckpi_o_gpu_f16_up(uint16_t bits)
{
#ifdef __CUDACC__
    __half_raw h;
    h.x = bits;
    return __half2float(__half(h));
#else
    return ckpi_f16_to_f32(bits);
#endif
}

CKPI_O_FN uint16_t
ckpi_o_gpu_f16_down(float x)
{
#ifdef __CUDACC__
    return __half_raw(__float2half_rn(x)).x;
#else
    return ckpi_f32_to_f16(x);
#endif
}

CKPI_O_FN float
ckpi_o_gpu_load(const void *from, unsigned dtype, uint64_t i)
{
    if (dtype == CKP_F32)
        return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return dtype == CKP_BF16 ? ckpi_o_float((uint32_t)bits << 16) : ckpi_o_gpu_f16_up(bits);
}

CKPI_O_FN float
ckpi_o_gpu_p(const ckpi_o_gpu *j, uint64_t i)
{
    if (j->rest_bits == 0)
        return ckpi_o_gpu_load(j->p, j->p_dtype, i);
    const int32_t rest = j->rest_bits == 8 ? ((const int8_t *)j->rest)[i] * 256 : ((const int16_t *)j->rest)[i];
    return ckpi_o_float(ckpi_o_split_up(((const uint16_t *)j->p)[i], rest));
}

CKPI_O_FN void
ckpi_o_gpu_p_back(const ckpi_o_gpu *j, uint64_t i, float x)
{
    const uint32_t z = j->p_key + (uint32_t)(j->first + i) * CKPI_O_WALK;
    if (j->p_dtype == CKP_F32) {
        ((float *)j->p)[i] = x;
        return;
    }
    uint16_t *const to = (uint16_t *)j->p + i;
    if (j->rest_bits == 0) {
        *to = j->p_dtype == CKP_BF16 ? ckpi_o_bf16(ckpi_o_bits(x), z) : ckpi_o_gpu_f16_down(x);
        return;
    }
    int32_t rest;
    *to = ckpi_o_split_down(ckpi_o_bits(x), j->rest_bits, z, &rest);
    if (j->rest_bits == 8)
        ((int8_t *)j->rest)[i] = (int8_t)rest;
    else
        ((int16_t *)j->rest)[i] = (int16_t)rest;
}

/* ---- packed codes (pack.h) ---- */

CKPI_O_FN unsigned
ckpi_o_gpu_unpack_group(const uint8_t *group, unsigned i, unsigned size, unsigned bits)
{
    unsigned code = 0, at = 0;
    for (unsigned w = 4; w > 0; w /= 2)
        if (bits & w) {
            unsigned shift;
            const unsigned byte = group[ckpi_o_place(i, size, w, &shift)];
            code |= (byte >> shift & ((1u << w) - 1u)) << at;
            group += size * w / 8;
            at += w;
        }
    return code;
}

/* Code i of a packed row of n. */
CKPI_O_FN unsigned
ckpi_o_gpu_unpack(const uint8_t *row, uint64_t i, uint64_t n, unsigned bits)
{
    if (bits == 8)
        return row[i];
    const uint64_t first = i / CKPI_O_GROUP * CKPI_O_GROUP, left = n - first;
    const uint8_t *const group = row + first / 8 * bits;
    if (left >= CKPI_O_GROUP)            /* in words of its own, so that compilers see a constant */
        return ckpi_o_gpu_unpack_group(group, (unsigned)(i - first), CKPI_O_GROUP, bits);
    return ckpi_o_gpu_unpack_group(group, (unsigned)(i - first), (unsigned)(left + 7) / 8 * 8, bits);
}

CKPI_O_FN int8_t
ckpi_o_gpu_unpack_signed(const uint8_t *row, uint64_t i, uint64_t n, unsigned bits)
{
    const unsigned top = 1u << (bits - 1), code = ckpi_o_gpu_unpack(row, i, n, bits);
    return (int8_t)(uint8_t)((code ^ top) - top);
}

/* Byte `at` of a packed group of `size` codes, of which n exist; each of them `stride` bytes from the next. */
CKPI_O_FN uint8_t
ckpi_o_gpu_pack_group(const uint8_t *code, unsigned stride, unsigned n, unsigned at, unsigned size, unsigned bits)
{
    unsigned low = 0, byte = 0;
    for (unsigned w = 4; w > 0; w /= 2)
        if (bits & w) {
            const unsigned s = size * w / 8;
            if (at < s) {
                for (unsigned part = 0; part < 8 / w; part++) {
                    const unsigned i = w == 1 ? 8 * at + part : at + part * s;
                    byte |= i < n ? ((unsigned)code[(size_t)i * stride] >> low & ((1u << w) - 1u)) << w * part : 0;
                }
                return (uint8_t)byte;
            }
            at -= s;
            low += w;
        }
    return 0;
}

/* Byte `at` of a packed row of n codes. */
CKPI_O_FN uint8_t
ckpi_o_gpu_pack(const uint8_t *code, unsigned stride, uint64_t n, uint64_t at, unsigned bits)
{
    if (bits == 8)
        return code[at * stride];
    const uint64_t group = at / (8u * bits), first = group * CKPI_O_GROUP, left = n - first;
    const unsigned in = (unsigned)(at - group * 8u * bits);
    code += first * stride;
    if (left >= CKPI_O_GROUP)
        return ckpi_o_gpu_pack_group(code, stride, CKPI_O_GROUP, in, CKPI_O_GROUP, bits);
    return ckpi_o_gpu_pack_group(code, stride, (unsigned)left, in, (unsigned)(left + 7) / 8 * 8, bits);
}

CKPI_O_FN uint64_t
ckpi_o_gpu_packed(uint64_t n, unsigned bits)
{
    return bits == 8 ? n : (n + 7) / 8 * bits;
}

/* ---- AdamW and Adam: a row ---- */

typedef struct ckpi_o_gpu_row {
    uint64_t i, n, at;                   /* the row, its elements, and the first one's index here */
    uint32_t z;                          /* of the first element */
    uint16_t *raw;
    int8_t *k;
} ckpi_o_gpu_row;

CKPI_O_FN ckpi_o_gpu_row
ckpi_o_gpu_row_of(const ckpi_o_gpu *j, uint64_t i, uint8_t *scratch)
{
    ckpi_o_gpu_row r;
    r.i = i;
    r.n = i + 1 == j->rows ? j->last : j->cols;
    r.at = i * j->cols;
    r.z = j->key + (uint32_t)(j->first + r.at) * CKPI_O_WALK;
    r.raw = (uint16_t *)(void *)scratch;
    r.k = (int8_t *)(scratch + 2 * j->cols);
    return r;
}

/* First: every element moves, its codes into scratch memory. m_bits and v_bits are j's, as constants where the caller has them so. */
CKPI_O_FN ckpi_o_seen
ckpi_o_gpu_elements(const ckpi_o_gpu *j, const ckpi_o_gpu_row *r, unsigned m_bits, unsigned v_bits, unsigned lane, unsigned lanes)
{
    const uint8_t *const m = j->m + r->i * j->m_bytes, *const v = j->v + r->i * j->v_bytes;
    const uint32_t row = j->row[r->i] != 0 ? j->row[r->i] : CKPI_O_ROW_MIN;
    ckpi_o_seen seen = {0, 0};
    for (uint64_t i = lane; i < r->n; i += lanes) {
        const uint32_t e22 = (row << 22) + (j->col != NULL ? (uint32_t)j->col[i] << 22 : 0), z = r->z + (uint32_t)i * CKPI_O_WALK;
        float p = ckpi_o_gpu_p(j, r->at + i);
        int8_t k = ckpi_o_gpu_unpack_signed(m, i, r->n, m_bits);
        const float g = ckpi_o_gpu_load(j->g, j->g_dtype, r->at + i);
        const uint32_t raw = ckpi_o_element(&j->par, e22, z, ckpi_o_gpu_unpack(v, i, r->n, v_bits), g, &p, &k, &seen.unusable);
        ckpi_o_gpu_p_back(j, r->at + i, p);
        r->raw[i] = (uint16_t)raw;
        r->k[i] = k;
        seen.raw_max = seen.raw_max > raw ? seen.raw_max : raw;
    }
    return seen;
}

/* Then: codes under the row's new factor, v's where the raw ones were, two bytes from each other. A lane sees its own elements alone. */
CKPI_O_FN void
ckpi_o_gpu_follow(const ckpi_o_gpu *j, const ckpi_o_gpu_row *r, uint32_t raw_max, unsigned lane, unsigned lanes)
{
    const uint32_t old = j->row[r->i] != 0 ? j->row[r->i] : CKPI_O_ROW_MIN;
    const int up = ckpi_o_octaves(&j->vg, raw_max, old);
    for (uint64_t i = lane; i < r->n; i += lanes) {
        const uint32_t raw = r->raw[i];
        ((uint8_t *)r->raw)[2 * i] = up == 0 ? (uint8_t)raw : ckpi_o_raised(&j->par.m, j->vg.mant, raw, up, ~r->z + (uint32_t)i * CKPI_O_WALK, &r->k[i]);
    }
}

/* Last: bytes of packed codes. */
CKPI_O_FN void
ckpi_o_gpu_put(const ckpi_o_gpu *j, const ckpi_o_gpu_row *r, unsigned m_bits, unsigned v_bits, unsigned lane, unsigned lanes)
{
    uint8_t *const m = j->m + r->i * j->m_bytes, *const v = j->v + r->i * j->v_bytes;
    const uint64_t m_end = ckpi_o_gpu_packed(r->n, m_bits), v_end = ckpi_o_gpu_packed(r->n, v_bits);
    for (uint64_t b = lane; b < m_end; b += lanes)
        m[b] = ckpi_o_gpu_pack((const uint8_t *)r->k, 1, r->n, b, m_bits);
    for (uint64_t b = lane; b < v_end; b += lanes)
        v[b] = ckpi_o_gpu_pack((const uint8_t *)r->raw, 2, r->n, b, v_bits);
}

/* By one lane, when all have read the row's old factor: whether it was raised. */
CKPI_O_FN bool
ckpi_o_gpu_row_factor(const ckpi_o_gpu *j, const ckpi_o_gpu_row *r, uint32_t raw_max)
{
    const uint32_t was = j->row[r->i], old = was != 0 ? was : CKPI_O_ROW_MIN;
    const int up = ckpi_o_octaves(&j->vg, raw_max, old);
    if (raw_max != 0)
        j->row[r->i] = (uint8_t)((int)old + up);
    return up > 0 && was != 0;
}

/* ---- SGD and Lion: a block of a row ---- */

typedef struct ckpi_o_gpu_piece {
    uint64_t i;                          /* its factor */
    unsigned n;
    uint64_t at;                         /* its first element's index here */
    uint32_t z;
    uint8_t *m;                          /* its codes, packed: a block is a group of them */
} ckpi_o_gpu_piece;

CKPI_O_FN uint64_t
ckpi_o_gpu_pieces(const ckpi_o_gpu *j)
{
    const uint64_t each = (j->cols + CKPI_O_BLOCK - 1) / CKPI_O_BLOCK;
    return j->rows == 0 ? 0 : (j->rows - 1) * each + (j->last + CKPI_O_BLOCK - 1) / CKPI_O_BLOCK;
}

CKPI_O_FN ckpi_o_gpu_piece
ckpi_o_gpu_piece_of(const ckpi_o_gpu *j, uint64_t i)
{
    const uint64_t each = (j->cols + CKPI_O_BLOCK - 1) / CKPI_O_BLOCK, row = i / each, at = i % each * CKPI_O_BLOCK;
    const uint64_t left = (row + 1 == j->rows ? j->last : j->cols) - at;
    ckpi_o_gpu_piece b;
    b.i = i;
    b.n = left < CKPI_O_BLOCK ? (unsigned)left : CKPI_O_BLOCK;
    b.at = row * j->cols + at;
    b.z = j->key + (uint32_t)(j->first + b.at) * CKPI_O_WALK;
    b.m = j->m + row * j->m_bytes + at / 8 * j->m_bits;
    return b;
}

/* First: every element moves, m' into fresh. raw_max: the largest bits(|m'|). */
CKPI_O_FN ckpi_o_seen
ckpi_o_gpu_move(const ckpi_o_gpu *j, const ckpi_o_gpu_piece *b, float *fresh, unsigned lane, unsigned lanes)
{
    const float s = ckpi_o_float(ckpi_o_factor_bits(j->row[b->i]));
    ckpi_o_seen seen = {0, 0};
    for (unsigned i = lane; i < b->n; i += lanes) {
        float p = ckpi_o_gpu_p(j, b->at + i);
        const int8_t k = ckpi_o_gpu_unpack_signed(b->m, i, b->n, j->m_bits);
        fresh[i] = ckpi_o_momentum_element(&j->mpar, k, s, ckpi_o_gpu_load(j->g, j->g_dtype, b->at + i), &p, &seen.unusable);
        ckpi_o_gpu_p_back(j, b->at + i, p);
        const uint32_t size = ckpi_o_bits(fresh[i]) & 0x7fffffffu;
        seen.raw_max = seen.raw_max > size ? seen.raw_max : size;
    }
    return seen;
}

/* Then: codes under the block's new factor. */
CKPI_O_FN void
ckpi_o_gpu_code(const ckpi_o_gpu *j, const ckpi_o_gpu_piece *b, uint32_t max, const float *fresh, int8_t *k, unsigned lane, unsigned lanes)
{
    const float per_s = ckpi_o_float(ckpi_o_per_factor_bits(ckpi_o_factor_of(&j->mpar.m, max)));
    for (unsigned i = lane; i < b->n; i += lanes)
        k[i] = ckpi_o_m_code(&j->mpar.m, fresh[i], per_s, ckpi_o_random(b->z + i * CKPI_O_WALK));
}

/* Last: bytes of packed codes. */
CKPI_O_FN void
ckpi_o_gpu_piece_put(const ckpi_o_gpu *j, const ckpi_o_gpu_piece *b, const int8_t *k, unsigned lane, unsigned lanes)
{
    const uint64_t end = ckpi_o_gpu_packed(b->n, j->m_bits);
    for (uint64_t at = lane; at < end; at += lanes)
        b->m[at] = ckpi_o_gpu_pack((const uint8_t *)k, 1, b->n, at, j->m_bits);
}

/* By one lane, when all have read the old factor: whether it was raised. */
CKPI_O_FN bool
ckpi_o_gpu_piece_factor(const ckpi_o_gpu *j, const ckpi_o_gpu_piece *b, uint32_t max)
{
    ckpi_o_mseen seen = {0, 0};
    j->row[b->i] = ckpi_o_factor_after(&j->mpar.m, max, j->row[b->i], &seen);
    return seen.raised != 0;
}
#endif
