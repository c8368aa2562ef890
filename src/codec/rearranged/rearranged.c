/* SPDX-License-Identifier: Apache-2.0 */
/* The rearranged codec as a row of the registry: parts of symbols, each as its own stream. */
#include "codec/rearranged/rearranged.h"
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/count/count.h"
#include "codec/mask/mask.h"
#include "codec/rans/rans.h"
#include "codec/rows.h"
#include "codec/stream/stream.h"

/*
 * Runs take 1 % more than codes where symbols fall independently and less where they cluster, and both directions cost by symbols that
 * are not zero, not by all: so they are taken, without a try of codes, where those are one in THIN, or few.
 */
enum { THIN = 32, FEW = 4096, FEW_THIN = 8 };

/* The parts side by side in scratch, each with room behind it for a vector. */
typedef struct parts {
    uint8_t *bytes;
    size_t start[CKPI_REARRANGED_PARTS], count[CKPI_REARRANGED_PARTS];
} parts;

static ckp_status
parts_make(parts *p, const ckpi_rearranged_plan *plan, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    size_t at = 0;
    ckpi_rearranged_count(plan, b->base, b->n, p->count, cpu);
    for (unsigned k = 0; k <= plan->own; k++) {
        p->start[k] = at;
        at += p->count[k] + CKPI_REARRANGED_SLACK;
    }
    p->bytes = ckpi_scratch_get(ws, at);
    return p->bytes != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "rearranged: no memory for %zu symbols", b->n);
}

/* ---- encoding ------------------------------------------------------------------------------------------------------------- */

static void
put_part_bytes(ckpi_buf *out, uint8_t kind, const uint8_t *payload, size_t len)
{
    ckpi_buf_u8(out, kind);
    if (kind != CKPI_CODEC_ZERO)
        ckpi_buf_str(out, payload, len);
}

static bool
is_thin(size_t set, size_t n)
{
    return set != 0 && (set <= n / THIN || (set <= FEW && set <= n / FEW_THIN));
}

/* One part, by runs or as codes. A part may take more than there is room for: out says so. */
static ckp_status
put_part(ckpi_buf *out, const uint8_t *sym, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t cap = ckpi_mask_bound(n, 1), mark = ckpi_scratch_mark(ws), set = n - ckpi_count_byte(sym, n, 0, cpu);
    uint8_t *coded = ckpi_scratch_get(ws, cap), id = CKPI_REARRANGED_KIND_RUNS;
    if (coded == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "rearranged: no memory for %zu symbols", n);
    size_t len = 0;
    ckp_status st = CKP_ELIMIT;
    if (is_thin(set, n)) {
        ckpi_buf runs = ckpi_stream_out(coded, cap);
        st = ckpi_runs_put(&runs, sym, n, set, ws, cpu, err);
        len = runs.len;
    }
    if (st == CKP_ELIMIT) /* not thin, or longer than the bytes themselves */
        st = ckpi_codec_codes((const int8_t *)sym, n, coded, cap, &len, &id, ws, cpu, err);
    if (st == CKP_OK)
        put_part_bytes(out, id, coded, len);
    ckpi_scratch_release(ws, mark);
    return st;
}

static ckp_status
put_parts(ckpi_buf *out, const ckpi_rearranged_plan *plan, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    parts p;
    uint8_t *at[CKPI_REARRANGED_PARTS];
    ckp_status st = parts_make(&p, plan, b, ws, cpu, err);
    if (st != CKP_OK)
        return st;
    for (unsigned k = 0; k <= plan->own; k++)
        at[k] = p.bytes + p.start[k];
    ckpi_rearranged_split(plan, at, b->data, b->base, b->n, cpu);
    ckpi_buf_u8(out, CKPI_REARRANGED_GROUPS);
    ckpi_buf_u8(out, (uint8_t)plan->own);
    ckpi_buf_put(out, plan->value, plan->own);
    for (unsigned k = 0; st == CKP_OK && k <= plan->own; k++) {
        if (p.count[k] != 0)
            st = put_part(out, p.bytes + p.start[k], p.count[k], ws, cpu, err);
    }
    return st;
}

static bool
fits(const ckpi_block *b)
{
    return b->width == 1 && b->n <= CKPI_RANS_MAX;
}

static size_t
bound(const ckpi_block *b)
{
    return b->n + 1;
}

static void
store(uint8_t *dst, const ckpi_block *b, size_t *len)
{
    dst[0] = CKPI_REARRANGED_STORED;
    if (b->n != 0)
        memcpy(dst + 1, b->data, b->n);
    *len = 1 + b->n;
}

static ckp_status
encode(const ckpi_block *b, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (!fits(b) || b->base == NULL || cap < bound(b))
        return ckpi_fail(err, CKP_EINVAL, "rearranged: %zu elements of %u bytes into room for %zu", b->n, b->width, cap);
    const size_t mark = ckpi_scratch_mark(ws);
    ckp_status st = CKP_OK;
    ckpi_buf out = ckpi_stream_out(dst, bound(b));
    if (b->n != 0) {
        ckpi_rearranged_plan plan;
        ckpi_rearranged_choose(&plan, b->data, b->base, b->n);
        st = put_parts(&out, &plan, b, ws, cpu, err);
    }
    if (st == CKP_OK) {
        *len = out.len;
        if (b->n == 0 || out.failed != CKP_OK || out.len > b->n)
            store(dst, b, len);
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

/* ---- decoding ------------------------------------------------------------------------------------------------------------- */

static ckp_status
get_part(ckpi_rd *in, uint8_t *sym, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const size_t at = in->pos;
    const uint8_t kind = ckpi_rd_u8(in);
    if (ckpi_rd_ok(in) && kind == CKPI_CODEC_ZERO) {
        memset(sym, 0, n);
        return CKP_OK;
    }
    size_t len = 0;
    const uint8_t *payload = ckpi_rd_str(in, ckpi_rd_left(in), &len);
    if (!ckpi_rd_ok(in))
        return ckpi_rd_error(in, err, "part of rearranged symbols");
    if (kind == CKPI_REARRANGED_KIND_RUNS) {
        ckpi_rd r = ckpi_rd_init(payload, len, 0);
        return ckpi_runs_get(&r, sym, n, ws, cpu, err);
    }
    if (kind != CKPI_CODEC_RANS && kind != CKPI_CODEC_MASK)
        return ckpi_fail_at(err, CKP_ECORRUPT, at, "rearranged: unknown kind of part %u", (unsigned)kind);
    const ckpi_block b = {.n = n, .width = 1, .dtype = CKP_I8};
    return ckpi_codec_decode(kind, &b, payload, len, sym, ws, cpu, err);
}

static ckp_status
get_plan(ckpi_rd *in, ckpi_rearranged_plan *plan, ckp_error *err)
{
    plan->own = ckpi_rd_u8(in);
    if (ckpi_rd_ok(in) && plan->own > CKPI_REARRANGED_MAX)
        ckpi_rd_fail(in, "at most 40 parts of one value");
    const uint8_t *value = ckpi_rd_bytes(in, ckpi_rd_ok(in) ? plan->own : 0);
    for (unsigned k = 0; ckpi_rd_ok(in) && k < plan->own; k++) {
        plan->value[k] = value[k];
        if (k > 0 && value[k] <= value[k - 1])
            ckpi_rd_fail(in, "rising values of parts");
    }
    return ckpi_rd_ok(in) ? CKP_OK : ckpi_rd_error(in, err, "rearranged");
}

/* The parts have the lengths that the base says, so merging cannot leave them. */
static ckp_status
get_parts(ckpi_rd *in, const ckpi_block *b, uint8_t *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    ckpi_rearranged_plan plan;
    parts p;
    const uint8_t *at[CKPI_REARRANGED_PARTS];
    ckp_status st = get_plan(in, &plan, err);
    if (st == CKP_OK)
        st = parts_make(&p, &plan, b, ws, cpu, err);
    for (unsigned k = 0; st == CKP_OK && k <= plan.own; k++) {
        at[k] = p.bytes + p.start[k];
        if (p.count[k] != 0)
            st = get_part(in, p.bytes + p.start[k], p.count[k], ws, cpu, err);
    }
    if (st == CKP_OK && !ckpi_rd_done(in))
        st = ckpi_fail_at(err, CKP_ECORRUPT, in->pos, "rearranged: bytes left over");
    if (st == CKP_OK)
        ckpi_rearranged_merge(&plan, at, dst, b->base, b->n, cpu);
    return st;
}

static ckp_status
decode(const ckpi_block *b, const uint8_t *src, size_t len, void *dst, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    if (!fits(b) || b->base == NULL)
        return ckpi_fail_at(err, CKP_ECORRUPT, 0, "rearranged: elements of %u bytes, or no base", b->width);
    const size_t mark = ckpi_scratch_mark(ws);
    ckpi_rd in = ckpi_rd_init(src, len, 0);
    const uint8_t form = ckpi_rd_u8(&in);
    ckp_status st = CKP_OK;
    if (ckpi_rd_ok(&in) && form == CKPI_REARRANGED_GROUPS && b->n != 0) {
        st = get_parts(&in, b, dst, ws, cpu, err);
    } else {
        if (ckpi_rd_ok(&in) && (form != CKPI_REARRANGED_STORED || ckpi_rd_left(&in) != b->n))
            ckpi_rd_fail(&in, "the bytes themselves");
        const uint8_t *bytes = ckpi_rd_bytes(&in, b->n);
        if (bytes != NULL)
            memcpy(dst, bytes, b->n);
        if (!ckpi_rd_ok(&in))
            st = ckpi_rd_error(&in, err, "rearranged");
    }
    ckpi_scratch_release(ws, mark);
    return st;
}

const ckpi_codec ckpi_codec_rearranged = {
    .id = CKPI_CODEC_REARRANGED,
    .name = "rearranged",
    .needs_base = true,
    .takes_base = true,
    .fits = fits,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
