/* SPDX-License-Identifier: Apache-2.0 */
/* The scanner accepts what jansson accepts, and unescapes as it does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "harness/guard.h"
#include "harness/seed.h"
#include "io/safetensors/json.h"

static const char *const samples[] = {
    "{\"a\":[1,-2.5e+3,true,false,null,\"x\\u00e9\\ud83d\\ude00\\n\\/\"],\"b\":{\"c\":{}},\"d\":[]}",
    "[0,-0,1.0,1e5,1E-5,0.1e0]",
    " { \"k\" : \"v\" } ",
    "\"\\\"\\\\\\b\\f\\r\\t\"",
    "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
    "[[],{},[{}],{\"x\":[]}]",
};

/* Bytes that change what a text means. */
static const char alphabet[] = "{}[]:,\"\\u0019e+-.aftn /\xc3\xa9\x1f";

static bool
scan(const char *text, size_t n)
{
    uint8_t *edge = guard_copy(text, n);
    ckpi_io_arena arena = {0};
    ckpi_json j = {.data = edge, .len = n};
    bool ok = ckpi_json_skip(&j, &arena, 100);
    (void)ckpi_json_peek(&j);
    ok = ok && j.pos == n;
    ckpi_io_arena_free(&arena);
    guard_free(edge);
    return ok;
}

static bool
oracle(const char *text, size_t n)
{
    json_t *v = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    json_decref(v);
    return v != NULL;
}

static void
test_same_texts(void **state)
{
    (void)state;
    test_rng r = test_rng_new("json");
    char text[256];
    for (int round = 0; round < 60000; round++) {
        const char *sample = samples[test_below(&r, sizeof samples / sizeof *samples)];
        const size_t n = strlen(sample);
        memcpy(text, sample, n);
        for (uint64_t k = test_below(&r, 4); k > 0; k--)
            text[test_below(&r, n)] = alphabet[test_below(&r, sizeof alphabet - 1)];
        /* Numbers beyond a double, which jansson refuses, are no matter here. */
        const size_t len = test_below(&r, 8) == 0 ? (size_t)test_below(&r, n + 1) : n;
        json_error_t e;
        json_t *v = json_loadb(text, len, JSON_DECODE_ANY, &e);
        const bool range = v == NULL && (strstr(e.text, "overflow") != NULL || strstr(e.text, "too big") != NULL);
        json_decref(v);
        if (!range && scan(text, len) != oracle(text, len))
            fail_msg("%.*s: %d", (int)len, text, scan(text, len));
    }
}

static void
test_same_strings(void **state)
{
    (void)state;
    for (size_t i = 3; i < 5; i++) {
        ckpi_io_arena arena = {0};
        ckpi_json j = {.data = (const uint8_t *)samples[i], .len = strlen(samples[i])};
        ckpi_json_str s;
        json_t *v = json_loads(samples[i], JSON_DECODE_ANY, NULL);
        assert_non_null(v);
        assert_true(ckpi_json_string(&j, &arena, &s));
        assert_int_equal(s.len, json_string_length(v));
        assert_string_equal(s.p, json_string_value(v));
        json_decref(v);
        ckpi_io_arena_free(&arena);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_texts), cmocka_unit_test(test_same_strings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
