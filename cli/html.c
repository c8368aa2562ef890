/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "html.h"
#include <math.h>
#include <string.h>
#include <time.h>

#define NONE "\xe2\x80\x93"      /* en dash */

static const char *
entity(unsigned char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

/* From p up to end, or to the first byte of a character that goes beyond it. */
static void
put(FILE *f, const unsigned char *p, const unsigned char *end)
{
    while (p < end) {
        const size_t n = cli_utf8_len(p);
        const bool c1 = n == 2 && p[0] == 0xC2 && p[1] < 0xA0;
        if (n == 0 || *p < 0x20 || *p == 0x7F || c1)
            (void)fputs("\xef\xbf\xbd", f);
        else if (entity(*p) != NULL)
            (void)fputs(entity(*p), f);
        else
            (void)fwrite(p, 1, n, f);
        p += n != 0 ? n : 1;
    }
}

void
cli_html_text(FILE *f, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    put(f, p, p + strlen(text));
}

void
cli_html_short(FILE *f, const char *name)
{
    const unsigned char *p = (const unsigned char *)name;
    const size_t n = strlen(name), half = 120;
    size_t tail = n - half;

    if (n <= 2 * half) {
        put(f, p, p + n);
        return;
    }
    put(f, p, p + half);
    (void)fputs("\xe2\x80\xa6", f);
    while (tail < n && (p[tail] & 0xC0) == 0x80)
        tail++;
    put(f, p + tail, p + n);
}

void
cli_html_name(FILE *f, const char *name)
{
    (void)fputs("<bdi>", f);
    cli_html_short(f, name);
    (void)fputs("</bdi>", f);
}

const char *
cli_html_count(cli_text *t, uint64_t n)
{
    char digits[24];
    size_t at = 0;
    const int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);

    for (int i = 0; i < len; i++) {
        if (i != 0 && (len - i) % 3 == 0)
            t->s[at++] = ',';
        t->s[at++] = digits[i];
    }
    t->s[at] = '\0';
    return t->s;
}

const char *
cli_html_number(cli_text *t, double v)
{
    if (isnan(v))
        return NONE;
    (void)snprintf(t->s, sizeof t->s, "%.4g", v);
    return t->s;
}

const char *
cli_html_time(cli_text *t, int64_t unix_seconds)
{
    struct tm tm;
    const time_t at = (time_t)unix_seconds;

    if (unix_seconds <= 0 || gmtime_r(&at, &tm) == NULL || strftime(t->s, sizeof t->s, "%Y-%m-%d %H:%M:%S", &tm) == 0)
        return NONE;
    return t->s;
}

/* ---- tables -------------------------------------------------------------------------------------------------------- */

void
cli_html_table_begin(cli_html_table *t, FILE *f, const char *caption, const char *align, const char *const *head)
{
    *t = (cli_html_table){f, align, 0};
    (void)fputs("<div class=\"wide\"><table><caption>", f);
    cli_html_text(f, caption);
    (void)fputs("</caption>\n<thead><tr>", f);
    for (size_t i = 0; i < strlen(align); i++) {
        (void)fprintf(f, "<th scope=\"col\"%s>", align[i] == 'r' ? " class=\"r\"" : "");
        cli_html_text(f, head[i]);
        (void)fputs("</th>", f);
    }
    (void)fputs("</tr></thead>\n<tbody>\n", f);
}

static void
cell_begin(cli_html_table *t)
{
    const size_t column = t->at % strlen(t->align);
    (void)fprintf(t->f, "%s<td%s>", column == 0 ? "<tr>" : "", t->align[column] == 'r' ? " class=\"r\"" : "");
}

static void
cell_end(cli_html_table *t)
{
    t->at++;
    (void)fputs(t->at % strlen(t->align) == 0 ? "</td></tr>\n" : "</td>", t->f);
}

void
cli_html_cell(cli_html_table *t, const char *text)
{
    cell_begin(t);
    cli_html_text(t->f, text);
    cell_end(t);
}

void
cli_html_cell_name(cli_html_table *t, const char *name)
{
    cell_begin(t);
    cli_html_name(t->f, name);
    cell_end(t);
}

void
cli_html_cell_number(cli_html_table *t, double v)
{
    cli_text s;
    cli_html_cell(t, cli_html_number(&s, v));
}

void
cli_html_cell_count(cli_html_table *t, uint64_t n)
{
    cli_text s;
    cli_html_cell(t, cli_html_count(&s, n));
}

void
cli_html_table_end(cli_html_table *t)
{
    (void)fputs("</tbody></table></div>\n", t->f);
}
