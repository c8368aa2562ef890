/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of one run in shared memory, in a directory of its own that no other user may enter. All that lies there belongs to the run's writer, of which there is one
 * (docs/runs.md, invariant 9): temporaries of another process, and what is not in the chain of the newest checkpoint, can go. It never takes
 * more than its budget, whatever crashed before, for each copy counts all that is there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "os/host.h"
#include "os/private.h"
#include "run/memory.h"

#define PIECE ((size_t)1 << 20)
/* Seconds after which what a dead run has left is nobody's: a job that is to go on has been started again by then. */
#define OLD (24 * 3600)
/* The same where room is needed: long enough for a directory that was just made to be claimed. */
#define YOUNG 60

static void
note(ckpi_memory *m, const ckp_error *e)
{
    (void)snprintf(m->note, sizeof m->note, "no copy in memory: %.140s", e->text);
}

/* ---- what lies there ---------------------------------------------------------------------------------------------- */

static bool
collect(void *user, const char *entry, bool is_dir)
{
    if (!is_dir)
        ckpi_buf_put(user, entry, strlen(entry) + 1);
    return true;
}

static bool
has(const ckpi_buf *names, const char *name)
{
    for (size_t at = 0; at < names->len; at += strlen((const char *)names->data + at) + 1)
        if (strcmp((const char *)names->data + at, name) == 0)
            return true;
    return false;
}

static bool
is_tmp(const char *name)
{
    return strncmp(name, ".tmp-", 5) == 0;
}

typedef enum which {
    TEMPORARIES,
    NEEDLESS,                    /* for the copy at hand: a key needs nothing of what is there, a delta its chain */
    ALL_BUT_KEPT,
    EVERYTHING
} which;

static bool
stays(const ckpi_memory *m, which w, const char *name)
{
    switch (w) {
    case TEMPORARIES:
        return !is_tmp(name);
    case NEEDLESS:
        return is_tmp(name) || (!m->key && has(&m->kept, name));
    case ALL_BUT_KEPT:
        return has(&m->kept, name);
    case EVERYTHING:
        break;
    }
    return false;
}

/* Removes some and counts the rest. */
static void
sweep(ckpi_memory *m, which w)
{
    ckpi_buf names = CKPI_BUF_INIT;
    ckpi_stat s;

    m->used = 0;
    const ckp_status st = m->fs->ops->list(m->fs, "", collect, &names, NULL);
    if (st != CKP_OK)
        m->used = m->budget;     /* nobody knows: nothing more */
    for (size_t at = 0; st == CKP_OK && at < names.len; at += strlen((const char *)names.data + at) + 1) {
        const char *name = (const char *)names.data + at;
        if (!stays(m, w, name) && m->fs->ops->unlink(m->fs, name, NULL) == CKP_OK)
            continue;
        if (!is_tmp(name) && m->fs->ops->stat(m->fs, name, &s, NULL) == CKP_OK)
            m->used += s.size;
    }
    ckpi_buf_free(&names);
}

/* ---- opening, and other runs' leavings ---------------------------------------------------------------------------- */

typedef struct others { ckpi_buf names; const char *prefix, *own; } others;

static bool
collect_others(void *user, const char *entry, bool is_dir)
{
    others *o = user;
    if (is_dir && strncmp(entry, o->prefix, strlen(o->prefix)) == 0 && strcmp(entry, o->own) != 0)
        ckpi_buf_put(&o->names, entry, strlen(entry) + 1);
    return true;
}

/* Takes away one run's files, if it is dead and nobody has touched them for so long. */
static void
remove_dead(ckpi_fs *base, const ckpi_memory_ask *ask, const char *name, int64_t age)
{
    ckpi_memory other = {.budget = 0};

    (void)snprintf(other.dir, sizeof other.dir, "%.63s/%.90s", ask->base, name);
    if (ckpi_fs_private(&other.fs, other.dir, ask->user, false, NULL) != CKP_OK)
        return;
    if (ckpi_private_claim(other.fs) && ckpi_private_age(other.fs) >= age) {
        sweep(&other, EVERYTHING);
        (void)(base->ops->rmdir(base, name, NULL) == CKP_OK);
    }
    ckpi_fs_free(other.fs);
}

static void
sweep_others(const ckpi_memory *m, const ckpi_memory_ask *ask, int64_t age)
{
    char prefix[48];
    others o = {CKPI_BUF_INIT, prefix, strrchr(m->dir, '/') + 1};
    ckpi_fs *base = NULL;

    (void)snprintf(prefix, sizeof prefix, "ckpress-%lld-", (long long)ask->user);
    if (ckpi_fs_posix(&base, ask->base, false, NULL) != CKP_OK)
        return;
    const ckp_status st = base->ops->list(base, "", collect_others, &o, NULL);
    for (size_t at = 0; st == CKP_OK && at < o.names.len; at += strlen((const char *)o.names.data + at) + 1)
        remove_dead(base, ask, (const char *)o.names.data + at, age);
    ckpi_buf_free(&o.names);
    ckpi_fs_free(base);
}

static void
name_dir(ckpi_memory *m, const ckpi_memory_ask *ask)
{
    char hex[33], text[1024];

    ckpi_id_hex(ask->run, hex);
    const int n = snprintf(text, sizeof text, "%s\n%.900s", hex, ask->place);
    ckpi_id_hex(ckpi_hash128(text, (size_t)n), hex);
    (void)snprintf(m->base, sizeof m->base, "%.63s", ask->base);
    (void)snprintf(m->dir, sizeof m->dir, "%.63s/ckpress-%lld-%s", ask->base, (long long)ask->user, hex);
}

static bool
has_room(const ckpi_memory *m, unsigned times)
{
    const uint64_t room = ckpi_memory_room(m->base);
    return m->budget <= UINT64_MAX / times && room >= m->budget * times - CKPI_MIN(m->used, m->budget);
}

static void
too_small(ckpi_memory *m, unsigned times)
{
    (void)snprintf(m->note, sizeof m->note, "no copy in memory: %.60s has %llu MB left, %u times %llu are wanted", m->base,
                   (unsigned long long)(ckpi_memory_room(m->base) >> 20), times, (unsigned long long)(m->budget >> 20));
}

void
ckpi_memory_open(ckpi_memory *m, const ckpi_memory_ask *ask)
{
    ckp_error e;

    *m = (ckpi_memory){.budget = ask->budget};
    if (ask->budget == 0)
        return;
    name_dir(m, ask);
    ckpi_error_clear(&e);
    sweep_others(m, ask, OLD);
    if (ckpi_fs_private(&m->fs, m->dir, ask->user, true, &e) != CKP_OK) {
        note(m, &e);
        return;
    }
    /* Not its own while a process that the last writer forked lives; then it may be taken for a dead one's after a day. */
    (void)ckpi_private_claim(m->fs);
    sweep(m, TEMPORARIES);
    if (!has_room(m, ask->room))
        sweep_others(m, ask, YOUNG);
    if (!has_room(m, ask->room)) {
        too_small(m, ask->room);
        ckpi_memory_close(m, false);
    }
}

void
ckpi_memory_close(ckpi_memory *m, bool keep)
{
    ckpi_fs *base = NULL;

    ckpi_memory_abort(m);
    ckpi_buf_free(&m->kept);
    if (m->fs == NULL)
        return;
    if (!keep)
        sweep(m, EVERYTHING);
    /* only where nothing lies in it */
    if (m->dir[0] != '\0' && ckpi_fs_posix(&base, m->base, false, NULL) == CKP_OK)
        (void)(base->ops->rmdir(base, strrchr(m->dir, '/') + 1, NULL) == CKP_OK);
    ckpi_fs_free(base);
    ckpi_fs_free(m->fs);
    m->fs = NULL;
    m->used = 0;
}

/* ---- a copy -------------------------------------------------------------------------------------------------------- */

bool
ckpi_memory_name(char out[CKPI_MEMORY_NAME], const char *dir, const char *file)
{
    const int n = snprintf(out, CKPI_MEMORY_NAME, "%s.%s", dir, file);
    return n > 0 && n < CKPI_MEMORY_NAME && strchr(out, '/') == NULL;
}

static void
give_up(ckpi_memory *m)
{
    ckpi_writer_free(m->writer); /* removes its file */
    m->writer = NULL;
}

void
ckpi_memory_begin(ckpi_memory *m, const char *dir, const char *file, bool key)
{
    char tmp[CKPI_TMP_MAX];
    ckp_error e;

    m->key = key;
    m->there = false;
    m->name[0] = '\0';
    if (m->fs == NULL || !ckpi_memory_name(m->name, dir, file))
        return;
    m->note[0] = '\0';
    ckpi_error_clear(&e);
    sweep(m, TEMPORARIES);
    if (!has_room(m, 2)) {
        too_small(m, 2);
        return;
    }
    ckp_status st = ckpi_tmp_name(tmp, file, &e);
    if (st == CKP_OK)
        st = ckpi_writer_file(&m->writer, m->fs, tmp, &e);
    if (st != CKP_OK)
        note(m, &e);
}

static bool
fits(const ckpi_memory *m, size_t more)
{
    const uint64_t taken = m->used + ckpi_writer_pos(m->writer);
    return taken <= m->budget && more <= m->budget - taken;
}

void
ckpi_memory_put(void *memory, const void *p, size_t n)
{
    ckpi_memory *m = memory;
    ckp_error e;

    if (m->writer == NULL)
        return;
    if (!fits(m, n))
        sweep(m, NEEDLESS);
    ckpi_error_clear(&e);
    if (!fits(m, n))
        (void)ckpi_fail(&e, CKP_ELIMIT, "checkpoint and chain take more than %llu MB", (unsigned long long)(m->budget >> 20));
    else if (ckpi_writer_put(m->writer, p, n, &e) == CKP_OK)
        return;
    note(m, &e);
    give_up(m);
}

void
ckpi_memory_finish(ckpi_memory *m)
{
    ckp_error e;

    if (m->writer == NULL)
        return;
    ckpi_error_clear(&e);
    m->there = ckpi_writer_publish(m->writer, m->name, false, &e) == CKP_OK;
    if (m->there)
        m->used += ckpi_writer_pos(m->writer);
    else
        note(m, &e);
    give_up(m);
}

void
ckpi_memory_commit(ckpi_memory *m)
{
    if (m->fs == NULL)
        return;
    give_up(m);
    if (m->key)
        ckpi_buf_clear(&m->kept);
    if (m->there)
        ckpi_buf_put(&m->kept, m->name, strlen(m->name) + 1);
    m->there = false;
    sweep(m, ALL_BUT_KEPT);
}

void
ckpi_memory_abort(ckpi_memory *m)
{
    if (m->fs == NULL)
        return;
    give_up(m);
    if (m->there && m->fs->ops->unlink(m->fs, m->name, NULL) == CKP_OK)
        m->there = false;
}

void
ckpi_memory_adopt(ckpi_memory *m, const ckpi_buf *names)
{
    if (m->fs == NULL)
        return;
    ckpi_buf_clear(&m->kept);
    ckpi_buf_put(&m->kept, names->data, names->len);
}

/* ---- reading ------------------------------------------------------------------------------------------------------- */

static bool
has_hash(ckpi_reader *r, uint64_t length, ckpi_id hash)
{
    uint8_t *buf = ckpi_malloc(PIECE, 1);
    ckpi_hasher *h = ckpi_hasher_new();
    bool ok = buf != NULL && h != NULL;

    for (uint64_t at = 0; ok && at < length; at += PIECE) {
        const size_t n = (size_t)CKPI_MIN(length - at, (uint64_t)PIECE);
        ok = ckpi_reader_read(r, at, buf, n, NULL) == CKP_OK;
        if (ok)
            ckpi_hasher_add(h, buf, n);
    }
    ok = ok && ckpi_id_eq(ckpi_hasher_128(h), hash);
    ckpi_hasher_free(h);
    free(buf);
    return ok;
}

ckpi_reader *
ckpi_memory_reader(ckpi_fs *fs, const char *dir, const ckpi_shard_ref *shard)
{
    char name[CKPI_MEMORY_NAME];
    ckpi_reader *r = NULL;
    uint64_t size = 0;

    if (fs == NULL || !ckpi_memory_name(name, dir, shard->file) || ckpi_reader_file(&r, fs, name, NULL) != CKP_OK)
        return NULL;
    if (ckpi_reader_size(r, &size, NULL) == CKP_OK && size == shard->length && has_hash(r, size, shard->hash))
        return r;
    ckpi_reader_free(r);
    return NULL;
}
