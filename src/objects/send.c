/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending an object: put if absent, then look at what is there.
 *
 *     put says      there is         then
 *     CKP_OK        the same         done
 *     CKP_OK        something else   taken back, CKP_EIO: what is sent damaged is never relied on; of a shared key left there, CKP_EEXIST
 *     CKP_EEXIST    the same         done: an earlier try of this very put had arrived
 *     CKP_EEXIST    something else   CKP_EEXIST
 *     CKP_EIO       the same         done: only the answer was lost
 *     CKP_EIO       anything else    CKP_EIO, in doubt: it may yet arrive
 *     others        -                that: it was not done and will not be
 *
 * Shared keys are those that every writer would give the same object: run.json and claims. Where the store knows no condition, another may have put over ours
 * before we looked: what is there is then its, and must stay. Whoever finds that it is nobody's, but damaged, reads it and knows.
 *
 * "The same" can be nobody else's: each object that is put if absent has random bits of its writer in its name or its bytes. While a put is in doubt,
 * syncing its directory fails, as after a failed fsync: nobody knows what will be there. Then the store leaves the shards that the manifest
 * would rely on (docs/runs.md, invariant 3), and uses its sequence number no more.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "objects/internal.h"

#define PIECE ((size_t)8 << 20)

static ckp_status
same_piece(const objects_fs *fs, const char *key, const ckpi_upload *s, uint64_t off, uint8_t *mine, uint8_t *theirs, size_t n, bool *same, ckp_error *err)
{
    ckp_status st = s->bytes.read(&s->bytes, off, mine, n, err);
    if (st == CKP_OK)
        st = ckpi_object_get(fs, key, off, theirs, n, err);
    if (st == CKP_OK)
        *same = memcmp(mine, theirs, n) == 0;
    return st;
}

static ckp_status
same_bytes(const objects_fs *fs, const char *key, const ckpi_upload *s, bool *same, ckp_error *err)
{
    const size_t piece = (size_t)CKPI_MIN(s->bytes.size, (uint64_t)PIECE);
    uint8_t *buf = ckpi_malloc(2 * piece, 1);
    ckp_status st = buf != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to read back '%.200s'", key);

    for (uint64_t off = 0; st == CKP_OK && *same && off < s->bytes.size; off += piece)
        st = same_piece(fs, key, s, off, buf, buf + piece, (size_t)CKPI_MIN(s->bytes.size - off, (uint64_t)piece), same, err);
    free(buf);
    return st;
}

/* Whether what lies under the key is what is staged. whole: whatever the table's read_back says. CKP_ENOTFOUND: nothing does. */
static ckp_status
look(const objects_fs *fs, const char *key, const ckpi_upload *s, bool whole, bool *same, ckp_error *err)
{
    uint64_t size = 0;
    const ckp_status st = ckpi_object_stat(fs, key, &size, err);
    *same = st == CKP_OK && size == s->bytes.size;
    if (!*same || size == 0 || (!whole && fs->table.read_back == CKP_READ_BACK_SIZE))
        return st;
    return same_bytes(fs, key, s, same, err);
}

/* ---- doubt ---- */

static ckpi_doubt *
doubt_new(const char *key)
{
    ckpi_doubt *d = ckpi_malloc(sizeof *d + strlen(key) + 1, 1);
    if (d != NULL)
        memcpy(d->key, key, strlen(key) + 1);
    return d;
}

bool
ckpi_object_doubtful(objects_fs *fs, const char *dir)
{
    const size_t n = strlen(dir);
    bool any = false;
    pthread_mutex_lock(&fs->mutex);
    for (const ckpi_doubt *d = fs->doubt; d != NULL && !any; d = d->next)
        any = n == 0 ? strchr(d->key, '/') == NULL : strncmp(d->key, dir, n) == 0 && d->key[n] == '/' && strchr(d->key + n + 1, '/') == NULL;
    pthread_mutex_unlock(&fs->mutex);
    return any;
}

/* ---- sending ---- */

static bool
is_shared(const char *key)
{
    return strcmp(key, "run.json") == 0 || strncmp(key, "lock/", 5) == 0;
}

static ckp_status
not_the_same(const char *key, ckp_status as, ckp_error *err)
{
    const ckp_status st = ckpi_fail(err, as, "what was uploaded is not what is read back");
    ckpi_fail_file(err, key);
    return st;
}

static ckp_status
send_over(objects_fs *fs, const char *key, const ckpi_upload *s, ckp_error *err)
{
    ckp_error said;
    bool same = false;
    ckpi_error_clear(&said);
    const ckp_status st = fs->table.put(fs->table.user, key, &s->bytes, true, &said);
    if (st != CKP_OK)
        return ckpi_object_answer(fs, key, st, &said, "cannot write", err);
    const ckp_status looked = look(fs, key, s, false, &same, err);
    return looked == CKP_OK && !same ? not_the_same(key, CKP_EIO, err) : looked;
}

/* After a put if absent that says it was done. */
static ckp_status
confirm(const objects_fs *fs, const char *key, const ckpi_upload *s, bool *doubt, ckp_error *err)
{
    const bool shared = is_shared(key);
    bool same = false;
    ckp_status st = look(fs, key, s, shared, &same, err);
    if (st == CKP_OK && same)
        return CKP_OK;
    if (st == CKP_OK)
        st = not_the_same(key, shared ? CKP_EEXIST : CKP_EIO, err);
    /* Ours alone, and useless: nobody must find it. */
    *doubt = !shared && ckpi_object_remove(fs, key, NULL) != CKP_OK;
    return st;
}

static ckp_status
send_new(objects_fs *fs, const char *key, const ckpi_upload *s, bool *doubt, ckp_error *err)
{
    ckp_error said, looked;
    bool same = false;
    ckpi_error_clear(&said);
    ckp_status st = fs->table.put(fs->table.user, key, &s->bytes, false, &said);
    if (st == CKP_OK)
        return confirm(fs, key, s, doubt, err);
    const ckp_status put = ckpi_object_answer(fs, key, st, &said, "cannot write", err);
    if (put != CKP_EEXIST && put != CKP_EIO)
        return put;
    ckpi_error_clear(&looked);
    st = look(fs, key, s, true, &same, &looked);
    if (st == CKP_OK && same)
        return CKP_OK;
    if (put == CKP_EEXIST && st == CKP_OK)
        return CKP_EEXIST;
    *doubt = true;
    if (put == CKP_EIO)
        return CKP_EIO;
    if (err != NULL)
        *err = looked;
    return st == CKP_ENOTFOUND ? ckpi_fail(err, CKP_EIO, "'%.200s' was there, and is not", key) : st;
}

ckp_status
ckpi_object_send(objects_fs *fs, const char *key, const ckpi_upload *s, bool replace, ckp_error *err)
{
    bool doubt = false;
    if (replace)
        return send_over(fs, key, s, err);
    /* Before: a doubt that there is no memory for would be forgotten. */
    ckpi_doubt *d = doubt_new(key);
    if (d == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to write '%.200s'", key);
    const ckp_status st = send_new(fs, key, s, &doubt, err);
    if (!doubt) {
        free(d);
        return st;
    }
    pthread_mutex_lock(&fs->mutex);
    d->next = fs->doubt;
    fs->doubt = d;
    pthread_mutex_unlock(&fs->mutex);
    return st;
}
