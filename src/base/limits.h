/* SPDX-License-Identifier: Apache-2.0 */
/* Every cap, in one place. FORMAT: raising it changes what older readers accept; LOCAL: ours alone. */
#ifndef CKPI_BASE_LIMITS_H
#define CKPI_BASE_LIMITS_H

#define CKPI_MAX_DIMS 64                        /* FORMAT numpy allows 64 since 2.0 */
#define CKPI_MAX_NAME 4096                      /* FORMAT bytes of a tensor name */
#define CKPI_MAX_TENSORS (1u << 24)             /* FORMAT in one shard */
#define CKPI_MAX_CHUNK_ELEMS (1u << 20)         /* FORMAT elements that one frame may pay for */
#define CKPI_MAX_CHUNK_PIECES (1u << 16)        /* FORMAT tensors in one chunk */
#define CKPI_MAX_ELEM_BYTES 32                  /* FORMAT clongdouble */
#define CKPI_MAX_TABLE (1u << 30)               /* FORMAT bytes of the tensor table, unpacked */
#define CKPI_MAX_TREE (1u << 30)                /* FORMAT bytes of the state tree, unpacked */
#define CKPI_MAX_TREE_DEPTH 128                 /* FORMAT nesting of the state tree */
#define CKPI_MAX_INDEX (1u << 30)               /* FORMAT bytes of the index */
#define CKPI_MAX_CHAIN 4096                     /* FORMAT deltas behind one key */
#define CKPI_MAX_MANIFEST (64u << 20)           /* LOCAL bytes of a manifest */
#define CKPI_MAX_SHARDS (1u << 16)              /* FORMAT writers of one checkpoint */
#define CKPI_MAX_JSON_DEPTH 32                  /* LOCAL */
#define CKPI_MAX_ST_HEADER 100000000u           /* LOCAL safetensors' own cap */
#define CKPI_MAX_PICKLE (1u << 30)              /* LOCAL bytes of a pickle that we read */
#define CKPI_MAX_PICKLE_STACK (1u << 22)        /* LOCAL */
#define CKPI_MAX_ZIP_ENTRIES (1u << 24)         /* LOCAL */
#define CKPI_PATH_MAX 4096                      /* LOCAL */
#define CKPI_MAX_LATE_S 900                     /* LOCAL seconds that a request may arrive after its process has died */
#endif
