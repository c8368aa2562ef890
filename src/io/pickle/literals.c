/* SPDX-License-Identifier: Apache-2.0 */
/* Integers of any length, and the text forms of protocol 0. */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "io/pickle/pickle.h"

bool
ckpi_pickle_line(ckpi_pickle *p, const uint8_t **s, size_t *n)
{
    const uint8_t *from = p->data + p->pos;
    *s = NULL;
    *n = 0;
    const uint8_t *end = p->len > p->pos ? memchr(from, '\n', p->len - p->pos) : NULL;
    if (end == NULL)
        return false;
    *s = from;
    *n = (size_t)(end - from);
    p->pos += *n + 1;
    return true;
}

static ckpi_pv *
line_fault(ckpi_pickle *p, const char *what)
{
    p->short_of_data = what == NULL;
    (void)ckpi_pickle_bad(p, what == NULL ? CKP_ETRUNCATED : CKP_ECORRUPT, "%s", what == NULL ? "the pickle ends too early" : what);
    return NULL;
}

/* Two's complement, shortest form: what Python's int.to_bytes gives with one bit for the sign. */
ckpi_pv *
ckpi_pickle_long(ckpi_pickle *p, const uint8_t *le, size_t n)
{
    while (n > 1 && (le[n - 1] == 0 || le[n - 1] == 0xff) && (le[n - 1] & 0x80) == (le[n - 2] & 0x80))
        n--;
    if (n > 8)
        return ckpi_pickle_text(p, PV_BIGINT, le, n);
    uint64_t v = n != 0 && (le[n - 1] & 0x80) ? UINT64_MAX : 0;
    for (size_t i = n; i-- > 0;)
        v = v << 8 | le[i];
    int64_t out;
    memcpy(&out, &v, sizeof out);
    return ckpi_pickle_int(p, out);
}

ckpi_pv *
ckpi_pickle_int_line(ckpi_pickle *p)
{
    const uint8_t *s;
    size_t n, i = 0;
    uint64_t v = 0;
    if (!ckpi_pickle_line(p, &s, &n))
        return line_fault(p, NULL);
    if (n == 2 && s[0] == '0' && (s[1] == '0' || s[1] == '1'))      /* bools of protocol 1 */
        return ckpi_pickle_const(p, s[1] == '1' ? PV_TRUE : PV_FALSE);
    if (n > 1 && s[n - 1] == 'L')
        n--;
    const bool minus = n > 1 && s[0] == '-';
    for (i = minus; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return line_fault(p, "a number in text form that is none");
        if (v > ((uint64_t)INT64_MAX - 9) / 10)
            return line_fault(p, "a number in text form beyond 63 bits");
        v = v * 10 + s[i] - '0';
    }
    if (i == minus)
        return line_fault(p, "an empty number");
    return ckpi_pickle_int(p, minus ? -(int64_t)v : (int64_t)v);
}

ckpi_pv *
ckpi_pickle_float_line(ckpi_pickle *p)
{
    const uint8_t *s;
    char text[64], *end;
    size_t n;
    if (!ckpi_pickle_line(p, &s, &n))
        return line_fault(p, NULL);
    if (n == 0 || n >= sizeof text || strspn((const char *)s, "0123456789+-.eEinfa") < n)
        return line_fault(p, "a float in text form that is none");
    memcpy(text, s, n);
    text[n] = 0;
    const double f = strtod(text, &end);
    if (*end != 0)      /* or the program runs with a decimal comma */
        return line_fault(p, "a float in text form that cannot be read");
    ckpi_pv *v = ckpi_pickle_new(p, PV_FLOAT);
    if (v != NULL)
        v->u.f = f;
    return v;
}

ckpi_pv *
ckpi_pickle_string_line(ckpi_pickle *p)
{
    const uint8_t *s;
    size_t n;
    if (!ckpi_pickle_line(p, &s, &n))
        return line_fault(p, NULL);
    if (n < 2 || (s[0] != '\'' && s[0] != '"') || s[n - 1] != s[0] || memchr(s, '\\', n) != NULL)
        return line_fault(p, "a string of protocol 0 without quotes or with escapes");
    return ckpi_pickle_text(p, PV_STR2, s + 1, n - 2);
}

static size_t
put_utf8(uint8_t *d, uint32_t c)
{
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

/* \uXXXX or \UXXXXXXXX at s (digits of them); false when it is none. */
static bool
hex(const uint8_t *s, size_t digits, uint32_t *out)
{
    uint32_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        const int c = s[i];
        const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0)
            return false;
        v = v << 4 | (uint32_t)d;
    }
    *out = v;
    return v <= 0x10ffff;
}

/* raw-unicode-escape: Latin-1, with \u and \U for the rest. */
ckpi_pv *
ckpi_pickle_unicode_line(ckpi_pickle *p)
{
    const uint8_t *s;
    size_t n, len = 0;
    if (!ckpi_pickle_line(p, &s, &n))
        return line_fault(p, NULL);
    uint8_t *d = ckpi_pickle_get(p, n * 2 + 4, 1);
    if (d == NULL)
        return NULL;
    for (size_t i = 0; i < n;) {
        const size_t digits = s[i] != '\\' || i + 1 == n ? 0 : s[i + 1] == 'u' ? 4 : s[i + 1] == 'U' ? 8 : 0;
        uint32_t c = s[i];
        if (digits != 0 && (n - i < 2 + digits || !hex(s + i + 2, digits, &c)))
            return line_fault(p, "an escape in a text that is none");
        i += digits != 0 ? 2 + digits : 1;
        len += put_utf8(d + len, c);
    }
    return ckpi_pickle_text(p, PV_STR, d, len);
}
