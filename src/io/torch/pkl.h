/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a pickle of protocol 2 with the opcodes that torch.load(weights_only=True) knows. Sticky: the buffer keeps the first failure.
 */
#ifndef CKPI_IO_PKL_H
#define CKPI_IO_PKL_H
#include "base/buf.h"

#define CKPI_PKL_NAMES 64

/* Names already written, kept in the memo by number. */
typedef struct ckpi_pkl {
    ckpi_buf b;
    const char *module[CKPI_PKL_NAMES], *name[CKPI_PKL_NAMES];      /* static texts: compared by content */
    unsigned n_names;
} ckpi_pkl;

void ckpi_pkl_begin(ckpi_pkl *p);                      /* PROTO 2 */
void ckpi_pkl_op(ckpi_pkl *p, char opcode);
void ckpi_pkl_int(ckpi_pkl *p, int64_t v);
void ckpi_pkl_u64(ckpi_pkl *p, uint64_t v);
void ckpi_pkl_long(ckpi_pkl *p, const void *le, size_t n);         /* two's complement */
void ckpi_pkl_float(ckpi_pkl *p, double v);
void ckpi_pkl_str(ckpi_pkl *p, const void *utf8, size_t n);
void ckpi_pkl_text(ckpi_pkl *p, const char *text);
void ckpi_pkl_bytes(ckpi_pkl *p, const void *data, size_t n);      /* _codecs.encode(text, "latin1") */
/* module and name must stay valid while p lives. */
void ckpi_pkl_global(ckpi_pkl *p, const char *module, const char *name);
void ckpi_pkl_bool(ckpi_pkl *p, bool v);
void ckpi_pkl_shape(ckpi_pkl *p, const uint64_t *shape, unsigned ndim);      /* a tuple */
void ckpi_pkl_contiguous(ckpi_pkl *p, const uint64_t *shape, unsigned ndim); /* its row-major strides */
void ckpi_pkl_empty_odict(ckpi_pkl *p);

/* Opcodes by pickletools' names, for the few that are written by hand. */
#define PKL_MARK '('
#define PKL_NONE 'N'
#define PKL_EMPTY_TUPLE ')'
#define PKL_EMPTY_LIST ']'
#define PKL_EMPTY_DICT '}'
#define PKL_TUPLE 't'
#define PKL_TUPLE1 ((char)0x85)
#define PKL_TUPLE2 ((char)0x86)
#define PKL_TUPLE3 ((char)0x87)
#define PKL_APPENDS 'e'
#define PKL_SETITEMS 'u'
#define PKL_REDUCE 'R'
#define PKL_BUILD 'b'
#define PKL_BINPERSID 'Q'
#define PKL_STOP '.'
#endif
