/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock: one writing job per run (invariant 9).
 *
 *     lock/epoch-00000007.json    a claim: nonce, process, time of the last refresh, expiry
 *     lock/reserve                space for a claim on a full disk
 *
 * Claims are numbered, and the highest one counts. To take the lock over is to publish the next number, which succeeds for
 * one writer only (no-replace); nothing is ever overwritten but by its own writer, so this works without compare-and-swap,
 * on object stores too. An old writer that wakes up sees a higher number just before it publishes, and stops: it is fenced.
 * Claims of the dead are kept until their attempts have been swept: their nonces prove whose the directories are.
 *
 * A claim may be followed when it was released, cannot be parsed, has not been refreshed for its expiry, or its process is
 * provably gone (same host, boot and pid namespace): a killed training must be able to go on at once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

#define POLL_MS 250u
/* A claim that vanishes between listing and reading, or is beaten, is met anew; more often than this is no coincidence. */
#define MAX_ROUNDS 100

static void
claim_name(char out[CKPI_DIR_NAME_MAX], uint64_t epoch)
{
    snprintf(out, CKPI_DIR_NAME_MAX, "epoch-%08" PRIu64 ".json", epoch);
}

/* 0 for names that are no claims. */
static uint64_t
claim_epoch(const char *name)
{
    char again[CKPI_DIR_NAME_MAX];
    if (strncmp(name, "epoch-", 6) != 0)
        return 0;
    const unsigned long long e = strtoull(name + 6, NULL, 10);
    if (e > INT64_MAX)
        return 0;
    claim_name(again, e);
    return strcmp(again, name) == 0 ? e : 0;
}

static ckp_status
highest(ckpi_store *s, uint64_t *epoch, ckp_error *err)
{
    ckpi_names names;
    *epoch = 0;
    const ckp_status st = ckpi_names_read(s, CKPI_LOCK_DIR, &names, err);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < names.n; i++)
        if (claim_epoch(names.v[i]) > *epoch)
            *epoch = claim_epoch(names.v[i]);
    ckpi_names_free(&names);
    return CKP_OK;
}

static ckp_status
read_claim(ckpi_store *s, uint64_t epoch, ckpi_lockfile *out, ckp_error *err)
{
    char name[CKPI_DIR_NAME_MAX], path[CKPI_STORE_PATH];
    ckpi_buf raw = CKPI_BUF_INIT;
    claim_name(name, epoch);
    ckpi_store_path(path, CKPI_LOCK_DIR, name);
    ckp_status st = ckpi_fs_read(s->fs, path, CKPI_RUNFILE_MAX, &raw, err);
    if (st == CKP_OK)
        st = ckpi_lockfile_parse(out, raw.data, raw.len, err);
    ckpi_buf_free(&raw);
    return st;
}

/* Its bytes are no claim: nothing is known of its writer, and nothing more will be. */
static bool
is_garbage(ckp_status st)
{
    return st == CKP_ECORRUPT || st == CKP_EFORMAT || st == CKP_ETRUNCATED || st == CKP_ELIMIT;
}

/*
 * Space that a claim can be written in when the disk is full: without one nothing could be deleted, and no run closed. Whoever finds no other removes it, writes,
 * and makes it again as soon as that goes: a claim that replaces one, or lets older ones be forgotten, takes no space in the end.
 */
#define RESERVE "reserve"
#define RESERVE_BYTES 16384u       /* a block and what its name may need, of most file systems */

static bool
give_reserve(ckpi_store *s)
{
    char path[CKPI_STORE_PATH];
    ckpi_store_path(path, CKPI_LOCK_DIR, RESERVE);
    return !s->fs->ops->late && s->fs->ops->unlink(s->fs, path, NULL) == CKP_OK;
}

void
ckpi_lock_reserve(ckpi_store *s)
{
    ckpi_buf b = CKPI_BUF_INIT;
    bool there = true;
    if (s->fs->ops->late || ckpi_store_exists(s, CKPI_LOCK_DIR, RESERVE, &there, NULL) != CKP_OK || there)
        return;
    uint8_t *p = ckpi_buf_extend(&b, RESERVE_BYTES);
    if (p != NULL && ckpi_random(p, RESERVE_BYTES, NULL) == CKP_OK) {      /* nothing that a file system can make smaller */
        const ckp_status st = ckpi_store_put(s, CKPI_LOCK_DIR, RESERVE, &b, false, NULL);
        (void)st;
    }
    ckpi_buf_free(&b);
}

static ckp_status
write_claim(ckpi_store *s, const ckpi_lockfile *l, bool replace, ckp_error *err)
{
    char name[CKPI_DIR_NAME_MAX];
    ckpi_buf text = CKPI_BUF_INIT;
    claim_name(name, l->epoch);
    ckp_status st = ckpi_lockfile_print(l, &text, err);
    if (st == CKP_OK)
        st = ckpi_store_put(s, CKPI_LOCK_DIR, name, &text, replace, err);
    if (st == CKP_ENOSPC && give_reserve(s)) {
        st = ckpi_store_put(s, CKPI_LOCK_DIR, name, &text, replace, err);
        ckpi_lock_reserve(s);
    }
    ckpi_buf_free(&text);
    return st;
}

/* Clocks of two hosts may differ, so a time ahead of ours counts as fresh until it is ahead by the expiry. */
static bool
expired(const ckpi_lockfile *l)
{
    const int64_t now = ckpi_now_unix();
    const int64_t age = now > l->time ? now - l->time : l->time - now;
    return age > (int64_t)l->expiry;
}

/* CKP_OK when the claim may be followed by ours; CKP_EBUSY with who holds it. */
static ckp_status
may_follow(ckpi_store *s, uint64_t epoch, const ckpi_proc *self, ckp_error *err)
{
    ckpi_lockfile l;
    const ckp_status st = read_claim(s, epoch, &l, err);
    if (is_garbage(st))
        return CKP_OK;             /* should its writer live, our higher number fences it */
    if (st != CKP_OK)
        return st;
    if (!ckpi_id_eq(l.run_id, s->run_id) || !l.held || expired(&l) || ckpi_proc_alive(self, &l.owner) == CKPI_ALIVE_NO)
        return CKP_OK;
    if (ckpi_proc_same_place(self, &l.owner) && self->pid == l.owner.pid)
        return ckpi_fail(err, CKP_EBUSY, "this process has the run open for writing already, or could not say that it has closed it (process %lld): close that, or wait %u s",
                         (long long)l.owner.pid, l.expiry);
    return ckpi_fail(err, CKP_EBUSY, "the run is held by process %lld on host '%s', refreshed %lld s ago (expires after %u s)",
                     (long long)l.owner.pid, l.owner.host, (long long)(ckpi_now_unix() - l.time), l.expiry);
}

/* No run gets there by counting. */
static ckp_status
no_epoch_left(uint64_t top, ckp_error *err)
{
    char name[CKPI_DIR_NAME_MAX];
    claim_name(name, top);
    return ckpi_fail(err, CKP_ECORRUPT, "%s/%s: no claim can follow this number, which no writer took: remove the file", CKPI_LOCK_DIR, name);
}

/*
 * Nothing was done under it yet: whatever went wrong, it must not keep others (or ourselves, later) out. Where an object store knows no condition, what
 * lies there may be another's by now.
 */
static void
take_back(ckpi_store *s, const ckpi_lockfile *mine)
{
    char name[CKPI_DIR_NAME_MAX], path[CKPI_STORE_PATH];
    ckpi_lockfile there;
    s->lost = false;
    s->lock.held = false;
    if (read_claim(s, mine->epoch, &there, NULL) != CKP_OK || there.nonce != mine->nonce)
        return;
    claim_name(name, mine->epoch);
    ckpi_store_path(path, CKPI_LOCK_DIR, name);
    (void)s->fs->ops->unlink(s->fs, path, NULL);
}

/* One try. *again: the picture changed meanwhile, look anew. */
static ckp_status
try_take(ckpi_store *s, ckpi_lockfile *mine, bool *again, ckp_error *err)
{
    uint64_t top = 0;
    *again = false;
    ckp_status st = highest(s, &top, err);
    if (st == CKP_OK && top > 0)
        st = may_follow(s, top, &mine->owner, err);
    if (st == CKP_ENOTFOUND) {
        *again = true;             /* its follower has already forgotten it */
        return st;
    }
    if (st == CKP_OK && top >= INT64_MAX)
        st = no_epoch_left(top, err);
    if (st != CKP_OK)
        return st;
    mine->epoch = top + 1;
    mine->time = ckpi_now_unix();
    st = write_claim(s, mine, false, err);
    if (st == CKP_OK) {
        /* Between our listing and our claim others may have come, gone and tidied up: then our number is an old one. */
        s->lock = *mine;
        st = ckpi_lock_check(s, err);
    }
    *again = st == CKP_EEXIST || st == CKP_EBUSY;
    if (st != CKP_OK)
        take_back(s, mine);
    return st;
}

static ckp_status
make_lock_dir(ckpi_store *s, ckp_error *err)
{
    const ckp_status st = s->fs->ops->mkdir(s->fs, CKPI_LOCK_DIR, err);
    if (st == CKP_OK)
        return s->fs->ops->sync_dir(s->fs, "", err);
    return st == CKP_EEXIST ? CKP_OK : st;
}

ckp_status
ckpi_lock_take(ckpi_store *s, const ckpi_store_options *opt, ckp_error *err)
{
    ckpi_lockfile mine = {.run_id = s->run_id, .held = true, .expiry = opt->lock_expiry_s};
    bool again = false;
    ckp_status st = make_lock_dir(s, err);
    if (st == CKP_OK)
        st = ckpi_random(&mine.nonce, sizeof mine.nonce, err);
    if (st != CKP_OK)
        return st;
    ckpi_proc_self(&mine.owner);
    const int64_t until = ckpi_now_unix() + (int64_t)opt->lock_wait_s;
    for (int round = 0; round < MAX_ROUNDS;) {
        st = try_take(s, &mine, &again, err);
        if (again) {
            round++;
            continue;
        }
        if (st != CKP_EBUSY || opt->lock_wait_s == 0 || ckpi_now_unix() >= until)
            return st;
        ckpi_sleep_ms(POLL_MS);
    }
    return st;
}

static ckp_status
lost(ckpi_store *s, uint64_t top, ckp_error *err)
{
    s->lost = true;
    if (top > s->lock.epoch)
        return ckpi_fail(err, CKP_EBUSY, "another writer has taken the run over (epoch %llu after our %llu)",
                         (unsigned long long)top, (unsigned long long)s->lock.epoch);
    return ckpi_fail(err, CKP_EBUSY, "this writer's lock is gone");
}

ckp_status
ckpi_lock_check(ckpi_store *s, ckp_error *err)
{
    ckpi_lockfile now;
    uint64_t top = 0;
    ckp_status st = highest(s, &top, err);
    if (st == CKP_ENOTFOUND)
        return lost(s, 0, err);
    if (st != CKP_OK)
        return st;
    if (top != s->lock.epoch)
        return lost(s, top, err);
    st = read_claim(s, top, &now, err);
    if (st == CKP_ENOTFOUND || (st == CKP_OK && now.nonce != s->lock.nonce))
        return lost(s, 0, err);
    return st;
}

ckp_status
ckpi_lock_refresh(ckpi_store *s, ckp_error *err)
{
    ckp_status st = ckpi_lock_check(s, err);
    if (st != CKP_OK)
        return st;
    s->lock.time = ckpi_now_unix();
    return write_claim(s, &s->lock, true, err);
}

void
ckpi_lock_keep(ckpi_store *s)
{
    if (s->mode != CKPI_STORE_WRITE || !s->lock.held || s->lost || ckpi_now_unix() - s->lock.time < (int64_t)s->lock.expiry / 4)
        return;
    const ckp_status st = ckpi_lock_refresh(s, NULL);
    (void)st;
}

/* The file stays: its nonce is needed by the next writer's sweep, and its number must not come again. */
void
ckpi_lock_release(ckpi_store *s)
{
    ckp_status st = CKP_ENOMEM;
    ckpi_lockfile released = s->lock;

    released.held = false;
    /* a moment without memory must not keep this process out of its run until the claim expires */
    for (int tries = 0; st == CKP_ENOMEM && tries < 3 && !s->lost; tries++) {
        st = ckpi_lock_check(s, NULL);
        if (st == CKP_OK)
            st = write_claim(s, &released, true, NULL);
    }
    s->lock.held = false;
}

ckp_status
ckpi_lock_history(ckpi_store *s, ckpi_lockfile **v, size_t *n, ckp_error *err)
{
    ckpi_names names;
    *v = NULL;
    *n = 0;
    ckp_status st = ckpi_names_read(s, CKPI_LOCK_DIR, &names, err);
    if (st != CKP_OK)
        return st;
    *v = ckpi_malloc(names.n, sizeof **v);
    if (*v == NULL)
        st = ckpi_fail(err, CKP_ENOMEM, "no memory to read the lock's history");
    for (size_t i = 0; i < names.n && st == CKP_OK; i++) {
        const uint64_t epoch = claim_epoch(names.v[i]);
        if (epoch == 0 || epoch >= s->lock.epoch)
            continue;
        ckpi_lockfile *l = &(*v)[*n];
        st = read_claim(s, epoch, l, err);
        /* Garbage proves nothing and may be forgotten; one that cannot be read today may prove something tomorrow. */
        if (is_garbage(st)) {
            *l = (ckpi_lockfile){0};
            st = CKP_OK;
        }
        l->epoch = epoch;
        *n += st == CKP_OK;
    }
    ckpi_names_free(&names);
    return st;
}

void
ckpi_lock_forget(ckpi_store *s, const ckpi_lockfile *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[CKPI_DIR_NAME_MAX], path[CKPI_STORE_PATH];
        claim_name(name, v[i].epoch);
        ckpi_store_path(path, CKPI_LOCK_DIR, name);
        (void)s->fs->ops->unlink(s->fs, path, NULL);
    }
}

ckp_status
ckpi_store_refresh(ckpi_store *s, ckp_error *err)
{
    ckp_status st = ckpi_store_enter_write(s, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_lock_refresh(s, err);
    ckpi_store_leave(s);
    return st;
}
