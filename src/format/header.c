/* SPDX-License-Identifier: Apache-2.0 */
#include "format/header.h"
#include <string.h>
#include "base/fail.h"
#include "base/limits.h"
#include "format/section.h"

/* Feature bits by operation. Nothing that this version knows stands in the way of checking or deleting a file. */
enum { OP_READ, OP_CHECK, OP_DELETE, OP_COUNT };
static const char *const op_name[OP_COUNT] = {"read", "check", "delete"};
static const uint64_t op_known[OP_COUNT] = {CKPI_FEAT_KNOWN, 0, 0};

void
ckpi_header_encode(uint8_t out[CKPI_WIRE_HEADER], const ckpi_file_info *info, uint64_t *hash)
{
    memset(out, 0, CKPI_WIRE_HEADER);
    memcpy(out, CKPI_WIRE_MAGIC, 8);
    ckpi_st16(out + 8, CKPI_FORMAT_MAJOR);
    ckpi_st16(out + 10, CKPI_FORMAT_MINOR);
    ckpi_st32(out + 12, CKPI_WIRE_HEADER);
    ckpi_st64(out + 16, info->features);
    ckpi_st64(out + 40, info->optional);
    ckpi_st16(out + 48, info->is_delta ? CKPI_WIRE_FLAG_DELTA : 0);
    ckpi_st16(out + 50, info->chain);
    out[52] = info->profile;
    ckpi_st_id(out + 56, info->base_content);
    ckpi_st_id(out + 72, info->table_content);
    *hash = ckpi_hash64(out, CKPI_WIRE_HEADER - 8);
    ckpi_st64(out + CKPI_WIRE_HEADER - 8, *hash);
}

static ckp_status
check_features(const uint8_t in[CKPI_WIRE_HEADER], ckp_error *err)
{
    for (unsigned op = 0; op < OP_COUNT; op++) {
        const uint64_t unknown = ckpi_ld64(in + 16 + 8 * op) & ~op_known[op];
        unsigned bit = 0;
        while (unknown != 0 && (unknown >> bit & 1) == 0)
            bit++;
        /* Deleting is not what a reader does; the bit is there for programs that delete. */
        if (unknown != 0 && op != OP_DELETE)
            return ckpi_fail_at(err, CKP_EUNSUPPORTED, 16 + 8 * op, "needs feature bit %u to %s it, which version %s of ckpress does not know",
                                bit, op_name[op], CKP_VERSION_STRING);
    }
    return CKP_OK;
}

static const char *
info_fault(const ckpi_file_info *info, const uint8_t in[CKPI_WIRE_HEADER])
{
    unsigned reserved = in[53] | in[54] | in[55];
    for (unsigned i = 88; i < 120; i++)
        reserved |= in[i];
    if (reserved != 0 || (ckpi_ld16(in + 48) & ~CKPI_WIRE_FLAG_DELTA) != 0)
        return "reserved bytes are not zero";
    const bool delta = info->is_delta != 0;
    if (((info->features & CKPI_FEAT_DELTA) != 0) != delta || (info->chain != 0) != delta || ckpi_id_is_zero(info->base_content) == delta)
        return "delta flag, feature bit, chain length and base id contradict each other";
    if (info->chain > CKPI_MAX_CHAIN)
        return "a chain of more than 4096 deltas";
    return NULL;
}

ckp_status
ckpi_header_parse(ckpi_file_info *info, const uint8_t in[CKPI_WIRE_HEADER], uint64_t *hash, ckp_error *err)
{
    if (memcmp(in, CKPI_WIRE_MAGIC, 8) != 0)
        return ckpi_fail_at(err, CKP_EFORMAT, 0, "not a .ckp file: its first 8 bytes are %02x %02x %02x %02x %02x %02x %02x %02x", in[0], in[1],
                            in[2], in[3], in[4], in[5], in[6], in[7]);
    /* A newer major version may have another header: only its first 16 bytes are fixed for ever. */
    if (ckpi_ld16(in + 8) != CKPI_FORMAT_MAJOR)
        return ckpi_fail_at(err, CKP_EVERSION, 8, "format version %u.%u; this ckpress reads version %u", ckpi_ld16(in + 8), ckpi_ld16(in + 10),
                            CKPI_FORMAT_MAJOR);
    *hash = ckpi_hash64(in, CKPI_WIRE_HEADER - 8);
    if (ckpi_ld64(in + CKPI_WIRE_HEADER - 8) != *hash || ckpi_ld32(in + 12) != CKPI_WIRE_HEADER)
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "header: expected hash %016llx, found %016llx", (unsigned long long)*hash,
                            (unsigned long long)ckpi_ld64(in + CKPI_WIRE_HEADER - 8));
    const ckp_status st = check_features(in, err);
    if (st != CKP_OK)
        return st;
    *info = (ckpi_file_info){.is_delta = (uint8_t)(ckpi_ld16(in + 48) & CKPI_WIRE_FLAG_DELTA), .profile = in[52],
                             .chain = ckpi_ld16(in + 50), .base_content = ckpi_rd_id(in + 56), .table_content = ckpi_rd_id(in + 72), .features = ckpi_ld64(in + 16),
                             .optional = ckpi_ld64(in + 40)};
    const char *fault = info_fault(info, in);
    return fault == NULL ? CKP_OK : ckpi_fail_at(err, CKP_ECORRUPT, 48, "header: %s", fault);
}

void
ckpi_trailer_encode(uint8_t out[CKPI_WIRE_TRAILER], const ckpi_trailer *t)
{
    memcpy(out, CKPI_WIRE_TRAILER_MAGIC, 8);
    ckpi_st64(out + 8, t->index_offset);
    ckpi_st64(out + 16, t->index_len);
    ckpi_st_id(out + 24, t->index_id);
    ckpi_st_id(out + 40, t->content);
    ckpi_st64(out + 56, t->length);
    ckpi_st64(out + 64, ckpi_hash64(out, 64));
}

ckp_status
ckpi_trailer_parse(ckpi_trailer *t, const uint8_t in[CKPI_WIRE_TRAILER], uint64_t off, ckp_error *err)
{
    if (memcmp(in, CKPI_WIRE_TRAILER_MAGIC, 8) != 0)
        return ckpi_fail_at(err, CKP_ETRUNCATED, off, "no trailer at the end: the file was cut, or never finished");
    if (ckpi_ld64(in + 64) != ckpi_hash64(in, 64))
        return ckpi_fail_at(err, CKP_ECORRUPT, off, "trailer: expected hash %016llx, found %016llx",
                            (unsigned long long)ckpi_hash64(in, 64), (unsigned long long)ckpi_ld64(in + 64));
    *t = (ckpi_trailer){.index_offset = ckpi_ld64(in + 8), .index_len = ckpi_ld64(in + 16), .index_id = ckpi_rd_id(in + 24),
                        .content = ckpi_rd_id(in + 40), .length = ckpi_ld64(in + 56)};
    if (t->length != off + CKPI_WIRE_TRAILER)
        return ckpi_fail_at(err, CKP_ECORRUPT, off, "trailer: the file should have %llu bytes, it has %llu", (unsigned long long)t->length,
                            (unsigned long long)(off + CKPI_WIRE_TRAILER));
    if (t->index_offset > off || t->index_len != off - t->index_offset || t->index_len < CKPI_WIRE_SECTION)
        return ckpi_fail_at(err, CKP_ECORRUPT, off, "trailer: no index at %llu", (unsigned long long)t->index_offset);
    return CKP_OK;
}
