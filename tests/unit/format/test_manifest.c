/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/limits.h"
#include "format/json.h"
#include "format/manifest.h"
#include "harness/failalloc.h"
#include "harness/guard.h"

static ckpi_manifest *
sample(void)
{
    ckpi_manifest *m = ckpi_manifest_new();
    assert_non_null(m);
    m->run_id = (ckpi_id){1, 2};
    m->step = 12000;
    m->sequence = 24;
    m->attempt = 0x9f3a61c2;
    m->epoch = 3;
    m->created = 1790000000;
    m->kind = CKPI_CKPT_DELTA;
    m->base = (ckpi_id){3, 4};
    m->chain = 5;
    m->restores = 2;
    m->content = (ckpi_id){UINT64_MAX, 5};
    m->params = 1850000;
    m->raw_bytes = 22200000;
    assert_ok(ckpi_manifest_set(&m->library, "0.1.0", NULL));
    assert_ok(ckpi_manifest_set(&m->parent, "step-00011500-00000001", NULL));
    assert_ok(ckpi_manifest_set(&m->base_dir, "step-00011500-00000001", NULL));
    assert_ok(ckpi_manifest_set(&m->profile, "resume", NULL));
    assert_ok(ckpi_manifest_add_shard(m, "shard-00000-of-00002.ckp", 1234, (ckpi_id){6, 7}, (ckpi_id){8, 9}, NULL));
    assert_ok(ckpi_manifest_add_shard(m, "shard-00001-of-00002.ckp", INT64_MAX, (ckpi_id){0, 0}, (ckpi_id){8, 10}, NULL));
    assert_ok(ckpi_manifest_add_metric(m, "val_loss", 0.1, NULL));
    assert_ok(ckpi_manifest_add_metric(m, "nan", (double)NAN, NULL));
    assert_ok(ckpi_manifest_add_metric(m, "inf", -(double)INFINITY, NULL));
    assert_ok(ckpi_manifest_add_metric(m, "\xc3\xa9 \"quoted\"", 5e-324, NULL));
    assert_ok(ckpi_manifest_add_setting(m, "step", 0.96, NULL));
    assert_ok(ckpi_manifest_add_setting(m, "movement", (double)INFINITY, NULL));
    assert_ok(ckpi_manifest_set(&m->errors, "{\"weight\":{\"max_rel\":0.25}}", NULL));
    return m;
}

static void
expect_equal(const ckpi_manifest *a, const ckpi_manifest *b)
{
    assert_true(ckpi_id_eq(a->run_id, b->run_id) && ckpi_id_eq(a->base, b->base) && ckpi_id_eq(a->content, b->content));
    assert_true(a->step == b->step && a->sequence == b->sequence && a->attempt == b->attempt && a->epoch == b->epoch);
    assert_true(a->created == b->created && a->kind == b->kind && a->chain == b->chain && a->restores == b->restores);
    assert_true(a->params == b->params && a->raw_bytes == b->raw_bytes);
    assert_string_equal(a->library, b->library);
    assert_string_equal(a->parent, b->parent);
    assert_string_equal(a->base_dir, b->base_dir);
    assert_string_equal(a->profile, b->profile);
    assert_string_equal(a->errors, b->errors);
    assert_int_equal(a->n_shards, b->n_shards);
    for (size_t i = 0; i < a->n_shards; i++) {
        assert_string_equal(a->shards[i].file, b->shards[i].file);
        assert_int_equal(a->shards[i].length, b->shards[i].length);
        assert_true(ckpi_id_eq(a->shards[i].hash, b->shards[i].hash) && ckpi_id_eq(a->shards[i].content, b->shards[i].content));
    }
    assert_int_equal(a->n_metrics, b->n_metrics);
    for (size_t i = 0; i < a->n_metrics; i++) {
        double v = 0;
        assert_true(ckpi_manifest_metric(b, a->metrics[i].name, &v));
        assert_true(v == a->metrics[i].value || (isnan(v) && isnan(a->metrics[i].value)));
    }
    assert_int_equal(a->n_settings, b->n_settings);
    for (size_t i = 0; i < a->n_settings; i++) {
        assert_string_equal(a->settings[i].name, b->settings[i].name);
        assert_true(a->settings[i].value == b->settings[i].value);
    }
}

static void
test_round_trip(void **state)
{
    (void)state;
    ckpi_manifest *m = sample(), *back = NULL, *copy = NULL;
    ckpi_buf text = CKPI_BUF_INIT, again = CKPI_BUF_INIT;
    double v;
    assert_ok(ckpi_manifest_print(m, &text, NULL));
    assert_ok(ckpi_manifest_parse(&back, text.data, text.len, NULL));
    expect_equal(m, back);
    assert_ok(ckpi_manifest_print(back, &again, NULL));
    assert_int_equal(again.len, text.len);
    assert_memory_equal(again.data, text.data, text.len);
    assert_ok(ckpi_manifest_copy(&copy, m, NULL));
    expect_equal(m, copy);
    assert_false(ckpi_manifest_metric(m, "none", &v));
    assert_ok(ckpi_manifest_add_metric(m, "val_loss", 7, NULL));
    assert_true(ckpi_manifest_metric(m, "val_loss", &v) && v == 7);
    assert_int_equal(m->n_metrics, 4);
    assert_int_equal(ckpi_manifest_bytes(m), 1234 + (uint64_t)INT64_MAX);
    ckpi_manifest_free(m);
    ckpi_manifest_free(back);
    ckpi_manifest_free(copy);
    ckpi_buf_free(&text);
    ckpi_buf_free(&again);
}

/* Whatever is cut or changed, the hash says so before anything is parsed; and no byte beyond the end is looked at. */
static void
test_every_cut_and_bit(void **state)
{
    (void)state;
    ckpi_manifest *m = sample(), *back = NULL;
    ckpi_buf text = CKPI_BUF_INIT;
    assert_ok(ckpi_manifest_print(m, &text, NULL));
    for (size_t n = 0; n < text.len; n++) {
        uint8_t *cut = guard_copy(text.data, n);
        const ckp_status st = ckpi_manifest_parse(&back, cut, n, NULL);
        assert_true(st == CKP_ECORRUPT || (n == 0 && st == CKP_EFORMAT));
        assert_null(back);
        guard_free(cut);
    }
    for (size_t bit = 0; bit < text.len * 8; bit++) {
        text.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        const ckp_status st = ckpi_manifest_parse(&back, text.data, text.len, NULL);
        assert_true(st == CKP_ECORRUPT || (bit < 8 && st == CKP_EFORMAT));
        text.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ckpi_manifest_free(m);
    ckpi_buf_free(&text);
}

/* The text of sample() with one line replaced, sealed anew: a hostile writer can compute hashes too. */
static ckp_status
parse_changed(const char *from, const char *to, ckp_error *err)
{
    ckpi_manifest *m = sample(), *back = NULL;
    ckpi_buf text = CKPI_BUF_INIT, changed = CKPI_BUF_INIT, sealed = CKPI_BUF_INIT;
    assert_ok(ckpi_manifest_print(m, &text, NULL));
    ckpi_buf_u8(&text, 0);
    const char *s = (const char *)text.data, *at = strstr(s, from);
    if (at == NULL)
        fail_msg("no '%s' in the sample", from);
    const char *tail = strstr(s, ",\n \"hash\": \"");
    while (tail != NULL && strstr(tail + 1, ",\n \"hash\": \"") != NULL)
        tail = strstr(tail + 1, ",\n \"hash\": \"");
    ckpi_buf_put(&changed, s, (size_t)(at - s));
    ckpi_buf_put(&changed, to, strlen(to));
    ckpi_buf_put(&changed, at + strlen(from), (size_t)(tail - at) - strlen(from));
    char hex[33];
    ckpi_id_hex(ckpi_hash128(changed.data, changed.len), hex);
    ckpi_buf_put(&changed, ",\n \"hash\": \"", 12);
    ckpi_buf_put(&changed, hex, 32);
    ckpi_buf_put(&changed, "\"\n}\n", 4);
    const ckp_status st = ckpi_manifest_parse(&back, changed.data, changed.len, err);
    ckpi_manifest_free(back);
    ckpi_manifest_free(m);
    ckpi_buf_free(&text);
    ckpi_buf_free(&changed);
    ckpi_buf_free(&sealed);
    return st;
}

static void
test_hostile_fields(void **state)
{
    (void)state;
    static const struct { const char *from, *to; ckp_status want; } rows[] = {
        {"\"step\": 12000", "\"step\": 12000", CKP_OK},
        {"\"step\": 12000", "\"step\": 12000, \"new_key\": [1, {\"a\": null}]", CKP_OK},
        {"\"step\": 12000", "\"step\": 12000, \"step\": 1", CKP_ECORRUPT},
        {"\"step\": 12000", "\"step\": -1", CKP_ECORRUPT},
        {"\"step\": 12000", "\"step\": 9223372036854775808", CKP_ECORRUPT},
        {"\"step\": 12000", "\"step\": \"12000\"", CKP_ECORRUPT},
        {"\"step\": 12000", "\"stop\": 12000", CKP_ECORRUPT},
        {"\"step\": 12000", "\"step\": 12000.0", CKP_ECORRUPT},
        {"\"sequence\": 24", "\"sequence\": 0", CKP_ECORRUPT},
        {"\"ckpress_manifest\": 1", "\"ckpress_manifest\": 2", CKP_EVERSION},
        {"\"ckpress_manifest\": 1", "\"other\": 1", CKP_EFORMAT},
        {"\"features\": []", "\"features\": [\"holograms\"]", CKP_EUNSUPPORTED},
        {"\"features\": []", "\"features\": {}", CKP_ECORRUPT},
        {"\"settings\": {", "\"settings\": [{", CKP_ECORRUPT},
        {"\"movement\": \"inf\"", "\"movement\": true", CKP_ECORRUPT},
        {"\"attempt\": \"9f3a61c2\"", "\"attempt\": \"9F3a61c2\"", CKP_ECORRUPT},
        {"\"attempt\": \"9f3a61c2\"", "\"attempt\": \"9f3a61c\"", CKP_ECORRUPT},
        {"\"kind\": \"delta\"", "\"kind\": \"key\"", CKP_ECORRUPT},
        {"\"kind\": \"delta\"", "\"kind\": \"sketch\"", CKP_ECORRUPT},
        {"\"chain\": 5", "\"chain\": 0", CKP_ECORRUPT},
        {"\"chain\": 5", "\"chain\": 4097", CKP_ECORRUPT},
        {"\"dir\": \"step-00011500-00000001\"", "\"dir\": \"../other\"", CKP_EPATH},
        {"\"dir\": \"step-00011500-00000001\"", "\"dir\": \"step-11500-00000001\"", CKP_EPATH},
        {"\"parent\": \"step-00011500-00000001\"", "\"parent\": \"/etc\"", CKP_EPATH},
        {"\"parent\": \"step-00011500-00000001\"", "\"parent\": null", CKP_OK},
        {"\"profile\": \"resume\"", "\"profile\": \"\"", CKP_ECORRUPT},
        {"\"profile\": \"resume\"", "\"profile\": \"a b\"", CKP_ECORRUPT},
        {"shard-00000-of-00002.ckp", "../shard.ckp", CKP_EPATH},
        {"shard-00000-of-00002.ckp", "/shard.ckp", CKP_EPATH},
        {"shard-00000-of-00002.ckp", "a/shard.ckp", CKP_EPATH},
        {"shard-00000-of-00002.ckp", "manifest.json", CKP_EPATH},
        {"shard-00000-of-00002.ckp", ".hidden.ckp", CKP_EPATH},
        {"shard-00000-of-00002.ckp", "a\\\\b.ckp", CKP_EPATH},
        {"shard-00000-of-00002.ckp", "a\\u0000b.ckp", CKP_ECORRUPT},
        {"shard-00000-of-00002.ckp", "shard-00001-of-00002.ckp", CKP_ECORRUPT},
        {"shard-00000-of-00002.ckp", "x.ckp", CKP_OK},
        {"\"length\": 1234", "\"length\": -1234", CKP_ECORRUPT},
        {"\"val_loss\": 0.10000000000000001", "\"val_loss\": \"big\"", CKP_ECORRUPT},
        {"\"val_loss\": 0.10000000000000001", "\"val_loss\": 1e999", CKP_ECORRUPT},
        {"\"val_loss\": 0.10000000000000001", "\"val_loss\": 3", CKP_OK},
        {"\"val_loss\": 0.10000000000000001", "\"\": 3", CKP_ECORRUPT},
        {"\"max_rel\": 0.25", "\"max_rel\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", CKP_ELIMIT},
        {"\"restores\": 2", "\"restores\": 4294967296", CKP_ECORRUPT},
    };
    for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
        ckp_error err = {0};
        const ckp_status st = parse_changed(rows[i].from, rows[i].to, &err);
        if (st != rows[i].want)
            fail_msg("'%s' gives %s (%s), not %s", rows[i].to, ckp_status_name(st), err.text, ckp_status_name(rows[i].want));
        assert_true(st == CKP_OK || err.code == st);
    }
}

static void
test_names(void **state)
{
    (void)state;
    static const struct { const char *name; bool ok; } rows[] = {
        {"step-00000100-9f3a61c2", true}, {"step-00000000-00000000", true}, {"step-123456789-ffffffff", true},
        {"step-9223372036854775807-00000000", true}, {"step-9223372036854775808-00000000", false},
        {"step-0000100-9f3a61c2", false}, {"step-000000100-9f3a61c2", false}, {"step-00000100-9f3a61c", false},
        {"step-00000100-9f3a61c20", false}, {"step-00000100-9F3A61C2", false}, {"step-00000100_9f3a61c2", false},
        {"step-abc", false}, {"7 (copy)", false}, {".DS_Store", false}, {"", false}, {"step-", false},
        {"step-00000100-9f3a61c2/", false}, {"step-00000100-", false}, {"step-+0000100-9f3a61c2", false},
    };
    for (size_t i = 0; i < CHECK_COUNT(rows); i++) {
        uint64_t step = 0;
        uint32_t attempt = 0;
        char again[CKPI_DIR_NAME_MAX];
        if (ckpi_dir_name_parse(rows[i].name, &step, &attempt) != rows[i].ok)
            fail_msg("'%s'", rows[i].name);
        if (!rows[i].ok)
            continue;
        ckpi_dir_name(again, step, attempt);
        assert_string_equal(again, rows[i].name);
    }
}

static ckp_status
use(void *user)
{
    ckpi_manifest *back = NULL, *copy = NULL;
    const ckpi_buf *text = user;
    ckpi_buf out = CKPI_BUF_INIT;
    ckp_status st = ckpi_manifest_parse(&back, text->data, text->len, NULL);
    if (st == CKP_OK)
        st = ckpi_manifest_copy(&copy, back, NULL);
    if (st == CKP_OK)
        st = ckpi_manifest_print(copy, &out, NULL);
    ckpi_manifest_free(back);
    ckpi_manifest_free(copy);
    ckpi_buf_free(&out);
    return st;
}

static void
test_no_memory(void **state)
{
    (void)state;
    ckpi_manifest *m = sample();
    ckpi_buf text = CKPI_BUF_INIT;
    assert_ok(ckpi_manifest_print(m, &text, NULL));
    failalloc_run(use, &text, 20, 1);
    ckpi_manifest_free(m);
    ckpi_buf_free(&text);
}

/* 65,536 writers are allowed; one more is not; the time stays reasonable. */
static void
test_many_shards(void **state)
{
    (void)state;
    ckpi_manifest *m = sample(), *back = NULL;
    ckpi_buf text = CKPI_BUF_INIT;
    char name[CKPI_DIR_NAME_MAX];
    for (uint32_t i = 2; i < CKPI_MAX_SHARDS; i++) {
        ckpi_shard_name(name, i, CKPI_MAX_SHARDS);
        assert_ok(ckpi_manifest_add_shard(m, name, i, (ckpi_id){i, 1}, (ckpi_id){i, 1}, NULL));
    }
    assert_status(ckpi_manifest_add_shard(m, "more.ckp", 1, (ckpi_id){1, 1}, (ckpi_id){1, 1}, NULL), CKP_ELIMIT);
    assert_ok(ckpi_manifest_print(m, &text, NULL));
    assert_true(text.len < CKPI_MAX_MANIFEST);
    assert_ok(ckpi_manifest_parse(&back, text.data, text.len, NULL));
    assert_int_equal(back->n_shards, CKPI_MAX_SHARDS);
    ckpi_manifest_free(m);
    ckpi_manifest_free(back);
    ckpi_buf_free(&text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_every_cut_and_bit), cmocka_unit_test(test_hostile_fields),
        cmocka_unit_test(test_names),          cmocka_unit_test(test_no_memory),         cmocka_unit_test(test_many_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
