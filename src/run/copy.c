/* SPDX-License-Identifier: Apache-2.0 */
#include <ckpress/run_copy.h>
#include "base/fail.h"
#include "os/target.h"
#include "run/list.h"

static void
tell(void *user, const ckpi_entries *all, const ckpi_entry *entry, ckpi_copy_fate fate, const char *reason)
{
    static const ckp_copy_fate fates[] = {[CKPI_COPY_DONE] = CKP_COPY_DONE, [CKPI_COPY_THERE] = CKP_COPY_THERE, [CKPI_COPY_DAMAGED] = CKP_COPY_DAMAGED};
    const ckp_copy_opts *o = user;
    ckp_list_entry e;

    ckpi_list_fill(all, entry, &e);
    o->told(o->told_user, &e, fates[fate], reason);
}

/* The copy for reading; NULL where there is no run yet. */
static ckp_status
open_to_read(ckpi_store *from, const char *dest, ckpi_store **to, ckp_error *err)
{
    ckp_status st = ckpi_list_reader(&(ckpi_place){dest, NULL}, to, err);
    if (st == CKP_ENOTFOUND)
        return CKP_OK;
    if (st == CKP_OK && !ckpi_id_eq(ckpi_store_run_id(from), ckpi_store_run_id(*to))) {
        st = ckpi_fail(err, CKP_EMISMATCH, "is another run");
        ckpi_fail_file(err, dest);
    }
    return st;
}

static ckp_status
open_to_write(ckpi_store *from, const char *dest, ckpi_store **to, ckp_error *err)
{
    ckpi_buf identity = CKPI_BUF_INIT;
    ckpi_fs *fs = NULL;
    const ckpi_store_options opt = {.identity = &identity};
    ckp_status st = ckpi_store_identity(from, &identity, err);
    if (st == CKP_OK)
        st = ckpi_fs_posix(&fs, dest, true, err);
    if (st == CKP_OK)
        st = ckpi_store_open(to, fs, CKPI_STORE_WRITE, &opt, err);
    ckpi_fail_file(st != CKP_OK ? err : NULL, dest);
    ckpi_buf_free(&identity);
    return st;
}

/* What cannot be copied at all must not leave an empty run behind. */
static ckp_status
check(ckpi_store *from, const ckpi_copy_ask *ask, ckp_error *err)
{
    ckpi_copied none;
    ckpi_copy_ask dry = *ask;
    dry.dry_run = true;
    dry.told = NULL;
    ckp_status st = ckpi_store_copy(from, NULL, &dry, &none, err);
    /* damage is left out, unless nothing remains */
    return st != CKP_OK && none.copied > 0 ? CKP_OK : st;
}

static ckp_status
copy(ckpi_store *from, const char *dir, const char *dest, const ckpi_copy_ask *ask, ckpi_copied *n, ckp_error *err)
{
    ckpi_store *to = NULL;
    ckp_status st = check(from, ask, err);
    ckpi_fail_file(st != CKP_OK ? err : NULL, dir);
    if (st == CKP_OK)
        st = ask->dry_run ? open_to_read(from, dest, &to, err) : open_to_write(from, dest, &to, err);
    if (st == CKP_OK) {
        st = ckpi_store_copy(from, to, ask, n, err);
        ckpi_fail_file(st != CKP_OK ? err : NULL, dest);
    }
    ckpi_store_free(to);
    return st;
}

ckp_status
ckp_run_copy(const char *dir, const char *dest, const ckp_copy_opts *opt, ckp_copied *done, ckp_error *err)
{
    const ckp_copy_opts o = opt != NULL ? *opt : (ckp_copy_opts)CKP_COPY_OPTS_INIT;
    ckpi_store *from = NULL;
    ckpi_copied n = {0};

    if (dir == NULL || dest == NULL || done == NULL || done->size != sizeof *done || o.size != sizeof o || (o.step == NULL && o.n_steps != 0))
        return ckpi_fail(err, CKP_EINVAL, "run_copy: NULL argument or bad size");
    *done = (ckp_copied){.size = sizeof *done};
    const ckpi_copy_ask ask = {.step = o.step, .n_steps = o.n_steps, .newest = o.newest, .dry_run = o.dry_run, .progress = o.progress, .user = o.user,
                               .told = o.told != NULL ? tell : NULL, .told_user = (void *)(uintptr_t)&o};
    ckp_status st = ckpi_list_reader(&(ckpi_place){dir, NULL}, &from, err);
    if (st == CKP_OK && ckpi_target_inside(dest, dir)) {
        st = ckpi_fail(err, CKP_EINVAL, "is the run itself, or lies in it");
        ckpi_fail_file(err, dest);
    }
    if (st == CKP_OK)
        st = copy(from, dir, dest, &ask, &n, err);
    ckpi_store_free(from);
    done->copied = n.copied;
    done->there = n.there;
    done->damaged = n.damaged;
    done->bytes = n.bytes;
    done->models_outside = n.models_outside;
    return st;
}
