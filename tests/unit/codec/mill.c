/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/codec/mill.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "harness/guard.h"

size_t
mill_words(uint32_t words[8])
{
    const uint32_t have = ckpi_cpu();
    const uint32_t levels[] = {CKPI_CPU_AVX2 | CKPI_CPU_AVX512 | CKPI_CPU_VBMI2, CKPI_CPU_AVX2 | CKPI_CPU_AVX512, CKPI_CPU_AVX2,
                               CKPI_CPU_NEON};
    size_t n = 0;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if ((have & levels[i]) == levels[i])
            words[n++] = levels[i];
    words[n++] = 0;
    return n;
}

static ckp_status
decode_guarded(const ckpi_codec *c, const ckpi_block *b, const uint8_t *enc, size_t len, uint8_t *dst, ckpi_scratch *ws, uint32_t cpu)
{
    ckp_error err = {0};
    ckpi_block q = *b;
    uint8_t *src = guard_copy(enc, len);
    guard_readonly(src);
    q.data = NULL;
    const ckp_status st = c->decode(&q, src, len, dst, ws, cpu, &err);
    if (st != CKP_OK) {
        assert_int_equal(err.code, st);
        assert_true(err.text[0] != 0);
    }
    guard_free(src);
    return st;
}

static void
decode_equal(const ckpi_codec *c, const ckpi_block *b, const uint8_t *enc, size_t len, uint32_t cpu)
{
    const size_t bytes = b->n * b->width;
    ckpi_scratch *ws = ckpi_scratch_new();
    for (int front = 0; front < 2; front++) {
        uint8_t *dst = front ? guard_alloc_front(bytes) : guard_alloc(bytes);
        assert_int_equal(decode_guarded(c, b, enc, len, dst, ws, cpu), CKP_OK);
        if (bytes != 0)
            assert_memory_equal(dst, b->data, bytes);
        guard_free(dst);
    }
    ckpi_scratch_free(ws);
}

size_t
mill_round_trip(const ckpi_codec *c, const ckpi_block *b, uint8_t *enc)
{
    uint32_t words[8];
    const size_t n_words = mill_words(words), cap = c->bound(b), bytes = b->n * b->width;
    assert_true(cap <= bytes + 64 + bytes / 64);
    uint8_t *first = malloc(cap + 1);
    size_t first_len = 0;
    for (size_t i = 0; i < n_words; i++) {
        ckpi_scratch *ws = ckpi_scratch_new();
        uint8_t *dst = guard_alloc(cap), *data = guard_copy(b->data, bytes), *base = b->base ? guard_copy(b->base, bytes) : NULL;
        guard_readonly(data);
        ckpi_block q = *b;
        q.data = data;
        q.base = base;
        size_t len = 0;
        assert_int_equal(c->encode(&q, dst, cap, &len, ws, words[i], NULL), CKP_OK);
        assert_true(len <= cap);
        if (i == 0) {
            first_len = len;
            memcpy(first, dst, len);
        }
        assert_int_equal(len, first_len);
        assert_memory_equal(dst, first, len);
        decode_equal(c, &q, dst, len, words[i]);
        guard_free(dst);
        guard_free(data);
        guard_free(base);
        ckpi_scratch_free(ws);
    }
    if (enc != NULL)
        memcpy(enc, first, first_len);
    free(first);
    return first_len;
}

void
mill_corrupt(const ckpi_codec *c, const ckpi_block *b, const uint8_t *enc, size_t len)
{
    uint32_t words[8];
    const size_t n_words = mill_words(words), bytes = b->n * b->width;
    ckpi_scratch *ws = ckpi_scratch_new();
    uint8_t *bad = malloc(len + 1), *dst = guard_alloc(bytes);
    memcpy(bad, enc, len);
    for (size_t w = 0; w < n_words; w++) {
        for (size_t cut = 0; cut < len; cut++) {
            const ckp_status st = decode_guarded(c, b, enc, cut, dst, ws, words[w]);
            assert_true(st == CKP_ECORRUPT || st == CKP_ETRUNCATED);
        }
        for (size_t bit = 0; bit < 8 * len; bit++) {
            bad[bit / 8] ^= (uint8_t)(1u << (bit & 7));
            const ckp_status st = decode_guarded(c, b, bad, len, dst, ws, words[w]);
            assert_true(st == CKP_OK || st == CKP_ECORRUPT || st == CKP_ETRUNCATED || st == CKP_EUNSUPPORTED);
            bad[bit / 8] ^= (uint8_t)(1u << (bit & 7));
        }
    }
    guard_free(dst);
    free(bad);
    ckpi_scratch_free(ws);
}
