/* SPDX-License-Identifier: Apache-2.0 */
/* The allow-list: every name that a pickle may mention. What is not here is refused where it is named, before anything is made of it. */
#ifndef CKPI_IO_PICKLE_GLOBALS_H
#define CKPI_IO_PICKLE_GLOBALS_H
#include "io/pickle/value.h"

typedef enum ckpi_global_id {
    G_NONE,
    /* containers and plain values */
    G_ORDERED_DICT, G_COUNTER, G_DEFAULTDICT, G_DEQUE, G_SET, G_FROZENSET, G_BYTEARRAY, G_BYTES, G_BYTESIO, G_COMPLEX, G_ENCODE,
    G_SLICE, G_RANGE,
    G_TYPE,              /* a plain type as a value: int, list ...; factories of defaultdict */
    G_ELLIPSIS,
    /* torch */
    G_SIZE, G_DEVICE, G_LAYOUT, G_DTYPE, G_STORAGE, G_UNTYPED, G_QSCHEME, G_TENSOR, G_PARAMETER,
    G_REBUILD, G_REBUILD_V2, G_REBUILD_V3, G_REBUILD_PARAMETER, G_REBUILD_PARAMETER_STATE, G_REBUILD_FROM_TYPE, G_REBUILD_SPARSE,
    G_REBUILD_QTENSOR, G_REBUILD_META,
    /* numpy */
    G_NP_DTYPE, G_NP_NDARRAY, G_NP_RECONSTRUCT, G_NP_SCALAR, G_NP_FROMBUFFER, G_NP_TYPE
} ckpi_global_id;

/* Fills v (kind GLOBAL); false when the name is not allowed. */
bool ckpi_global_find(ckpi_pv *v, const uint8_t *module, size_t module_len, const uint8_t *name, size_t name_len);
#endif
