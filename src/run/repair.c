/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <ckpress/run_repair.h>
#include "base/fail.h"
#include "run/list.h"

static void
tell(void *user, const ckpi_entries *all, const ckpi_entry *entry, ckpi_repair_fate fate, const char *reason)
{
    static const ckp_repair_fate fates[] = {[CKPI_REPAIR_SET_ASIDE] = CKP_REPAIR_SET_ASIDE, [CKPI_REPAIR_DELETED] = CKP_REPAIR_DELETED,
                                            [CKPI_REPAIR_LEFT] = CKP_REPAIR_LEFT, [CKPI_REPAIR_ATTEMPT] = CKP_REPAIR_ATTEMPT};
    const ckp_repair_opts *o = user;
    ckp_list_entry e;

    ckpi_list_fill(all, entry, &e);
    o->told(o->told_user, &e, fates[fate], reason != NULL ? reason : "");
}

static ckp_status
open_store(const char *dir, ckpi_store_mode mode, ckpi_store **out, ckp_error *err)
{
    const ckpi_store_options opt = {.repair = true};
    ckpi_fs *fs = NULL;

    ckp_status st = ckpi_fs_posix(&fs, dir, false, err);
    if (st == CKP_OK)
        st = ckpi_store_open(out, fs, mode, &opt, err);
    return st;
}

static bool
has_dir(const ckpi_entries *e, const char *dir)
{
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->v[i].dir, dir) == 0)
            return true;
    return false;
}

/* What lay there without a manifest and is gone now was swept when the run was opened for writing. */
static void
tell_swept(const ckpi_entries *before, const ckpi_entries *after, const ckp_repair_opts *o, ckp_repaired *done)
{
    for (size_t i = 0; i < before->n; i++) {
        const ckpi_entry *was = &before->v[i];
        ckp_list_entry e;
        if ((was->health != CKPI_HEALTH_INCOMPLETE && was->health != CKPI_HEALTH_DELETING) || has_dir(after, was->dir))
            continue;
        done->swept++;
        ckpi_list_fill(before, was, &e);
        if (o->told != NULL)
            o->told(o->told_user, &e, CKP_REPAIR_SWEPT, was->reason != NULL ? was->reason : "");
    }
}

static ckp_status
sweep(const char *dir, ckpi_store **out, const ckp_repair_opts *o, ckp_repaired *done, ckp_error *err)
{
    ckpi_entries before = {0}, after = {0};

    ckp_status st = open_store(dir, CKPI_STORE_READ, out, err);
    if (st == CKP_OK)
        st = ckpi_store_list(*out, &before, err);
    ckpi_store_free(*out);
    *out = NULL;
    if (st == CKP_OK)
        st = open_store(dir, CKPI_STORE_WRITE, out, err);
    if (st == CKP_OK)
        st = ckpi_store_list(*out, &after, err);
    if (st == CKP_OK)
        tell_swept(&before, &after, o, done);
    ckpi_entries_free(&before);
    ckpi_entries_free(&after);
    return st;
}

static ckp_status
repair(const char *dir, const ckp_repair_opts *o, ckp_repaired *done, ckp_error *err)
{
    const ckpi_repair_ask ask = {.dry_run = o->dry_run, .remove = o->remove, .data = o->data, .progress = o->progress, .user = o->user,
                                 .told = o->told != NULL ? tell : NULL, .told_user = (void *)(uintptr_t)o};
    ckpi_store *s = NULL;
    ckpi_repaired n = {0};

    ckp_status st = o->dry_run ? open_store(dir, CKPI_STORE_READ, &s, err) : sweep(dir, &s, o, done, err);
    if (st == CKP_OK)
        st = ckpi_store_repair(s, &ask, &n, err);
    ckpi_store_free(s);
    done->set_aside = n.set_aside;
    done->deleted = n.deleted;
    done->left = n.left;
    done->swept += n.attempts;
    done->restorable = n.restorable;
    done->newest_step = n.newest_step;
    done->identity = n.identity;
    return st;
}

ckp_status
ckp_run_repair(const char *dir, const ckp_repair_opts *opt, ckp_repaired *done, ckp_error *err)
{
    const ckp_repair_opts o = opt != NULL ? *opt : (ckp_repair_opts)CKP_REPAIR_OPTS_INIT;

    if (dir == NULL || o.size != sizeof o || done == NULL || done->size != sizeof *done)
        return ckpi_fail(err, CKP_EINVAL, "run_repair: NULL argument or bad size");
    *done = (ckp_repaired){.size = sizeof *done};
    ckp_status st = repair(dir, &o, done, err);
    const bool nothing_there = done->set_aside + done->deleted + done->left + done->swept == 0;
    if (st == CKP_OK && done->restorable == 0 && !nothing_there)
        st = ckpi_fail(err, CKP_ENOTFOUND, "nothing in the run can be restored; 'ckpress salvage' reads what single shards hold");
    ckpi_fail_file(st != CKP_OK ? err : NULL, dir);
    return st;
}
