/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's parameters are a subsequence of the free entries. Taking each as early as possible gives a lower bound for its place, as late
 * as possible an upper one; every valid assignment lies between them, so where both agree it is certain. Certain entries are taken from
 * the other groups, which narrows their bounds, until nothing changes.
 */
#include "io/match.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "base/hash.h"
#include "state/hindex.h"

#define NONE UINT32_MAX
/* Work that is worth it: groups times entries times rounds. */
#define WORK_MAX ((uint64_t)1 << 28)
#define ROUNDS_MAX 64u

typedef struct solver {
    const ckpi_match_entry *e;
    size_t n;
    const ckpi_match_param *p;
    size_t m;
    uint32_t *to;
    uint32_t *lo, *hi;           /* bounds of each parameter; NONE: no place at all */
    uint32_t *owner;             /* per entry: the parameter that certainly has it, or NONE */
    ckpi_hindex names;
} solver;

bool
ckpi_match_is_buffer(const char *name)
{
    static const char *const ends[] = {"running_mean", "running_var", "num_batches_tracked"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t k = strlen(ends[i]);
        if (n >= k && strcmp(name + n - k, ends[i]) == 0 && (n == k || name[n - k - 1] == '.' || name[n - k - 1] == '/'))
            return true;
    }
    return false;
}

size_t
ckpi_match_strip(const char *name, size_t n, char *dst)
{
    static const char *const wraps[] = {"_orig_mod.", "module."};
    size_t len = 0;
    for (size_t i = 0; i < n;) {
        bool skipped = false;
        for (size_t k = 0; k < 2 && !skipped && (i == 0 || name[i - 1] == '.'); k++) {
            const size_t w = strlen(wraps[k]);
            skipped = n - i > w && memcmp(name + i, wraps[k], w) == 0;
            i += skipped ? w : 0;
        }
        if (!skipped)
            dst[len++] = name[i++];
    }
    dst[len] = 0;
    return len;
}

static bool
fits(const ckpi_match_param *p, const ckpi_match_entry *e)
{
    return p->shape == NULL || (p->ndim == e->ndim && (p->ndim == 0 || memcmp(p->shape, e->shape, p->ndim * sizeof *p->shape) == 0));
}

static bool
take(solver *s, size_t k, uint32_t entry)
{
    if (s->owner[entry] != NONE)
        return false;
    s->owner[entry] = (uint32_t)k;
    s->to[k] = entry;
    return true;
}

/* ---- by name ---- */

static uint32_t
find_name(const solver *s, const char *name)
{
    const uint64_t hash = ckpi_hash64(name, strlen(name));
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(&s->names, hash, &at)) != CKPI_HINDEX_NONE;)
        if (strcmp(s->e[row].name, name) == 0)
            return row;
    return NONE;
}

static bool
by_name(solver *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!ckpi_hindex_put(&s->names, ckpi_hash64(s->e[i].name, strlen(s->e[i].name)), (uint32_t)i))
            return false;
    for (size_t k = 0; k < s->m; k++) {
        if (s->p[k].name == NULL)
            continue;
        const uint32_t row = find_name(s, s->p[k].name);
        if (row != NONE && fits(&s->p[k], &s->e[row]))
            (void)take(s, k, row);
    }
    return true;
}

/* ---- by order ---- */

/* Open to ordering: not named, not settled, of that group. */
static bool
is_open(const solver *s, size_t k, unsigned group)
{
    return s->p[k].group == group && s->p[k].name == NULL;
}

/* As early as possible. A settled parameter is a fixed point that its neighbours may not pass. */
static bool
earliest(solver *s, unsigned group, size_t from, size_t end)
{
    size_t at = 0;
    for (size_t k = from; k < end; k++) {
        if (!is_open(s, k, group))
            continue;
        if (s->to[k] != NONE) {
            if (s->to[k] < at)
                return false;
            at = s->to[k] + 1u;
            continue;
        }
        while (at < s->n && (s->owner[at] != NONE || !fits(&s->p[k], &s->e[at])))
            at++;
        if (at == s->n)
            return false;
        s->lo[k] = (uint32_t)at++;
    }
    return true;
}

static bool
latest(solver *s, unsigned group, size_t from, size_t end)
{
    size_t at = s->n;      /* one past the last that may still be taken */
    for (size_t k = end; k-- > from;) {
        if (!is_open(s, k, group))
            continue;
        if (s->to[k] != NONE) {
            if (s->to[k] >= at)
                return false;
            at = s->to[k];
            continue;
        }
        while (at > 0 && (s->owner[at - 1] != NONE || !fits(&s->p[k], &s->e[at - 1])))
            at--;
        if (at == 0)
            return false;
        s->hi[k] = (uint32_t)--at;
    }
    return true;
}

/* True when something new became certain. */
static bool
settle_group(solver *s, unsigned group, size_t from, size_t end)
{
    bool news = false;
    if (!earliest(s, group, from, end) || !latest(s, group, from, end))
        return false;
    for (size_t k = from; k < end; k++)
        if (is_open(s, k, group) && s->to[k] == NONE && s->lo[k] == s->hi[k])
            news = take(s, k, s->lo[k]) || news;
    return news;
}

static void
by_order(solver *s)
{
    const uint64_t groups = s->m != 0 ? s->p[s->m - 1].group + UINT64_C(1) : 0;
    bool news = true;
    for (unsigned round = 0; news && round < ROUNDS_MAX && groups * s->n < WORK_MAX / ROUNDS_MAX; round++) {
        news = false;
        for (size_t from = 0, end; from < s->m; from = end) {
            for (end = from; end < s->m && s->p[end].group == s->p[from].group;)
                end++;
            news = settle_group(s, s->p[from].group, from, end) || news;
        }
    }
}

/* A group of which only a part is certain is not: one wrong neighbour would make the rest wrong. */
static void
drop_partial(solver *s)
{
    for (size_t from = 0, end; from < s->m; from = end) {
        bool whole = true;
        for (end = from; end < s->m && s->p[end].group == s->p[from].group; end++)
            whole = whole && (s->p[end].name != NULL || s->to[end] != NONE);
        for (size_t k = from; k < end && !whole; k++)
            if (s->p[k].name == NULL)
                s->to[k] = NONE;
    }
}

ckp_status
ckpi_match_solve(const ckpi_match_entry *entries, size_t n, const ckpi_match_param *params, size_t m, uint32_t *to, ckp_error *err)
{
    solver s = {.e = entries, .n = n, .p = params, .m = m, .to = to};
    ckp_status st = CKP_OK;
    s.lo = ckpi_malloc(m, sizeof *s.lo);
    s.hi = ckpi_malloc(m, sizeof *s.hi);
    s.owner = ckpi_malloc(n, sizeof *s.owner);
    for (size_t k = 0; k < m; k++)
        to[k] = NONE;
    if (s.lo == NULL || s.hi == NULL || s.owner == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "matching optimizer state: out of memory");
        goto done;
    }
    memset(s.owner, 0xff, n * sizeof *s.owner);
    if (!by_name(&s)) {
        st = ckpi_fail(err, CKP_ENOMEM, "matching optimizer state: out of memory");
        goto done;
    }
    by_order(&s);
    drop_partial(&s);
done:
    free(s.lo);
    free(s.hi);
    free(s.owner);
    ckpi_hindex_free(&s.names);
    return st;
}
