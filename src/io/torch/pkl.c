/* SPDX-License-Identifier: Apache-2.0 */
#include "io/torch/pkl.h"
#include <string.h>
#include "base/bytes.h"

void
ckpi_pkl_op(ckpi_pkl *p, char opcode)
{
    ckpi_buf_u8(&p->b, (uint8_t)opcode);
}

void
ckpi_pkl_begin(ckpi_pkl *p)
{
    ckpi_buf_put(&p->b, "\x80\x02", 2);
}

void
ckpi_pkl_int(ckpi_pkl *p, int64_t v)
{
    uint8_t le[8];
    if (v >= 0 && v < 256) {
        ckpi_pkl_op(p, 'K');
        ckpi_buf_u8(&p->b, (uint8_t)v);
    } else if (v >= 0 && v < 65536) {
        ckpi_pkl_op(p, 'M');
        ckpi_buf_u16(&p->b, (uint16_t)v);
    } else if (v >= INT32_MIN && v <= INT32_MAX) {
        ckpi_pkl_op(p, 'J');
        ckpi_buf_u32(&p->b, (uint32_t)v);
    } else {
        ckpi_st64(le, (uint64_t)v);
        ckpi_pkl_long(p, le, sizeof le);
    }
}

void
ckpi_pkl_u64(ckpi_pkl *p, uint64_t v)
{
    uint8_t le[9] = {0};
    if (v <= INT64_MAX) {
        ckpi_pkl_int(p, (int64_t)v);
        return;
    }
    ckpi_st64(le, v);
    ckpi_pkl_long(p, le, sizeof le);
}

void
ckpi_pkl_long(ckpi_pkl *p, const void *le, size_t n)
{
    if (n < 256) {
        ckpi_pkl_op(p, (char)0x8a);
        ckpi_buf_u8(&p->b, (uint8_t)n);
    } else {
        ckpi_pkl_op(p, (char)0x8b);
        ckpi_buf_u32(&p->b, (uint32_t)n);
    }
    ckpi_buf_put(&p->b, le, n);
}

void
ckpi_pkl_float(ckpi_pkl *p, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    ckpi_pkl_op(p, 'G');
    for (int i = 56; i >= 0; i -= 8)
        ckpi_buf_u8(&p->b, (uint8_t)(bits >> i));
}

void
ckpi_pkl_str(ckpi_pkl *p, const void *utf8, size_t n)
{
    ckpi_pkl_op(p, 'X');
    ckpi_buf_u32(&p->b, (uint32_t)n);
    ckpi_buf_put(&p->b, utf8, n);
}

void
ckpi_pkl_text(ckpi_pkl *p, const char *text)
{
    ckpi_pkl_str(p, text, strlen(text));
}

/* Every byte is the Latin-1 character of its value. */
void
ckpi_pkl_bytes(ckpi_pkl *p, const void *data, size_t n)
{
    const uint8_t *s = data;
    size_t len = n;
    for (size_t i = 0; i < n; i++)
        len += s[i] >> 7;
    ckpi_pkl_global(p, "_codecs", "encode");
    ckpi_pkl_op(p, 'X');
    ckpi_buf_u32(&p->b, (uint32_t)len);
    uint8_t *d = ckpi_buf_extend(&p->b, len);
    for (size_t i = 0; d != NULL && i < n; i++) {
        if (s[i] >= 0x80)
            *d++ = (uint8_t)(0xc0 | s[i] >> 6);
        *d++ = s[i] < 0x80 ? s[i] : (uint8_t)(0x80 | (s[i] & 0x3f));
    }
    ckpi_pkl_text(p, "latin1");
    ckpi_pkl_op(p, PKL_TUPLE2);
    ckpi_pkl_op(p, PKL_REDUCE);
}

void
ckpi_pkl_global(ckpi_pkl *p, const char *module, const char *name)
{
    for (unsigned i = 0; i < p->n_names; i++)
        if (strcmp(p->name[i], name) == 0 && strcmp(p->module[i], module) == 0) {
            ckpi_pkl_op(p, 'h');
            ckpi_buf_u8(&p->b, (uint8_t)i);
            return;
        }
    ckpi_pkl_op(p, 'c');
    ckpi_buf_put(&p->b, module, strlen(module));
    ckpi_buf_u8(&p->b, '\n');
    ckpi_buf_put(&p->b, name, strlen(name));
    ckpi_buf_u8(&p->b, '\n');
    if (p->n_names == CKPI_PKL_NAMES)
        return;
    ckpi_pkl_op(p, 'q');
    ckpi_buf_u8(&p->b, (uint8_t)p->n_names);
    p->module[p->n_names] = module;
    p->name[p->n_names++] = name;
}

void
ckpi_pkl_bool(ckpi_pkl *p, bool v)
{
    ckpi_pkl_op(p, v ? (char)0x88 : (char)0x89);
}

void
ckpi_pkl_shape(ckpi_pkl *p, const uint64_t *shape, unsigned ndim)
{
    ckpi_pkl_op(p, PKL_MARK);
    for (unsigned i = 0; i < ndim; i++)
        ckpi_pkl_u64(p, shape[i]);
    ckpi_pkl_op(p, PKL_TUPLE);
}

/* As torch counts them: an empty dimension counts as one. */
static uint64_t
stride(const uint64_t *shape, unsigned ndim, unsigned i)
{
    uint64_t s = 1;
    for (unsigned k = i + 1; k < ndim; k++)
        s *= CKPI_MAX(shape[k], 1u);
    return s;
}

void
ckpi_pkl_contiguous(ckpi_pkl *p, const uint64_t *shape, unsigned ndim)
{
    ckpi_pkl_op(p, PKL_MARK);
    for (unsigned i = 0; i < ndim; i++)
        ckpi_pkl_u64(p, stride(shape, ndim, i));
    ckpi_pkl_op(p, PKL_TUPLE);
}

void
ckpi_pkl_empty_odict(ckpi_pkl *p)
{
    ckpi_pkl_global(p, "collections", "OrderedDict");
    ckpi_pkl_op(p, PKL_EMPTY_TUPLE);
    ckpi_pkl_op(p, PKL_REDUCE);
}
