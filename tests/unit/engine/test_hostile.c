/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks with right hashes and wrong contents: a typed error that names file, tensor and offset; never a crash. */
#include "craft.h"
#include <math.h>
#include <stdlib.h>
#include "base/fail.h"
#include "harness/seed.h"

typedef void (*spoil_fn)(craft *x);

static chain *
small_chain(const char *profile, size_t saves)
{
    static const uint64_t mat[2] = {20, 32}, big[2] = {70, 64}, vec[1] = {200};
    sim *m = sim_new(2);
    chain *c = chain_new(profile, 1, UINT32_MAX);
    (void)sim_add_weight(m, "a", CKP_F32, CKP_F32, CKP_F32, 2, big);
    (void)sim_add_weight(m, "b", CKP_F32, CKP_F32, CKP_F32, 1, vec);
    (void)sim_add_weight(m, "c", CKP_F32, CKP_F32, CKP_F32, 2, mat);
    (void)sim_add_weight(m, "h", CKP_BF16, CKP_F32, CKP_F16, 2, big);
    (void)sim_add_weight(m, "s", CKP_F32, CKP_F32, 0, 2, big);
    (void)sim_add(m, "o", CKP_ROLE_OTHER, SIM_NONE, CKP_I32, 1, vec);
    for (size_t i = 0; i < saves; i++) {
        sim_train(m);
        sim_put(m, 0, 3, NAN);
        sim_put(m, 1, 5, INFINITY);
        sim_put(m, 2, 7, -1.0F);
        chain_save(c, m, false, i == 2);
    }
    sim_free(m);
    return c;
}

static bool
is_typed(ckp_status st)
{
    return st == CKP_ECORRUPT || st == CKP_EUNSUPPORTED || st == CKP_ETRUNCATED || st == CKP_ELIMIT || st == CKP_EVERSION || st == CKP_EBASE ||
           st == CKP_EFORMAT;
}

/* Opens and decodes; what went wrong, if anything. */
static ckp_status
read_crafted(const chain *c, size_t i, const ckpi_buf *file, ckp_error *err)
{
    ckpi_lineage *l = NULL;
    ckpi_error_clear(err);
    ckp_status st = chain_open_try(c, i, file->data, file->len, &l, err);
    if (st == CKP_OK)
        st = chain_decode_all(c, l, err);
    ckpi_lineage_free(l);
    return st;
}

static void
expect_refused(const chain *c, size_t i, spoil_fn spoil, const char *what)
{
    ckpi_buf file = CKPI_BUF_INIT;
    ckp_error err;
    craft *x = craft_open(c, i);
    spoil(x);
    craft_write(x, false, &file);
    const ckp_status st = read_crafted(c, i, &file, &err);
    if (!is_typed(st))
        fail_msg("%s: status %d (%s)", what, (int)st, err.text);
    if (err.file[0] == '\0' || err.tensor[0] == '\0' || err.offset == CKP_NO_OFFSET)
        fail_msg("%s: the error does not say where: file '%s', tensor '%s': %s", what, err.file, err.tensor, err.text);
    craft_free(x);
    ckpi_buf_free(&file);
}

/* ---- one field each ---- */

static void
put_f32(ckpi_buf *b, size_t at, float v)
{
    assert_true(at + 4 <= b->len);
    memcpy(b->data + at, &v, 4);
}

static void v_flags(craft *x) { craft_find(x, CKP_ROLE_V)->params.data[0] = 0x41; }
static void v_no_factors(craft *x) { craft_find(x, CKP_ROLE_V)->params.data[0] = 0; }
static void v_cols(craft *x) { craft_find(x, CKP_ROLE_V)->params.data[1] ^= 1; }
static void v_huge_cols(craft *x)
{
    ckpi_buf *p = &craft_find(x, CKP_ROLE_V)->params;
    const uint8_t b[] = {1, 0x80, 0x80, 0x40, 9};       /* 2^20 columns */
    craft_set(p, b, sizeof b);
}
static void v_vstep(craft *x) { craft_find(x, CKP_ROLE_V)->params.data[2] = 13; }
static void v_more(craft *x) { ckpi_buf_u8(&craft_find(x, CKP_ROLE_V)->params, 0); }
static void v_none(craft *x) { craft_set(&craft_find(x, CKP_ROLE_V)->params, "", 0); }
static void v_moves(craft *x) { craft_find(x, CKP_ROLE_V)->params.data[0] = 8; }
static void v_codec(craft *x) { craft_find(x, CKP_ROLE_V)->c.codec = 99; }
static void v_empty(craft *x) { craft_set(&craft_find(x, CKP_ROLE_V)->payload, "", 0); }
static void v_quant(craft *x) { craft_find(x, CKP_ROLE_V)->c.quant = CKPI_QUANT_W; }
static void v_unknown_quant(craft *x) { craft_find(x, CKP_ROLE_V)->c.quant = 9; }
static void v_lossless(craft *x) { craft_find(x, CKP_ROLE_V)->c.quant = 0; }
static void v_hash(craft *x) { craft_find(x, CKP_ROLE_V)->c.decoded_hash ^= 1; }
static void m_flags(craft *x) { craft_find(x, CKP_ROLE_M)->params.data[0] = 0x80; }
static void m_factors(craft *x) { craft_find(x, CKP_ROLE_M)->params.data[0] |= 1; }
static void m_base(craft *x) { craft_find(x, CKP_ROLE_MOMENTUM)->params.data[0] = 2; }
static void m_nan(craft *x) { put_f32(&craft_find(x, CKP_ROLE_M)->params, 1, NAN); }
static void m_inf(craft *x) { put_f32(&craft_find(x, CKP_ROLE_M)->params, 1, -INFINITY); }
static void m_less(craft *x) { craft_find(x, CKP_ROLE_M)->params.len -= 1; }
static void m_codec_base(craft *x) { craft_find(x, CKP_ROLE_M)->c.codec = CKPI_CODEC_DIFF; }
static void w_flags(craft *x) { craft_find(x, CKP_ROLE_WEIGHT)->params.data[0] = 1; }
static void w_more_flags(craft *x) { craft_find(x, CKP_ROLE_WEIGHT)->params.data[0] = 32; }
static void w_qmul(craft *x) { put_f32(&craft_find(x, CKP_ROLE_WEIGHT)->params, 1, NAN); }
static void w_zero(craft *x) { put_f32(&craft_find(x, CKP_ROLE_WEIGHT)->params, 1, 0.0F); }
static void w_order(craft *x) { put_f32(&craft_find(x, CKP_ROLE_WEIGHT)->params, 5, 1e30F); }
static void w_inf(craft *x) { put_f32(&craft_find(x, CKP_ROLE_WEIGHT)->params, 9, INFINITY); }
static void w_less(craft *x) { craft_find(x, CKP_ROLE_WEIGHT)->params.len = 4; }
static void w_raw(craft *x) { craft_find(x, CKP_ROLE_WEIGHT)->c.codec = CKPI_CODEC_RAW; }
static void
w_escapes(craft *x, const void *p, size_t n)
{
    craft_set(&craft_find(x, CKP_ROLE_WEIGHT)->escapes, p, n);
}
static void w_esc_count(craft *x) { w_escapes(x, "\xff\xff\xff\xff\x0f\0\0\0\0\0", 10); }
static void w_esc_none(craft *x) { w_escapes(x, "\0", 1); }
static void w_esc_twice(craft *x) { w_escapes(x, "\2\1aaaa\0aaaa", 11); }
static void w_esc_beyond(craft *x) { w_escapes(x, "\1\xff\x7f" "aaaa", 7); }
static void w_esc_short(craft *x) { w_escapes(x, "\1\1aaa", 5); }
static void w_esc_more(craft *x) { w_escapes(x, "\1\1aaaab", 7); }
static void o_quant(craft *x) { craft_find(x, CKP_ROLE_OTHER)->c.quant = CKPI_QUANT_W; }
static void o_payload(craft *x) { craft_set(&craft_find(x, CKP_ROLE_OTHER)->payload, "abc", 3); }
static void swap_params(craft *x)
{
    ckpi_buf *a = &craft_find(x, CKP_ROLE_V)->params, *b = &craft_find(x, CKP_ROLE_WEIGHT)->params, t = *a;
    *a = *b;
    *b = t;
}

#define ROW(f) {f, #f}
static const struct { spoil_fn fn; const char *name; } spoils[] = {
    ROW(v_flags), ROW(v_no_factors), ROW(v_cols), ROW(v_huge_cols), ROW(v_vstep), ROW(v_more), ROW(v_none), ROW(v_moves), ROW(v_codec),
    ROW(v_empty), ROW(v_quant), ROW(v_unknown_quant), ROW(v_lossless), ROW(v_hash), ROW(m_flags), ROW(m_factors), ROW(m_base), ROW(m_nan),
    ROW(m_inf), ROW(m_less), ROW(m_codec_base), ROW(w_flags), ROW(w_more_flags), ROW(w_qmul), ROW(w_zero), ROW(w_order), ROW(w_inf), ROW(w_less), ROW(w_raw),
    ROW(w_esc_count), ROW(w_esc_none), ROW(w_esc_twice), ROW(w_esc_beyond), ROW(w_esc_short), ROW(w_esc_more), ROW(o_quant), ROW(o_payload),
    ROW(swap_params),
};

static void
test_fields_of_a_key(void **state)
{
    (void)state;
    chain *c = small_chain("resume", 1);
    for (size_t k = 0; k < CHECK_COUNT(spoils); k++)
        expect_refused(c, 0, spoils[k].fn, spoils[k].name);
    chain_free(c);
}

static void d_v_key(craft *x) { craft_find(x, CKP_ROLE_V)->c.flags = 0; }
static void d_v_factors(craft *x) { craft_find(x, CKP_ROLE_V)->params.data[0] = 9; }
static void d_w_key(craft *x) { craft_find(x, CKP_ROLE_WEIGHT)->c.flags = 0; }
static void d_mom_key(craft *x) { craft_find(x, CKP_ROLE_MOMENTUM)->c.flags = 0; }
static void d_mom_base(craft *x) { craft_find(x, CKP_ROLE_MOMENTUM)->params.data[0] = 2; }
static void d_w_lossless(craft *x) { craft_find(x, CKP_ROLE_WEIGHT)->c.quant = 0; }
static void d_moves(craft *x)
{
    craft_chunk *v = craft_find(x, CKP_ROLE_V);
    v->params.data[1] = CKPI_CODEC_RAW;
}
/* The same pieces in another order have no like chunk in the base. */
static void
d_pieces(craft *x)
{
    for (size_t k = 0; k < x->n; k++)
        if (x->at[k].c.n_pieces > 1) {
            const ckpi_piece p = x->at[k].piece[0];
            x->at[k].piece[0] = x->at[k].piece[1];
            x->at[k].piece[1] = p;
        }
}

/* ---- indices: flags, codebooks of the pieces, kept values ---- */

static craft_chunk *
indices(craft *x)
{
    for (size_t k = 0; k < x->n; k++)
        if (x->at[k].c.quant == CKPI_QUANT_INDEX)
            return &x->at[k];
    fail_msg("no chunk of indices");
    return NULL;
}

static void i_flags(craft *x) { indices(x)->params.data[0] = 4; }
static void i_no_base(craft *x) { indices(x)->params.data[0] = 1; }
static void i_kept_no_base(craft *x) { indices(x)->params.data[0] = 2; }
static void i_book_base(craft *x) { indices(x)->params.data[1] = 0x80; }
static void i_book_kind(craft *x) { indices(x)->params.data[1] |= 0xc0; }
static void i_book_many(craft *x) { indices(x)->params.data[1] = 33; }
static void i_book_fewer(craft *x) { indices(x)->params.data[1]--; }
static void i_book_order(craft *x) { memcpy(indices(x)->params.data + 4, indices(x)->params.data + 2, 2); }
static void i_book_nan(craft *x) { memcpy(indices(x)->params.data + 2, "\x00\x7e", 2); }
static void i_less(craft *x) { indices(x)->params.len -= 1; }
static void i_none(craft *x) { craft_set(&indices(x)->params, "", 0); }
static void i_more(craft *x) { ckpi_buf_u8(&indices(x)->params, 0); }
static void i_zero(craft *x) { indices(x)->c.codec = CKPI_CODEC_ZERO; }
static void i_codec(craft *x) { indices(x)->c.codec = CKPI_CODEC_REARRANGED; }
static void i_base(craft *x) { indices(x)->c.flags ^= CKPI_CHUNK_USES_BASE; }
static void i_as_w(craft *x) { indices(x)->c.quant = CKPI_QUANT_W; }
static void i_of_m(craft *x) { craft_find(x, CKP_ROLE_M)->c.quant = CKPI_QUANT_INDEX; }
/* one index above the kept one, in raw bytes */
static void
i_beyond(craft *x)
{
    craft_chunk *k = indices(x);
    uint8_t *codes = calloc(1, (size_t)k->c.n);
    codes[5] = 40;
    k->c.codec = CKPI_CODEC_RAW;
    craft_set(&k->payload, codes, (size_t)k->c.n);
    free(codes);
}

static void
test_fields_of_indices(void **state)
{
    (void)state;
    static const struct { spoil_fn fn; const char *name; } rows[] = {
        ROW(i_flags), ROW(i_no_base), ROW(i_kept_no_base), ROW(i_book_base), ROW(i_book_kind), ROW(i_book_many), ROW(i_book_fewer),
        ROW(i_book_order), ROW(i_book_nan), ROW(i_less), ROW(i_none), ROW(i_more), ROW(i_zero), ROW(i_codec), ROW(i_as_w), ROW(i_of_m), ROW(i_beyond)};
    static const struct { spoil_fn fn; const char *name; } more[] = {ROW(i_base), ROW(i_flags), ROW(i_less), ROW(i_none), ROW(i_more), ROW(i_as_w),
                                                                   ROW(i_beyond)};
    chain *c = small_chain("dynaquant", 3);
    for (size_t k = 0; k < CHECK_COUNT(rows); k++)
        expect_refused(c, 0, rows[k].fn, rows[k].name);
    for (size_t k = 0; k < CHECK_COUNT(more); k++)
        expect_refused(c, 1, more[k].fn, more[k].name);
    chain_free(c);
}

static void
test_fields_of_a_delta(void **state)
{
    (void)state;
    chain *c = small_chain("resume", 3);
    static const struct { spoil_fn fn; const char *name; } more[] = {ROW(d_v_key), ROW(d_v_factors), ROW(d_w_key), ROW(d_mom_key),
                                                                   ROW(d_mom_base), ROW(d_w_lossless), ROW(d_moves), ROW(d_pieces)};
    for (size_t k = 0; k < CHECK_COUNT(more); k++)
        expect_refused(c, 1, more[k].fn, more[k].name);
    chain_free(c);
}

/* ---- chunks that do not go together ---- */

/* A chunk of two tensors becomes one of the first and one of the second. */
static void
split(craft *x, ckp_role role)
{
    for (size_t k = 0; k < x->n; k++) {
        craft_chunk *a = &x->at[k];
        if (a->c.role != role || a->c.n_pieces < 2)
            continue;
        craft_chunk *b = &x->at[x->n++];
        *b = (craft_chunk){.c = a->c};
        craft_set(&b->params, a->params.data, a->params.len);
        craft_set(&b->escapes, a->escapes.data, a->escapes.len);
        craft_set(&b->payload, a->payload.data, a->payload.len);
        b->c.n_pieces = a->c.n_pieces - 1;
        memcpy(b->piece, a->piece + 1, b->c.n_pieces * sizeof *b->piece);
        a->c.n_pieces = 1;
        return;
    }
    fail_msg("no chunk of several tensors");
}

static void split_w(craft *x) { split(x, CKP_ROLE_WEIGHT); }
static void split_m(craft *x) { split(x, CKP_ROLE_M); }
static void split_v(craft *x) { split(x, CKP_ROLE_V); }
static void
split_w_and_v(craft *x)
{
    split(x, CKP_ROLE_WEIGHT);
    split(x, CKP_ROLE_V);
}

/* A tensor's chunk becomes two halves. */
static void
halve(craft *x, ckp_role role)
{
    craft_chunk *a = craft_find(x, role), *b = &x->at[x->n++];
    *b = (craft_chunk){.c = a->c};
    craft_set(&b->params, a->params.data, a->params.len);
    craft_set(&b->payload, a->payload.data, a->payload.len);
    b->c.n_pieces = 1;
    b->piece[0] = a->piece[0];
    b->piece[0].first = b->piece[0].count / 2;
    b->piece[0].count -= b->piece[0].first;
    a->piece[0].count = b->piece[0].first;
}

static void halve_w(craft *x) { halve(x, CKP_ROLE_WEIGHT); }
static void halve_m(craft *x) { halve(x, CKP_ROLE_M); }
static void halve_v(craft *x) { halve(x, CKP_ROLE_V); }

static void
test_units_that_mix(void **state)
{
    (void)state;
    static const struct { spoil_fn fn; const char *name; } rows[] = {ROW(split_w), ROW(split_m), ROW(split_v), ROW(split_w_and_v),
                                                                   ROW(halve_w), ROW(halve_m), ROW(halve_v)};
    chain *c = small_chain("resume", 1);
    for (size_t k = 0; k < CHECK_COUNT(rows); k++)
        expect_refused(c, 0, rows[k].fn, rows[k].name);
    chain_free(c);
}

/*
 * Moments apart from their weights (which hide behind another tensor's chunk), of different lengths: were they decoded together, one
 * would run over the memory of the other.
 */
static void
moments_alone(craft *x)
{
    craft_chunk *w = craft_find(x, CKP_ROLE_WEIGHT), *other = NULL;
    for (size_t k = 0; k < x->n; k++)
        if (&x->at[k] != w && x->at[k].c.role == CKP_ROLE_WEIGHT && x->at[k].c.dtype == w->c.dtype && x->at[k].c.n_pieces == 1)
            other = &x->at[k];
    assert_non_null(other);
    other->piece[1] = w->piece[0];               /* weights of both in one chunk, the other's first */
    other->c.n_pieces = 2;
    craft_drop(x, w);
    halve(x, CKP_ROLE_V);
}

static void
test_moments_without_weights(void **state)
{
    (void)state;
    chain *c = small_chain("resume", 1);
    expect_refused(c, 0, moments_alone, "moments alone");
    chain_free(c);
}

/* Moments of a dtype that the quantizers do not know. */
static void
test_wrong_dtype(void **state)
{
    (void)state;
    static const uint64_t shape[2] = {64, 100};
    static const ckp_dtype dts[] = {CKP_U8, CKP_F64, CKP_F8E4M3FN, CKP_C128, CKP_F4_PACKED};
    for (size_t d = 0; d < CHECK_COUNT(dts); d++)
        for (int r = 0; r < 3; r++) {
            const ckp_role role = r == 0 ? CKP_ROLE_V : r == 1 ? CKP_ROLE_M : CKP_ROLE_WEIGHT;
            sim *m = sim_new(3);
            chain *c = chain_new("resume", 1, UINT32_MAX);
            const uint32_t w = sim_add(m, "w", CKP_ROLE_WEIGHT, SIM_NONE, role == CKP_ROLE_WEIGHT ? dts[d] : CKP_F32, 2, shape);
            (void)sim_add(m, "m", CKP_ROLE_M, w, role == CKP_ROLE_M ? dts[d] : CKP_F32, 2, shape);
            (void)sim_add(m, "v", CKP_ROLE_V, w, role == CKP_ROLE_V ? dts[d] : CKP_F32, 2, shape);
            sim_train(m);
            chain_save(c, m, true, false);
            craft *x = craft_open(c, 0);
            craft_chunk *k = craft_find(x, role);
            ckpi_buf file = CKPI_BUF_INIT;
            ckp_error err;
            k->c.quant = (uint8_t)(role == CKP_ROLE_V ? CKPI_QUANT_V : role == CKP_ROLE_M ? CKPI_QUANT_M : CKPI_QUANT_W);
            k->c.codec = CKPI_CODEC_ZERO;
            craft_set(&k->payload, "", 0);
            craft_write(x, false, &file);
            assert_true(is_typed(read_crafted(c, 0, &file, &err)));
            ckpi_buf_free(&file);
            craft_free(x);
            chain_free(c);
            sim_free(m);
        }
}

/* ---- by chance ---- */

static void
mutate(test_rng *r, craft *x)
{
    craft_chunk *k = &x->at[test_below(r, x->n)];
    ckpi_buf *part = test_below(r, 3) != 0 ? &k->params : test_below(r, 2) != 0 ? &k->payload : &k->escapes;
    switch (test_below(r, 8)) {
    case 0:
        k->c.codec = (uint8_t)test_below(r, 12);
        break;
    case 1:
        if ((x->f->info.features & CKPI_FEAT_LOSSY) != 0)
            k->c.quant = (uint8_t)test_below(r, 6);
        break;
    case 2:
        if (part->len != 0)
            part->len = (size_t)test_below(r, part->len);
        break;
    case 3:
        ckpi_buf_u8(part, (uint8_t)test_u64(r));
        break;
    case 4:
        if (x->f->info.is_delta)
            k->c.flags ^= CKPI_CHUNK_USES_BASE;
        break;
    default:
        if (part->len != 0)
            part->data[test_below(r, part->len)] ^= (uint8_t)(1U << test_below(r, 8));
    }
}

static void
test_chance(void **state)
{
    (void)state;
    static const char *const profiles[] = {"lossless", "resume", "uniform", "weights", "dynaquant", "codebook", "clusters", "centres"};
    test_rng r = test_rng_new("engine hostile");
    for (size_t p = 0; p < CHECK_COUNT(profiles); p++) {
        chain *c = small_chain(profiles[p], 4);
        size_t refused = 0;
        for (int round = 0; round < 700; round++) {
            ckpi_buf file = CKPI_BUF_INIT;
            ckp_error err;
            const size_t i = (size_t)test_below(&r, 4);
            craft *x = craft_open(c, i);
            for (uint64_t n = 1 + test_below(&r, 3); n > 0; n--)
                mutate(&r, x);
            craft_write(x, false, &file);
            const ckp_status st = read_crafted(c, i, &file, &err);
            if (st != CKP_OK && !is_typed(st))
                fail_msg("%s, round %d: status %d: %s", profiles[p], round, (int)st, err.text);
            refused += st != CKP_OK;
            craft_free(x);
            ckpi_buf_free(&file);
        }
        /* that the mutations bite: 325 of 700 on average where most hit no parameter (lossless), standard deviation 13 */
        assert_true(refused > 200);
        chain_free(c);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_of_a_key),         cmocka_unit_test(test_fields_of_a_delta), cmocka_unit_test(test_units_that_mix),
        cmocka_unit_test(test_moments_without_weights), cmocka_unit_test(test_wrong_dtype),       cmocka_unit_test(test_chance),
        cmocka_unit_test(test_fields_of_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
