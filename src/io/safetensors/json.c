/* SPDX-License-Identifier: Apache-2.0 */
#include "io/safetensors/json.h"
#include <string.h>
#include "state/utf8.h"

bool
ckpi_json_fail(ckpi_json *j, const char *fault)
{
    if (j->fault == NULL)
        j->fault = fault;
    return false;
}

uint8_t
ckpi_json_peek(ckpi_json *j)
{
    if (j->fault != NULL)
        return 0;
    while (j->pos < j->len) {
        const uint8_t c = j->data[j->pos];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return c;
        j->pos++;
    }
    return 0;
}

bool
ckpi_json_take(ckpi_json *j, char c)
{
    if (ckpi_json_peek(j) != (uint8_t)c || j->pos == j->len) {
        static const char *const wanted[] = {"a '{' was expected", "a '}' was expected", "a '[' was expected",
                                             "a ',' or ']' was expected", "a ':' was expected", "a '\"' was expected"};
        static const char which[] = "{}[]:\"";
        const char *at = strchr(which, c);
        return ckpi_json_fail(j, at != NULL ? wanted[at - which] : "another byte was expected");
    }
    j->pos++;
    return true;
}

bool
ckpi_json_more(ckpi_json *j, char close, bool first)
{
    const uint8_t c = ckpi_json_peek(j);
    if (c == (uint8_t)close) {
        j->pos++;
        return false;
    }
    if (first)
        return j->fault == NULL;
    if (c != ',')
        return ckpi_json_fail(j, "a ',' or the end of the list was expected");
    j->pos++;
    /* A comma promises a value. */
    if (ckpi_json_peek(j) == (uint8_t)close)
        return ckpi_json_fail(j, "a value was expected after ','");
    return j->fault == NULL;
}

/* ---- strings ---- */

static int
hex4(const uint8_t *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        const int c = p[i];
        const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

static size_t
put_utf8(char *dst, uint32_t c)
{
    uint8_t *d = (uint8_t *)dst;
    if (c < 0x80) {
        d[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        d[0] = (uint8_t)(0xc0 | c >> 6);
        d[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        d[0] = (uint8_t)(0xe0 | c >> 12);
        d[1] = (uint8_t)(0x80 | (c >> 6 & 63));
        d[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    d[0] = (uint8_t)(0xf0 | c >> 18);
    d[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    d[2] = (uint8_t)(0x80 | (c >> 6 & 63));
    d[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

/* \uXXXX and its second half; the cursor stands behind the 'u'. Returns the character, or 0 with a fault. */
static uint32_t
unicode_escape(ckpi_json *j, size_t end)
{
    const int hi = end - j->pos >= 4 ? hex4(j->data + j->pos) : -1;
    if (hi < 0) {
        ckpi_json_fail(j, "four hex digits were expected after \\u");
        return 0;
    }
    j->pos += 4;
    if (hi == 0)
        ckpi_json_fail(j, "\\u0000 in a string");
    if (hi < 0xd800 || hi > 0xdfff)
        return (uint32_t)hi;
    const bool pair = hi < 0xdc00 && end - j->pos >= 6 && j->data[j->pos] == '\\' && j->data[j->pos + 1] == 'u';
    const int lo = pair ? hex4(j->data + j->pos + 2) : -1;
    if (lo < 0xdc00 || lo > 0xdfff) {
        ckpi_json_fail(j, "half of a surrogate pair");
        return 0;
    }
    j->pos += 6;
    return 0x10000 + (((uint32_t)hi - 0xd800) << 10 | ((uint32_t)lo - 0xdc00));
}

static uint32_t
escape(ckpi_json *j, size_t end)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const uint8_t c = j->data[j->pos++];
    if (c == 'u')
        return unicode_escape(j, end);
    const char *at = c != 0 ? strchr(from, c) : NULL;
    if (at == NULL) {
        ckpi_json_fail(j, "an escape that JSON does not have");
        return 0;
    }
    return (uint8_t)to[at - from];
}

/* Where the closing quote is, or len. */
static size_t
string_end(const ckpi_json *j)
{
    size_t i = j->pos;
    while (i < j->len && j->data[i] != '"')
        i += j->data[i] == '\\' ? 2 : 1;
    return i < j->len ? i : j->len;
}

bool
ckpi_json_string(ckpi_json *j, ckpi_io_arena *a, ckpi_json_str *out)
{
    if (!ckpi_json_take(j, '"'))
        return false;
    const size_t end = string_end(j);
    if (end == j->len)
        return ckpi_json_fail(j, "a string that does not end");
    if (!ckpi_utf8_ok(j->data + j->pos, end - j->pos, false))
        return ckpi_json_fail(j, "a string that is not UTF-8");
    /* An escape is never shorter than what it stands for. */
    char *d = ckpi_io_arena_get(a, end - j->pos + 1, 1);
    if (d == NULL) {
        j->no_memory = true;
        return ckpi_json_fail(j, "out of memory");
    }
    size_t n = 0;
    while (j->pos < end && j->fault == NULL) {
        const uint8_t c = j->data[j->pos];
        if (c < 0x20)
            return ckpi_json_fail(j, "a control character in a string");
        j->pos++;
        if (c == '\\')
            n += put_utf8(d + n, escape(j, end));
        else
            d[n++] = (char)c;
    }
    d[n] = 0;
    *out = (ckpi_json_str){d, n};
    j->pos += j->fault == NULL;
    return j->fault == NULL;
}

/* ---- numbers and the rest ---- */

static bool
is_digit(const ckpi_json *j)
{
    return j->pos < j->len && j->data[j->pos] >= '0' && j->data[j->pos] <= '9';
}

bool
ckpi_json_u64(ckpi_json *j, uint64_t *out)
{
    uint64_t v = 0;
    (void)ckpi_json_peek(j);
    if (j->fault != NULL || !is_digit(j))
        return ckpi_json_fail(j, "a non-negative integer was expected");
    const bool zero = j->data[j->pos] == '0';
    while (is_digit(j)) {
        const uint64_t d = j->data[j->pos] - (uint64_t)'0';
        if (v > (UINT64_MAX - d) / 10)
            return ckpi_json_fail(j, "an integer beyond 64 bits");
        v = v * 10 + d;
        j->pos++;
        if (zero && is_digit(j))
            return ckpi_json_fail(j, "a number with a leading zero");
    }
    if (j->pos < j->len && (j->data[j->pos] == '.' || j->data[j->pos] == 'e' || j->data[j->pos] == 'E'))
        return ckpi_json_fail(j, "an integer was expected");
    *out = v;
    return true;
}

static bool
digits(ckpi_json *j)
{
    if (!is_digit(j))
        return ckpi_json_fail(j, "a digit was expected");
    while (is_digit(j))
        j->pos++;
    return true;
}

static bool
skip_number(ckpi_json *j)
{
    j->pos += j->data[j->pos] == '-';
    const bool zero = j->pos < j->len && j->data[j->pos] == '0';
    const size_t start = j->pos;
    if (!digits(j))
        return false;
    if (zero && j->pos - start > 1)
        return ckpi_json_fail(j, "a number with a leading zero");
    if (j->pos < j->len && j->data[j->pos] == '.') {
        j->pos++;
        if (!digits(j))
            return false;
    }
    if (j->pos < j->len && (j->data[j->pos] | 0x20) == 'e') {
        j->pos++;
        j->pos += j->pos < j->len && (j->data[j->pos] == '+' || j->data[j->pos] == '-');
        return digits(j);
    }
    return true;
}

static bool
skip_word(ckpi_json *j)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (j->len - j->pos >= n && memcmp(j->data + j->pos, words[i], n) == 0) {
            j->pos += n;
            return true;
        }
    }
    return ckpi_json_fail(j, "a JSON value was expected");
}

bool
ckpi_json_skip(ckpi_json *j, ckpi_io_arena *a, unsigned max_depth)
{
    ckpi_json_str s;
    const uint8_t c = ckpi_json_peek(j);
    if (c == '"')
        return ckpi_json_string(j, a, &s);
    if (c == '-' || (c >= '0' && c <= '9'))
        return skip_number(j);
    if (c != '{' && c != '[')
        return j->fault == NULL && skip_word(j);
    if (max_depth == 0)
        return ckpi_json_fail(j, "nested too deep");
    j->pos++;
    const char close = c == '{' ? '}' : ']';
    for (bool first = true; ckpi_json_more(j, close, first); first = false) {
        if (c == '{' && !(ckpi_json_string(j, a, &s) && ckpi_json_take(j, ':')))
            return false;
        if (!ckpi_json_skip(j, a, max_depth - 1))
            return false;
    }
    return j->fault == NULL;
}
