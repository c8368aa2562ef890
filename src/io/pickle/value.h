/* SPDX-License-Identifier: Apache-2.0 */
/* What a pickle is made into: plain values and descriptions of tensors, in one arena. Nothing here is ever called. */
#ifndef CKPI_IO_PICKLE_VALUE_H
#define CKPI_IO_PICKLE_VALUE_H
#include <stdbool.h>
#include <ckpress/state.h>
#include "io/arena.h"
#include "io/dtypes.h"

typedef enum ckpi_pv_kind {
    PV_NONE, PV_FALSE, PV_TRUE, PV_INT, PV_BIGINT, PV_FLOAT, PV_COMPLEX,
    PV_STR,          /* UTF-8, lone surrogates allowed */
    PV_STR2,         /* a str of Python 2: text if it is UTF-8, else bytes */
    PV_BYTES, PV_BYTEARRAY, PV_BYTESIO,
    PV_LIST, PV_TUPLE, PV_SIZE, PV_SET, PV_FROZENSET, PV_DEQUE,
    PV_DICT, PV_ODICT, PV_DEFAULTDICT, PV_COUNTER,
    PV_GLOBAL,       /* a name on the allow-list, not applied to anything yet; also torch dtypes and plain types */
    PV_DEVICE, PV_LAYOUT,                 /* text */
    PV_STORAGE, PV_TENSOR,
    PV_NPDTYPE, PV_NDARRAY, PV_NPSCALAR,
    PV_NAMED         /* CKP_TREE_NAMED over one value */
} ckpi_pv_kind;

typedef struct ckpi_pv ckpi_pv;

typedef struct ckpi_pstorage {
    const uint8_t *key;              /* name under data/ in the archive */
    size_t key_len;
    const ckpi_torch_dtype *dtype;   /* NULL: untyped, counted in bytes */
    uint64_t numel, bytes;
    uint64_t offset;                 /* in the file, set by who opened it */
    bool placed;
} ckpi_pstorage;

typedef struct ckpi_ptensor {
    const ckpi_pstorage *storage;
    const ckpi_torch_dtype *dtype;
    uint64_t first;                  /* elements of dtype into the storage */
    unsigned ndim;
    const uint64_t *shape;
    const int64_t *strides;
    ckp_tensor_as as;
    bool conj, neg;                  /* the value is the conjugate or negative of what is stored */
} ckpi_ptensor;

typedef struct ckpi_pnpdtype {
    char text[40];                   /* "<f4", "|S5", "<M8[D]"; "" until its state is known */
    char code[16];                   /* without byte order and unit */
    const ckpi_numpy_dtype *row;     /* one of our dtypes, or NULL */
    uint64_t itemsize;
    bool native;                     /* little-endian, or bytes */
    bool time;                       /* datetime64 or timedelta64 */
} ckpi_pnpdtype;

typedef struct ckpi_parray {
    const ckpi_pnpdtype *dtype;
    unsigned ndim;
    const uint64_t *shape;
    bool fortran;
    const uint8_t *data;
    size_t len;
} ckpi_parray;

struct ckpi_pv {
    uint8_t kind;                    /* ckpi_pv_kind */
    bool open;                       /* being walked: meeting it again means that it holds itself */
    uint32_t at;                     /* in the pickle, for messages */
    union {
        int64_t i;
        double f;
        struct { double re, im; } z;
        struct { const uint8_t *p; size_t n; } s;
        struct { ckpi_pv **v; uint32_t n, cap; ckpi_pv *extra; } c;    /* dicts: key, value, key, ...; extra: attributes, factory or maxlen */
        struct { unsigned id; const void *row; const char *name; } g;
        const ckpi_pstorage *storage;
        const ckpi_ptensor *t;
        ckpi_pnpdtype *nd;
        ckpi_parray *a;
        struct { const ckpi_pnpdtype *nd; const uint8_t *p; } ns;
        struct { const char *name; ckpi_pv *v; } named;
    } u;
};

bool ckpi_pv_is_text(const ckpi_pv *v, const char *text);
/* Non-negative INT; false for anything else. */
bool ckpi_pv_u64(const ckpi_pv *v, uint64_t *out);
bool ckpi_pv_bool(const ckpi_pv *v, bool *out);
/* Bytes of a BYTES, BYTEARRAY or STR2. */
bool ckpi_pv_bytes(const ckpi_pv *v, const uint8_t **p, size_t *n);
bool ckpi_pv_is_container(const ckpi_pv *v);
bool ckpi_pv_is_dict(const ckpi_pv *v);
#endif
