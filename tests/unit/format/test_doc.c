/* SPDX-License-Identifier: Apache-2.0 */
/* docs/format.md against the library: its tables of numbers, its limits, its table of powers, and its worked example, which must open. */
#include <stdio.h>
#include <stdlib.h>
#include "base/dtype.h"
#include "base/fixed.h"
#include "base/float.h"
#include "base/limits.h"
#include "fixture.h"
#include "format/wire.h"

static char *page;

static int
read_page(void **state)
{
    (void)state;
    char path[4096];
    const char *root = getenv("CKP_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/docs/format.md", root != NULL ? root : ".");
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return -1;
    const size_t most = 1u << 20;
    page = calloc(1, most);
    const size_t n = page != NULL ? fread(page, 1, most - 1, f) : 0;
    (void)fclose(f);
    return n != 0 ? 0 : -1;
}

static int
free_page(void **state)
{
    (void)state;
    free(page);
    return 0;
}

/* A row of a table must stand in the section of that heading, word for word. */
static bool
has_row(const char *heading, const char *row)
{
    char line[256];
    const char *p = strstr(page, heading);
    if (p == NULL)
        fail_msg("no '%s' in the page", heading);
    const char *end = strstr(p + strlen(heading), "\n## ");
    (void)snprintf(line, sizeof line, "\n| %s |", row);
    const char *at = strstr(p, line);
    return at != NULL && (end == NULL || at < end);
}

static void
expect(const char *heading, const char *row)
{
    if (!has_row(heading, row))
        fail_msg("docs/format.md, '%s': no row '| %s |'", heading, row);
}

static void
expect_number(const char *heading, const char *what, unsigned long long n)
{
    char row[128];
    (void)snprintf(row, sizeof row, "%s | %llu", what, n);
    expect(heading, row);
}

static void
test_dtypes(void **state)
{
    (void)state;
    for (size_t i = 0; ckpi_dtype_at(i) != NULL; i++) {
        char row[128];
        const ckpi_dtype_info *d = ckpi_dtype_at(i);
        const unsigned part = d->part_bytes != 0 ? d->part_bytes : 1;
        (void)snprintf(row, sizeof row, "%d | %s | %u | %u", (int)d->id, d->name, d->bits, part);
        expect("## 15.", row);
    }
}

static void
test_roles(void **state)
{
    (void)state;
    for (int r = 0; r < CKP_ROLE_COUNT_; r++) {
        char row[64];
        (void)snprintf(row, sizeof row, "%d | %s", r, ckp_role_name((ckp_role)r));
        expect("\nRoles:", row);
    }
}

static void
test_tree_tags(void **state)
{
    (void)state;
    static const struct { int tag; const char *name; } tags[] = {
        {CKP_TREE_NONE, "none"}, {CKP_TREE_FALSE, "false"}, {CKP_TREE_TRUE, "true"}, {CKP_TREE_INT, "int"}, {CKP_TREE_BIGINT, "bigint"},
        {CKP_TREE_FLOAT, "float"}, {CKP_TREE_COMPLEX, "complex"}, {CKP_TREE_STR, "str"}, {CKP_TREE_BYTES, "bytes"}, {CKP_TREE_LIST, "list"},
        {CKP_TREE_TUPLE, "tuple"}, {CKP_TREE_DICT, "dict"}, {CKP_TREE_ORDERED_DICT, "ordered dict"}, {CKP_TREE_SET, "set"},
        {CKP_TREE_FROZENSET, "frozenset"}, {CKP_TREE_TORCH_SIZE, "torch.Size"}, {CKP_TREE_DTYPE, "dtype"}, {CKP_TREE_DEVICE, "device"},
        {CKP_TREE_NUMPY_SCALAR, "numpy scalar"}, {CKP_TREE_TENSOR, "tensor"}, {CKP_TREE_NAMED, "named"}, {CKP_TREE_BYTEARRAY, "bytearray"},
    };
    for (size_t i = 0; i < CHECK_COUNT(tags); i++) {
        char row[64];
        (void)snprintf(row, sizeof row, "\n| %d | %s | ", tags[i].tag, tags[i].name);
        if (strstr(page, row) == NULL)
            fail_msg("docs/format.md: no tag '%s'", row + 1);
    }
}

static void
test_records(void **state)
{
    (void)state;
    char row[128];
    (void)snprintf(row, sizeof row, "%u | 8 | hash64 of the 120 bytes before", CKPI_WIRE_HEADER - 8);
    expect("## 3.", row);
    (void)snprintf(row, sizeof row, "%u | 8 | hash64 of the 48 bytes before", CKPI_WIRE_SECTION - 8);
    expect("## 4.", row);
    (void)snprintf(row, sizeof row, "%u | 8 | hash64 of the 64 bytes before", CKPI_WIRE_TRAILER - 8);
    expect("## 9.", row);
    assert_non_null(strstr(page, "4 | length of the head, 27 to 2^21"));
    assert_int_equal(CKPI_WIRE_FRAME_MIN_HEAD, 27);
    assert_int_equal(CKPI_MAX_FRAME_HEAD, 1u << 21);
    assert_int_equal(CKPI_FEAT_DELTA, UINT64_C(1) << 0);
    assert_int_equal(CKPI_FEAT_LOSSY, UINT64_C(1) << 1);
    assert_int_equal(CKPI_FEAT_COPIES, UINT64_C(1) << 2);
    assert_int_equal(CKPI_FEAT_CLUSTERS, UINT64_C(1) << 3);
    assert_int_equal(CKPI_FEAT_KNOWN, 15);
}

static void
test_limits(void **state)
{
    (void)state;
    const char *h = "## 14.";
    expect_number(h, "dimensions", CKPI_MAX_DIMS);
    expect_number(h, "bytes of a name", CKPI_MAX_NAME);
    expect_number(h, "tensors in a file", CKPI_MAX_TENSORS);
    expect_number(h, "elements of a chunk", CKPI_MAX_CHUNK_ELEMS);
    expect_number(h, "pieces of a chunk", CKPI_MAX_CHUNK_PIECES);
    expect_number(h, "bytes of a frame's head", CKPI_MAX_FRAME_HEAD);
    expect_number(h, "bytes of parameters, of escapes, of payload", CKPI_MAX_FRAME_PART);
    expect_number(h, "raw bytes of table, tree, index", CKPI_MAX_TABLE);
    expect_number(h, "nesting of the tree", CKPI_MAX_TREE_DEPTH);
    expect_number(h, "deltas behind one key", CKPI_MAX_CHAIN);
    assert_int_equal(CKPI_MAX_TABLE, CKPI_MAX_TREE);
    assert_int_equal(CKPI_MAX_TABLE, CKPI_MAX_INDEX);
}

static void
test_powers(void **state)
{
    (void)state;
    char *p = strstr(page, "```exp2\n");
    assert_non_null(p);
    p += strlen("```exp2\n");
    for (unsigned i = 0; i < 512; i++) {
        if (i % 16 == 0) {
            assert_int_equal(strtoul(p, &p, 10), i);
            assert_int_equal(*p, ':');
            p++;
        }
        assert_int_equal(strtoul(p, &p, 16), ckpi_f32_bits(ckpi_exp2_512[i]) & 0x7fffff);
    }
}

/* Lines are: place in hex, two spaces, up to 16 bytes in hex, two spaces, what it is. */
static size_t
example(uint8_t *out, size_t room)
{
    size_t n = 0;
    const char *p = strstr(page, "```hex\n");
    assert_non_null(p);
    for (p = strchr(p, '\n') + 1; *p != '`'; p = strchr(p, '\n') + 1) {
        assert_int_equal(strtoul(p, NULL, 16), n);
        for (unsigned i = 0; i < 16 && p[5 + 3 * i] != ' ' && p[5 + 3 * i] != '\n'; i++) {
            assert_true(n < room);
            const char digits[3] = {p[5 + 3 * i], p[6 + 3 * i], 0};
            out[n++] = (uint8_t)strtoul(digits, NULL, 16);
            if (p[7 + 3 * i] == '\n')
                break;
        }
    }
    return n;
}

static void
test_example(void **state)
{
    (void)state;
    uint8_t bytes[2048];
    ckpi_buf file = {.data = bytes, .len = example(bytes, sizeof bytes)}, buf = CKPI_BUF_INIT;
    ckpi_fmt_file *f = fx_open(&file);
    ckpi_chunk c;
    float w[4];
    assert_int_equal(f->table->n, 1);
    assert_string_equal(f->table->rec[0].name, "w");
    assert_ok(ckpi_fmt_read_chunk(f, 0, &buf, &c, NULL));
    memcpy(w, c.payload, sizeof w);
    for (int i = 0; i < 4; i++)
        assert_true(w[i] == (float)(i + 1));
    ckpi_fmt_close(f);
    ckpi_buf_free(&buf);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtypes), cmocka_unit_test(test_roles),  cmocka_unit_test(test_tree_tags), cmocka_unit_test(test_records),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_powers), cmocka_unit_test(test_example),
    };
    return cmocka_run_group_tests(tests, read_page, free_page);
}
