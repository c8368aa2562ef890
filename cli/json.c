/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "json.h"

static void
put_string(const char *s)
{
    (void)putchar('"');
    for (const unsigned char *p = (const unsigned char *)s; *p != '\0';) {
        const size_t n = cli_utf8_len(p);
        if (n == 0)
            (void)fputs("\\ufffd", stdout);
        else if (*p == '"' || *p == '\\')
            (void)printf("\\%c", *p);
        else if (*p < 0x20 || *p == 0x7F)
            (void)printf("\\u%04x", *p);
        else
            (void)fwrite(p, 1, n, stdout);
        p += n != 0 ? n : 1;
    }
    (void)putchar('"');
}

static void
indent(unsigned depth)
{
    (void)printf("\n%*s", (int)(2 * depth), "");
}

static void
begin(cli_json *j, const char *key)
{
    if (j->depth != 0) {
        if (!j->first)
            (void)putchar(',');
        indent(j->depth);
    }
    j->first = false;
    if (key != NULL) {
        put_string(key);
        (void)fputs(": ", stdout);
    }
}

void
cli_json_open(cli_json *j, const char *key, char bracket)
{
    begin(j, key);
    (void)putchar(bracket);
    j->depth++;
    j->first = true;
}

void
cli_json_close(cli_json *j, char bracket)
{
    j->depth--;
    if (!j->first)
        indent(j->depth);
    j->first = false;
    (void)putchar(bracket);
    if (j->depth == 0)
        (void)putchar('\n');
}

void
cli_json_str(cli_json *j, const char *key, const char *value)
{
    begin(j, key);
    if (value != NULL)
        put_string(value);
    else
        (void)fputs("null", stdout);
}

void
cli_json_u64(cli_json *j, const char *key, uint64_t value)
{
    begin(j, key);
    (void)printf("%llu", (unsigned long long)value);
}

void
cli_json_num(cli_json *j, const char *key, double value)
{
    begin(j, key);
    if (isfinite(value))
        (void)printf("%.6g", value);
    else
        (void)fputs("null", stdout);
}

void
cli_json_double(cli_json *j, const char *key, double value)
{
    begin(j, key);
    if (isfinite(value))
        (void)printf("%.17g", value);
    else
        put_string(isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

void
cli_json_bool(cli_json *j, const char *key, bool value)
{
    begin(j, key);
    (void)fputs(value ? "true" : "false", stdout);
}
