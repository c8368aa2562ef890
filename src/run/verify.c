/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifying runs and files: structure by opening, then data a slice of chunks at a time, so that the time and the caller's wish to stop are
 * looked at in between. Damage is noted and the next chunk follows. In a run each file is read for its own checkpoint only: its bases have
 * their own turn.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ckpress/run_objects.h>
#include <ckpress/run_verify.h>
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fail.h"
#include "os/os.h"
#include "run/checkpoint.h"
#include "run/list.h"

#define SLICE 64             /* chunks between two looks at the clock */
#define TOLD_OF_A_FILE 16    /* findings; the others are counted */
#define TOLD_TEXTS 4096      /* remembered, so that none is told twice */

typedef struct verify_job {
    const ckp_verify_options *o;
    ckp_verified *done;
    ckpi_ctx *ctx;               /* made when data is read for the first time */
    double end;                  /* on the clock; 0: never */
    uint64_t share;              /* of 2^32 */
    atomic_uint_fast64_t chunks, bytes;
    atomic_bool skipped;         /* something, for want of time */
    uint64_t said;               /* bytes, to progress */
    uint64_t *told;              /* hashes of texts */
    size_t n_told;
    bool bad;                    /* the checkpoint at hand */
    ckp_status first;            /* finding */
    ckp_error first_err;
} verify_job;

/* False: the same words were told before, of a chunk or a base model that several checkpoints need. */
static bool
is_new(verify_job *j, const ckp_error *e)
{
    const uint64_t h = ckpi_hash64(e->text, strlen(e->text));

    for (size_t i = 0; i < j->n_told; i++)
        if (j->told[i] == h)
            return false;
    if (j->n_told < TOLD_TEXTS)
        j->told[j->n_told++] = h;
    return true;
}

static void
finding(verify_job *j, const char *what, ckp_status st, const ckp_error *e)
{
    j->bad = true;
    if (!is_new(j, e))
        return;
    if (j->first == CKP_OK) {
        j->first = st;
        j->first_err = *e;
    }
    j->done->findings++;
    if (j->o->fn != NULL)
        j->o->fn(j->o->user, what, e);
}

static bool
late(verify_job *j)
{
    if (j->end != 0.0 && ckpi_seconds() >= j->end)
        j->done->out_of_time = true;
    return j->done->out_of_time;
}

/* ---- one file ------------------------------------------------------------------------------------------------------ */

/* Chunks of a level, or units (decode) of level 0. */
typedef struct pass {
    verify_job *j;
    const ckp_checkpoint *ck;
    const ckpi_fmt_file *f;
    bool decode;
    uint64_t start;              /* of the sample, of 2^32 */
    size_t first;                /* of the slice */
    ckp_error *bad[SLICE];       /* owned */
} pass;

/*
 * A systematic sample: of n things evenly spread ones, n * share of them rounded up or down, and each with the same chance; where it begins
 * comes from seed and content id, so that it does not depend on what else is checked.
 */
static bool
in_sample(const pass *p, size_t i)
{
    const uint64_t share = p->j->share;
    return (share * (i + 1) + p->start) >> 32 != (share * i + p->start) >> 32;
}

static uint64_t
sample_start(uint64_t seed, const ckpi_fmt_file *f)
{
    struct { uint64_t seed; ckpi_id content; } key;

    memset(&key, 0, sizeof key);
    key.seed = seed;
    key.content = f->content;
    return ckpi_hash64(&key, sizeof key) >> 32;
}

static uint64_t
chunk_bytes(const pass *p, uint32_t chunk)
{
    return chunk != CKPI_NO_CHUNK ? p->f->chunk[chunk].frame_len : 0;
}

static ckp_status
check_chunk(const pass *p, size_t i, ckp_error *err)
{
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk k;

    const ckp_status st = ckpi_fmt_read_chunk(p->f, i, &buf, &k, err);
    ckpi_buf_free(&buf);
    if (st != CKP_OK && p->f->table != NULL && p->f->chunk[i].n_pieces != 0)
        ckpi_fail_tensor(err, p->f->table->rec[p->f->chunk[i].piece[0].tensor].name);
    if (st == CKP_OK) {
        atomic_fetch_add(&p->j->chunks, 1);
        atomic_fetch_add(&p->j->bytes, p->f->chunk[i].frame_len);
    }
    return st;
}

static ckp_status
check_unit(const pass *p, size_t i, ckpi_scratch *ws, ckp_error *err)
{
    const ckpi_unit *u = &p->ck->unit[i];
    const unsigned want = (u->w != CKPI_NO_CHUNK ? CKPI_WANT_W : 0) | (u->m != CKPI_NO_CHUNK ? CKPI_WANT_M : 0) | (u->v != CKPI_NO_CHUNK ? CKPI_WANT_V : 0);

    const ckp_status st = ckpi_decode_unit(p->ck->lin, u, want, NULL, NULL, ws, p->j->ctx->cpu, err);
    if (st == CKP_OK) {
        atomic_fetch_add(&p->j->chunks, (uint64_t)(u->w != CKPI_NO_CHUNK) + (u->m != CKPI_NO_CHUNK) + (u->v != CKPI_NO_CHUNK));
        atomic_fetch_add(&p->j->bytes, chunk_bytes(p, u->w) + chunk_bytes(p, u->m) + chunk_bytes(p, u->v));
    }
    return st;
}

/* Damage goes to p->bad; what says nothing about the file ends the pass. */
static ckp_status
check_one(void *user, size_t index, ckpi_scratch *ws, ckp_error *err)
{
    pass *p = user;
    ckp_error e;

    if (!in_sample(p, p->first + index))
        return CKP_OK;
    if (p->j->end != 0.0 && ckpi_seconds() >= p->j->end) {
        atomic_store(&p->j->skipped, true);
        return CKP_OK;
    }
    ckpi_error_clear(&e);
    const ckp_status st = p->decode ? check_unit(p, p->first + index, ws, &e) : check_chunk(p, p->first + index, &e);
    if (st != CKP_OK && ckpi_is_damage(st)) {
        p->bad[index] = ckpi_malloc(1, sizeof e);
        if (p->bad[index] == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory for a finding");
        *p->bad[index] = e;
        return CKP_OK;
    }
    if (st != CKP_OK && err != NULL)
        *err = e;
    return st;
}

static void
tell_slice(pass *p, size_t *told)
{
    for (size_t i = 0; i < SLICE; i++) {
        if (p->bad[i] != NULL && (*told)++ < TOLD_OF_A_FILE)
            finding(p->j, p->ck->name, p->bad[i]->code, p->bad[i]);
        free(p->bad[i]);
        p->bad[i] = NULL;
    }
}

static ckp_status
say_progress(verify_job *j, ckp_error *err)
{
    j->said = atomic_load(&j->bytes);
    if (j->o->progress != NULL && j->o->progress(j->o->progress_user, j->said, CKPI_MAX(j->done->stored_bytes, j->said)) != 0)
        return ckpi_fail(err, CKP_ECANCELLED, "cancelled");
    return CKP_OK;
}

static ckp_status
run_pass(pass *p, size_t n, ckp_error *err)
{
    ckp_status st = CKP_OK;
    size_t told = 0;

    p->start = sample_start(p->j->o->seed, p->f);
    for (p->first = 0; st == CKP_OK && p->first < n && !late(p->j); p->first += SLICE) {
        st = ckpi_ctx_run(p->j->ctx, CKPI_MIN(n - p->first, (size_t)SLICE), check_one, p, err);
        tell_slice(p, &told);
        p->j->done->out_of_time = atomic_load(&p->j->skipped);
        if (st == CKP_OK)
            st = say_progress(p->j, err);
    }
    if (told > TOLD_OF_A_FILE) {
        ckp_error e;
        ckpi_error_clear(&e);
        const ckp_status more = ckpi_fail(&e, CKP_ECORRUPT, "%zu more chunks of it are damaged", told - TOLD_OF_A_FILE);
        ckpi_fail_file(&e, ckpi_reader_name(p->f->r));
        finding(p->j, p->ck->name, more, &e);
    }
    return st;
}

/* Data of an open checkpoint, and of `bases` of the files behind it. Fails only for reasons that are none of the files'. */
static ckp_status
verify_open(verify_job *j, const ckp_checkpoint *ck, size_t bases, ckp_error *err)
{
    pass p = {.j = j, .ck = ck};
    ckp_status st = CKP_OK;

    if (j->o->level == CKP_VERIFY_STRUCTURE)
        return CKP_OK;
    if (j->ctx == NULL)
        st = ckpi_ctx_new(&j->ctx, j->o->threads, false, err);
    /* what is decoded is read for it: only of bases may there be chunks that nothing needs */
    for (size_t l = j->o->level == CKP_VERIFY_DECODE ? 1 : 0; st == CKP_OK && l <= bases && l < ck->lin->n; l++) {
        p.f = ck->lin->level[l].f;
        st = run_pass(&p, p.f->n_chunks, err);
    }
    if (st == CKP_OK && j->o->level == CKP_VERIFY_DECODE) {
        p.f = ck->lin->level[0].f;
        p.decode = true;
        st = run_pass(&p, ck->n_units, err);
    }
    return st;
}

/* ---- a run --------------------------------------------------------------------------------------------------------- */

typedef struct run_verify {
    verify_job *j;
    const ckpi_place *place;
    const char *base_model;
    ckpi_store *s;
    ckpi_entries all;
    bool *bad, *looked;          /* by entry */
} run_verify;

/* Attempts alone are a first save, or all that is left of a training: no run of which one may hear that it is whole. */
static void
nothing_valid(verify_job *j, const char *dir, size_t incomplete)
{
    ckp_error e;
    ckpi_error_clear(&e);
    const ckp_status st = ckpi_fail(&e, CKP_ENOTFOUND, "0 checkpoints, %zu incomplete (no manifest)", incomplete);
    ckpi_fail_file(&e, dir);
    finding(j, dir, st, &e);
}

/* A save cut short is no damage: it never was a checkpoint. */
static bool
is_checkpoint(const ckpi_entry *e)
{
    return e->health != CKPI_HEALTH_INCOMPLETE && e->health != CKPI_HEALTH_DELETING;
}

/* A writer deletes a checkpoint by its manifest first. */
static bool
is_gone(ckpi_store *s, const char *dir)
{
    char path[CKPI_DIR_NAME_MAX + 32];
    ckpi_stat sb;
    ckpi_fs *fs = ckpi_store_fs(s);

    (void)snprintf(path, sizeof path, "%s/manifest.json", dir);
    return fs->ops->stat(fs, path, &sb, NULL) == CKP_ENOTFOUND;
}

static void
tell_listed(run_verify *v, const ckpi_entry *e)
{
    ckp_error why;
    ckpi_error_clear(&why);
    const ckp_status st = ckpi_fail(&why, CKP_ECORRUPT, "%s cannot be restored: %s: %s", e->dir, ckpi_health_name(e->health), e->reason != NULL ? e->reason : "");
    finding(v->j, e->dir, st, &why);
}

static ckp_status
verify_entry(run_verify *v, size_t i, ckp_error *err)
{
    const ckpi_entry *entry = &v->all.v[i];
    ckp_checkpoint *ck = NULL;
    ckp_error e;

    v->j->bad = false;
    if (entry->health != CKPI_HEALTH_OK) {
        tell_listed(v, entry);
        v->bad[i] = true;
        v->looked[i] = true;
        return CKP_OK;
    }
    ckpi_error_clear(&e);
    ckp_status st = ckpi_checkpoint_open_listed(&ck, v->s, v->place, &v->all, i, v->base_model, &e);
    if (st != CKP_OK && is_gone(v->s, entry->dir))
        return CKP_OK;
    if (st == CKP_OK) {
        st = verify_open(v->j, ck, 0, err);
    } else if (ckpi_is_damage(st)) {
        finding(v->j, entry->dir, st, &e);
        st = CKP_OK;
    } else if (err != NULL) {
        *err = e;
    }
    v->bad[i] = v->j->bad;
    v->looked[i] = !v->j->done->out_of_time;
    ckp_checkpoint_close(ck);
    return st;
}

static void
count_whole(run_verify *v)
{
    ckp_verified *d = v->j->done;

    for (size_t i = 0; i < v->all.n; i++) {
        const size_t base = v->all.v[i].base;
        v->bad[i] = v->bad[i] || (base != SIZE_MAX && v->bad[base]);   /* bases come first in the list */
        d->looked_at += v->looked[i];
        d->whole += v->looked[i] && !v->bad[i];
    }
}

static ckp_status
verify_listed(run_verify *v, ckp_error *err)
{
    size_t incomplete = 0;
    ckp_verified *d = v->j->done;
    ckp_status st = CKP_OK;

    for (size_t i = 0; i < v->all.n; i++) {
        incomplete += v->all.v[i].health == CKPI_HEALTH_INCOMPLETE;
        d->checkpoints += is_checkpoint(&v->all.v[i]);
        d->stored_bytes += v->all.v[i].bytes;
    }
    if (d->checkpoints == 0 && incomplete != 0)
        nothing_valid(v->j, v->place->name, incomplete);
    for (size_t i = v->all.n; st == CKP_OK && i-- > 0 && !late(v->j);) {
        if (is_checkpoint(&v->all.v[i]))
            st = verify_entry(v, i, err);
        if (st == CKP_OK)
            st = say_progress(v->j, err);
    }
    count_whole(v);
    return st;
}

static ckp_status
verify_run(verify_job *j, const ckpi_place *place, ckp_error *err)
{
    run_verify v = {.j = j, .place = place, .base_model = j->o->n_bases != 0 ? j->o->bases[0] : NULL};

    ckp_status st = ckpi_list_reader(place, &v.s, err);
    if (st == CKP_OK)
        st = ckpi_store_list(v.s, &v.all, err);
    if (st == CKP_OK) {
        v.bad = ckpi_calloc(v.all.n + 1, sizeof *v.bad);
        v.looked = ckpi_calloc(v.all.n + 1, sizeof *v.looked);
        st = v.bad != NULL && v.looked != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to verify a run");
    }
    if (st == CKP_OK)
        st = verify_listed(&v, err);
    free(v.bad);
    free(v.looked);
    ckpi_entries_free(&v.all);
    ckpi_store_free(v.s);
    return st;
}

/* ---- one checkpoint ------------------------------------------------------------------------------------------------- */

static ckp_status
verify_chain(verify_job *j, const ckp_checkpoint *ck, ckp_error *err)
{
    for (size_t l = 0; l < ck->lin->n; l++)
        j->done->stored_bytes += ck->lin->level[l].f->length;
    const ckp_status st = verify_open(j, ck, ck->lin->n, err);
    j->done->looked_at = j->done->out_of_time ? 0 : 1;
    j->done->whole = j->done->looked_at != 0 && j->first == CKP_OK ? 1 : 0;
    return st;
}

static ckp_status
verify_file(verify_job *j, const char *path, ckp_error *err)
{
    ckp_checkpoint *ck = NULL;
    ckp_error e;

    ckpi_error_clear(&e);
    j->done->checkpoints = 1;
    ckp_status st = ckp_checkpoint_open_file(&ck, path, j->o->bases, j->o->n_bases, &e);
    if (st == CKP_OK) {
        st = verify_chain(j, ck, err);
    } else {
        finding(j, path, st, &e);
        j->done->looked_at = 1;
        st = CKP_OK;
    }
    ckp_checkpoint_close(ck);
    return st;
}

static bool
is_directory(const char *path)
{
    ckpi_fs *fs = NULL;
    const ckp_status st = ckpi_fs_posix(&fs, path, false, NULL);
    ckpi_fs_free(fs);
    return st == CKP_OK;
}

/* ---- entries -------------------------------------------------------------------------------------------------------- */

static ckp_status
start(verify_job *j, const ckp_verify_options *o, ckp_verified *done, ckp_error *err)
{
    *j = (verify_job){.o = o, .done = done};
    if (o == NULL || o->size != sizeof *o || done == NULL || done->size != sizeof *done || (unsigned)o->level > CKP_VERIFY_DECODE ||
        (o->n_bases != 0 && o->bases == NULL))
        return ckpi_fail(err, CKP_EINVAL, "verify: bad argument");
    if (!(o->share > 0.0 && o->share <= 1.0) || !(o->max_seconds >= 0.0))
        return ckpi_fail(err, CKP_EINVAL, "verify: a share is above 0 and at most 1, a time is not negative");
    *done = (ckp_verified){.size = sizeof *done};
    j->share = CKPI_MAX((uint64_t)(o->share * 4294967296.0), UINT64_C(1));
    j->end = o->max_seconds != 0.0 ? ckpi_seconds() + o->max_seconds : 0.0;
    j->told = ckpi_malloc(TOLD_TEXTS, sizeof *j->told);
    return j->told != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to verify");
}

static ckp_status
finish(verify_job *j, ckp_status st, ckp_error *err)
{
    ckpi_ctx_free(j->ctx);
    free(j->told);
    j->done->chunks = atomic_load(&j->chunks);
    j->done->bytes = atomic_load(&j->bytes);
    if (st == CKP_OK && j->first != CKP_OK && err != NULL)
        *err = j->first_err;
    return st != CKP_OK ? st : j->first;
}

ckp_status
ckp_verify_with(const char *path, const ckp_verify_options *opt, ckp_verified *done, ckp_error *err)
{
    verify_job j;

    if (path == NULL)
        return ckpi_fail(err, CKP_EINVAL, "verify: bad argument");
    ckp_status st = start(&j, opt, done, err);
    if (st != CKP_OK)
        return st;
    st = is_directory(path) ? verify_run(&j, &(ckpi_place){path, NULL}, err) : verify_file(&j, path, err);
    return finish(&j, st, err);
}

ckp_status
ckp_run_verify_in(const ckp_objects *in, const char *name, const ckp_verify_options *opt, ckp_verified *done, ckp_error *err)
{
    verify_job j;

    if (name == NULL)
        return ckpi_fail(err, CKP_EINVAL, "verify: bad argument");
    ckp_status st = start(&j, opt, done, err);
    if (st != CKP_OK)
        return st;
    st = verify_run(&j, &(ckpi_place){name, in}, err);
    return finish(&j, st, err);
}

ckp_status
ckp_checkpoint_verify_with(ckp_checkpoint *ck, const ckp_verify_options *opt, ckp_verified *done, ckp_error *err)
{
    verify_job j;

    ckp_status st = ckpi_checkpoint_check(ck, err);
    if (st == CKP_OK)
        st = start(&j, opt, done, err);
    if (st != CKP_OK)
        return st;
    done->checkpoints = 1;
    st = verify_chain(&j, ck, err);
    return finish(&j, st, err);
}

static ckp_verify_options
everything(ckp_verify_level level, unsigned threads, void (*fn)(void *user, const char *what, const ckp_error *e), void *user)
{
    ckp_verify_options o = CKP_VERIFY_OPTIONS_INIT;
    o.level = level;
    o.threads = threads;
    o.fn = fn;
    o.user = user;
    return o;
}

ckp_status
ckp_verify(const char *path, const char *const *bases, size_t n_bases, ckp_verify_level level, unsigned threads,
           void (*fn)(void *user, const char *what, const ckp_error *e), void *user, ckp_error *err)
{
    ckp_verify_options o = everything(level, threads, fn, user);
    ckp_verified done = {.size = sizeof done};

    o.bases = bases;
    o.n_bases = n_bases;
    return ckp_verify_with(path, &o, &done, err);
}

ckp_status
ckp_checkpoint_verify(ckp_checkpoint *ck, ckp_verify_level level, unsigned threads, void (*fn)(void *user, const char *what, const ckp_error *e),
                      void *user, ckp_error *err)
{
    const ckp_verify_options o = everything(level, threads, fn, user);
    ckp_verified done = {.size = sizeof done};

    return ckp_checkpoint_verify_with(ck, &o, &done, err);
}
