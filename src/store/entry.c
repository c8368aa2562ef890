/* SPDX-License-Identifier: Apache-2.0 */
/* One checkpoint's directory: its manifest, its shards, its health. */
#include <string.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

const char *
ckpi_health_name(ckpi_health h)
{
    static const char *const names[] = {
        [CKPI_HEALTH_OK] = "ok", [CKPI_HEALTH_INCOMPLETE] = "incomplete", [CKPI_HEALTH_DELETING] = "deleting", [CKPI_HEALTH_BAD_MANIFEST] = "bad manifest",
        [CKPI_HEALTH_FOREIGN] = "foreign", [CKPI_HEALTH_UNSUPPORTED] = "unsupported", [CKPI_HEALTH_MISSING_SHARD] = "missing shard",
        [CKPI_HEALTH_WRONG_LENGTH] = "wrong length", [CKPI_HEALTH_BAD_BASE] = "bad base"};
    return (unsigned)h < sizeof names / sizeof *names ? names[h] : "unknown";
}

static ckp_status
check_place(const ckpi_store *s, const char *dir, const ckpi_manifest *m, ckp_error *err)
{
    char name[CKPI_DIR_NAME_MAX];
    ckpi_dir_name(name, m->step, m->attempt);
    if (strcmp(name, dir) != 0)
        return ckpi_fail(err, CKP_ECORRUPT, "manifest belongs to '%s'", name);
    if (!ckpi_id_eq(m->run_id, s->run_id))
        return ckpi_fail(err, CKP_EMISMATCH, "manifest belongs to another run");
    return CKP_OK;
}

ckp_status
ckpi_read_manifest(ckpi_store *s, const char *dir, const char *file, ckpi_manifest **out, ckp_error *err)
{
    char path[CKPI_STORE_PATH];
    ckpi_buf raw = CKPI_BUF_INIT;
    ckpi_store_path(path, dir, file);
    *out = NULL;
    ckp_status st = ckpi_fs_read(s->fs, path, CKPI_MAX_MANIFEST, &raw, err);
    if (st == CKP_OK)
        st = ckpi_manifest_parse(out, raw.data, raw.len, err);
    ckpi_buf_free(&raw);
    if (st == CKP_OK)
        st = check_place(s, dir, *out, err);
    if (st != CKP_OK)
        ckpi_fail_file(err, path);
    if (st != CKP_OK && st != CKP_EMISMATCH) {
        ckpi_manifest_free(*out);
        *out = NULL;
    }
    return st;
}

ckp_status
ckpi_check_shards(ckpi_store *s, const char *dir, const ckpi_manifest *m, ckp_error *err)
{
    for (size_t i = 0; i < m->n_shards; i++) {
        const ckpi_shard_ref *ref = &m->shards[i];
        char path[CKPI_STORE_PATH];
        ckpi_stat sb;
        ckpi_store_path(path, dir, ref->file);
        ckp_status st = s->fs->ops->stat(s->fs, path, &sb, err);
        if (st == CKP_OK && (sb.is_dir || sb.is_link || sb.is_special))
            st = ckpi_fail(err, CKP_ENOTFOUND, "is a %s, not a plain file", sb.is_link ? "symbolic link" : sb.is_dir ? "directory" : "pipe, socket or device");
        else if (st == CKP_OK && sb.size != ref->length)
            st = ckpi_fail(err, CKP_ETRUNCATED, "has %llu bytes, the manifest says %llu", (unsigned long long)sb.size,
                           (unsigned long long)ref->length);
        if (st != CKP_OK) {
            ckpi_fail_file(err, path);
            return st;
        }
    }
    return CKP_OK;
}

ckp_status
ckpi_entry_bad(ckpi_entry *e, ckpi_health h, const char *reason, ckp_error *err)
{
    e->health = h;
    e->reason = ckpi_strdup(reason);
    return e->reason != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to list a run");
}

/* No manifest: never committed, or being deleted. */
static ckp_status
without_manifest(ckpi_store *s, ckpi_entry *e, ckp_error *err)
{
    bool deleted = false;
    const ckp_status st = ckpi_store_exists(s, e->dir, CKPI_DELETED_FILE, &deleted, NULL);
    if (st == CKP_OK && deleted)
        return ckpi_entry_bad(e, CKPI_HEALTH_DELETING, "deleted, but not to the end", err);
    return ckpi_entry_bad(e, CKPI_HEALTH_INCOMPLETE, "no manifest: a save in flight or cut short", err);
}

static ckpi_health
health_of_manifest(ckp_status st)
{
    switch (st) {
    case CKP_EVERSION:
    case CKP_EUNSUPPORTED: return CKPI_HEALTH_UNSUPPORTED;
    case CKP_EMISMATCH: return CKPI_HEALTH_FOREIGN;
    default: return CKPI_HEALTH_BAD_MANIFEST;
    }
}

/* A shard is missing or wrong. A reader beside a writer that is deleting sees just that: look at the manifest again. */
static ckp_status
shards_bad(ckpi_store *s, ckpi_entry *e, ckp_status why, const ckp_error *detail, ckp_error *err)
{
    bool there = true;
    ckpi_survey_close(s);                /* it does not know what has gone since */
    if (ckpi_store_exists(s, e->dir, CKPI_MANIFEST_FILE, &there, NULL) == CKP_OK && !there) {
        ckpi_manifest_free(e->m);
        e->m = NULL;
        e->bytes = 0;
        return without_manifest(s, e, err);
    }
    return ckpi_entry_bad(e, why == CKP_ETRUNCATED ? CKPI_HEALTH_WRONG_LENGTH : CKPI_HEALTH_MISSING_SHARD, detail->text, err);
}

/* Of no checkpoint is anything known for want of memory, or of files that may be open: no listing then. */
static ckp_status
not_now(const ckp_error *why, ckp_error *err)
{
    if (err != NULL)
        *err = *why;
    return why->code;
}

ckp_status
ckpi_entry_read(ckpi_store *s, ckpi_entry *e, ckp_error *err)
{
    ckp_error detail;
    e->base = SIZE_MAX;
    ckp_status st = ckpi_read_manifest(s, e->dir, CKPI_MANIFEST_FILE, &e->m, &detail);
    if (e->m != NULL)
        e->bytes = ckpi_manifest_bytes(e->m);
    if (st == CKP_ENOTFOUND)
        return without_manifest(s, e, err);
    if (st == CKP_OK) {
        st = ckpi_check_shards(s, e->dir, e->m, &detail);
        if (st == CKP_OK || st == CKP_ENOMEM)
            return st == CKP_OK ? st : not_now(&detail, err);
        return shards_bad(s, e, st, &detail, err);
    }
    if (st == CKP_ENOMEM)
        return not_now(&detail, err);
    return ckpi_entry_bad(e, health_of_manifest(st), detail.text, err);
}
