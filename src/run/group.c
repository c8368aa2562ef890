/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a run together, and saving together. */
#include "run/group.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "format/join.h"

/* Options that decide what a checkpoint is. */
static uint64_t
options_hash(const ckp_run *run)
{
    const uint64_t v[] = {(uint64_t)run->opt.coding.profile, run->opt.key_every, ckpi_talk_world(run->talk)};
    return ckpi_hash64(v, sizeof v);
}

static ckpi_note
open_note(const ckp_run *run, ckp_status st, const ckp_error *e)
{
    ckpi_note n = {.kind = CKPI_SAID_OPEN, .phase = CKPI_SAID_JOINED, .alike = options_hash(run)};
    if (run->store != NULL)
        n.hash = ckpi_store_run_id(run->store);
    if (st != CKP_OK)
        ckpi_note_fail(&n, st, e);
    return n;
}

/* One round of opening; the first failure of any rank. */
static ckp_status
agree(ckp_run *run, ckp_status st, ckp_error *err)
{
    ckp_error e;
    ckpi_error_clear(&e);
    if (err != NULL)
        e = *err;
    const ckpi_note n = open_note(run, st, &e);
    const ckp_status asked = ckpi_talk_ask(run->talk, &n, err);
    return asked == CKP_OK ? ckpi_talk_verdict(run->talk, err) : asked;
}

static ckp_status
open_store(ckp_run *run, ckpi_store_mode mode, ckp_error *err)
{
    ckpi_fs *fs = NULL;
    const ckpi_store_options so = {.lock_expiry_s = run->opt.lock_seconds};
    ckp_status st = ckpi_place_fs(&fs, &(ckpi_place){run->dir, run->opt.objects}, mode == CKPI_STORE_WRITE, err);
    if (st == CKP_OK)
        st = ckpi_store_open(&run->store, fs, mode, &so, err);
    if (st != CKP_OK)
        ckpi_fail_file(err, run->dir);
    return st;
}

ckp_status
ckpi_group_lead(ckp_run *run, ckp_status st, ckp_error *err)
{
    if (st == CKP_OK && ckpi_talk_rank(run->talk) == 0)
        st = open_store(run, CKPI_STORE_WRITE, err);
    return agree(run, st, err);
}

ckp_status
ckpi_group_follow(ckp_run *run, ckp_error *err)
{
    const ckpi_id id = ckpi_talk_notes(run->talk)[0].hash;
    if (ckpi_talk_rank(run->talk) == 0)
        return CKP_OK;
    const ckp_status st = open_store(run, CKPI_STORE_MEMBER, err);
    if (st == CKP_OK && !ckpi_id_eq(id, ckpi_store_run_id(run->store)))
        return ckpi_fail(err, CKP_EMISMATCH, "%.200s is another run than the one that rank 0 has opened", run->dir);
    return st;
}

ckp_status
ckpi_group_opened(ckp_run *run, ckp_status st, ckp_error *err)
{
    return agree(run, st, err);
}

/* ---- saving: the caller's thread ------------------------------------------------------------------------------------ */

/* This rank has nothing to save, and the others must hear why. */
static void
refuse(ckp_run *run, uint64_t step, ckp_status st, const ckp_error *e)
{
    ckpi_save_job *job = &run->job;
    ckpi_session_job_clear(job);
    job->step = step;
    job->refused = st;
    job->told = true;
    if (e != NULL)
        job->refusal = *e;
    else
        (void)ckpi_fail(&job->refusal, st, "%s", ckp_status_name(st));
}

/* Every call is one conversation, whatever has become of the one before: else ranks would not talk of the same save any more. */
ckp_status
ckpi_group_save(ckp_run *run, uint64_t step, ckp_state *state, const ckp_save_options *opt, bool *taken, ckp_error *err)
{
    const double started = ckpi_seconds();
    ckpi_pass pass;
    ckp_error before, e;

    ckpi_error_clear(&before);
    ckpi_error_clear(&e);
    const ckp_status earlier = ckp_run_wait(run, &before);
    ckp_status st = ckpi_session_take(run, step, state, opt, &pass, &e);
    if (st != CKP_OK)
        refuse(run, step, st, &e);
    run->job.alike = opt->alike;
    *taken = st == CKP_OK;
    if (st == CKP_OK && run->job.inline_pass) {
        st = ckpi_session_write(run, &e);
    } else {
        run->last_stall = ckpi_seconds() - started;
        ckpi_session_hand_over(run);
        if (opt->wait) {
            const ckp_status written = ckp_run_wait(run, st == CKP_OK ? &e : NULL);
            st = st == CKP_OK ? written : st;
        }
    }
    if (st == CKP_OK && earlier != CKP_OK)
        e = before;
    st = st == CKP_OK ? earlier : st;
    if (st != CKP_OK && err != NULL)
        *err = e;
    return st;
}

ckp_status
ckp_run_refuse(ckp_run *run, uint64_t step, ckp_status why, const char *text, bool wait, ckp_error *err)
{
    ckp_error e;
    ckp_status st = ckpi_session_check_free(run, err);
    if (st != CKP_OK || run->talk == NULL)
        return st;
    if (why >= CKP_OK)
        return ckpi_fail(err, CKP_EINVAL, "refuse: no failure");
    const ckp_status earlier = ckp_run_wait(run, err);
    (void)ckpi_fail(&e, why, "%s", text != NULL ? text : ckp_status_name(why));
    refuse(run, step, why, &e);
    ckpi_session_hand_over(run);
    if (wait)
        ckpi_session_drain(run);
    return earlier;
}

/* ---- saving: the worker --------------------------------------------------------------------------------------------- */

static ckpi_note
save_note(const ckp_run *run, ckpi_said_phase phase)
{
    const ckpi_save_job *job = &run->job;
    ckpi_note n = {.kind = CKPI_SAID_SAVE, .phase = (uint32_t)phase, .step = job->step, .alike = job->alike, .delta = !job->key};
    if (!job->key && job->refused == CKP_OK) {
        n.chain = run->base.chain;
        n.base = run->base.checkpoint;
        (void)memcpy(n.base_dir, run->base.dir, sizeof n.base_dir);
    }
    return n;
}

/* Until it has been heard. CKP_ECANCELLED: something has failed, ckpi_group_fail knows what. */
static ckp_status
await(ckp_run *run, ckpi_said_phase phase, bool all, ckp_error *err)
{
    while (!ckpi_talk_heard(run->talk, phase, all)) {
        if (ckpi_talk_failed(run->talk) || ckpi_talk_over(run->talk))
            return ckpi_fail(err, CKP_ECANCELLED, "the save has failed elsewhere");
        ckpi_session_refresh(run);
        ckpi_talk_rest(run->talk);
    }
    return CKP_OK;
}

/* The base of all that are deltas; false: there is none. */
static bool
common_base(ckp_run *run, ckpi_note *base, ckp_status *st, ckp_error *err)
{
    bool found = false;
    ckpi_note n;
    *st = CKP_OK;
    for (unsigned r = 0; r < ckpi_talk_world(run->talk); r++) {
        ckpi_talk_note(run->talk, r, &n);
        if (!n.delta)
            continue;
        if (found && (strcmp(n.base_dir, base->base_dir) != 0 || !ckpi_id_eq(n.base, base->base) || n.chain != base->chain)) {
            *st = ckpi_fail(err, CKP_ESTATE, "it goes on from %s, rank %u from %s", base->base_dir, r, n.base_dir);
            return false;
        }
        *base = n;
        found = true;
    }
    return found;
}

static ckp_status
enter_attempt(ckp_run *run, ckpi_attempt **out, ckp_error *err)
{
    ckpi_note n;
    if (ckpi_talk_rank(run->talk) != 0) {
        const ckp_status st = await(run, CKPI_SAID_BEGUN, false, err);
        ckpi_talk_note(run->talk, 0, &n);
        return st == CKP_OK ? ckpi_store_join(run->store, n.dir, out, err) : st;
    }
    const ckp_status st = ckpi_store_begin(run->store, run->job.step, out, err);
    if (st != CKP_OK)
        return st;
    n = save_note(run, CKPI_SAID_BEGUN);
    (void)snprintf(n.dir, sizeof n.dir, "%s", ckpi_attempt_dir(*out));
    ckpi_talk_say(run->talk, &n);
    return CKP_OK;
}

ckp_status
ckpi_group_begin(ckp_run *run, ckp_status st, ckpi_attempt **out, ckp_error *err)
{
    ckpi_note n = save_note(run, CKPI_SAID_JOINED), base;
    *out = NULL;
    if (run->job.refused != CKP_OK) {
        st = run->job.refused;
        if (err != NULL)
            *err = run->job.refusal;
    }
    if (st != CKP_OK)
        ckpi_note_fail(&n, st, err);
    ckpi_talk_begin(run->talk, &n);
    if (st == CKP_OK)
        st = await(run, CKPI_SAID_JOINED, true, err);
    if (st == CKP_OK)
        (void)common_base(run, &base, &st, err);
    return st == CKP_OK ? enter_attempt(run, out, err) : st;
}

/* What rank 0 knows of all shards. */
static ckp_status
fill_group_manifest(ckp_run *run, ckpi_manifest *m, ckp_error *err)
{
    const unsigned world = ckpi_talk_world(run->talk);
    ckpi_id *content = ckpi_calloc(world, sizeof *content);
    ckpi_note n, base;
    ckp_status st = content != NULL ? ckpi_session_manifest(run, m, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for a manifest");

    m->kind = CKPI_CKPT_KEY;
    m->chain = 0;
    m->raw_bytes = m->params = 0;
    if (st == CKP_OK && common_base(run, &base, &st, err)) {
        m->kind = CKPI_CKPT_DELTA;
        m->chain = base.chain + 1;
        m->base = base.base;
        st = ckpi_manifest_set(&m->base_dir, base.base_dir, err);
    }
    for (unsigned r = 0; st == CKP_OK && r < world; r++) {
        char name[CKPI_DIR_NAME_MAX];
        ckpi_talk_note(run->talk, r, &n);
        ckpi_shard_name(name, r, world);
        content[r] = n.content;
        m->raw_bytes += n.raw_bytes;
        m->params += n.params;
        st = ckpi_manifest_add_shard(m, name, n.length, n.hash, n.content, err);
    }
    if (st == CKP_OK)
        m->content = ckpi_join_content(content, world);
    free(content);
    return st;
}

/* Rank 0, when all shards are durable. */
static ckp_status
publish(ckp_run *run, ckpi_attempt **a, ckpi_manifest *m, ckpi_made *made, ckp_error *err)
{
    ckp_status st = fill_group_manifest(run, m, err);
    if (st != CKP_OK)
        return st;
    (void)snprintf(made->dir, sizeof made->dir, "%s", ckpi_attempt_dir(*a));
    st = ckpi_store_commit(run->store, *a, m, err);
    *a = NULL;
    if (st != CKP_OK)
        return st;
    made->content = m->content;
    made->chain = m->chain;
    made->sequence = m->sequence;
    ckpi_note n = save_note(run, CKPI_SAID_END);
    n.content = made->content;
    n.chain = made->chain;
    n.sequence = made->sequence;
    (void)memcpy(n.dir, made->dir, sizeof n.dir);
    ckpi_talk_say(run->talk, &n);
    return CKP_OK;
}

static void
wait_for_end(ckp_run *run)
{
    while (!ckpi_talk_over(run->talk)) {
        ckpi_session_refresh(run);
        ckpi_talk_rest(run->talk);
    }
}

ckp_status
ckpi_group_commit(ckp_run *run, ckpi_attempt **a, const ckpi_writer *w, const ckpi_fmt_sum *sum, ckpi_manifest *m, ckpi_made *made, ckp_error *err)
{
    const ckpi_save_job *job = &run->job;
    const bool leads = ckpi_talk_rank(run->talk) == 0;
    ckpi_note n = save_note(run, CKPI_SAID_WRITTEN);

    ckp_status st = ckpi_writer_hash(w, &n.hash, err);
    if (st == CKP_OK)
        st = ckpi_store_shard_done(run->store, *a, err);
    if (st != CKP_OK)
        return st;
    n.length = ckpi_writer_pos(w);
    n.content = sum->content;
    n.raw_bytes = job->raw_bytes;
    n.params = job->params_by_role[CKP_ROLE_WEIGHT] + job->params_by_role[CKP_ROLE_MASTER];
    (void)snprintf(n.dir, sizeof n.dir, "%s", ckpi_attempt_dir(*a));
    /* Of a save that has failed this shard is this rank's to remove: rank 0 may have given up waiting for it. */
    if (!ckpi_talk_say_yet(run->talk, &n))
        return ckpi_fail(err, CKP_ECANCELLED, "the save has failed elsewhere");
    st = await(run, leads ? CKPI_SAID_WRITTEN : CKPI_SAID_END, leads, err);
    if (st == CKP_OK && leads)
        st = publish(run, a, m, made, err);
    if (st != CKP_OK)
        return st;
    wait_for_end(run);
    if (ckpi_talk_failed(run->talk))      /* the checkpoint is there, and perhaps not every rank knows */
        return ckpi_fail(err, CKP_ECANCELLED, "the save has failed elsewhere");
    if (!leads) {
        ckpi_talk_note(run->talk, 0, &n);
        *made = (ckpi_made){.content = n.content, .chain = n.chain, .sequence = n.sequence};
        (void)memcpy(made->dir, n.dir, sizeof made->dir);
        ckpi_store_leave_attempt(run->store, *a, 0, 1, false);
        *a = NULL;
    }
    return CKP_OK;
}

/* Rank 0, until all have stopped writing: what they would write later would stay. */
static void
end_of_failure(ckp_run *run, ckpi_attempt *a, ckp_status st)
{
    const double until = ckpi_seconds() + run->group.seconds;
    while (!ckpi_talk_over(run->talk) && !(ckpi_talk_failed(run->talk) && ckpi_talk_cleared(run->talk)) && ckpi_seconds() < until) {
        ckpi_session_refresh(run);
        ckpi_talk_rest(run->talk);
    }
    ckpi_store_abort(run->store, a);
    ckpi_note n = save_note(run, CKPI_SAID_END);
    n.code = st;
    (void)snprintf(n.text, sizeof n.text, "the save has failed");
    ckpi_talk_say(run->talk, &n);
}

ckp_status
ckpi_group_fail(ckp_run *run, ckpi_attempt *a, ckp_status st, ckp_error *err)
{
    const unsigned rank = ckpi_talk_rank(run->talk);
    bool lost = false;
    ckp_error e;
    ckpi_note n = save_note(run, CKPI_SAID_CLEARED);

    const bool elsewhere = ckpi_talk_failure(run->talk, &lost, NULL) != CKP_OK;
    /* What was said to be written is rank 0's to remove, with the attempt: it may be committing, and it alone knows whether its manifest may yet come. */
    const bool keep = ckpi_talk_said(run->talk, CKPI_SAID_WRITTEN);
    if (!elsewhere)
        ckpi_note_fail(&n, st, err);
    if (rank != 0)
        ckpi_store_leave_attempt(run->store, a, rank, ckpi_talk_world(run->talk), !keep);
    ckpi_talk_say(run->talk, &n);
    if (rank == 0)
        end_of_failure(run, a, st);
    wait_for_end(run);
    ckpi_error_clear(&e);
    const ckp_status told = ckpi_talk_failure(run->talk, &lost, &e);
    if (told != CKP_OK && err != NULL)
        *err = e;
    return told != CKP_OK ? told : st;
}
