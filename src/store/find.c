/* SPDX-License-Identifier: Apache-2.0 */
/* Finding what to restore: the newest, a step, a directory; always with its whole chain. */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

void
ckpi_chain_free(ckpi_chain *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n; i++)
        ckpi_manifest_free(c->m[i]);
    free(c->m);
    free(c->dir);
    *c = (ckpi_chain){0};
}

/* Moves the manifests of v[at] and of what it needs out of the list. v[at] is OK, so its chain is whole and ends. */
static ckp_status
take_chain(ckpi_entries *e, size_t at, ckpi_chain *out, ckp_error *err)
{
    size_t n = 0;
    for (size_t i = at; i != SIZE_MAX; i = e->v[i].base)
        n++;
    *out = (ckpi_chain){.m = ckpi_calloc(n, sizeof *out->m), .dir = ckpi_calloc(n, sizeof *out->dir)};
    if (out->m == NULL || out->dir == NULL) {
        ckpi_chain_free(out);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a chain of %zu checkpoints", n);
    }
    out->n = n;
    for (size_t i = at, k = n; i != SIZE_MAX; i = e->v[i].base) {
        k--;
        memcpy(out->dir[k], e->v[i].dir, sizeof out->dir[k]);
        out->m[k] = e->v[i].m;
        e->v[i].m = NULL;
    }
    return CKP_OK;
}

static void
explain(ckpi_buf *why, const ckpi_entry *e)
{
    if (why == NULL || e->reason == NULL)
        return;
    const char *const parts[] = {e->dir, ": ", ckpi_health_name(e->health), ": ", e->reason, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        ckpi_buf_put(why, parts[i], strlen(parts[i]));
}

/* Directories without a sequence that lie after the chosen step: most likely newer saves that never became one. */
static void
explain_unfinished(ckpi_buf *why, const ckpi_entries *e, size_t chosen)
{
    for (size_t i = 0; i < e->n && e->v[i].m == NULL; i++)
        if (chosen == SIZE_MAX || e->v[i].step > e->v[chosen].step)
            explain(why, &e->v[i]);
}

static size_t
newest_ok(const ckpi_entries *e, const ckpi_order *place, ckpi_buf *why)
{
    for (size_t i = e->n; i-- > 0 && e->v[i].m != NULL;) {
        const ckpi_order at = ckpi_order_of(e->v[i].m, e->v[i].dir);
        if (ckpi_order_compare(&at, place) >= 0)
            continue;
        if (e->v[i].health == CKPI_HEALTH_OK)
            return i;
        explain(why, &e->v[i]);
    }
    return SIZE_MAX;
}

ckp_status
ckpi_store_latest(ckpi_store *s, uint64_t below, ckpi_chain *out, ckpi_buf *why, ckp_error *err)
{
    return ckpi_store_before(s, &(ckpi_order){.sequence = below}, out, why, err);
}

ckp_status
ckpi_store_before(ckpi_store *s, const ckpi_order *place, ckpi_chain *out, ckpi_buf *why, ckp_error *err)
{
    ckpi_entries e = {0};
    *out = (ckpi_chain){0};
    ckp_status st = ckpi_store_list(s, &e, err);
    if (st != CKP_OK)
        return st;
    const size_t at = newest_ok(&e, place, why);
    explain_unfinished(why, &e, at);
    st = at != SIZE_MAX ? take_chain(&e, at, out, err)
                        : ckpi_fail(err, CKP_ENOTFOUND, "the run has no restorable checkpoint%s", place->sequence == UINT64_MAX ? "" : " before that one");
    ckpi_entries_free(&e);
    return st;
}

ckp_status
ckpi_store_at_step(ckpi_store *s, uint64_t step, ckpi_chain *out, ckp_error *err)
{
    ckpi_entries e = {0};
    const ckpi_entry *broken = NULL;
    size_t at = SIZE_MAX;
    *out = (ckpi_chain){0};
    ckp_status st = ckpi_store_list(s, &e, err);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < e.n; i++) {
        if (e.v[i].step == step && e.v[i].health == CKPI_HEALTH_OK)
            at = i;
        else if (e.v[i].step == step)
            broken = &e.v[i];
    }
    if (at != SIZE_MAX)
        st = take_chain(&e, at, out, err);
    else if (broken != NULL)
        st = ckpi_fail(err, CKP_ENOTFOUND, "%s cannot be restored: %s: %s", broken->dir, ckpi_health_name(broken->health), broken->reason);
    else
        st = ckpi_fail(err, CKP_ENOTFOUND, "the run has no checkpoint of step %llu", (unsigned long long)step);
    ckpi_entries_free(&e);
    return st;
}

ckp_status
ckpi_store_chain(ckpi_store *s, const char *dir, ckpi_chain *out, ckp_error *err)
{
    ckpi_entries e = {0};
    size_t at = 0;
    *out = (ckpi_chain){0};
    ckp_status st = ckpi_store_list(s, &e, err);
    if (st != CKP_OK)
        return st;
    while (at < e.n && strcmp(e.v[at].dir, dir) != 0)
        at++;
    if (at == e.n)
        st = ckpi_fail(err, CKP_ENOTFOUND, "the run has no checkpoint '%.64s'", dir);
    else if (e.v[at].health != CKPI_HEALTH_OK)
        st = ckpi_fail(err, CKP_ECORRUPT, "%s cannot be restored: %s: %s", dir, ckpi_health_name(e.v[at].health), e.v[at].reason);
    else
        st = take_chain(&e, at, out, err);
    ckpi_entries_free(&e);
    return st;
}
