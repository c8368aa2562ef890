/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a run. A writer does, in this order:
 *
 *     run.json (read, or created once)  ->  lock  ->  sweep of own dead temporaries  ->  reserve  ->  highest sequence
 *
 * A reader does the first only, and never creates.
 */
#include <stdio.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

#define DEFAULT_EXPIRY_S 120u

void
ckpi_store_path(char out[CKPI_STORE_PATH], const char *dir, const char *file)
{
    snprintf(out, CKPI_STORE_PATH, "%s%s%s", dir, *dir != '\0' ? "/" : "", file);
}

ckp_status
ckpi_store_put(ckpi_store *s, const char *dir, const char *file, const ckpi_buf *b, bool replace, ckp_error *err)
{
    char tmp[CKPI_TMP_MAX], from[CKPI_STORE_PATH], to[CKPI_STORE_PATH];
    const ckp_status st = ckpi_tmp_name(tmp, file, err);
    if (st != CKP_OK)
        return st;
    ckpi_store_path(from, dir, tmp);
    ckpi_store_path(to, dir, file);
    return ckpi_fs_publish(s->fs, from, to, b->data, b->len, replace, err);
}

ckp_status
ckpi_store_exists(ckpi_store *s, const char *dir, const char *file, bool *there, ckp_error *err)
{
    char path[CKPI_STORE_PATH];
    ckpi_stat sb;
    ckpi_store_path(path, dir, file);
    const ckp_status st = s->fs->ops->stat(s->fs, path, &sb, err);
    *there = st == CKP_OK;
    return st == CKP_ENOTFOUND ? CKP_OK : st;
}

ckp_status
ckpi_store_enter(ckpi_store *s, ckp_error *err)
{
    if (s == NULL)
        return ckpi_fail(err, CKP_EINVAL, "store: NULL argument");
    /* Before the mutex: a thread of the parent may have held it at the fork. */
    if (ckpi_pid() != s->pid)
        return ckpi_fail(err, CKP_EFORK, "the run was opened by process %lld: open it again in this one", (long long)s->pid);
    pthread_mutex_lock(&s->mutex);
    return CKP_OK;
}

ckp_status
ckpi_store_enter_write(ckpi_store *s, ckp_error *err)
{
    ckp_status st = ckpi_store_enter(s, err);
    if (st != CKP_OK)
        return st;
    if (s->mode != CKPI_STORE_WRITE)
        st = ckpi_fail(err, CKP_EINVAL, "the run is open for reading only");
    else if (s->lost)
        st = ckpi_fail(err, CKP_EBUSY, "this writer has lost the run's lock, another one may hold it: close this one, and open the run again");
    if (st != CKP_OK)
        ckpi_store_leave(s);
    return st;
}

ckp_status
ckpi_store_enter_shard(ckpi_store *s, ckp_error *err)
{
    if (s != NULL && s->mode == CKPI_STORE_MEMBER)
        return ckpi_store_enter(s, err);
    return ckpi_store_enter_write(s, err);
}

void
ckpi_store_leave(ckpi_store *s)
{
    pthread_mutex_unlock(&s->mutex);
}

static ckp_status
read_run(ckpi_store *s, ckp_error *err)
{
    ckpi_buf raw = CKPI_BUF_INIT;
    ckpi_runfile run;
    ckp_status st = ckpi_fs_read(s->fs, CKPI_RUN_FILE, CKPI_RUNFILE_MAX, &raw, err);
    if (st == CKP_OK) {
        st = ckpi_runfile_parse(&run, raw.data, raw.len, err);
        /* Whatever is wrong with its text, it was a run's file once. */
        if (st == CKP_EFORMAT)
            st = ckpi_fail(err, CKP_ECORRUPT, "run.json is not what ckpress writes");
    }
    if (st == CKP_OK)
        s->run_id = run.id;
    ckpi_buf_free(&raw);
    return st;
}

/* A run that lost its identity but not its checkpoints must not get another one: they would all be strangers in it. */
static ckp_status
refuse_orphans(ckpi_store *s, ckp_error *err)
{
    ckpi_names names;
    ckp_status st = ckpi_names_read(s, "", &names, err);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < names.n && st == CKP_OK; i++) {
        uint64_t step;
        uint32_t attempt;
        bool there = false;
        if (!names.is_dir[i] || !ckpi_dir_name_parse(names.v[i], &step, &attempt))
            continue;
        st = ckpi_store_exists(s, names.v[i], CKPI_MANIFEST_FILE, &there, err);
        if (st == CKP_OK && there)
            st = ckpi_fail(err, CKP_ECORRUPT, "run.json is missing while checkpoints are there (%s)", names.v[i]);
    }
    ckpi_names_free(&names);
    return st;
}

/* A copy among other files, of a hand that meant a directory in this one, would be hard to take out again. */
static ckp_status
refuse_others(ckpi_store *s, ckp_error *err)
{
    ckpi_names names;
    ckp_status st = ckpi_names_read(s, "", &names, err);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < names.n && st == CKP_OK; i++)
        if (names.v[i][0] != '.')          /* temporaries of a first copy that was cut short, and what systems leave */
            st = ckpi_fail(err, CKP_EEXIST, "is no run and holds other files (%.64s): a copy goes into a directory of its own", names.v[i]);
    ckpi_names_free(&names);
    return st;
}

static ckp_status
new_identity(ckpi_buf *text, ckp_error *err)
{
    ckpi_runfile run = {.created = ckpi_now_unix()};
    const ckp_status st = ckpi_random(&run.id, sizeof run.id, err);
    return st == CKP_OK ? ckpi_runfile_print(&run, text, err) : st;
}

/* What a repair may take for a lost run.json; not what a newer version wrote, or what cannot be read today. */
static bool
is_lost(ckp_status st)
{
    return st == CKP_ENOTFOUND || st == CKP_ECORRUPT || st == CKP_ETRUNCATED || st == CKP_ELIMIT;
}

/*
 * Another writer was faster: its identity is the run's. In an object store our own upload looks so when it was damaged on its way: what lies where nothing
 * lay a moment ago, and is no run's, nobody has begun a run by, and nobody could.
 */
static ckp_status
read_theirs(ckpi_store *s, ckp_error *err)
{
    const ckp_status st = read_run(s, err);
    if (!s->fs->ops->late || !is_lost(st) || st == CKP_ENOTFOUND)
        return st;
    (void)s->fs->ops->unlink(s->fs, CKPI_RUN_FILE, NULL);
    return ckpi_fail(err, CKP_EIO, "run.json was damaged when it was uploaded: nothing is there now");
}

/* identity NULL: a new one. */
static ckp_status
create_run(ckpi_store *s, const ckpi_buf *identity, ckp_error *err)
{
    ckpi_buf text = CKPI_BUF_INIT;
    ckp_status st = refuse_orphans(s, err);
    if (st == CKP_OK)
        st = identity == NULL ? new_identity(&text, err) : refuse_others(s, err);
    if (st == CKP_OK) {
        st = ckpi_store_put(s, "", CKPI_RUN_FILE, identity != NULL ? identity : &text, false, err);
        if (st == CKP_OK || st == CKP_EEXIST)
            st = st == CKP_OK ? read_run(s, err) : read_theirs(s, err);
    }
    ckpi_buf_free(&text);
    return st;
}

/* Another's may have been put over it since, where an object store knows no condition. Nothing was done by it yet. */
static ckp_status
check_created(ckpi_store *s, ckp_error *err)
{
    const ckpi_id made = s->run_id;
    const ckp_status st = read_run(s, err);
    if (st == CKP_OK && !ckpi_id_eq(made, s->run_id))
        return ckpi_fail(err, CKP_EBUSY, "another writer has begun the run at the same moment: open it again");
    return st;
}

/* The run must be the one that is copied; asked before anything in it is touched. */
static ckp_status
check_identity(const ckpi_store *s, const ckpi_buf *identity, ckp_error *err)
{
    ckpi_runfile want;
    const ckp_status st = ckpi_runfile_parse(&want, identity->data, identity->len, err);
    if (st == CKP_OK && !ckpi_id_eq(want.id, s->run_id))
        return ckpi_fail(err, CKP_EMISMATCH, "is another run");
    return st;
}

/* More than one writer commits. */
#define HIDDEN_SEQUENCES ((uint64_t)1 << 20)

/*
 * The highest sequence so far. A manifest that cannot be read now (a disk that fails once, a newer version's) may hide a higher one, and come
 * back: what is committed from now on must come after it all the same.
 */
static ckp_status
find_sequence(ckpi_store *s, ckp_error *err)
{
    bool hidden = false;
    ckpi_entries e = {0};
    ckpi_copyfile c;
    ckp_status st = ckpi_copied_read(s, &c, err);
    if (st == CKP_OK)
        st = ckpi_store_scan(s, &e, err);
    /* Own checkpoints come after all that was copied, even where those are gone: copied.json tells the two apart by it. */
    if (st == CKP_OK)
        s->max_sequence = c.sequence;
    if (st == CKP_OK)
        st = ckpi_aside_sequence(s, &s->max_sequence, err);
    for (size_t i = 0; i < e.n; i++) {
        hidden = hidden || e.v[i].health == CKPI_HEALTH_BAD_MANIFEST || e.v[i].health == CKPI_HEALTH_UNSUPPORTED;
        if (e.v[i].m != NULL && e.v[i].health != CKPI_HEALTH_FOREIGN && e.v[i].m->sequence > s->max_sequence)
            s->max_sequence = e.v[i].m->sequence;
    }
    s->max_sequence += hidden ? HIDDEN_SEQUENCES : 0;
    ckpi_entries_free(&e);
    return st;
}

static ckp_status
start(ckpi_store *s, const ckpi_store_options *opt, ckp_error *err)
{
    ckp_status st = read_run(s, err);
    if (opt->repair && is_lost(st)) {
        st = ckpi_identity_find(s, err);
        s->identity_lost = st == CKP_OK;
    }
    if (s->mode != CKPI_STORE_WRITE)
        return st == CKP_ENOTFOUND ? ckpi_fail(err, st, "not a run: it has no run.json") : st;
    const bool created = st == CKP_ENOTFOUND && !opt->repair;
    if (created)
        st = create_run(s, opt->identity, err);
    if (st == CKP_OK && opt->identity != NULL)
        st = check_identity(s, opt->identity, err);
    if (st == CKP_OK)
        st = ckpi_lock_take(s, opt, err);
    if (st == CKP_OK && created && s->fs->ops->late)
        st = check_created(s, err);
    if (st == CKP_OK && s->identity_lost)
        st = ckpi_identity_put(s, err);
    if (st != CKP_OK)
        return st;
    ckpi_sweep(s);
    ckpi_lock_reserve(s);        /* after the sweep, which makes room for it on a full disk */
    return find_sequence(s, err);
}

ckp_status
ckpi_store_open(ckpi_store **out, ckpi_fs *fs, ckpi_store_mode mode, const ckpi_store_options *opt, ckp_error *err)
{
    ckpi_store_options o = opt != NULL ? *opt : (ckpi_store_options){0};
    if (o.lock_expiry_s == 0)
        o.lock_expiry_s = DEFAULT_EXPIRY_S;
    if (out == NULL || fs == NULL) {
        ckpi_fs_free(fs);
        return ckpi_fail(err, CKP_EINVAL, "store_open: NULL argument");
    }
    *out = NULL;
    ckpi_store *s = ckpi_calloc(1, sizeof *s);
    if (s == NULL || pthread_mutex_init(&s->mutex, NULL) != 0) {
        free(s);
        ckpi_fs_free(fs);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to open a run");
    }
    s->fs = fs;
    s->mode = mode;
    s->pid = ckpi_pid();
    const ckp_status st = start(s, &o, err);
    if (st != CKP_OK) {
        ckpi_store_free(s);
        return st;
    }
    *out = s;
    return CKP_OK;
}

void
ckpi_store_free(ckpi_store *s)
{
    if (s == NULL)
        return;
    /* In a forked child only memory is freed: lock and files are the parent's, and so is the mutex's state. */
    if (ckpi_pid() == s->pid) {
        if (s->lock.held)
            ckpi_lock_release(s);
        pthread_mutex_destroy(&s->mutex);
    }
    ckpi_fs_free(s->fs);
    free(s);
}

ckpi_fs *
ckpi_store_fs(ckpi_store *s)
{
    return s->fs;
}

ckpi_id
ckpi_store_run_id(const ckpi_store *s)
{
    return s->run_id;
}

uint64_t
ckpi_store_epoch(const ckpi_store *s)
{
    return s->lock.epoch;
}
