/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search as its caller sees it. `told` holds every answer; `taken` those that the search has come to, one after the other. Only
 * `taken` decides what is asked next and what is chosen, so groups of any size lead to the same choice: they only bring answers earlier.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "plan/known.h"

/* Nodes of the tree of suppositions: enough for a full group of a guided search, whose branches ask the same questions again. */
enum { THOUGHTS = 4 * CKP_SEARCH_GROUP_MAX, RADIUS_MAX = 16 };

/* One supposition more than its parent's: that `id` is good, or that it is not. */
typedef struct thought { int parent, id; ckpi_verdict verdict; } thought;

struct ckp_search {
    ckpi_problem problem;
    ckpi_answers told, taken, supposed;
    thought thoughts[THOUGHTS];
    int asked[CKP_SEARCH_GROUP_MAX];
    size_t n_asked;                /* answers that are owed */
    unsigned group;
    int next;                      /* the question that taken leaves, or CKPI_NO_CONFIG */
    bool wide;                     /* it is of the whole grid */
    ckp_search_stats stats;
    char why[512];
};

/* ---- making ------------------------------------------------------------------------------------------------------------- */

static ckp_status
check_options(const ckp_search_options *o, ckp_error *err)
{
    if (o->size != sizeof *o)
        return ckpi_fail(err, CKP_EINVAL, "search options of size %zu; this library knows %zu", o->size, sizeof *o);
    if (o->method != CKP_SEARCH_GUIDED && o->method != CKP_SEARCH_NEIGHBOURHOOD)
        return ckpi_fail(err, CKP_EINVAL, "search: method %d is none", (int)o->method);
    if (!isfinite(o->loss_live) || !isfinite(o->epsilon) || o->epsilon < 0)
        return ckpi_fail(err, CKP_EINVAL, "search: loss %g, epsilon %g: both finite, epsilon not below 0", o->loss_live, o->epsilon);
    if (o->group < 1 || o->group > CKP_SEARCH_GROUP_MAX || o->radius < 1 || o->radius > RADIUS_MAX)
        return ckpi_fail(err, CKP_EINVAL, "search: a group of %u, from 1 to %d; a radius of %u, from 1 to %d", o->group, CKP_SEARCH_GROUP_MAX,
                         o->radius, RADIUS_MAX);
    if (o->method == CKP_SEARCH_NEIGHBOURHOOD && ckp_search_config_index(o->last) == CKPI_GRID)
        return ckpi_fail(err, CKP_EINVAL, "search: a neighbourhood needs a last configuration, a point of the grid");
    return CKP_OK;
}

/* The last choice as this search can name it: it may come from a model with embeddings, or from when there were scores. */
static int
place_last(const ckp_search_options *o)
{
    if (o->method != CKP_SEARCH_NEIGHBOURHOOD)
        return CKPI_NO_CONFIG;
    ckpi_at at = ckpi_grid_at((int)ckp_search_config_index(o->last));
    if (o->no_sensitivity)
        at.metric = 0;
    if (o->no_embeddings)
        at.axis[CKPI_EMBEDDING] = 0;
    return ckpi_grid_id(&at);
}

static void
think(ckp_search *s)
{
    bool wide = true;
    if (s->problem.method == CKP_SEARCH_GUIDED)
        s->next = ckpi_guided_next(&s->problem, &s->taken);
    else
        s->next = ckpi_neighbourhood_next(&s->problem, &s->taken, &wide);
    s->wide = wide;
    if (s->problem.method == CKP_SEARCH_NEIGHBOURHOOD && wide)
        s->stats.fell_back = true;
}

ckp_status
ckp_search_new(ckp_search **out, const ckp_search_options *opt, ckp_error *err)
{
    if (out == NULL || opt == NULL)
        return ckpi_fail(err, CKP_EINVAL, "search_new: NULL argument");
    *out = NULL;
    const ckp_status st = check_options(opt, err);
    if (st != CKP_OK)
        return st;
    ckp_search *s = ckpi_calloc(1, sizeof *s);
    if (s == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a search");
    ckpi_problem_init(&s->problem, opt);
    s->problem.method = opt->method;
    s->problem.live = opt->loss_live;
    s->problem.budget = opt->epsilon * fabs(opt->loss_live);
    s->problem.last = place_last(opt);
    s->problem.radius = (int)opt->radius;
    s->group = opt->group;
    think(s);
    *out = s;
    return CKP_OK;
}

void
ckp_search_free(ckp_search *s)
{
    free(s);
}

/* ---- asking ahead ------------------------------------------------------------------------------------------------------- */

/* The question after a thought and its parents, if the group does not have it yet. */
static int
question_after(ckp_search *s, int at)
{
    bool wide;
    s->supposed = s->taken;
    for (int t = at; t >= 0; t = s->thoughts[t].parent) {
        s->supposed.verdict[s->thoughts[t].id] = (uint8_t)s->thoughts[t].verdict;
        s->supposed.loss[s->thoughts[t].id] = NAN;
        s->supposed.bytes[s->thoughts[t].id] = 0;
    }
    return s->problem.method == CKP_SEARCH_GUIDED ? ckpi_guided_next(&s->problem, &s->supposed)
                                                  : ckpi_neighbourhood_next(&s->problem, &s->supposed, &wide);
}

static bool
in_group(const ckp_search *s, int id)
{
    for (size_t i = 0; i < s->n_asked; i++)
        if (s->asked[i] == id)
            return true;
    return false;
}

/* Breadth first through what the answers may be, the nearest questions first. An answer that is there is no supposition. */
static void
gather(ckp_search *s, size_t room)
{
    int n = 0;
    s->asked[0] = s->next;
    s->n_asked = 1;
    for (int at = -1; s->n_asked < room && at < n; at++) {
        const int id = at < 0 ? s->next : question_after(s, at);
        if (id == CKPI_NO_CONFIG)
            continue;
        const ckpi_verdict known = (ckpi_verdict)s->told.verdict[id];
        if (known == CKPI_UNKNOWN && !in_group(s, id))
            s->asked[s->n_asked++] = id;
        for (int verdict = CKPI_GOOD; verdict <= CKPI_BAD; verdict++)
            if (n < THOUGHTS && (known == CKPI_UNKNOWN || (int)known == verdict))
                s->thoughts[n++] = (thought){at, id, (ckpi_verdict)verdict};
    }
}

ckp_status
ckp_search_ask(ckp_search *s, ckp_search_config *config, size_t max, size_t *n, ckp_error *err)
{
    if (s == NULL || config == NULL || n == NULL || max == 0)
        return ckpi_fail(err, CKP_EINVAL, "search_ask: NULL argument, or no room");
    *n = 0;
    if (s->next == CKPI_NO_CONFIG || s->n_asked != 0)
        return ckpi_fail(err, CKP_ESTATE, s->n_asked != 0 ? "search: answers to the last questions are owed" : "search: it is done");
    gather(s, max < s->group ? max : s->group);
    for (size_t i = 0; i < s->n_asked; i++)
        (void)ckp_search_config_at((size_t)s->asked[i], &config[i]);
    *n = s->n_asked;
    return CKP_OK;
}

/* ---- being told --------------------------------------------------------------------------------------------------------- */

static void
note(ckp_search *s, int id, const ckp_search_result *r)
{
    const bool good = isfinite(r->loss) && r->loss - s->problem.live <= s->problem.budget;
    s->told.verdict[id] = good ? CKPI_GOOD : CKPI_BAD;
    s->told.loss[id] = r->loss;
    s->told.bytes[id] = r->bytes;
}

/* Takes what was told as far as the search has come to it. */
static void
advance(ckp_search *s)
{
    while (s->next != CKPI_NO_CONFIG && s->told.verdict[s->next] != CKPI_UNKNOWN) {
        s->taken.verdict[s->next] = s->told.verdict[s->next];
        s->taken.loss[s->next] = s->told.loss[s->next];
        s->taken.bytes[s->next] = s->told.bytes[s->next];
        s->stats.decided_by++;
        think(s);
    }
}

ckp_status
ckp_search_tell(ckp_search *s, const ckp_search_result *result, size_t n, ckp_error *err)
{
    if (s == NULL || result == NULL)
        return ckpi_fail(err, CKP_EINVAL, "search_tell: NULL argument");
    if (s->n_asked == 0)
        return ckpi_fail(err, CKP_ESTATE, "search: nothing was asked");
    if (n != s->n_asked)
        return ckpi_fail(err, CKP_EINVAL, "search: %zu answers to %zu questions", n, s->n_asked);
    for (size_t i = 0; i < n; i++)
        note(s, s->asked[i], &result[i]);
    s->stats.by_method[s->wide ? CKP_SEARCH_GUIDED : CKP_SEARCH_NEIGHBOURHOOD] += (unsigned)n;
    s->stats.evaluations += (unsigned)n;
    s->stats.rounds++;
    s->n_asked = 0;
    advance(s);
    return CKP_OK;
}

bool
ckp_search_done(const ckp_search *s)
{
    return s == NULL || s->next == CKPI_NO_CONFIG;
}

/* ---- what came out ------------------------------------------------------------------------------------------------------ */

static int
least_loss(const ckpi_answers *k)
{
    int best = CKPI_NO_CONFIG;
    for (int id = 0; id < CKPI_GRID; id++)
        if (k->verdict[id] != CKPI_UNKNOWN && isfinite(k->loss[id]) && (best == CKPI_NO_CONFIG || k->loss[id] < k->loss[best]))
            best = id;
    return best;
}

static int
choice(const ckp_search *s)
{
    int id = CKPI_NO_CONFIG;
    if (s->problem.method == CKP_SEARCH_NEIGHBOURHOOD)
        id = ckpi_neighbourhood_choice(&s->problem, &s->taken);
    if (id == CKPI_NO_CONFIG)
        id = ckpi_smallest_good(&s->problem, &s->taken);
    return id != CKPI_NO_CONFIG ? id : least_loss(&s->taken);
}

bool
ckp_search_best(const ckp_search *s, ckp_search_config *config, ckp_search_result *result)
{
    const int id = s == NULL ? CKPI_NO_CONFIG : choice(s);
    if (id == CKPI_NO_CONFIG)
        return false;
    if (config != NULL)
        (void)ckp_search_config_at((size_t)id, config);
    if (result != NULL)
        *result = (ckp_search_result){s->taken.loss[id], s->taken.bytes[id]};
    return s->taken.verdict[id] == CKPI_GOOD;
}

void
ckp_search_get_stats(const ckp_search *s, ckp_search_stats *st)
{
    if (s == NULL || st == NULL || st->size != sizeof *st)
        return;
    *st = s->stats;
    st->size = sizeof *st;
}

unsigned
ckp_search_evaluations(const ckp_search *s)
{
    return s == NULL ? 0 : s->stats.evaluations;
}

const char *
ckp_search_why(ckp_search *s)
{
    ckp_search_config c;
    if (s == NULL)
        return "";
    const int id = choice(s);
    const char *how = s->problem.method == CKP_SEARCH_GUIDED ? "guided search" : s->stats.fell_back ? "guided search after its neighbourhood"
                                                                                                  : "neighbourhood search";
    int n = snprintf(s->why, sizeof s->why, "%s, %u evaluations in %u rounds", how, s->stats.evaluations, s->stats.rounds);
    if (id != CKPI_NO_CONFIG && n > 0 && ckp_search_config_at((size_t)id, &c)) {
        const bool good = s->taken.verdict[id] == CKPI_GOOD;
        (void)snprintf(s->why + n, sizeof s->why - (size_t)n,
                       "%s: %s is %u bins, %u for embeddings, %.0f %% pruned by %s, %.2f %% protected: loss %g, at most %g wanted, %llu bytes",
                       s->next == CKPI_NO_CONFIG ? "" : " so far", good ? "the smallest that is good enough" : "none is good enough; the best",
                       c.bins, c.bins_embedding, 100 * c.prune, c.prune_by == 0 ? "magnitude" : "sensitivity", 100 * c.protect,
                       s->taken.loss[id], s->problem.live + s->problem.budget, (unsigned long long)s->taken.bytes[id]);
    }
    return s->why;
}
