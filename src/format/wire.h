/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of docs/format.md; tests/unit/format/test_doc.c compares them with the page. Private to the room. */
#ifndef CKPI_FORMAT_WIRE_H
#define CKPI_FORMAT_WIRE_H
#include "format/format.h"

#define CKPI_WIRE_MAGIC "\x89" "CKP\r\n\x1a\n"      /* 8 bytes: high bit, CR LF, ^Z and LF all suffer from text-mode copies */
#define CKPI_WIRE_HEADER 128u
#define CKPI_WIRE_TABLE "\xf5" "TAB"               /* 0xf5 never occurs in UTF-8 */
#define CKPI_WIRE_TREE "\xf5" "TRE"
#define CKPI_WIRE_FRAME "\xf5" "FRM"
#define CKPI_WIRE_INDEX "\xf5" "IDX"
#define CKPI_WIRE_TRAILER_MAGIC "CKPEND\x1a\n"
#define CKPI_WIRE_SECTION 56u                      /* head of table, tree and index */
#define CKPI_WIRE_FRAME_PREFIX 8u                  /* magic and head length; the head, its hash (8) and the body follow */
#define CKPI_WIRE_FRAME_MIN_HEAD 27u               /* five bytes, three of pieces, three lengths, two hashes */
#define CKPI_WIRE_TRAILER 72u

#define CKPI_WIRE_FLAG_DELTA 1u

/* How a section is stored. */
typedef enum ckpi_coding {
    CKPI_CODING_RAW = 0,
    CKPI_CODING_ZSTD = 1,
    CKPI_CODING_REF = 2,         /* table only: no bytes; the same as in the shard named by the header */
    CKPI_CODING_ZSTD_PREFIX = 3  /* tree only: zstd with that shard's tree as prefix */
} ckpi_coding;

static inline uint64_t
ckpi_zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0);
}

/* Of values below 2^62: table distances, never more. */
static inline int64_t
ckpi_unzigzag(uint64_t z)
{
    return (z & 1) != 0 ? -(int64_t)(z >> 1) - 1 : (int64_t)(z >> 1);
}
#endif
