/* SPDX-License-Identifier: Apache-2.0 */
/* Every codec there is. A codec that is not listed here does not exist: tests, fuzzing and the engine walk this table. */
#include "base/fail.h"
#include "codec/rows.h"

static const ckpi_codec *const registry[] = {
    &ckpi_codec_raw, &ckpi_codec_zero, &ckpi_codec_rans, &ckpi_codec_planes, &ckpi_codec_mask, &ckpi_codec_diff, &ckpi_codec_lz,
    &ckpi_codec_rearranged,
};

const ckpi_codec *
ckpi_codec_at(size_t i)
{
    return i < sizeof registry / sizeof *registry ? registry[i] : NULL;
}

const ckpi_codec *
ckpi_codec_find(uint8_t id)
{
    for (size_t i = 0; i < sizeof registry / sizeof *registry; i++) {
        if (registry[i]->id == id)
            return registry[i];
    }
    return NULL;
}

ckp_status
ckpi_codec_decode(uint8_t id, const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu,
                  ckp_error *err)
{
    const ckpi_codec *c = ckpi_codec_find(id);
    if (c == NULL)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "codec %u is unknown to this version", (unsigned)id);
    /* What a chunk's header says and what its codec can do are two claims of the same file. */
    if ((c->needs_base && b->base == NULL) || !c->fits(b))
        return ckpi_fail(err, CKP_ECORRUPT, "codec %s cannot have coded elements of %u bytes%s", c->name, b->width,
                         b->base == NULL ? " without a base" : "");
    return c->decode(b, src, len, dst, ws, cpu, err);
}
