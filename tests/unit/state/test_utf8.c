/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/check.h"
#include "state/utf8.h"

typedef struct text { const char *p; size_t n; bool strict, lenient; } text;
#define T(s, strict, lenient) {s, sizeof(s) - 1, strict, lenient}

static void
test_utf8(void **state)
{
    (void)state;
    static const text texts[] = {
        T("", true, true), T("plain", true, true), T("a\0b", true, true), T("\xc2\x80", true, true), T("\xdf\xbf", true, true),
        T("\xe0\xa0\x80", true, true), T("\xed\x9f\xbf", true, true), T("\xee\x80\x80", true, true), T("\xf0\x90\x80\x80", true, true),
        T("\xf4\x8f\xbf\xbf", true, true),
        /* lone surrogates, as Python's surrogatepass writes them */
        T("\xed\xa0\x80", false, true), T("x\xed\xbf\xbf", false, true),
        /* longer than need be, beyond the end of Unicode, cut, stray */
        T("\xc0\x80", false, false), T("\xc1\xbf", false, false), T("\xe0\x9f\xbf", false, false), T("\xf0\x8f\xbf\xbf", false, false),
        T("\xf4\x90\x80\x80", false, false), T("\xf5\x80\x80\x80", false, false), T("\xff", false, false), T("\x80", false, false),
        T("\xc2", false, false), T("\xe1\x80", false, false), T("\xf1\x80\x80", false, false), T("\xc2" "a", false, false),
    };
    for (size_t i = 0; i < CHECK_COUNT(texts); i++) {
        assert_int_equal(ckpi_utf8_ok(texts[i].p, texts[i].n, false), texts[i].strict);
        assert_int_equal(ckpi_utf8_ok(texts[i].p, texts[i].n, true), texts[i].lenient);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_utf8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
