/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ui.h"

void
cli_safe(FILE *f, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        /* C0, DEL, and C1 as UTF-8 writes it */
        const bool c1 = *p == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0;
        (void)fputc(*p < 0x20 || *p == 0x7F || c1 ? '?' : *p, f);
        p += c1;
    }
}

static void
say(const char *before, const char *format, va_list ap)
{
    char text[2048];

    (void)vsnprintf(text, sizeof text, format, ap);
    (void)fputs(before, stderr);
    cli_safe(stderr, text);
    (void)fputc('\n', stderr);
}

int
cli_fail(int code, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    say("ckpress: ", format, ap);
    va_end(ap);
    return code;
}

void
cli_note(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    say("ckpress: note: ", format, ap);
    va_end(ap);
}

int
cli_code(ckp_status st)
{
    switch (st) {
    case CKP_OK: return CLI_OK;
    case CKP_EINVAL: return CLI_USAGE;
    case CKP_EUNSUPPORTED:
    case CKP_EVERSION: return CLI_UNSUPPORTED;
    case CKP_EINTERNAL: return CLI_BUG;
    default: break;
    }
    return st <= CKP_ECORRUPT ? CLI_DATA : st <= CKP_EIO ? CLI_FILES : CLI_BUSY;
}

static int
told(ckp_status st, const ckp_error *e, const char *left)
{
    if (st == CKP_OK)
        return CLI_OK;
    if (cli_signal() != 0 && (st == CKP_ECANCELLED || e->sys_errno == EINTR))
        return cli_fail(128 + cli_signal(), "stopped by a signal; %s.", left);
    return cli_fail(cli_code(st), "%s", e->text[0] != '\0' ? e->text : ckp_status_name(st));
}

int
cli_told(ckp_status st, const ckp_error *e)
{
    return told(st, e, "nothing was written");
}

int
cli_told_part(ckp_status st, const ckp_error *e)
{
    return told(st, e, "what was done by then stays, and is whole");
}

size_t
cli_utf8_len(const unsigned char *p)
{
    const size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xC2 && p[0] < 0xE0 ? 2 : p[0] >= 0xE0 && p[0] < 0xF0 ? 3 : p[0] >= 0xF0 && p[0] < 0xF5 ? 4 : 0;

    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    const bool bad = n == 3 && ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] >= 0xA0));
    return bad || (n == 4 && ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] >= 0x90))) ? 0 : n;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

static const char *
three_digits(cli_text *t, double v, const char *unit)
{
    const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;

    while (v >= 999.5 && i + 1 < sizeof prefix / sizeof *prefix) {
        v /= 1000.0;
        i++;
    }
    const int decimals = i == 0 || v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
    const bool space = *unit != '\0' || i != 0;
    (void)snprintf(t->s, sizeof t->s, "%.*f%s%s%s", decimals, v, space ? " " : "", prefix[i], unit);
    return t->s;
}

const char *
cli_size(cli_text *t, uint64_t bytes)
{
    return three_digits(t, (double)bytes, "B");
}

const char *
cli_count(cli_text *t, uint64_t n)
{
    return three_digits(t, (double)n, "");
}

const char *
cli_ratio(cli_text *t, uint64_t raw, uint64_t stored)
{
    const double r = stored != 0 ? (double)raw / (double)stored : 0.0;
    if (raw == 0 || stored == 0)
        return "-";
    (void)snprintf(t->s, sizeof t->s, "%.*fx", r < 9.995 ? 2 : r < 99.95 ? 1 : 0, r);
    return t->s;
}

const char *
cli_bits(cli_text *t, uint64_t bytes, uint64_t params)
{
    if (params == 0)
        return "-";
    (void)snprintf(t->s, sizeof t->s, "%.2f", 8.0 * (double)bytes / (double)params);
    return t->s;
}

/* ---- time ----------------------------------------------------------------------------------------------------------- */

const char *
cli_when(cli_text *t, int64_t unix_seconds, bool seconds)
{
    struct tm tm;
    const time_t at = (time_t)unix_seconds;

    if (unix_seconds <= 0 || localtime_r(&at, &tm) == NULL ||
        strftime(t->s, sizeof t->s, seconds ? "%Y-%m-%d %H:%M:%S" : "%Y-%m-%d %H:%M", &tm) == 0)
        (void)snprintf(t->s, sizeof t->s, "-");
    return t->s;
}

const char *
cli_duration(cli_text *t, int64_t seconds)
{
    static const struct { int64_t from, unit; const char *name; } row[] = {{172800, 86400, "d"}, {7200, 3600, "h"}, {120, 60, "min"}, {0, 1, "s"}};

    (void)snprintf(t->s, sizeof t->s, "-");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (seconds >= row[i].from) {
            (void)snprintf(t->s, sizeof t->s, "%lld %s", (long long)(seconds / row[i].unit), row[i].name);
            break;
        }
    return t->s;
}

/* ---- small things ------------------------------------------------------------------------------------------------- */

void *
cli_alloc(size_t n)
{
    void *p = calloc(n != 0 ? n : 1, 1);
    if (p == NULL)
        exit(cli_fail(CLI_BUSY, "no memory for %zu bytes", n));
    return p;
}

char *
cli_copy(const char *s)
{
    const size_t n = strlen(s) + 1;
    return memcpy(cli_alloc(n), s, n);
}

double
cli_seconds(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool
cli_ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}
