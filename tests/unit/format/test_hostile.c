/* SPDX-License-Identifier: Apache-2.0 */
/* Files that someone made on purpose: sound hashes over impossible numbers. */
#include <stdio.h>
#include "fixture.h"
#include "format/frame.h"
#include "format/header.h"
#include "format/scan.h"
#include "format/section.h"
#include "format/zpack.h"
#include "harness/failalloc.h"
#include "harness/guard.h"

static void
reseal_header(uint8_t *p)
{
    ckpi_st64(p + 120, ckpi_hash64(p, 120));
}

static void
test_feature_bits(void **state)
{
    (void)state;
    ckpi_buf file = CKPI_BUF_INIT;
    ckp_error err;
    enum { KNOWN = 4 };          /* deltas and clusters change what else is there; lossy and copies say only what may be */
    fx_file(&file, &(fx_opts){0}, NULL);
    for (unsigned bit = 0; bit < 64; bit++) {
        char want[32];
        uint8_t *p = guard_copy(file.data, file.len);
        (void)snprintf(want, sizeof want, "feature bit %u to read", bit);
        ckpi_st64(p + 16, ckpi_ld64(p + 16) | UINT64_C(1) << bit);
        reseal_header(p);
        const ckp_status st = fx_read_all(p, file.len, &err);
        assert_status(st, bit == 0 || bit == 3 ? CKP_ECORRUPT : bit < KNOWN ? CKP_OK : CKP_EUNSUPPORTED);
        assert_true(bit < KNOWN || strstr(err.text, want) != NULL);
        ckpi_st64(p + 16, CKPI_FEAT_LOSSY);
        ckpi_st64(p + 24, UINT64_C(1) << bit);
        reseal_header(p);
        assert_status(fx_read_all(p, file.len, &err), CKP_EUNSUPPORTED);
        guard_free(p);
    }
    ckpi_buf_free(&file);
}

static void
test_header_numbers(void **state)
{
    (void)state;
    static const struct { unsigned at; uint8_t value; ckp_status want; } bad[] = {
        {0, 'P', CKP_EFORMAT},    {6, '\r', CKP_EFORMAT},   {8, 2, CKP_EVERSION},     {9, 1, CKP_EVERSION},      {12, 129, CKP_ECORRUPT},
        {48, 1, CKP_ECORRUPT},    {48, 2, CKP_ECORRUPT},    {50, 1, CKP_ECORRUPT},    {53, 1, CKP_ECORRUPT},     {56, 1, CKP_ECORRUPT},
        {72, 1, CKP_ECORRUPT},    {88, 1, CKP_ECORRUPT},    {119, 1, CKP_ECORRUPT},   {10, 1, CKP_ECORRUPT},     {40, 1, CKP_ECORRUPT},
    };
    ckpi_buf file = CKPI_BUF_INIT;
    ckp_error err;
    fx_file(&file, &(fx_opts){0}, NULL);
    for (size_t i = 0; i < CHECK_COUNT(bad); i++) {
        const uint8_t was = file.data[bad[i].at];
        file.data[bad[i].at] = bad[i].value;
        reseal_header(file.data);
        /* minor version and optional bits pass the header, but the index knows the header's hash */
        assert_status(fx_read_all(file.data, file.len, &err), bad[i].want);
        file.data[bad[i].at] = was;
    }
    reseal_header(file.data);
    assert_ok(fx_read_all(file.data, file.len, &err));
    ckpi_buf_free(&file);
}

/* The profile is for people: any value is taken, also one of a later version; the bytes after it stay reserved. */
static void
test_header_profile(void **state)
{
    (void)state;
    uint8_t raw[CKPI_WIRE_HEADER];
    ckpi_file_info info;
    uint64_t hash;

    for (unsigned profile = 0; profile < 256; profile++) {
        ckpi_header_encode(raw, &(ckpi_file_info){.profile = (uint8_t)profile}, &hash);
        assert_ok(ckpi_header_parse(&info, raw, &hash, NULL));
        assert_int_equal(info.profile, profile);
    }
    for (unsigned at = 53; at < 56; at++) {
        ckpi_header_encode(raw, &(ckpi_file_info){0}, &hash);
        raw[at] = 1;
        reseal_header(raw);
        assert_status(ckpi_header_parse(&info, raw, &hash, NULL), CKP_ECORRUPT);
    }
}

/* A table that claims 10^18 elements over frames that hold eight: an error, and hardly any memory. */
static void
test_giant_claim(void **state)
{
    (void)state;
    ckp_state *s;
    ckp_tensor t = CKP_TENSOR_INIT;
    const uint64_t shape[2] = {8, 1}, giant[2] = {1000000000, 1000000000};
    ckpi_buf file = CKPI_BUF_INIT;
    ckpi_writer *w;
    ckpi_fmt_writer *fw;
    ckpi_fmt_sum sum;
    ckp_error err;
    float data[8] = {0};
    t.dtype = CKP_F32;
    t.ndim = 2;
    t.shape = shape;
    t.data = data;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckp_state_add_tensor(s, "w", CKP_ROLE_WEIGHT, NULL, &t, NULL, NULL));
    ckpi_table *table = fx_table(s);
    const uint64_t *real = table->rec[0].shape;
    table->rec[0].shape = giant;
    assert_ok(ckpi_table_rehash(table, NULL));
    assert_ok(ckpi_writer_mem(&w, &file, NULL));
    assert_ok(ckpi_fmt_writer_new(&fw, w, &(ckpi_file_info){0}, table, NULL, 0, NULL, NULL, 0, NULL));
    table->rec[0].shape = real;
    assert_ok(ckpi_table_rehash(table, NULL));
    ckpi_piece p[2] = {{0, 0, 4}, {0, 4, 4}};
    ckpi_chunk c = {.role = CKP_ROLE_WEIGHT, .codec = 1, .dtype = CKP_F32, .piece = p, .n_pieces = 2, .payload = (const uint8_t *)data, .payload_len = 32};
    assert_ok(ckpi_fmt_writer_chunk(fw, &c, NULL));
    assert_ok(ckpi_fmt_writer_finish(fw, NULL, 0, &sum, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
    assert_status(fx_read_all(file.data, file.len, &err), CKP_ECORRUPT);
    assert_string_equal(err.tensor, "w");
    size_t seen;
    uint64_t skipped;
    assert_true(fx_stream_all(file.data, file.len, false, &seen, &skipped, &err) != CKP_OK);
    ckpi_table_free(table);
    ckp_state_free(s);
    ckpi_buf_free(&file);
}

/* ---- sections ---- */

static void
make_head(uint8_t head[CKPI_WIRE_SECTION], unsigned coding, uint64_t stored, uint64_t raw)
{
    memset(head, 0, CKPI_WIRE_SECTION);
    memcpy(head, CKPI_WIRE_TREE, 4);
    head[4] = (uint8_t)coding;
    ckpi_st64(head + 8, stored);
    ckpi_st64(head + 16, raw);
    ckpi_st64(head + 48, ckpi_hash64(head, 48));
}

static void
test_section_heads(void **state)
{
    (void)state;
    ckpi_section sec;
    uint8_t *head = guard_alloc(CKPI_WIRE_SECTION);
    make_head(head, 1, 10, 20);
    assert_ok(ckpi_section_parse(&sec, head, CKPI_WIRE_TREE, 100, 0, NULL));
    assert_status(ckpi_section_parse(&sec, head, CKPI_WIRE_TABLE, 100, 0, NULL), CKP_ECORRUPT);
    make_head(head, 1, 10, 101);
    assert_status(ckpi_section_parse(&sec, head, CKPI_WIRE_TREE, 100, 0, NULL), CKP_ELIMIT);
    make_head(head, 1, UINT64_MAX, 20);
    assert_status(ckpi_section_parse(&sec, head, CKPI_WIRE_TREE, 100, 0, NULL), CKP_ELIMIT);
    make_head(head, 4, 10, 20);
    assert_status(ckpi_section_parse(&sec, head, CKPI_WIRE_TREE, 100, 0, NULL), CKP_EUNSUPPORTED);
    guard_free(head);
}

/* Stored bytes that are not there cost no memory for them; a small frame does not unpack to a gigabyte. */
static void
test_section_lies(void **state)
{
    (void)state;
    ckpi_buf packed = CKPI_BUF_INIT, raw = CKPI_BUF_INIT, zeros = CKPI_BUF_INIT;
    ckpi_reader *r;
    ckp_error err;
    assert_non_null(ckpi_buf_extend(&zeros, 32u << 20));
    memset(zeros.data, 0, zeros.len);
    assert_ok(ckpi_zpack(&packed, zeros.data, zeros.len, NULL, 0, NULL));
    ckpi_section sec = {.coding = CKPI_CODING_ZSTD, .stored_len = packed.len, .raw_len = zeros.len};
    assert_status(ckpi_section_unpack(&sec, &packed, (ckpi_bytes){NULL, 0}, &raw, "tree", &err), CKP_ECORRUPT);
    assert_null(raw.data);
    ckpi_buf_clear(&packed);
    assert_ok(ckpi_zpack(&packed, zeros.data, 4096, NULL, 0, NULL));
    sec.raw_len = 4095;
    assert_status(ckpi_section_unpack(&sec, &packed, (ckpi_bytes){NULL, 0}, &raw, "tree", &err), CKP_ECORRUPT);
    sec.raw_len = 4097;
    assert_status(ckpi_section_unpack(&sec, &packed, (ckpi_bytes){NULL, 0}, &raw, "tree", &err), CKP_ECORRUPT);
    sec.raw_len = 4096;
    assert_status(ckpi_section_unpack(&sec, &packed, (ckpi_bytes){NULL, 0}, &raw, "tree", &err), CKP_ECORRUPT);
    sec.raw_id = ckpi_hash128(zeros.data, 4096);
    assert_ok(ckpi_section_unpack(&sec, &packed, (ckpi_bytes){NULL, 0}, &raw, "tree", &err));
    sec.stored_len = 1u << 30;
    ckpi_buf_free(&raw);
    assert_ok(ckpi_reader_mem(&r, packed.data, packed.len, "m", NULL));
    assert_status(ckpi_section_stored(&sec, r, 0, &raw, &err), CKP_ETRUNCATED);
    assert_true(raw.cap <= 1u << 17);
    ckpi_reader_free(r);
    ckpi_buf_free(&raw);
    ckpi_buf_free(&packed);
    ckpi_buf_free(&zeros);
}

/* A writer of a tree that packs beyond the believed ratio stores it raw, so that its own reader takes it. */
static void
test_unbelievable_ratio(void **state)
{
    (void)state;
    ckp_state *s;
    ckpi_buf file = CKPI_BUF_INIT;
    ckpi_writer *w;
    ckpi_fmt_writer *fw;
    ckpi_fmt_sum sum;
    const size_t n = 1u << 20;
    assert_ok(ckp_state_new(&s, NULL));
    assert_ok(ckp_state_tree_put(s, &(ckp_tree_node){.type = CKP_TREE_LIST, .count = n}, NULL));
    for (size_t i = 0; i < n; i++)
        assert_ok(ckp_state_tree_put(s, &(ckp_tree_node){.type = CKP_TREE_NONE}, NULL));
    assert_ok(ckpi_state_seal(s, NULL));
    ckpi_table *t = fx_table(s);
    assert_ok(ckpi_writer_mem(&w, &file, NULL));
    assert_ok(ckpi_fmt_writer_new(&fw, w, &(ckpi_file_info){0}, t, s->tree.data, s->tree.len, NULL, NULL, 0, NULL));
    assert_ok(ckpi_fmt_writer_finish(fw, NULL, 0, &sum, NULL));
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
    ckpi_fmt_file *f = fx_open(&file);
    assert_int_equal(f->tree_len, s->tree.len);
    ckpi_fmt_close(f);
    ckpi_table_free(t);
    ckp_state_free(s);
    ckpi_buf_free(&file);
}

/* ---- frame heads ---- */

static ckpi_table *
many(uint32_t n)
{
    ckp_state *s;
    ckp_tensor t = CKP_TENSOR_INIT;
    static uint8_t at[4096];
    char name[16];
    assert_ok(ckp_state_new(&s, NULL));
    t.dtype = CKP_U8;
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "t%u", i);
        t.data = at + i;
        assert_ok(ckp_state_add_tensor(s, name, CKP_ROLE_OTHER, NULL, &t, NULL, NULL));
    }
    ckpi_table *table = fx_table(s);
    ckp_state_free(s);
    return table;
}

static ckp_status
get(const ckpi_buf *b, const ckpi_table *t, ckpi_pieces *pieces, ckpi_chunk *c)
{
    const ckpi_file_info info = {0};
    uint8_t *p = guard_copy(b->data, b->len);
    ckpi_rd rd = ckpi_rd_init(p, b->len, 0);
    pieces->n = 0;
    const ckp_status st = ckpi_frame_get(&rd, c, t, &info, pieces, NULL);
    guard_free(p);
    return st;
}

static void
test_piece_lists(void **state)
{
    (void)state;
    static const uint32_t lists[][8] = {
        {8, 0, 1, 2, 3, 4, 5, 6}, {8, 1, 4, 7, 10, 13, 16, 19}, {8, 19, 18, 17, 3, 2, 1, 0}, {4, 5, 9, 11, 0}, {2, 0, 19}, {6, 0, 1, 3, 5, 4, 2},
    };
    ckpi_table *t = many(20);
    ckpi_pieces got = {0};
    ckpi_buf b = CKPI_BUF_INIT;
    for (size_t k = 0; k < CHECK_COUNT(lists); k++) {
        ckpi_piece p[8];
        const size_t n = lists[k][0] == 8 ? 7 : lists[k][0];
        for (size_t i = 0; i < n; i++)
            p[i] = (ckpi_piece){lists[k][i + 1], 0, 1};
        const ckpi_chunk c = {.codec = 1, .dtype = CKP_U8, .piece = p, .n_pieces = n, .payload_len = 300, .decoded_hash = 7};
        ckpi_chunk back;
        ckpi_buf_clear(&b);
        ckpi_frame_put(&b, &c, t);
        assert_ok(get(&b, t, &got, &back));
        assert_int_equal(back.n_pieces, n);
        assert_int_equal(back.payload_len, 300);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(got.at[i].tensor, p[i].tensor);
        for (b.len--; b.len > 0; b.len--)
            assert_true(get(&b, t, &got, &back) != CKP_OK);
    }
    ckpi_pieces_free(&got);
    ckpi_buf_free(&b);
    ckpi_table_free(t);
}

/* A run of a hundred tensors costs a handful of bytes. */
static void
test_runs_are_short(void **state)
{
    (void)state;
    ckpi_table *t = many(400);
    ckpi_piece p[100];
    ckpi_buf b = CKPI_BUF_INIT;
    for (uint32_t i = 0; i < 100; i++)
        p[i] = (ckpi_piece){2 + 3 * i, 0, 1};
    const ckpi_chunk c = {.codec = 1, .dtype = CKP_U8, .piece = p, .n_pieces = 100};
    ckpi_frame_put(&b, &c, t);
    assert_true(b.len <= CKPI_WIRE_FRAME_MIN_HEAD + 4);
    ckpi_buf_free(&b);
    ckpi_table_free(t);
}

/* The same few bytes, claiming all tensors, again and again: as many pieces as the table can have are kept, and no more. */
static void
test_frames_that_claim_all(void **state)
{
    (void)state;
    enum { TENSORS = 400, TIMES = 200 };
    ckpi_table *t = many(TENSORS);
    ckpi_piece p[TENSORS];
    ckpi_buf file = CKPI_BUF_INIT;
    ckpi_writer *w;
    ckpi_fmt_writer *fw;
    ckpi_fmt_file *f = NULL;
    ckpi_reader *r;
    uint64_t skipped = 0;
    size_t seen, kept = 0;
    ckp_error err;
    for (uint32_t i = 0; i < TENSORS; i++)
        p[i] = (ckpi_piece){i, 0, 1};
    ckpi_chunk c = {.codec = 2, .dtype = CKP_U8, .piece = p, .n_pieces = TENSORS};
    assert_ok(ckpi_writer_mem(&w, &file, NULL));
    assert_ok(ckpi_fmt_writer_new(&fw, w, &(ckpi_file_info){0}, t, NULL, 0, NULL, NULL, 0, NULL));
    for (int i = 0; i < TIMES; i++)
        assert_ok(ckpi_fmt_writer_chunk(fw, &c, NULL));
    ckpi_fmt_writer_free(fw);
    assert_ok(ckpi_writer_finish(w, NULL));
    ckpi_writer_free(w);
    assert_status(fx_stream_all(file.data, file.len, false, &seen, &skipped, &err), CKP_ECORRUPT);
    assert_non_null(strstr(err.text, "more pieces than its table has tensors"));
    assert_ok(ckpi_reader_mem(&r, file.data, file.len, "m", NULL));
    assert_ok(ckpi_fmt_salvage(&f, r, NULL, &skipped, &err));
    for (size_t i = 0; i < f->n_chunks; i++)
        kept += f->chunk[i].n_pieces;
    assert_in_range(kept, TENSORS, TENSORS + file.len);
    assert_true(skipped != 0);
    ckpi_fmt_close(f);
    ckpi_table_free(t);
    ckpi_buf_free(&file);
}

/* Heads that look right and claim two megabytes each: what may be read to find that out runs out, and is paid once. */
static void
test_scan_has_an_end(void **state)
{
    (void)state;
    enum { HEADS = 2000, HEAD = 13 };
    ckpi_buf b = CKPI_BUF_INIT;
    ckpi_reader *r;
    uint64_t left = 8u << 20, place;
    bool found;
    for (int i = 0; i < HEADS; i++) {
        uint8_t *p = ckpi_buf_extend(&b, HEAD);
        assert_non_null(p);
        memset(p, 0, HEAD);
        memcpy(p, CKPI_WIRE_FRAME, 4);
        ckpi_st32(p + 4, CKPI_MAX_FRAME_HEAD);
        p[12] = CKP_U8;
    }
    assert_ok(ckpi_reader_mem(&r, b.data, b.len, "m", NULL));
    assert_ok(ckpi_scan(r, 0, &left, &place, &found, NULL));
    assert_false(found);
    assert_true(left < CKPI_MAX_FRAME_HEAD);
    ckpi_reader_free(r);
    ckpi_buf_free(&b);
}

static void
test_piece_lies(void **state)
{
    (void)state;
    ckpi_table *t = many(20);
    ckpi_pieces got = {0};
    ckpi_chunk c;
    ckpi_buf b = CKPI_BUF_INIT;
    static const struct { uint64_t v[6]; size_t n; } lies[] = {
        {{0}, 1},                             /* no piece */
        {{65537, 0, 20, 2}, 4},               /* more than any chunk may have */
        {{30, 0, 30, 2}, 4},                  /* a run past the table */
        {{10, 0, 10, 0}, 4},                  /* a run that stands still */
        {{2, 0, 3, 2}, 4},                    /* a run beyond the count */
        {{10, 0, 10, 2 * 16777216}, 4},
        {{2, 1, 2, 1}, 4},                    /* before the first tensor */
        {{1, 0, 0, 0, 0}, 5},                 /* an empty part */
        {{1, 0, 0, 1, 1}, 5},                 /* past its tensor */
        {{1, 0, 0, UINT64_MAX, 1}, 5},
        {{1, 0, 0, 0, 1u << 21}, 5},
        {{1, 4 * 16777216ull + 1, 1}, 3},
    };
    for (size_t k = 0; k < CHECK_COUNT(lies); k++) {
        ckpi_buf_clear(&b);
        ckpi_buf_put(&b, (const uint8_t[]){0, 0, 1, 0, CKP_U8}, 5);
        for (size_t i = 0; i < lies[k].n; i++)
            ckpi_buf_varint(&b, lies[k].v[i]);
        for (unsigned i = 0; i < 19; i++)
            ckpi_buf_u8(&b, 0);
        assert_true(get(&b, t, &got, &c) != CKP_OK);
        assert_true(got.n <= t->n);
    }
    ckpi_pieces_free(&got);
    ckpi_buf_free(&b);
    ckpi_table_free(t);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_feature_bits),   cmocka_unit_test(test_header_numbers),    cmocka_unit_test(test_header_profile), cmocka_unit_test(test_giant_claim),
        cmocka_unit_test(test_section_heads),  cmocka_unit_test(test_section_lies),      cmocka_unit_test(test_unbelievable_ratio),
        cmocka_unit_test(test_piece_lists),    cmocka_unit_test(test_runs_are_short),    cmocka_unit_test(test_frames_that_claim_all), cmocka_unit_test(test_scan_has_an_end), cmocka_unit_test(test_piece_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
