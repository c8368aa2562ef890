/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor table's bytes: back and forth, and what must not get through. */
#include "fixture.h"
#include "format/table.h"
#include "harness/guard.h"

static ckp_status
decode(const ckpi_buf *b, ckp_error *err)
{
    ckpi_table *t;
    uint8_t *p = guard_copy(b->data, b->len);
    const ckp_status st = ckpi_table_decode(&t, p, b->len, err);
    ckpi_table_free(t);
    guard_free(p);
    return st;
}

static void
test_round_trip(void **state)
{
    (void)state;
    ckp_state *s = fx_state(0);
    ckpi_table *a = fx_table(s), *b;
    ckpi_buf raw = CKPI_BUF_INIT, again = CKPI_BUF_INIT;
    ckpi_table_encode(a, &raw);
    assert_ok(ckpi_table_decode(&b, raw.data, raw.len, NULL));
    assert_true(ckpi_id_eq(a->id, b->id));
    ckpi_table_encode(b, &again);
    assert_int_equal(raw.len, again.len);
    assert_memory_equal(raw.data, again.data, raw.len);
    for (size_t i = 0; i < a->n; i++) {
        assert_string_equal(a->rec[i].name, b->rec[i].name);
        assert_int_equal(a->rec[i].numel, b->rec[i].numel);
        assert_int_equal(a->rec[i].bytes, b->rec[i].bytes);
        assert_int_equal(a->rec[i].owner, b->rec[i].owner);
    }
    for (size_t n = 0; n < raw.len; n++) {
        ckpi_buf cut = {.data = raw.data, .len = n};
        assert_status(decode(&cut, NULL), CKP_ECORRUPT);
    }
    ckpi_table *shared = ckpi_table_share(b);
    ckpi_table_free(b);
    assert_string_equal(shared->rec[0].name, "layer.0.weight");
    ckpi_table_free(shared);
    ckpi_table_free(a);
    ckp_state_free(s);
    ckpi_buf_free(&raw);
    ckpi_buf_free(&again);
}

/* One row as bytes, each part to be varied. */
typedef struct row {
    const char *name;
    size_t name_len;
    uint8_t role, dtype;
    uint64_t owner, alias, copy;
    uint8_t place;
    uint64_t ndim, dim[4], box[4], flat[2];
} row;

static void
put_row(ckpi_buf *b, const row *r)
{
    ckpi_buf_str(b, r->name, r->name_len);
    ckpi_buf_u8(b, r->role);
    ckpi_buf_u8(b, r->dtype);
    ckpi_buf_varint(b, r->owner);
    ckpi_buf_varint(b, r->alias);
    ckpi_buf_varint(b, r->copy);
    ckpi_buf_u8(b, r->place);
    ckpi_buf_varint(b, r->ndim);
    for (uint64_t i = 0; i < r->ndim && i < 4; i++)
        ckpi_buf_varint(b, r->dim[i]);
    for (uint64_t i = 0; r->place == 1 && i < 2 * r->ndim && i < 4; i++)
        ckpi_buf_varint(b, r->box[i]);
    for (unsigned i = 0; r->place == 2 && i < 2; i++)
        ckpi_buf_varint(b, r->flat[i]);
}

/* A sound row named "a", then r. */
static ckp_status
decode_row(const row *r, ckp_error *err)
{
    const row first = {.name = "a", .name_len = 1, .role = CKP_ROLE_WEIGHT, .dtype = CKP_F32, .ndim = 1, .dim = {8}};
    ckpi_buf b = CKPI_BUF_INIT;
    ckpi_buf_varint(&b, 2);
    put_row(&b, &first);
    put_row(&b, r);
    const ckp_status st = decode(&b, err);
    ckpi_buf_free(&b);
    return st;
}

static void
test_rows(void **state)
{
    (void)state;
    const row good = {.name = "b", .name_len = 1, .role = CKP_ROLE_M, .dtype = CKP_F32, .owner = 1, .ndim = 1, .dim = {8}};
    ckp_error err;
    assert_ok(decode_row(&good, NULL));
#define BAD(want, change)                       \
    do {                                        \
        row r = good;                           \
        change;                                 \
        assert_status(decode_row(&r, &err), want); \
    } while (0)
    BAD(CKP_ECORRUPT, r.name_len = 0);
    BAD(CKP_ECORRUPT, (r.name = "x\0y", r.name_len = 3));
    BAD(CKP_ECORRUPT, (r.name = "\xed\xa0\x80", r.name_len = 3));
    BAD(CKP_ECORRUPT, r.name = "a");
    BAD(CKP_EUNSUPPORTED, r.role = CKP_ROLE_COUNT_);
    BAD(CKP_EUNSUPPORTED, r.dtype = 200);
    assert_non_null(strstr(err.text, "200"));
    BAD(CKP_ECORRUPT, r.owner = 2);              /* the row after the last */
    BAD(CKP_ECORRUPT, r.owner = 3);              /* before the first */
    BAD(CKP_ECORRUPT, r.owner = UINT64_MAX);
    BAD(CKP_ECORRUPT, r.alias = 2);
    BAD(CKP_ECORRUPT, (r.alias = 1, r.dim[0] = 9));
    BAD(CKP_ECORRUPT, (r.alias = 1, r.dtype = CKP_I32));
    BAD(CKP_ECORRUPT, r.copy = 1);               /* of a role that is none */
    BAD(CKP_ECORRUPT, (r.role = CKP_ROLE_COPY, r.copy = 1, r.dtype = CKP_BF16, r.dim[0] = 9));
    BAD(CKP_ECORRUPT, (r.role = CKP_ROLE_COPY, r.copy = 1));    /* f32 is no rounding of f32 */
    BAD(CKP_ECORRUPT, (r.role = CKP_ROLE_COPY, r.copy = 1, r.dtype = CKP_F8E4M3FN));
    BAD(CKP_ECORRUPT, r.place = 3);
    BAD(CKP_ECORRUPT, r.ndim = 65);
    BAD(CKP_ECORRUPT, (r.ndim = 2, r.dim[0] = UINT64_C(1) << 40, r.dim[1] = UINT64_C(1) << 40));
    BAD(CKP_ECORRUPT, (r.ndim = 1, r.dim[0] = UINT64_MAX / 4));
    BAD(CKP_ECORRUPT, (r.dtype = CKP_F4_PACKED, r.dim[0] = 7));
    BAD(CKP_ECORRUPT, (r.place = 1, r.box[0] = 5, r.box[1] = 4));
    BAD(CKP_ECORRUPT, (r.place = 1, r.box[0] = UINT64_MAX, r.box[1] = 2));
    BAD(CKP_ECORRUPT, (r.place = 2, r.flat[0] = 5, r.flat[1] = 4));
    BAD(CKP_ECORRUPT, (r.place = 2, r.flat[0] = 2, r.flat[1] = UINT64_MAX));
    BAD(CKP_OK, (r.place = 2, r.flat[0] = 8, r.flat[1] = 0));
    BAD(CKP_OK, (r.ndim = 2, r.dim[0] = UINT64_C(1) << 62, r.dim[1] = 0));
    BAD(CKP_OK, (r.role = CKP_ROLE_COPY, r.copy = 1, r.dtype = CKP_BF16));
    BAD(CKP_OK, (r.role = CKP_ROLE_COPY, r.copy = 1, r.dtype = CKP_F16));
    BAD(CKP_OK, r.alias = 1);
#undef BAD
}

/* A count costs its rows' bytes, and trailing bytes are no table. */
static void
test_counts(void **state)
{
    (void)state;
    ckpi_buf b = CKPI_BUF_INIT;
    ckpi_buf_varint(&b, 1u << 24);
    for (int i = 0; i < 100; i++)
        ckpi_buf_u8(&b, 1);
    assert_status(decode(&b, NULL), CKP_ECORRUPT);
    ckpi_buf_clear(&b);
    ckpi_buf_varint(&b, UINT64_MAX);
    assert_status(decode(&b, NULL), CKP_ECORRUPT);
    ckpi_buf_clear(&b);
    ckpi_buf_varint(&b, 0);
    assert_ok(decode(&b, NULL));
    ckpi_buf_u8(&b, 0);
    assert_status(decode(&b, NULL), CKP_ECORRUPT);
    ckpi_buf_free(&b);
}

/* The engine found that a declared copy is none, after all. */
static void
test_rehash(void **state)
{
    (void)state;
    ckp_state *s = fx_state(0);
    ckpi_table *t = fx_table(s);
    const ckpi_id before = t->id;
    t->rec[4].copy_of = CKPI_NO_TENSOR;
    assert_ok(ckpi_table_rehash(t, NULL));
    assert_false(ckpi_id_eq(before, t->id));
    t->rec[4].copy_of = 0;
    assert_status(ckpi_table_rehash(t, NULL), CKP_ECORRUPT);
    ckpi_table_free(t);
    ckp_state_free(s);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip), cmocka_unit_test(test_rows), cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_rehash)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
