/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair: what is damaged, and what is based on it, goes out of the way, so that listing, restoring and retention are clean again. Under the
 * lock, and after the sweep, which has taken what was provably left behind.
 *
 * Out of the way is a rename of the checkpoint's directory within the run's:
 *
 *     step-00000200-1c77e0b4  ->  set-aside-step-00000200-1c77e0b4         a name that nothing here reads or removes
 *
 * One rename, so that a power cut leaves it under either name with all that is in it, and a hand can take it back. Sequences of what was set
 * aside stay used up (open.c): a copy of the run that still has it whole must not take the next save for another version of it.
 *
 * An identity that is lost is what all manifests say. It is written under the lock, which is taken in its name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

#define ASIDE "set-aside-"
#define ASIDE_MAX (CKPI_DIR_NAME_MAX + 32)
#define ASIDE_TRIES 1000     /* of one name: repaired again and again, with the same damage copied back each time */

typedef enum judgement { WHOLE, LEFT, BAD } judgement;

/* ---- what has been set aside --------------------------------------------------------------------------------------- */

static void
aside_name(char out[ASIDE_MAX], const char *name, unsigned number)
{
    if (number == 0)
        (void)snprintf(out, ASIDE_MAX, ASIDE "%.*s", CKPI_DIR_NAME_MAX, name);
    else
        (void)snprintf(out, ASIDE_MAX, ASIDE "%u-%.*s", number, CKPI_DIR_NAME_MAX, name);
}

/* Renames a file or directory of the run; CKP_OK also when it has gone meanwhile. The caller syncs the run's directory. */
static ckp_status
set_aside(ckpi_store *s, const char *name, ckp_error *err)
{
    ckp_status st = CKP_EEXIST;

    for (unsigned i = 0; i < ASIDE_TRIES && st == CKP_EEXIST; i++) {
        char to[ASIDE_MAX];
        aside_name(to, name, i);
        st = s->fs->ops->publish(s->fs, name, to, false, err);
    }
    return st == CKP_ENOTFOUND ? CKP_OK : st;
}

/* A manifest's fields, whatever directory it lies in; *out NULL when it is none. Fails on lack of memory only. */
static ckp_status
read_any(ckpi_store *s, const char *dir, ckpi_manifest **out, ckp_error *err)
{
    char path[CKPI_STORE_PATH];
    ckpi_buf raw = CKPI_BUF_INIT;

    *out = NULL;
    ckpi_store_path(path, dir, CKPI_MANIFEST_FILE);
    ckp_status st = ckpi_fs_read(s->fs, path, CKPI_MAX_MANIFEST, &raw, err);
    if (st == CKP_OK)
        st = ckpi_manifest_parse(out, raw.data, raw.len, err);
    ckpi_buf_free(&raw);
    return st == CKP_ENOMEM ? st : CKP_OK;
}

ckp_status
ckpi_aside_sequence(ckpi_store *s, uint64_t *max, ckp_error *err)
{
    ckpi_names names;
    ckp_status st = ckpi_names_read(s, "", &names, err);

    if (st != CKP_OK)
        return st;
    for (size_t i = 0; st == CKP_OK && i < names.n; i++) {
        ckpi_manifest *m = NULL;
        if (!names.is_dir[i] || strncmp(names.v[i], ASIDE, sizeof ASIDE - 1) != 0 || strlen(names.v[i]) >= ASIDE_MAX)
            continue;
        st = read_any(s, names.v[i], &m, err);
        if (m != NULL && ckpi_id_eq(m->run_id, s->run_id) && m->sequence > *max)
            *max = m->sequence;
        ckpi_manifest_free(m);
    }
    ckpi_names_free(&names);
    return st;
}

bool
ckpi_named_as_base(ckpi_store *s, const ckpi_names *names, const char *dir)
{
    bool named = false;
    for (size_t i = 0; !named && i < names->n; i++) {
        ckpi_manifest *m = NULL;
        if (!names->is_dir[i] || strlen(names->v[i]) >= ASIDE_MAX || strcmp(names->v[i], dir) == 0)
            continue;
        named = read_any(s, names->v[i], &m, NULL) != CKP_OK ||
                (m != NULL && m->base_dir != NULL && ckpi_id_eq(m->run_id, s->run_id) && strcmp(m->base_dir, dir) == 0);
        ckpi_manifest_free(m);
    }
    return named;
}

/* ---- identity ------------------------------------------------------------------------------------------------------ */

/* Takes one manifest's word; first: the directory whose word counts so far, or "". */
static ckp_status
agree(ckpi_store *s, const char *dir, char first[CKPI_DIR_NAME_MAX], ckp_error *err)
{
    char name[CKPI_DIR_NAME_MAX];
    ckpi_manifest *m = NULL;
    ckp_status st = read_any(s, dir, &m, err);

    if (m == NULL)
        return st;
    ckpi_dir_name(name, m->step, m->attempt);
    if (strcmp(name, dir) != 0) {
        st = CKP_OK;               /* a copy by hand under another name says nothing */
    } else if (first[0] == '\0') {
        (void)snprintf(first, CKPI_DIR_NAME_MAX, "%s", dir);
        s->run_id = m->run_id;
    } else if (!ckpi_id_eq(m->run_id, s->run_id)) {
        st = ckpi_fail(err, CKP_EMISMATCH, "run.json is lost, and %s and %s are of different runs: take those of one out of the directory", first, dir);
    }
    ckpi_manifest_free(m);
    return st;
}

ckp_status
ckpi_identity_find(ckpi_store *s, ckp_error *err)
{
    char first[CKPI_DIR_NAME_MAX] = "";
    ckpi_names names;
    ckp_status st = ckpi_names_read(s, "", &names, err);

    if (st != CKP_OK)
        return st;
    for (size_t i = 0; st == CKP_OK && i < names.n; i++) {
        uint64_t step;
        uint32_t attempt;
        if (names.is_dir[i] && ckpi_dir_name_parse(names.v[i], &step, &attempt))
            st = agree(s, names.v[i], first, err);
    }
    ckpi_names_free(&names);
    if (st == CKP_OK && first[0] == '\0')
        st = ckpi_fail(err, CKP_ENOTFOUND, "no run: run.json is missing or damaged, and no manifest says which run it was");
    return st;
}

ckp_status
ckpi_identity_put(ckpi_store *s, ckp_error *err)
{
    const ckpi_runfile run = {.id = s->run_id, .created = ckpi_now_unix()};
    ckpi_buf text = CKPI_BUF_INIT;

    ckp_status st = set_aside(s, CKPI_RUN_FILE, err);      /* the damaged one, if there is one */
    if (st == CKP_OK)
        st = s->fs->ops->sync_dir(s->fs, "", err);
    if (st == CKP_OK)
        st = ckpi_runfile_print(&run, &text, err);
    if (st == CKP_OK)
        st = ckpi_store_put(s, "", CKPI_RUN_FILE, &text, false, err);
    ckpi_buf_free(&text);
    return st;
}

/* ---- judging ------------------------------------------------------------------------------------------------------- */

typedef struct repairing {
    ckpi_store *s;
    const ckpi_repair_ask *ask;
    ckpi_repaired *done;
    ckpi_entries all;
    judgement *is;               /* by entry */
    char (*why)[160];            /* likewise; "": the entry's own reason */
    ckpi_tally tally;
} repairing;

/* Bytes that are not what they were, or are not there. What cannot be read today is no damage that a rename could help with. */
static bool
proves_damage(ckp_status st)
{
    return st == CKP_ECORRUPT || st == CKP_ETRUNCATED || st == CKP_EFORMAT || st == CKP_ENOTFOUND || st == CKP_ELIMIT || st == CKP_EPATH;
}

/* Looks again at what the listing found, to tell damage from a file that cannot be read. */
static judgement
look_again(repairing *r, const ckpi_entry *e)
{
    ckpi_manifest *m = NULL;
    ckp_status st;

    if (e->health == CKPI_HEALTH_BAD_MANIFEST) {
        st = ckpi_read_manifest(r->s, e->dir, CKPI_MANIFEST_FILE, &m, NULL);
        ckpi_manifest_free(m);
    } else {
        st = ckpi_check_shards(r->s, e->dir, e->m, NULL);
    }
    return proves_damage(st) ? BAD : LEFT;
}

static judgement
judge_base(const repairing *r, const ckpi_entry *e)
{
    /* a base that was set aside, or cannot be judged, decides; one that is missing or another one is lost */
    return e->base != SIZE_MAX && r->is[e->base] == LEFT && r->all.v[e->base].health != CKPI_HEALTH_FOREIGN ? LEFT : BAD;
}

static ckp_status
judge_data(repairing *r, size_t i, ckp_error *err)
{
    ckp_error e;
    const ckpi_entry *entry = &r->all.v[i];

    const ckp_status st = ckpi_check_hashes(r->s, entry->dir, entry->m, &r->tally, &e);
    if (proves_damage(st)) {
        r->is[i] = BAD;
        (void)snprintf(r->why[i], sizeof r->why[i], "%.150s", e.text);
        return CKP_OK;
    }
    if (st != CKP_OK && err != NULL)
        *err = e;
    return st;
}

static ckp_status
judge_one(repairing *r, size_t i, ckp_error *err)
{
    const ckpi_entry *e = &r->all.v[i];

    switch (e->health) {
    case CKPI_HEALTH_OK:
        if (e->base != SIZE_MAX && r->is[e->base] != WHOLE) {      /* its data, looked at just now */
            r->is[i] = r->is[e->base];
            (void)snprintf(r->why[i], sizeof r->why[i], "its base %s is damaged", r->all.v[e->base].dir);
            return CKP_OK;
        }
        return r->ask->data ? judge_data(r, i, err) : CKP_OK;
    case CKPI_HEALTH_BAD_BASE: r->is[i] = judge_base(r, e); break;
    case CKPI_HEALTH_BAD_MANIFEST:
    case CKPI_HEALTH_MISSING_SHARD:
    case CKPI_HEALTH_WRONG_LENGTH: r->is[i] = look_again(r, e); break;
    case CKPI_HEALTH_INCOMPLETE:
    case CKPI_HEALTH_DELETING: r->is[i] = BAD; break;              /* what the sweep has left: it may be all that is left of something */
    case CKPI_HEALTH_FOREIGN:
    case CKPI_HEALTH_UNSUPPORTED: r->is[i] = LEFT; break;
    }
    return CKP_OK;
}

/* Bases come before what is based on them. */
static ckp_status
judge(repairing *r, ckp_error *err)
{
    ckp_status st = CKP_OK;

    for (size_t i = 0; i < r->all.n; i++)
        r->tally.total += r->all.v[i].health == CKPI_HEALTH_OK ? r->all.v[i].bytes : 0;
    for (size_t i = 0; st == CKP_OK && i < r->all.n; i++)
        st = judge_one(r, i, err);
    for (size_t i = 0; i < r->all.n; i++)
        if (r->is[i] == WHOLE) {
            r->done->restorable++;
            r->done->newest_step = r->all.v[i].step;
        }
    return st;
}

/* ---- doing --------------------------------------------------------------------------------------------------------- */

/* Nothing is deleted of a run that would have nothing left: what is damaged may be all that a training has. */
static bool
may_delete(const repairing *r)
{
    return r->ask->remove && r->done->restorable != 0;
}

static ckpi_repair_fate
fate_of(const repairing *r, size_t i)
{
    const bool attempt = r->all.v[i].health == CKPI_HEALTH_INCOMPLETE || r->all.v[i].health == CKPI_HEALTH_DELETING;
    if (r->is[i] == LEFT)
        return CKPI_REPAIR_LEFT;
    if (r->ask->dry_run && attempt)
        return CKPI_REPAIR_ATTEMPT;
    return may_delete(r) ? CKPI_REPAIR_DELETED : CKPI_REPAIR_SET_ASIDE;
}

static ckp_status
delete_one(ckpi_store *s, const ckpi_entry *e, ckp_error *err)
{
    char path[CKPI_STORE_PATH];

    if (e->m != NULL)
        return ckpi_remove_committed(s, e->dir, e->m, err);
    /* invariant 4; a manifest that cannot be read names nothing that a later sweep could go by */
    static const char *const marks[] = {CKPI_MANIFEST_FILE, CKPI_DELETED_FILE};
    for (size_t i = 0; i < 2; i++) {
        ckpi_store_path(path, e->dir, marks[i]);
        const ckp_status st = s->fs->ops->unlink(s->fs, path, err);
        if (st != CKP_OK && st != CKP_ENOTFOUND)
            return st;
    }
    const ckp_status st = s->fs->ops->sync_dir(s->fs, e->dir, err);
    return st == CKP_OK ? ckpi_remove_uncommitted(s, e->dir, err) : st;
}

/* The lock is read again before each (invariant 9). Foreign files keep a directory, not the checkpoint. */
static ckp_status
do_one(repairing *r, size_t i, ckpi_repair_fate fate, ckp_error *err)
{
    const ckpi_entry *e = &r->all.v[i];

    ckp_status st = ckpi_lock_check(r->s, err);
    if (st == CKP_OK && fate == CKPI_REPAIR_DELETED) {
        st = delete_one(r->s, e, err);
        return st == CKP_EEXIST ? set_aside(r->s, e->dir, err) : st;
    }
    return st == CKP_OK ? set_aside(r->s, e->dir, err) : st;
}

static void
count(repairing *r, ckpi_repair_fate fate)
{
    ckpi_repaired *d = r->done;
    d->set_aside += fate == CKPI_REPAIR_SET_ASIDE;
    d->deleted += fate == CKPI_REPAIR_DELETED;
    d->left += fate == CKPI_REPAIR_LEFT;
    d->attempts += fate == CKPI_REPAIR_ATTEMPT;
}

/* Newest first: deltas before their bases. What is told has been done. */
static ckp_status
act(repairing *r, ckp_error *err)
{
    ckp_status st = CKP_OK;
    bool any = false;

    for (size_t i = r->all.n; st == CKP_OK && i-- > 0;) {
        const ckpi_repair_fate fate = fate_of(r, i);
        if (r->is[i] == WHOLE)
            continue;
        if (!r->ask->dry_run && fate != CKPI_REPAIR_LEFT) {
            st = do_one(r, i, fate, err);
            any = true;
        }
        if (st != CKP_OK)
            break;
        count(r, fate);
        if (r->ask->told != NULL)
            r->ask->told(r->ask->told_user, &r->all, &r->all.v[i], fate, r->why[i][0] != '\0' ? r->why[i] : r->all.v[i].reason);
    }
    if (st == CKP_OK && any)
        st = r->s->fs->ops->sync_dir(r->s->fs, "", err);
    return st;
}

static ckp_status
repair(ckpi_store *s, const ckpi_repair_ask *ask, ckpi_repaired *done, ckp_error *err)
{
    repairing r = {.s = s, .ask = ask, .done = done, .tally = {.keeps = s, .fn = ask->progress, .user = ask->user}};

    ckp_status st = ckpi_store_scan(s, &r.all, err);
    if (st == CKP_OK) {
        r.is = ckpi_calloc(r.all.n + 1, sizeof *r.is);
        r.why = ckpi_calloc(r.all.n + 1, sizeof *r.why);
        st = r.is != NULL && r.why != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to repair a run");
    }
    if (st == CKP_OK)
        st = judge(&r, err);
    if (st == CKP_OK)
        st = act(&r, err);
    free(r.is);
    free(r.why);
    ckpi_entries_free(&r.all);
    return st;
}

ckp_status
ckpi_store_repair(ckpi_store *s, const ckpi_repair_ask *ask, ckpi_repaired *done, ckp_error *err)
{
    *done = (ckpi_repaired){0};
    ckp_status st = ask->dry_run ? ckpi_store_enter(s, err) : ckpi_store_enter_write(s, err);
    if (st != CKP_OK)
        return st;
    done->identity = s->identity_lost;
    st = repair(s, ask, done, err);
    ckpi_store_leave(s);
    return st;
}
