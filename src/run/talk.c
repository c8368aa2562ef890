/* SPDX-License-Identifier: Apache-2.0 */
#include "run/talk.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/limits.h"

#define NOTE_BYTES 1536u
#define NOTE_MAGIC 0x31474b43u   /* "CKG1" */
/* Between rounds, at most: a failure is told within it. */
#define QUIET_MS 1000
#define REST_MS 250

/* ten numbers, three ids, four texts */
_Static_assert(NOTE_BYTES >= 10 * 8 + 3 * 16 + 2 * CKPI_DIR_NAME_MAX + 256 + 768, "a note must fit");

struct ckpi_talk {
    ckp_group g;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool thread_made, sync_made, stop;
    bool active;                 /* a conversation: exchanges are the thread's */
    bool changed;                /* mine is news */
    uint64_t rounds;             /* of this conversation */
    ckpi_note mine, *all, *fresh;
    uint8_t *out, *in;
    ckp_status failed;           /* of this conversation */
    ckp_error failure;
    bool lost;                   /* for good */
    ckp_error how;               /* it was lost */
};

unsigned
ckpi_talk_rank(const ckpi_talk *t)
{
    return t->g.rank;
}

unsigned
ckpi_talk_world(const ckpi_talk *t)
{
    return t->g.world;
}

const ckpi_note *
ckpi_talk_notes(const ckpi_talk *t)
{
    return t->all;
}

void
ckpi_talk_note(ckpi_talk *t, unsigned rank, ckpi_note *out)
{
    (void)pthread_mutex_lock(&t->mutex);
    *out = t->all[rank];
    (void)pthread_mutex_unlock(&t->mutex);
}

/* ---- notes as bytes ------------------------------------------------------------------------------------------------- */

static uint8_t *
put64(uint8_t *p, uint64_t v)
{
    ckpi_st64(p, v);
    return p + 8;
}

static uint8_t *
put_id(uint8_t *p, ckpi_id id)
{
    return put64(put64(p, id.lo), id.hi);
}

static uint8_t *
put_text(uint8_t *p, const char *text, size_t room)
{
    memcpy(p, text, room);
    p[room - 1] = 0;
    return p + room;
}

static const uint8_t *
get64(const uint8_t *p, uint64_t *v)
{
    *v = ckpi_ld64(p);
    return p + 8;
}

static const uint8_t *
get_id(const uint8_t *p, ckpi_id *id)
{
    return get64(get64(p, &id->lo), &id->hi);
}

static const uint8_t *
get_text(const uint8_t *p, char *text, size_t room)
{
    memcpy(text, p, room);
    text[room - 1] = 0;
    return p + room;
}

static void
encode(uint8_t *p, const ckpi_note *n, uint32_t rank)
{
    memset(p, 0, NOTE_BYTES);
    p = put64(p, NOTE_MAGIC | (uint64_t)rank << 32);
    p = put64(p, n->kind | (uint64_t)n->phase << 32);
    p = put64(p, n->step);
    p = put64(p, n->sequence);
    p = put64(p, n->alike);
    p = put64(p, n->chain | (uint64_t)n->delta << 32);
    p = put64(p, n->length);
    p = put64(p, n->raw_bytes);
    p = put64(p, n->params);
    p = put_id(put_id(put_id(p, n->hash), n->content), n->base);
    p = put64(p, (uint32_t)(int32_t)n->code | (uint64_t)(uint32_t)n->sys_errno << 32);
    p = put_text(p, n->dir, sizeof n->dir);
    p = put_text(p, n->base_dir, sizeof n->base_dir);
    p = put_text(p, n->file, sizeof n->file);
    (void)put_text(p, n->text, sizeof n->text);
}

/* False: no note of that rank of this version. */
static bool
decode(const uint8_t *p, ckpi_note *n, uint32_t rank)
{
    uint64_t magic, kind, chain, code;
    p = get64(p, &magic);
    p = get64(p, &kind);
    p = get64(p, &n->step);
    p = get64(p, &n->sequence);
    p = get64(p, &n->alike);
    p = get64(p, &chain);
    p = get64(p, &n->length);
    p = get64(p, &n->raw_bytes);
    p = get64(p, &n->params);
    p = get_id(get_id(get_id(p, &n->hash), &n->content), &n->base);
    p = get64(p, &code);
    p = get_text(p, n->dir, sizeof n->dir);
    p = get_text(p, n->base_dir, sizeof n->base_dir);
    p = get_text(p, n->file, sizeof n->file);
    (void)get_text(p, n->text, sizeof n->text);
    n->kind = (uint32_t)kind;
    n->phase = (uint32_t)(kind >> 32);
    n->chain = (uint32_t)chain;
    n->delta = chain >> 32 != 0;
    n->code = (ckp_status)(int32_t)(uint32_t)code;
    n->sys_errno = (int)(int32_t)(uint32_t)(code >> 32);
    return magic == (NOTE_MAGIC | (uint64_t)rank << 32);
}

void
ckpi_note_fail(ckpi_note *n, ckp_status st, const ckp_error *e)
{
    n->phase = CKPI_SAID_FAILED;
    n->code = st;
    n->sys_errno = e != NULL ? e->sys_errno : 0;
    (void)snprintf(n->file, sizeof n->file, "%.255s", e != NULL ? e->file : "");
    (void)snprintf(n->text, sizeof n->text, "%.700s", e != NULL ? e->text : ckp_status_name(st));
}

ckp_status
ckpi_note_error(const ckpi_note *n, unsigned rank, ckp_error *err)
{
    (void)ckpi_fail(err, n->code, "rank %u: %.740s", rank, n->text);
    if (err != NULL) {
        err->sys_errno = n->sys_errno;
        (void)snprintf(err->file, sizeof err->file, "%s", n->file);
    }
    return n->code;
}

/* ---- one round ------------------------------------------------------------------------------------------------------ */

static const char *
doing(uint32_t kind)
{
    return kind == CKPI_SAID_OPEN ? "opens the run" : kind == CKPI_SAID_SAVE ? "saves" : kind == CKPI_SAID_RESTORE ? "restores" : "does something unknown";
}

static ckp_status
lose(ckpi_talk *t, const ckp_error *e, ckp_error *err)
{
    (void)ckpi_fail(&t->how, CKP_EIO, "the ranks of the group have lost each other: %.600s", e->text);
    t->lost = true;
    if (err != NULL)
        *err = t->how;
    return CKP_EIO;
}

/* What must be the same on all ranks that have not failed: those need not know it. Differing kinds end all talk of this round. */
static ckp_status
compare(const ckpi_note *all, unsigned world, bool *differ, ckp_error *err)
{
    for (unsigned r = 1; r < world; r++) {
        if (all[r].kind == all[0].kind)
            continue;
        *differ = true;
        return ckpi_fail(err, CKP_EINVAL, "rank %u %s while rank 0 %s: all ranks make the same calls", r, doing(all[r].kind), doing(all[0].kind));
    }
    for (unsigned r = 1; r < world && all[0].phase != CKPI_SAID_FAILED; r++) {
        if (all[r].phase == CKPI_SAID_FAILED)
            continue;
        if (all[r].step != all[0].step)
            return ckpi_fail(err, CKP_EINVAL, "rank %u %s at step %llu, rank 0 at step %llu", r, doing(all[r].kind),
                             (unsigned long long)all[r].step, (unsigned long long)all[0].step);
        if (all[r].alike != all[0].alike)
            return ckpi_fail(err, CKP_EINVAL, "rank %u has other options, or other tensors to divide, than rank 0", r);
    }
    return CKP_OK;
}

/* Without the mutex: nobody else touches out, in and fresh. */
static ckp_status
round_trip(ckpi_talk *t, const ckpi_note *mine, double seconds, ckp_error *err)
{
    encode(t->out, mine, t->g.rank);
    ckpi_error_clear(err);
    ckp_status st = t->g.exchange(t->g.ctx, t->out, NOTE_BYTES, t->in, seconds, err);
    for (unsigned r = 0; r < t->g.world && st == CKP_OK; r++)
        if (!decode(t->in + (size_t)r * NOTE_BYTES, &t->fresh[r], r))
            st = ckpi_fail(err, CKP_EIO, "rank %u speaks another version, or the exchange does not sort by rank", r);
    if (st != CKP_OK && err->text[0] == '\0')
        (void)ckpi_fail(err, CKP_EIO, "the exchange fails without a text (%s)", ckp_status_name(st));
    return st;
}

ckp_status
ckpi_talk_ask(ckpi_talk *t, const ckpi_note *mine, ckp_error *err)
{
    ckp_error e;
    bool differ = false;
    if (t->lost) {
        if (err != NULL)
            *err = t->how;
        return CKP_EIO;
    }
    if (round_trip(t, mine, t->g.join_seconds, &e) != CKP_OK)
        return lose(t, &e, err);
    memcpy(t->all, t->fresh, t->g.world * sizeof *t->all);
    return compare(t->all, t->g.world, &differ, err);
}

ckp_status
ckpi_talk_verdict(const ckpi_talk *t, ckp_error *err)
{
    for (unsigned r = 0; r < t->g.world; r++)
        if (t->all[r].phase == CKPI_SAID_FAILED)
            return ckpi_note_error(&t->all[r], r, err);
    return CKP_OK;
}

/* ---- a conversation ------------------------------------------------------------------------------------------------- */

/* After a round. Returns whether anything has changed since the one before. */
static bool
take_round(ckpi_talk *t)
{
    bool news = t->rounds++ == 0, differ = false;
    for (unsigned r = 0; r < t->g.world; r++)
        news = news || t->all[r].phase != t->fresh[r].phase;
    memcpy(t->all, t->fresh, t->g.world * sizeof *t->all);
    if (t->failed == CKP_OK)
        t->failed = compare(t->all, t->g.world, &differ, &t->failure);
    if (t->failed == CKP_OK)
        t->failed = ckpi_talk_verdict(t, &t->failure);
    if (t->all[0].phase == CKPI_SAID_END && t->failed == CKP_OK && t->all[0].code != CKP_OK)
        t->failed = ckpi_note_error(&t->all[0], 0, &t->failure);
    t->active = t->all[0].phase != CKPI_SAID_END && !differ;
    return news;
}

static void
one_round(ckpi_talk *t, long *quiet_ms)
{
    const ckpi_note mine = t->mine;
    const double seconds = t->rounds == 0 ? t->g.join_seconds : t->g.seconds;
    ckp_error e;
    t->changed = false;
    (void)pthread_mutex_unlock(&t->mutex);
    const ckp_status st = round_trip(t, &mine, seconds, &e);
    (void)pthread_mutex_lock(&t->mutex);
    if (st != CKP_OK) {
        const ckp_status lost = lose(t, &e, t->failed == CKP_OK ? &t->failure : NULL);
        t->failed = t->failed == CKP_OK ? lost : t->failed;
        t->active = false;
    } else {
        *quiet_ms = take_round(t) ? 1 : CKPI_MIN(2 * *quiet_ms, QUIET_MS);
    }
    (void)pthread_cond_broadcast(&t->cond);
}

static void *
talk(void *arg)
{
    ckpi_talk *t = arg;
    long quiet_ms = 1;
    (void)pthread_mutex_lock(&t->mutex);
    while (!t->stop) {
        if (!t->active) {
            (void)pthread_cond_wait(&t->cond, &t->mutex);
            quiet_ms = 1;
            continue;
        }
        one_round(t, &quiet_ms);
        if (t->active && !t->changed)
            ckpi_cond_wait_ms(&t->cond, &t->mutex, (uint64_t)CKPI_MIN(quiet_ms, (long)(250.0 * t->g.seconds) + 1));
    }
    (void)pthread_mutex_unlock(&t->mutex);
    return NULL;
}

void
ckpi_talk_begin(ckpi_talk *t, const ckpi_note *mine)
{
    (void)pthread_mutex_lock(&t->mutex);
    t->mine = *mine;
    t->rounds = 0;
    t->failed = t->lost ? CKP_EIO : CKP_OK;
    if (t->lost)
        t->failure = t->how;
    memset(t->all, 0, t->g.world * sizeof *t->all);
    t->active = !t->lost;
    (void)pthread_cond_broadcast(&t->cond);
    (void)pthread_mutex_unlock(&t->mutex);
}

/* Under the mutex. */
static void
say(ckpi_talk *t, const ckpi_note *mine)
{
    t->mine = *mine;
    t->changed = true;
    (void)pthread_cond_broadcast(&t->cond);
}

void
ckpi_talk_say(ckpi_talk *t, const ckpi_note *mine)
{
    (void)pthread_mutex_lock(&t->mutex);
    say(t, mine);
    (void)pthread_mutex_unlock(&t->mutex);
}

bool
ckpi_talk_say_yet(ckpi_talk *t, const ckpi_note *mine)
{
    (void)pthread_mutex_lock(&t->mutex);
    const bool yet = t->active && t->failed == CKP_OK;
    if (yet)
        say(t, mine);
    (void)pthread_mutex_unlock(&t->mutex);
    return yet;
}

bool
ckpi_talk_heard(ckpi_talk *t, ckpi_said_phase phase, bool all)
{
    bool heard = true;
    (void)pthread_mutex_lock(&t->mutex);
    for (unsigned r = 0; r < (all ? t->g.world : 1); r++)
        heard = heard && t->all[r].phase >= (uint32_t)phase;
    heard = heard && t->rounds != 0 && t->failed == CKP_OK;
    (void)pthread_mutex_unlock(&t->mutex);
    return heard;
}

bool
ckpi_talk_said(ckpi_talk *t, ckpi_said_phase phase)
{
    (void)pthread_mutex_lock(&t->mutex);
    const bool said = t->mine.phase >= (uint32_t)phase;
    (void)pthread_mutex_unlock(&t->mutex);
    return said;
}

bool
ckpi_talk_cleared(ckpi_talk *t)
{
    bool cleared = true;
    (void)pthread_mutex_lock(&t->mutex);
    for (unsigned r = 0; r < t->g.world; r++)
        cleared = cleared && (r == t->g.rank || t->all[r].phase == CKPI_SAID_FAILED || t->all[r].phase == CKPI_SAID_CLEARED);
    (void)pthread_mutex_unlock(&t->mutex);
    return cleared;
}

bool
ckpi_talk_failed(ckpi_talk *t)
{
    (void)pthread_mutex_lock(&t->mutex);
    const bool failed = t->failed != CKP_OK;
    (void)pthread_mutex_unlock(&t->mutex);
    return failed;
}

ckp_status
ckpi_talk_failure(ckpi_talk *t, bool *lost, ckp_error *err)
{
    (void)pthread_mutex_lock(&t->mutex);
    const ckp_status st = t->failed;
    *lost = t->lost;
    if (st != CKP_OK && err != NULL)
        *err = t->failure;
    (void)pthread_mutex_unlock(&t->mutex);
    return st;
}

bool
ckpi_talk_over(ckpi_talk *t)
{
    (void)pthread_mutex_lock(&t->mutex);
    const bool over = !t->active;
    (void)pthread_mutex_unlock(&t->mutex);
    return over;
}

void
ckpi_talk_rest(ckpi_talk *t)
{
    (void)pthread_mutex_lock(&t->mutex);
    if (t->active)
        ckpi_cond_wait_ms(&t->cond, &t->mutex, REST_MS);
    (void)pthread_mutex_unlock(&t->mutex);
}

/* ---- its life ------------------------------------------------------------------------------------------------------- */

ckp_status
ckpi_group_check(const ckp_group *g, ckp_error *err)
{
    if (g->size != sizeof *g)
        return ckpi_fail(err, CKP_EINVAL, "a group of size %zu; this library knows %zu", g->size, sizeof *g);
    if (g->world == 0 || g->world > CKPI_MAX_SHARDS || g->rank >= g->world)
        return ckpi_fail(err, CKP_EINVAL, "rank %u of a group of %u", g->rank, g->world);
    if (g->exchange == NULL)
        return ckpi_fail(err, CKP_EINVAL, "a group without an exchange");
    if (!(g->seconds >= 0.1 && g->seconds <= 86400.0) || !(g->join_seconds >= 0.1 && g->join_seconds <= 86400.0))
        return ckpi_fail(err, CKP_EINVAL, "a group's seconds %g, join_seconds %g are not between 0.1 and 86400", g->seconds, g->join_seconds);
    return CKP_OK;
}

static ckp_status
start(ckpi_talk *t, ckp_error *err)
{
    if (pthread_mutex_init(&t->mutex, NULL) != 0)
        return ckpi_fail(err, CKP_ENOMEM, "no mutex");
    if (ckpi_cond_init(&t->cond) != 0) {
        (void)pthread_mutex_destroy(&t->mutex);
        return ckpi_fail(err, CKP_ENOMEM, "no condition variable");
    }
    t->sync_made = true;
    const int e = ckpi_thread_start(&t->thread, talk, t);
    if (e != 0)
        return ckpi_fail_errno(err, e, "cannot start the thread that talks to the other ranks");
    t->thread_made = true;
    return CKP_OK;
}

ckp_status
ckpi_talk_new(ckpi_talk **out, const ckp_group *g, ckp_error *err)
{
    *out = NULL;
    ckpi_talk *t = ckpi_calloc(1, sizeof *t);
    if (t != NULL) {
        t->g = *g;
        t->all = ckpi_calloc(g->world, sizeof *t->all);
        t->fresh = ckpi_calloc(g->world, sizeof *t->fresh);
        t->out = ckpi_calloc(1, NOTE_BYTES);
        t->in = ckpi_calloc(g->world, NOTE_BYTES);
    }
    ckp_status st = t != NULL && t->all != NULL && t->fresh != NULL && t->out != NULL && t->in != NULL
                  ? start(t, err) : ckpi_fail(err, CKP_ENOMEM, "no memory to talk to %u ranks", g->world);
    if (st != CKP_OK)
        ckpi_talk_free(t);
    else
        *out = t;
    return st;
}

void
ckpi_talk_free(ckpi_talk *t)
{
    if (t == NULL)
        return;
    if (t->thread_made) {
        (void)pthread_mutex_lock(&t->mutex);
        t->stop = true;
        (void)pthread_cond_broadcast(&t->cond);
        (void)pthread_mutex_unlock(&t->mutex);
        (void)pthread_join(t->thread, NULL);
    }
    if (t->sync_made) {
        (void)pthread_cond_destroy(&t->cond);
        (void)pthread_mutex_destroy(&t->mutex);
    }
    free(t->all);
    free(t->fresh);
    free(t->out);
    free(t->in);
    free(t);
}
