/* SPDX-License-Identifier: Apache-2.0 */
/* Copying one checkpoint; the order is in copy.c. */
#include <string.h>
#include "base/fail.h"
#include "store/copy.h"

/* A longer name would not fit into its temporary's. */
#define MODEL_NAME_MAX (CKPI_TMP_MAX - 64)

/* ---- one file --------------------------------------------------------------------------------------------------------- */

static ckp_status
tell(ckpi_copying *c, size_t n, ckp_error *err)
{
    const int64_t now = ckpi_now_unix();
    c->bytes += c->uncounted ? 0 : n;
    if (c->ask->progress != NULL && c->ask->progress(c->ask->user, c->bytes, c->total) != 0)
        return ckpi_fail(err, CKP_ECANCELLED, "cancelled");
    if (now >= c->refreshed && now - c->refreshed < (int64_t)(c->to->lock.expiry / 4))
        return CKP_OK;
    c->refreshed = now;
    return ckpi_lock_refresh(c->to, err);
}

static ckp_status
pump(ckpi_copying *c, ckpi_reader *r, ckpi_writer *w, uint64_t length, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (uint64_t off = 0; off < length && st == CKP_OK;) {
        const size_t n = length - off < CKPI_COPY_PIECE ? (size_t)(length - off) : CKPI_COPY_PIECE;
        st = ckpi_reader_read(r, off, c->piece, n, err);
        c->source_bad = st == CKP_ETRUNCATED || st == CKP_EIO;
        if (st == CKP_OK)
            st = ckpi_writer_put(w, c->piece, n, err);
        if (st == CKP_OK)
            st = tell(c, n, err);
        off += n;
    }
    if (st != CKP_OK)
        return st;
    ckpi_keeper *k = ckpi_keeper_start(c->to, true);
    st = ckpi_writer_finish(w, err);
    ckpi_keeper_stop(k);
    return st;
}

/* *hash is that of what was written, durable under the name `path` of both runs or `as` of the copy. */
static ckp_status
copy_file(ckpi_copying *c, const char *path, const char *as, uint64_t length, ckpi_id *hash, ckp_error *err)
{
    ckpi_reader *r = NULL;
    ckpi_writer *w = NULL;
    ckp_status st = ckpi_reader_file(&r, c->from->fs, path, err);
    c->source_bad = st == CKP_EIO || st == CKP_EACCESS || st == CKP_ENOTFOUND || st == CKP_EPATH;
    if (st == CKP_OK)
        st = ckpi_writer_file(&w, c->to->fs, as, err);
    if (st == CKP_OK)
        st = pump(c, r, w, length, err);
    if (st == CKP_OK)
        st = ckpi_writer_hash(w, hash, err);
    ckpi_writer_free(w);
    ckpi_reader_free(r);
    return st;
}

static ckp_status
copy_shard(ckpi_copying *c, const char *dir, const ckpi_shard_ref *ref, ckp_error *err)
{
    char path[CKPI_STORE_PATH], want[33], got[33];
    ckpi_id hash = {0};
    ckpi_store_path(path, dir, ref->file);
    ckp_status st = copy_file(c, path, path, ref->length, &hash, err);
    if (st != CKP_OK || ckpi_id_eq(hash, ref->hash))
        return st;
    c->source_bad = true;
    ckpi_id_hex(ref->hash, want);
    ckpi_id_hex(hash, got);
    st = ckpi_fail(err, CKP_ECORRUPT, "what the source has hashes to %s, its manifest says %s", got, want);
    ckpi_fail_file(err, path);
    return st;
}

/* ---- the base model ------------------------------------------------------------------------------------------------------ */

static bool
is_plain(ckpi_store *s, const char *name, uint64_t *size, ckp_status *st, ckp_error *err)
{
    ckpi_stat sb = {0};
    *st = s->fs->ops->stat(s->fs, name, &sb, err);
    const bool plain = *st == CKP_OK && !sb.is_dir && !sb.is_link && !sb.is_special;
    if (*st == CKP_ENOTFOUND)
        *st = CKP_OK;
    *size = sb.size;
    return plain;
}

/* A run may hold the file that its keys begin from, by its last name (docs/runs.md, "Base model"). Its content is proved when a key is opened. */
static ckp_status
copy_model(ckpi_copying *c, const char *base_model, ckp_error *err)
{
    const char *slash = strrchr(base_model, '/'), *name = slash != NULL ? slash + 1 : base_model;
    char tmp[CKPI_TMP_MAX];
    uint64_t size, have;
    ckpi_id hash;
    ckp_status st;

    if (strlen(name) >= MODEL_NAME_MAX || ckpi_path_ok(name, NULL) != CKP_OK || !is_plain(c->from, name, &size, &st, NULL)) {
        c->done->models_outside++;
        return CKP_OK;
    }
    if (is_plain(c->to, name, &have, &st, err)) {
        if (have == size)
            return CKP_OK;
        st = ckpi_fail(err, CKP_EEXIST, "is there and is not the source's: it has %llu bytes, not %llu", (unsigned long long)have, (unsigned long long)size);
        ckpi_fail_file(err, name);
        return st;
    }
    if (st == CKP_OK)
        st = ckpi_tmp_name(tmp, name, err);
    if (st != CKP_OK)
        return st;
    c->uncounted = true;
    st = copy_file(c, name, tmp, size, &hash, err);
    c->uncounted = false;
    if (st == CKP_OK)
        st = c->to->fs->ops->publish(c->to->fs, tmp, name, false, err);
    if (st == CKP_OK)
        st = c->to->fs->ops->sync_dir(c->to->fs, "", err);
    if (st != CKP_OK)
        (void)c->to->fs->ops->unlink(c->to->fs, tmp, NULL);
    c->source_bad = false;             /* whoever shortens it meanwhile: nothing that is damaged was left out */
    return st;
}

/* ---- one checkpoint -------------------------------------------------------------------------------------------------------- */

ckp_status
ckpi_copy_put_record(ckpi_copying *c, ckp_error *err)
{
    c->record.run_id = c->to->run_id;
    if (memcmp(&c->record, &c->written, sizeof c->record) == 0)
        return CKP_OK;
    const ckp_status st = ckpi_copied_write(c->to, &c->record, err);
    if (st == CKP_OK)
        c->written = c->record;
    return st;
}

void
ckpi_copy_set_name(char to[CKPI_DIR_NAME_MAX], const char *dir)
{
    memset(to, 0, CKPI_DIR_NAME_MAX);
    memcpy(to, dir, strlen(dir));
}

/* The directory, without what an earlier try left in it. It may stay for foreign files' sake. */
static ckp_status
make_dir(ckpi_copying *c, const char *dir, ckp_error *err)
{
    bool deleted = false;
    ckp_status st = c->to->fs->ops->mkdir(c->to->fs, dir, err);
    if (st != CKP_EEXIST)
        return st;
    st = ckpi_store_exists(c->to, dir, CKPI_DELETED_FILE, &deleted, err);
    if (st == CKP_OK)
        st = deleted ? ckpi_resume_deletion(c->to, dir) : ckpi_remove_uncommitted(c->to, dir, err);
    if (st != CKP_OK && st != CKP_EEXIST)
        return deleted ? ckpi_fail(err, st, "'%s' is half deleted, and that cannot be finished", dir) : st;
    st = c->to->fs->ops->mkdir(c->to->fs, dir, err);
    return st == CKP_EEXIST ? CKP_OK : st;
}

/* Its manifest as it is, bytes and meaning. */
static ckp_status
read_exactly(ckpi_copying *c, const char *dir, ckpi_buf *text, ckpi_manifest **m, ckp_error *err)
{
    char path[CKPI_STORE_PATH];
    ckpi_store_path(path, dir, CKPI_MANIFEST_FILE);
    ckp_status st = ckpi_read_manifest(c->from, dir, CKPI_MANIFEST_FILE, m, err);
    if (st == CKP_OK)
        st = ckpi_fs_read(c->from->fs, path, CKPI_MAX_MANIFEST, text, err);
    return st;
}

static ckp_status
write_checkpoint(ckpi_copying *c, const ckpi_manifest *m, const ckpi_buf *text, ckpi_attempt *a, ckp_error *err)
{
    ckp_status st = ckpi_copy_put_record(c, err);
    if (st == CKP_OK && m->base_model != NULL)
        st = copy_model(c, m->base_model, err);
    if (st == CKP_OK)
        st = make_dir(c, a->dir, err);
    if (st != CKP_OK)
        return st;
    for (size_t i = 0; i < m->n_shards && st == CKP_OK; i++)
        st = copy_shard(c, a->dir, &m->shards[i], err);
    if (st == CKP_OK)
        return ckpi_commit_copy(c->to, a, m, text, err);
    (void)ckpi_remove_uncommitted(c->to, a->dir, NULL);
    return st;
}

ckp_status
ckpi_copy_one(ckpi_copying *c, const ckpi_entry *e, ckp_error *err)
{
    ckpi_buf text = CKPI_BUF_INIT;
    ckpi_manifest *m = NULL;
    ckpi_attempt a = {.step = e->step, .id = e->attempt};
    ckp_status st = read_exactly(c, e->dir, &text, &m, err);
    ckpi_copy_set_name(a.dir, e->dir);
    ckpi_copy_set_name(c->record.next, e->dir);
    if (st == CKP_OK)
        st = write_checkpoint(c, m, &text, &a, err);
    if (st == CKP_OK && m->sequence > c->record.sequence) {
        c->record.sequence = m->sequence;
        ckpi_copy_set_name(c->record.dir, e->dir);
    }
    ckpi_manifest_free(m);
    ckpi_buf_free(&text);
    return st;
}
