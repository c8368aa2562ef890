/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks say to each other. All talk is rounds in which every rank gives one note and gets those of all (ckp_group.exchange): so all ranks see
 * the same notes in the same order, and whatever follows from notes alone follows on all of them.
 *
 * Opening and restoring ask once or a few times, on the caller's thread. A save is a conversation: a thread of the run's own goes through rounds, quickly as
 * long as something happens, then once a second, until rank 0 says END. A rank works, says what has come of it, and waits for what the others say.
 */
#ifndef CKPI_RUN_TALK_H
#define CKPI_RUN_TALK_H
#include <ckpress/run_group.h>
#include "base/hash.h"
#include "format/manifest.h"

typedef enum ckpi_said_kind { CKPI_SAID_OPEN = 1, CKPI_SAID_SAVE = 2, CKPI_SAID_RESTORE = 3 } ckpi_said_kind;

typedef enum ckpi_said_phase {
    CKPI_SAID_JOINED = 1,
    CKPI_SAID_BEGUN = 2,         /* rank 0: the attempt's directory is there */
    CKPI_SAID_WRITTEN = 3,       /* the shard is durable */
    CKPI_SAID_FAILED = 4,        /* code and text say why */
    CKPI_SAID_CLEARED = 5,       /* after another's failure: nothing of this rank is being written any more */
    CKPI_SAID_END = 6            /* rank 0: committed, or (code) not */
} ckpi_said_phase;

typedef struct ckpi_note {
    uint32_t kind, phase;
    uint64_t step, sequence;
    uint64_t alike;              /* must be equal on all ranks */
    uint32_t chain;              /* of the checkpoint; JOINED: of the base */
    bool delta;                  /* this shard */
    uint64_t length, raw_bytes, params;
    ckpi_id hash, content, base; /* of the shard; base: of the checkpoint that it stands on. END: content of the checkpoint. OPEN: hash is the run */
    char dir[CKPI_DIR_NAME_MAX], base_dir[CKPI_DIR_NAME_MAX];
    ckp_status code;             /* FAILED, END, OPEN, RESTORE */
    int sys_errno;
    char file[256], text[768];
} ckpi_note;

typedef struct ckpi_talk ckpi_talk;

CKP_MUST_USE ckp_status ckpi_group_check(const ckp_group *g, ckp_error *err);
/* g was checked. */
CKP_MUST_USE ckp_status ckpi_talk_new(ckpi_talk **out, const ckp_group *g, ckp_error *err);
void ckpi_talk_free(ckpi_talk *t);           /* accepts NULL; no conversation is going on */
unsigned ckpi_talk_rank(const ckpi_talk *t);
unsigned ckpi_talk_world(const ckpi_talk *t);
/* Notes of the last ckpi_talk_ask, by rank. */
const ckpi_note *ckpi_talk_notes(const ckpi_talk *t);

/* A copy of a rank's note of the last round, also while a conversation goes on. */
void ckpi_talk_note(ckpi_talk *t, unsigned rank, ckpi_note *out);

/* Puts a failure into a note. */
void ckpi_note_fail(ckpi_note *n, ckp_status st, const ckp_error *e);
/* The failure in rank's note, with the rank in its text. */
ckp_status ckpi_note_error(const ckpi_note *n, unsigned rank, ckp_error *err);

/* One round, when no conversation is going on; waits for the last rank to come. Fails when ranks are lost or do different things, not for codes in notes. */
CKP_MUST_USE ckp_status ckpi_talk_ask(ckpi_talk *t, const ckpi_note *mine, ckp_error *err);
/* The first failure in the notes, by rank; CKP_OK: there is none. */
CKP_MUST_USE ckp_status ckpi_talk_verdict(const ckpi_talk *t, ckp_error *err);

/* A conversation about a save begins. It is over for all ranks with rank 0's END, or when it has failed beyond that. */
void ckpi_talk_begin(ckpi_talk *t, const ckpi_note *mine);
void ckpi_talk_say(ckpi_talk *t, const ckpi_note *mine);
/* The same, unless this rank has heard that the conversation has failed, or it is over: then false, and nobody will ever hear it. */
CKP_MUST_USE bool ckpi_talk_say_yet(ckpi_talk *t, const ckpi_note *mine);
/* Whether every rank (all false: rank 0) has said that phase, or a later one of a save that goes well. */
bool ckpi_talk_heard(ckpi_talk *t, ckpi_said_phase phase, bool all);
/* Whether this rank has said that phase of a save that goes well: others may have heard it, also where it has heard of no round since. */
bool ckpi_talk_said(ckpi_talk *t, ckpi_said_phase phase);
/* Whether all others have stopped writing after a failure. */
bool ckpi_talk_cleared(ckpi_talk *t);
bool ckpi_talk_failed(ckpi_talk *t);
/* That failure; CKP_OK: none. *lost: ranks have lost each other. */
CKP_MUST_USE ckp_status ckpi_talk_failure(ckpi_talk *t, bool *lost, ckp_error *err);
bool ckpi_talk_over(ckpi_talk *t);
/* Waits for news, a quarter of a second at most. */
void ckpi_talk_rest(ckpi_talk *t);
#endif
