/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "slice.h"

static void
count_elements(cli_slice *s)
{
    s->elements = 1;
    for (unsigned i = 0; i < s->ndim; i++)
        s->elements *= s->count[i];      /* at most the tensor's own elements, which the library has checked */
}

void
cli_slice_all(cli_slice *s, unsigned ndim, const uint64_t *shape)
{
    *s = (cli_slice){.ndim = ndim, .out_ndim = ndim};
    for (unsigned i = 0; i < ndim; i++) {
        s->dim[i] = s->count[i] = s->out[i] = shape[i];
        s->first[i] = 0;
    }
    count_elements(s);
}

/* An integer with blanks around it; false when there is none. Moves *p to what follows. */
static bool
integer(const char **p, const char *end, int64_t *value)
{
    char digits[24];
    size_t n = 0;

    while (*p < end && **p == ' ')
        (*p)++;
    while (*p < end && n + 1 < sizeof digits && ((**p >= '0' && **p <= '9') || (n == 0 && **p == '-')))
        digits[n++] = *(*p)++;
    digits[n] = '\0';
    while (*p < end && **p == ' ')
        (*p)++;
    char *stop = NULL;
    errno = 0;
    *value = strtoll(digits, &stop, 10);
    return n != 0 && *stop == '\0' && stop != digits && errno == 0;
}

/* As Python clamps a bound. */
static uint64_t
clamp(int64_t v, uint64_t dim)
{
    const uint64_t back = v < 0 ? (uint64_t)0 - (uint64_t)v : 0;
    if (v < 0)
        return back > dim ? 0 : dim - back;
    return (uint64_t)v > dim ? dim : (uint64_t)v;
}

/* One dimension's part: "a", "a:b", ":b", "a:", ":"; false when it is none of them or out of range. */
static bool
part(cli_slice *s, unsigned d, const char **p, const char *end, bool *dropped)
{
    int64_t a = 0, b = 0;
    const bool has_a = integer(p, end, &a);

    if (*p == end || **p == ',') {
        const uint64_t dim = s->dim[d], at = a < 0 ? dim + (uint64_t)a : (uint64_t)a;
        *dropped = true;
        s->first[d] = at;
        s->count[d] = 1;
        return has_a && at < dim;
    }
    if (**p != ':')
        return false;
    (*p)++;
    const bool has_b = integer(p, end, &b);
    if (*p != end && **p != ',')
        return false;
    const uint64_t lo = has_a ? clamp(a, s->dim[d]) : 0, hi = has_b ? clamp(b, s->dim[d]) : s->dim[d];
    s->first[d] = lo;
    s->count[d] = hi > lo ? hi - lo : 0;
    return true;
}

int
cli_slice_parse(cli_slice *s, const char *text, size_t len)
{
    const char *p = text, *end = text + len;
    unsigned d = 0;

    s->out_ndim = 0;
    for (;; d++) {
        bool dropped = false;
        if (d == s->ndim)
            return cli_fail(CLI_USAGE, "[%.*s] has more parts than the tensor has dimensions (%u).", (int)len, text, s->ndim);
        if (!part(s, d, &p, end, &dropped))
            return cli_fail(CLI_USAGE, "[%.*s]: part %u is no index or range within %llu (ranges are FIRST:END, without a step).", (int)len,
                            text, d + 1, (unsigned long long)s->dim[d]);
        s->dropped[d] = dropped;
        if (!dropped)
            s->out[s->out_ndim++] = s->count[d];
        if (p == end)
            break;
        p++;
    }
    for (d++; d < s->ndim; d++)
        s->out[s->out_ndim++] = s->count[d];
    count_elements(s);
    return CLI_OK;
}

static size_t
part_text(const cli_slice *s, unsigned d, char *out, size_t cap)
{
    const unsigned long long first = s->first[d], end = s->first[d] + s->count[d];
    const int n = s->dropped[d]                ? snprintf(out, cap, "%llu", first)
                  : s->count[d] == s->dim[d] ? snprintf(out, cap, ":")
                                               : snprintf(out, cap, "%llu:%llu", first, end);
    return (size_t)n;
}

void
cli_slice_text(const cli_slice *s, char *out, size_t cap)
{
    uint64_t mix = UINT64_C(0xcbf29ce484222325);     /* FNV-1a over the parts' text */
    char part[64];
    size_t n = 0;

    for (unsigned d = 0; d < s->ndim; d++) {
        part[0] = d == 0 ? '[' : ',';
        const size_t len = 1 + part_text(s, d, part + 1, sizeof part - 1);
        for (size_t i = 0; i < len; i++)
            mix = (mix ^ (unsigned char)part[i]) * UINT64_C(0x100000001b3);
        if (n + len + 2 <= cap)
            (void)memcpy(out + n, part, len);
        n += len;
    }
    if (n + 2 <= cap)
        (void)memcpy(out + n, "]", 2);
    else
        (void)snprintf(out, cap, "[#%016llx]", (unsigned long long)mix);
}

/* ---- walking ------------------------------------------------------------------------------------------------------ */

void
cli_walk_start(cli_walk *w, const cli_slice *s)
{
    *w = (cli_walk){.s = s, .outer = s->ndim, .run = 1, .left = s->elements != 0};
    /* whole trailing dimensions join the run, and so does the one before them */
    while (w->outer > 0) {
        w->outer--;
        w->run *= s->count[w->outer];
        if (s->count[w->outer] != s->dim[w->outer])
            break;
    }
    for (unsigned i = 0; i < w->outer; i++)
        w->left *= s->count[i];
}

bool
cli_walk_next(cli_walk *w, uint64_t *first)
{
    const cli_slice *s = w->s;

    if (w->left == 0)
        return false;
    w->left--;
    *first = 0;
    for (unsigned i = 0; i < s->ndim; i++)
        *first = *first * s->dim[i] + s->first[i] + (i < w->outer ? w->at[i] : 0);
    for (unsigned i = w->outer; i-- > 0;) {
        if (++w->at[i] < s->count[i])
            break;
        w->at[i] = 0;
    }
    return true;
}
