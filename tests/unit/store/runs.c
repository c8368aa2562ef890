/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runs.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/limits.h"
#include "format/runfile.h"

void
run_tmp(char dir[RUN_TMP_MAX])
{
    snprintf(dir, RUN_TMP_MAX, "%s/ckp-run-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ".");
    assert_non_null(mkdtemp(dir));
}

static int
remove_one(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
    (void)sb, (void)type, (void)ftw;
    return remove(path);
}

void
run_rm(const char *dir)
{
    assert_int_equal(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

uint8_t *
run_bytes(uint64_t step, uint32_t shard, size_t *n)
{
    *n = 700 + (size_t)(step % 97) * 13 + shard;
    uint8_t *p = malloc(*n);
    for (size_t i = 0; p != NULL && i < *n; i++)
        p[i] = (uint8_t)(i * 31 + step * 7 + shard * 3 + (i >> 8));
    return p;
}

ckp_status
run_open(ckpi_store **s, ckpi_fs *fs, ckpi_store_mode mode, ckp_error *err)
{
    return ckpi_store_open(s, fs, mode, NULL, err);
}

static ckpi_id
content_of(uint64_t step)
{
    return ckpi_hash128(&step, sizeof step);
}

static ckp_status
save_shard(ckpi_store *s, ckpi_attempt *a, ckpi_manifest *m, uint64_t step, uint32_t i, uint32_t n, ckp_error *err)
{
    char name[CKPI_DIR_NAME_MAX];
    ckpi_writer *w = NULL;
    ckpi_id hash = {0, 0};
    size_t len;
    uint8_t *p = run_bytes(step, i, &len);
    ckp_status st = p == NULL ? CKP_ENOMEM : ckpi_store_shard(s, a, i, n, &w, err);
    if (st == CKP_OK)
        st = ckpi_writer_put(w, p, len, err);
    if (st == CKP_OK)
        st = ckpi_writer_finish(w, err);
    if (st == CKP_OK)
        st = ckpi_writer_hash(w, &hash, err);
    ckpi_shard_name(name, i, n);
    if (st == CKP_OK)
        st = ckpi_manifest_add_shard(m, name, ckpi_writer_pos(w), hash, content_of(step + i), err);
    ckpi_writer_free(w);
    free(p);
    return st;
}

static ckp_status
set_base(ckpi_store *s, ckpi_manifest *m, const char *base, ckp_error *err)
{
    ckpi_chain c = CKPI_CHAIN_INIT;
    if (base == NULL)
        return CKP_OK;
    ckp_status st = ckpi_store_chain(s, base, &c, err);
    if (st == CKP_OK) {
        m->kind = CKPI_CKPT_DELTA;
        m->base = c.m[c.n - 1]->content;
        m->chain = c.m[c.n - 1]->chain + 1;
        st = ckpi_manifest_set(&m->base_dir, base, err);
    }
    ckpi_chain_free(&c);
    return st;
}

ckp_status
run_save(ckpi_store *s, uint64_t step, const char *base, uint32_t shards, char dir[CKPI_DIR_NAME_MAX], ckp_error *err)
{
    ckpi_attempt *a = NULL;
    ckpi_manifest *m = ckpi_manifest_new();
    if (dir != NULL)
        dir[0] = '\0';
    ckp_status st = m == NULL ? CKP_ENOMEM : set_base(s, m, base, err);
    if (st == CKP_OK)
        st = ckpi_manifest_set(&m->profile, "lossless", err);
    if (st == CKP_OK)
        st = ckpi_store_begin(s, step, &a, err);
    if (st == CKP_OK && dir != NULL)
        snprintf(dir, CKPI_DIR_NAME_MAX, "%s", ckpi_attempt_dir(a));
    for (uint32_t i = 0; i < shards && st == CKP_OK; i++)
        st = save_shard(s, a, m, step, i, shards, err);
    if (st == CKP_OK) {
        m->content = content_of(step);
        st = ckpi_store_commit(s, a, m, err);
        a = NULL;
    }
    ckpi_store_abort(s, a);
    ckpi_manifest_free(m);
    return st;
}

static void
note(char list[TRACE_MAX][CKPI_DIR_NAME_MAX], size_t *n, const char *dir)
{
    assert_true(*n < TRACE_MAX);
    snprintf(list[(*n)++], CKPI_DIR_NAME_MAX, "%s", dir);
}

static bool
noted(const char list[TRACE_MAX][CKPI_DIR_NAME_MAX], size_t n, const char *dir)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], dir) == 0)
            return true;
    return false;
}

ckp_status
trace_save(trace *t, ckpi_store *s, uint64_t step, const char *base, char dir[CKPI_DIR_NAME_MAX])
{
    char name[CKPI_DIR_NAME_MAX];
    const ckp_status st = run_save(s, step, base, 2, name, NULL);
    if (st == CKP_OK) {
        note(t->kept, &t->n_kept, name);
        snprintf(t->base[t->n_kept - 1], CKPI_DIR_NAME_MAX, "%s", base != NULL ? base : "");
    } else if (name[0] != '\0')
        note(t->maybe, &t->n_maybe, name);
    if (dir != NULL)
        snprintf(dir, CKPI_DIR_NAME_MAX, "%s", st == CKP_OK ? name : "");
    return st;
}

/* From the trace alone: a listing could be met by the very fault that is being tested. */
ckp_status
trace_retain_one(trace *t, ckpi_store *s)
{
    const ckp_status st = ckpi_store_retain(s, &LAST_ONE, NULL, NULL);
    trace was = *t;
    const char *need = was.n_kept > 0 ? was.kept[was.n_kept - 1] : "";
    t->n_kept = 0;
    for (size_t i = was.n_kept; i-- > 0;) {
        if (strcmp(was.kept[i], need) == 0) {
            need = was.base[i];
            note(t->kept, &t->n_kept, was.kept[i]);
            memcpy(t->base[t->n_kept - 1], was.base[i], CKPI_DIR_NAME_MAX);
        } else if (st == CKP_OK) {
            note(t->gone, &t->n_gone, was.kept[i]);
        } else {
            note(t->maybe, &t->n_maybe, was.kept[i]);
        }
    }
    return st;
}

static bool
take_highest(void *user, const char *entry, bool is_dir)
{
    char *top = user;
    if (!is_dir && strncmp(entry, "epoch-", 6) == 0 && strcmp(entry, top) > 0)
        snprintf(top, CKPI_DIR_NAME_MAX, "%s", entry);
    return true;
}

void
run_age_lock_by(fault_disk *d, int64_t seconds)
{
    char top[CKPI_DIR_NAME_MAX] = "", path[CKPI_DIR_NAME_MAX + 8];
    ckpi_buf raw = CKPI_BUF_INIT;
    ckpi_lockfile l;
    ckpi_fs *fs = fault_mount(d);
    if (fs->ops->list(fs, "lock", take_highest, top, NULL) == CKP_OK && top[0] != '\0') {
        snprintf(path, sizeof path, "lock/%s", top);
        if (ckpi_fs_read(fs, path, CKPI_RUNFILE_MAX, &raw, NULL) == CKP_OK && ckpi_lockfile_parse(&l, raw.data, raw.len, NULL) == CKP_OK) {
            l.time -= seconds;
            ckpi_buf_clear(&raw);
            assert_ok(ckpi_lockfile_print(&l, &raw, NULL));
            fault_write(d, path, raw.data, raw.len);
        }
    }
    ckpi_buf_free(&raw);
    ckpi_fs_free(fs);
}

void
run_age_lock(fault_disk *d)
{
    run_age_lock_by(d, 1000000);
}

/* ---- judge ---- */

static void
blame(const char *what, const char *dir, const char *why, const char *detail)
{
    fail_msg("%s: %s %s: %s", what, dir, why, detail != NULL ? detail : "");
}

/* Invariants 1 to 5 for one entry. A directory without a manifest is only no checkpoint; one with it must be whole. */
static void
judge_entry(ckpi_store *s, const ckpi_entry *e, const trace *t, const char *what)
{
    ckp_error err;
    if (e->health == CKPI_HEALTH_INCOMPLETE || e->health == CKPI_HEALTH_DELETING)
        return;
    if (e->health != CKPI_HEALTH_OK)
        blame(what, e->dir, ckpi_health_name(e->health), e->reason);
    if (ckpi_store_check(s, e->dir, 2, NULL, NULL, &err) != CKP_OK)
        blame(what, e->dir, "fails its check", err.text);
    if (noted(t->gone, t->n_gone, e->dir))
        blame(what, e->dir, "came back from the dead", NULL);
    if (!noted(t->kept, t->n_kept, e->dir) && !noted(t->maybe, t->n_maybe, e->dir))
        blame(what, e->dir, "was never begun", NULL);
}

static void
judge_promises(const ckpi_entries *e, const trace *t, const char *what)
{
    for (size_t k = 0; k < t->n_kept; k++) {
        size_t i = 0;
        while (i < e->n && strcmp(e->v[i].dir, t->kept[k]) != 0)
            i++;
        if (i == e->n || e->v[i].health != CKPI_HEALTH_OK)
            blame(what, t->kept[k], "was committed and is lost", i == e->n ? "no directory" : e->v[i].reason);
    }
}

/* Invariant 6: latest is the highest sequence, and none is used twice. */
static uint64_t
judge_latest(ckpi_store *s, const ckpi_entries *e, const char *what)
{
    ckpi_chain c = CKPI_CHAIN_INIT;
    uint64_t top = 0;
    for (size_t i = 0; i < e->n; i++) {
        if (e->v[i].m == NULL)
            continue;
        if (e->v[i].m->sequence <= top)
            blame(what, e->v[i].dir, "repeats a sequence", NULL);
        top = e->v[i].m->sequence;
    }
    const ckp_status st = ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL);
    if (top == 0)
        assert_status(st, CKP_ENOTFOUND);
    else if (st != CKP_OK || c.m[c.n - 1]->sequence != top)
        blame(what, "latest", "is not the highest sequence", NULL);
    ckpi_chain_free(&c);
    return top;
}

static void
judge_reading(fault_disk *d, const trace *t, const char *what)
{
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    const uint64_t before = fault_digest(d);
    const ckp_status st = run_open(&s, fault_mount(d), CKPI_STORE_READ, NULL);
    if (st == CKP_ENOTFOUND && t->n_kept == 0)
        return;                          /* cut off before the run had an identity */
    assert_ok(st);
    assert_ok(ckpi_store_list(s, &e, NULL));
    for (size_t i = 0; i < e.n; i++)
        judge_entry(s, &e.v[i], t, what);
    judge_promises(&e, t, what);
    (void)judge_latest(s, &e, what);
    ckpi_entries_free(&e);
    ckpi_store_free(s);
    if (fault_digest(d) != before)
        blame(what, "run", "was changed by a reader", NULL);      /* invariant 7 */
}

/* Invariant 8: after a writer has opened the run nothing of dead writers is left. */
static void
judge_tidy(ckpi_store *s, const char *what)
{
    ckpi_entries e = {0};
    assert_ok(ckpi_store_list(s, &e, NULL));
    for (size_t i = 0; i < e.n; i++)
        if (e.v[i].health != CKPI_HEALTH_OK)
            blame(what, e.v[i].dir, "was left by the sweep", e.v[i].reason);
    ckpi_entries_free(&e);
}

void
run_judge(fault_disk *d, const trace *t, const char *what)
{
    ckpi_store *s = NULL;
    ckpi_entries e = {0};
    trace after = *t;
    ckp_error err;
    char base[CKPI_DIR_NAME_MAX] = "";
    ckpi_chain c = CKPI_CHAIN_INIT;

    judge_reading(d, t, what);
    run_age_lock(d);
    if (run_open(&s, fault_mount(d), CKPI_STORE_WRITE, &err) != CKP_OK)
        blame(what, "run", "cannot be opened for writing", err.text);
    judge_tidy(s, what);
    if (ckpi_store_latest(s, UINT64_MAX, &c, NULL, NULL) == CKP_OK)
        snprintf(base, sizeof base, "%s", c.dir[c.n - 1]);
    ckpi_chain_free(&c);
    assert_ok(trace_save(&after, s, 5000, base[0] != '\0' ? base : NULL, base));
    assert_ok(ckpi_store_list(s, &e, NULL));
    (void)judge_latest(s, &e, what);
    assert_string_equal(e.v[e.n - 1].dir, base);
    ckpi_entries_free(&e);
    ckpi_store_free(s);
    judge_reading(d, &after, what);
}

void
run_points(const char *operation, const char *fault, uint64_t n)
{
    print_message("POINTS %llu  %s: %s\n", (unsigned long long)n, operation, fault);
}
