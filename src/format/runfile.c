/* SPDX-License-Identifier: Apache-2.0 */
#include "format/runfile.h"
#include <string.h>
#include "base/fail.h"
#include "format/json.h"

/* Seals obj when everything could be put into it. Takes obj. */
static ckp_status
seal(json_t *obj, bool ok, ckpi_buf *out, const char *what, ckp_error *err)
{
    const ckp_status st = ok ? ckpi_json_seal(obj, out, err) : ckpi_fail(err, CKP_EINVAL, "%s cannot be printed", what);
    json_decref(obj);
    return st;
}

ckp_status
ckpi_runfile_print(const ckpi_runfile *r, ckpi_buf *out, ckp_error *err)
{
    json_t *o = json_object();
    const bool ok = ckpi_jput_u64(o, "ckpress_run", CKPI_RUN_FORMAT)
        && ckpi_jput(o, "features", json_array())
        && ckpi_jput_id(o, "run", r->id)
        && ckpi_jput(o, "created", json_integer(r->created))
        && ckpi_jput_str(o, "library", ckp_version());
    return seal(o, ok, out, "run.json", err);
}

ckp_status
ckpi_runfile_parse(ckpi_runfile *out, const void *data, size_t n, ckp_error *err)
{
    json_t *o = NULL;
    ckp_status st = ckpi_json_unseal(&o, data, n, "run.json", err);
    if (st != CKP_OK)
        return st;
    ckpi_jrd r = {.obj = o, .what = "run.json", .err = err};
    ckpi_jrd_version(&r, "ckpress_run", CKPI_RUN_FORMAT);
    *out = (ckpi_runfile){.id = ckpi_jrd_id(&r, "run"), .created = ckpi_jrd_i64(&r, "created")};
    if (r.st == CKP_OK && ckpi_id_is_zero(out->id))
        ckpi_jrd_fail(&r, "run", "is zero");
    json_decref(o);
    return r.st;
}

ckp_status
ckpi_lockfile_print(const ckpi_lockfile *l, ckpi_buf *out, ckp_error *err)
{
    json_t *o = json_object();
    const bool ok = ckpi_jput_u64(o, "ckpress_lock", CKPI_RUN_FORMAT)
        && ckpi_jput(o, "features", json_array())
        && ckpi_jput_id(o, "run", l->run_id)
        && ckpi_jput_u64(o, "epoch", l->epoch)
        && ckpi_jput_hex(o, "nonce", l->nonce, 16)
        && ckpi_jput(o, "held", json_boolean(l->held))
        && ckpi_jput(o, "time", json_integer(l->time))
        && ckpi_jput_u64(o, "expiry", l->expiry)
        && ckpi_jput_str(o, "host", l->owner.host)
        && ckpi_jput_str(o, "boot", l->owner.boot)
        && ckpi_jput_u64(o, "pid_ns", l->owner.pid_ns)
        && ckpi_jput_u64(o, "start", l->owner.start)
        && ckpi_jput(o, "pid", json_integer(l->owner.pid));
    return seal(o, ok, out, "lock", err);
}

static void
copy_str(ckpi_jrd *r, const char *key, char *dst, size_t max)
{
    const char *s = ckpi_jrd_str(r, key);
    const size_t n = s == NULL ? 0 : strlen(s);
    if (n >= max)
        ckpi_jrd_fail(r, key, "is too long");
    else if (n > 0)
        memcpy(dst, s, n);
}

ckp_status
ckpi_lockfile_parse(ckpi_lockfile *out, const void *data, size_t n, ckp_error *err)
{
    json_t *o = NULL;
    ckp_status st = ckpi_json_unseal(&o, data, n, "lock", err);
    if (st != CKP_OK)
        return st;
    ckpi_jrd r = {.obj = o, .what = "lock", .err = err};
    ckpi_jrd_version(&r, "ckpress_lock", CKPI_RUN_FORMAT);
    memset(out, 0, sizeof *out);
    out->run_id = ckpi_jrd_id(&r, "run");
    out->epoch = ckpi_jrd_u64(&r, "epoch", INT64_MAX);
    out->nonce = ckpi_jrd_hex(&r, "nonce", 16);
    out->held = json_is_true(json_object_get(o, "held"));
    out->time = ckpi_jrd_i64(&r, "time");
    out->expiry = (uint32_t)ckpi_jrd_u64(&r, "expiry", UINT32_MAX);
    copy_str(&r, "host", out->owner.host, sizeof out->owner.host);
    copy_str(&r, "boot", out->owner.boot, sizeof out->owner.boot);
    out->owner.pid_ns = ckpi_jrd_u64(&r, "pid_ns", INT64_MAX);
    out->owner.start = ckpi_jrd_u64(&r, "start", INT64_MAX);
    out->owner.pid = ckpi_jrd_i64(&r, "pid");
    json_decref(o);
    return r.st;
}

ckp_status
ckpi_copyfile_print(const ckpi_copyfile *c, ckpi_buf *out, ckp_error *err)
{
    json_t *o = json_object();
    const bool ok = ckpi_jput_u64(o, "ckpress_copied", CKPI_RUN_FORMAT)
        && ckpi_jput(o, "features", json_array())
        && ckpi_jput_id(o, "run", c->run_id)
        && ckpi_jput_u64(o, "sequence", c->sequence)
        && ckpi_jput_str(o, "dir", c->dir)
        && ckpi_jput_str(o, "next", c->next);
    return seal(o, ok, out, "copied.json", err);
}

static void
copy_dir(ckpi_jrd *r, const char *key, char dst[CKPI_DIR_NAME_MAX])
{
    uint64_t step;
    uint32_t attempt;
    copy_str(r, key, dst, CKPI_DIR_NAME_MAX);
    if (dst[0] != '\0' && !ckpi_dir_name_parse(dst, &step, &attempt))
        ckpi_jrd_fail(r, key, "is no checkpoint's name");
}

ckp_status
ckpi_copyfile_parse(ckpi_copyfile *out, const void *data, size_t n, ckp_error *err)
{
    json_t *o = NULL;
    ckp_status st = ckpi_json_unseal(&o, data, n, "copied.json", err);
    if (st != CKP_OK)
        return st;
    ckpi_jrd r = {.obj = o, .what = "copied.json", .err = err};
    ckpi_jrd_version(&r, "ckpress_copied", CKPI_RUN_FORMAT);
    memset(out, 0, sizeof *out);
    out->run_id = ckpi_jrd_id(&r, "run");
    out->sequence = ckpi_jrd_u64(&r, "sequence", INT64_MAX);
    copy_dir(&r, "dir", out->dir);
    copy_dir(&r, "next", out->next);
    json_decref(o);
    return r.st;
}
