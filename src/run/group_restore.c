/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restoring together: the newest checkpoint that opens on every rank. Each rank says which is its newest; where they differ, those that have a newer one
 * look below it, until all say the same. Ranks may see different files: a damaged or missing shard, a file system that is behind.
 */
#include <stdio.h>
#include <string.h>
#include "base/fail.h"
#include "run/group.h"

ckpi_shards
ckpi_group_shards(const ckp_run *run, bool all)
{
    if (run->talk == NULL)
        return (ckpi_shards){0, 0, run->memory.fs != NULL ? run->memory.dir : NULL};
    return (ckpi_shards){ckpi_talk_rank(run->talk), all ? 0 : ckpi_talk_world(run->talk), NULL};
}

static ckpi_note
note_of(const ckp_checkpoint *ck, int64_t step, ckp_status st, const ckp_error *e)
{
    ckpi_note n = {.kind = CKPI_SAID_RESTORE, .phase = CKPI_SAID_JOINED, .step = (uint64_t)step};
    if (ck != NULL) {
        n.sequence = ck->manifest->sequence;
        n.content = ck->manifest->content;
        (void)snprintf(n.dir, sizeof n.dir, "%.63s", ck->name);
        (void)snprintf(n.text, sizeof n.text, "%.700s", ckp_checkpoint_notes(ck));
    } else if (st == CKP_ENOTFOUND && step == CKP_STEP_NEWEST) {
        n.code = st;             /* no failure yet: perhaps no rank has one */
        (void)snprintf(n.text, sizeof n.text, "%.700s", e->text);
    } else {
        ckpi_note_fail(&n, st, e);
    }
    return n;
}

typedef enum verdict { SAME, NONE, FURTHER } verdict;

/* What follows from all notes, on every rank alike. *below: where to look next. */
static ckp_status
judge(const ckpi_talk *t, int64_t step, verdict *v, uint64_t *below, ckp_error *err)
{
    const ckpi_note *all = ckpi_talk_notes(t);
    uint64_t least = UINT64_MAX, most = 0;
    unsigned without = 0, at = 0, none = 0;
    bool same = true;

    for (unsigned r = 0; r < ckpi_talk_world(t); r++) {
        const bool lacks = all[r].dir[0] == '\0';
        without += lacks;
        none = lacks ? r : none;
        at = lacks ? at : r;
        if (lacks)
            continue;
        least = all[r].sequence < least ? all[r].sequence : least;
        most = all[r].sequence > most ? all[r].sequence : most;
    }
    if (without == ckpi_talk_world(t)) {
        *v = NONE;
        return CKP_OK;
    }
    if (without != 0)
        return ckpi_fail(err, CKP_EMISMATCH, "no checkpoint can be restored on every rank: rank %u has none (%.500s), rank %u has %s", none, all[none].text, at,
                         all[at].dir);
    for (unsigned r = 1; r < ckpi_talk_world(t); r++)
        same = same && strcmp(all[r].dir, all[0].dir) == 0 && ckpi_id_eq(all[r].content, all[0].content);
    *v = same ? SAME : FURTHER;
    if (!same && step != CKP_STEP_NEWEST)
        return ckpi_fail(err, CKP_EMISMATCH, "ranks see different checkpoints of step %lld: %s and others", (long long)step, all[0].dir);
    *below = least == most ? least : least + 1;
    return CKP_OK;
}

/* Why this rank passes over a checkpoint that it could restore, for its notes. */
static void
note_others(ckpi_buf *notes, const ckp_checkpoint *ck, const ckpi_talk *t, uint64_t below)
{
    const ckpi_note *all = ckpi_talk_notes(t);
    for (unsigned r = 0; r < ckpi_talk_world(t); r++) {
        char line[1100], why[768];
        if (all[r].sequence >= ck->manifest->sequence || all[r].sequence >= below)
            continue;
        (void)snprintf(why, sizeof why, "%s", all[r].text);
        why[strcspn(why, "\n")] = '\0';
        const int n = snprintf(line, sizeof line, "%s: rank %u cannot restore it%s%s\n", ck->name, r, why[0] != '\0' ? ": " : "", why);
        ckpi_buf_put(notes, line, n > 0 && (size_t)n < sizeof line ? (size_t)n : 0);
    }
}

/* The reasons of all rounds, before the last opening's own. */
static ckp_status
join_notes(ckp_checkpoint *ck, ckpi_buf *notes, ckp_error *err)
{
    const char *own = ckp_checkpoint_notes(ck);
    ckpi_buf_put(notes, own, strlen(own) + 1);
    const ckp_status st = ckpi_buf_status(notes, err, "notes");
    if (st != CKP_OK)
        return st;
    ckpi_buf_free(&ck->notes);
    ck->notes = *notes;
    *notes = (ckpi_buf)CKPI_BUF_INIT;
    return CKP_OK;
}

static ckp_status
ask_all(ckp_run *run, const ckp_checkpoint *ck, int64_t step, ckp_status st, verdict *v, uint64_t *below, ckp_error *err)
{
    ckp_error e;
    ckpi_error_clear(&e);
    if (err != NULL)
        e = *err;
    const ckpi_note n = note_of(ck, step, st, &e);
    ckp_status said = ckpi_talk_ask(run->talk, &n, err);
    if (said == CKP_OK)
        said = ckpi_talk_verdict(run->talk, err);
    if (said == CKP_OK)
        said = judge(run->talk, step, v, below, err);
    if (said == CKP_OK && *v == NONE) {
        if (err != NULL)
            *err = e;
        return CKP_ENOTFOUND;
    }
    return said;
}

ckp_status
ckpi_group_open(ckp_checkpoint **out, ckp_run *run, int64_t step, bool all, ckp_error *err)
{
    const ckpi_place place = {run->dir, run->opt.objects};
    const ckpi_shards shards = ckpi_group_shards(run, all);
    ckpi_buf notes = CKPI_BUF_INIT;
    uint64_t below = UINT64_MAX;
    verdict v = FURTHER;
    ckp_checkpoint *ck = NULL;
    ckp_error none;              /* a caller without interest in errors has the others' at heart */
    ckp_status st = CKP_OK;

    *out = NULL;
    err = err != NULL ? err : &none;
    ckpi_session_drain(run);
    while (st == CKP_OK && v == FURTHER) {
        if (ck == NULL || ck->manifest->sequence >= below) {
            ckp_checkpoint_close(ck);
            ck = NULL;
            st = ckpi_checkpoint_open_as(&ck, &place, &shards, NULL, step, below, true, err);
        }
        st = ask_all(run, ck, step, st, &v, &below, err);
        if (st == CKP_OK && v == FURTHER && ck->manifest->sequence >= below)
            note_others(&notes, ck, run->talk, below);
    }
    if (st == CKP_OK)
        st = join_notes(ck, &notes, err);
    ckpi_buf_free(&notes);
    if (st != CKP_OK)
        ckp_checkpoint_close(ck);
    else
        *out = ck;
    if (st == CKP_OK)
        ck->parts = !all;
    return st;
}

ckp_status
ckp_run_agree(ckp_run *run, ckp_status mine, const char *text, ckp_error *err)
{
    ckpi_note n = {.kind = CKPI_SAID_RESTORE, .phase = CKPI_SAID_JOINED};
    ckp_error e;
    ckp_status st = ckpi_session_check(run, err);
    if (st != CKP_OK)
        return st;
    if (mine != CKP_OK) {
        (void)ckpi_fail(&e, mine, "%s", text != NULL ? text : ckp_status_name(mine));
        ckpi_note_fail(&n, mine, &e);
        if (run->talk == NULL && err != NULL)
            *err = e;
    }
    if (run->talk == NULL)
        return mine;
    ckpi_session_drain(run);
    st = ckpi_talk_ask(run->talk, &n, err);
    return st == CKP_OK ? ckpi_talk_verdict(run->talk, err) : st;
}

ckp_status
ckp_checkpoint_open_all(ckp_checkpoint **out, ckp_run *run, int64_t step, ckp_error *err)
{
    const ckp_status st = ckpi_session_check(run, err);
    if (st != CKP_OK)
        return st;
    if (run->talk != NULL)
        return ckpi_group_open(out, run, step, true, err);
    return ckp_checkpoint_open(out, run, step, err);
}

size_t
ckp_checkpoint_shards(const ckp_checkpoint *ck)
{
    if (ckpi_checkpoint_check(ck, NULL) != CKP_OK)
        return 0;
    return ck->manifest != NULL ? ck->manifest->n_shards : 1;
}
