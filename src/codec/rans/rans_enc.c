/* SPDX-License-Identifier: Apache-2.0 */
/* Encoder: histogram, model, lanes; then the kernels; then the stream is put together. Layout: README.md. */
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/rans/rans.h"
#include "codec/rans/rans_kern.h"
#include "codec/rans/rans_wire.h"

size_t
ckpi_rans_bound(size_t n)
{
    return n + (n != 0);
}

/*
 * Each lane costs two and a half bytes, so their number follows what the symbols take. 64 lanes decode twice as fast as 32, and
 * are worth it where table, states (224 bytes) and rounded shares still stay within 0.2 % and 192 bytes; alphabets of four symbols are fast anyhow.
 */
static unsigned
lanes_code(const ckpi_rans_model *m, uint64_t payload, size_t table_len)
{
    if (payload < 4096)
        return payload < 512 ? 0 : 1;
    return payload < 32768 || payload < 500 * ((uint64_t)table_len + 64) || m->distinct <= 4 ? 2 : 3;
}

/* Words of the symbols below `top`; returns where they begin. */
static uint8_t *
code_symbols(const ckpi_rans_model *m, const uint8_t *src, size_t n, uint32_t *x, unsigned lanes, uint8_t *top, uint32_t cpu)
{
    ckpi_rans_enc_fn *wide = lanes >= CKPI_RANS_WIDE_LANES ? ckpi_rans_enc_pick(m, cpu) : NULL;
    const size_t groups = wide != NULL ? n / lanes : 0;
    for (unsigned i = 0; i < lanes; i++)
        x[i] = CKPI_RANS_LOW;
    uint8_t *p = ckpi_rans_enc_ref(m, src, groups * lanes, n, x, lanes, top);
    return groups != 0 ? wide(m, src, groups, x, lanes, p) : p;
}

static size_t
store(const uint8_t *src, size_t n, uint8_t *dst)
{
    dst[0] = CKPI_RANS_STORED;
    memcpy(dst + 1, src, n);
    return n + 1;
}

static ckp_status
encode_coded(const ckpi_rans_model *m, uint64_t payload, const uint8_t *src, size_t n, uint8_t *dst, size_t *len, ckpi_scratch *ws,
             uint32_t cpu, ckp_error *err)
{
    const size_t mark = ckpi_scratch_mark(ws);
    /* A symbol puts at most one word. */
    uint8_t *words = ckpi_scratch_get(ws, CKPI_RANS_WORDS_SLACK + 2 * n);
    if (words == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "rans: no memory for %zu words", n);
    uint32_t x[CKPI_RANS_LANES_MAX];
    uint8_t table[CKPI_RANS_TABLE_MAX], states[CKPI_RANS_STATES_MAX];
    const size_t table_len = ckpi_rans_model_write(m, table);
    const unsigned code = lanes_code(m, payload, table_len), lanes = ckpi_rans_lanes[code];
    uint8_t *const top = words + CKPI_RANS_WORDS_SLACK + 2 * n;
    const uint8_t *p = code_symbols(m, src, n, x, lanes, top, cpu);

    const size_t states_len = ckpi_rans_states_write(x, lanes, states);
    const size_t words_len = (size_t)(top - p), total = 1 + table_len + states_len + words_len;
    if (total > n) {
        *len = store(src, n, dst);
    } else {
        dst[0] = ckpi_rans_head(m->kind, code, m->bits);
        memcpy(dst + 1, table, table_len);
        memcpy(dst + 1 + table_len, states, states_len);
        memcpy(dst + 1 + table_len + states_len, p, words_len);
        *len = total;
    }
    ckpi_scratch_release(ws, mark);
    return CKP_OK;
}

ckp_status
ckpi_rans_encode(const uint8_t *src, size_t n, const uint32_t *hist, uint8_t *dst, size_t cap, size_t *len, ckpi_scratch *ws,
                 uint32_t cpu, ckp_error *err)
{
    if (n > CKPI_RANS_MAX || cap < ckpi_rans_bound(n))
        return ckpi_fail(err, CKP_EINVAL, "rans: %zu bytes into room for %zu", n, cap);
    *len = 0;
    if (n == 0)
        return CKP_OK;
    uint32_t own[256];
    if (hist == NULL) {
        ckpi_rans_hist(src, n, own);
        hist = own;
    }
    ckpi_rans_model m;
    uint64_t payload;
    ckpi_rans_model_pick(&m, hist, n, &payload);
    if (m.kind == CKPI_RANS_ONE) {
        dst[0] = CKPI_RANS_ONE;
        *len = 1 + ckpi_rans_model_write(&m, dst + 1);
        return CKP_OK;
    }
    /* A gain below 1/1024 is not worth a decoder's time. */
    if (m.kind == CKPI_RANS_STORED || payload + n / 1024 >= n) {
        *len = store(src, n, dst);
        return CKP_OK;
    }
    return encode_coded(&m, payload, src, n, dst, len, ws, cpu, err);
}
