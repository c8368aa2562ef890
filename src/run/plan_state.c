/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for a file: its state as compressing it would see it. */
#include "base/fail.h"
#include "io/io.h"
#include "run/convert.h"
#include "run/plan.h"
#include "run/stored.h"
#include "state/state.h"

/* ---- a .ckp ------------------------------------------------------------------------------------------------------------ */

static ckp_status
plan_packed(ckp_plan **out, ckp_checkpoint *ck, const ckp_plan_options *opt, ckp_error *err)
{
    ckpi_stored stored = {0};

    ckp_status st = ckpi_stored_read(&stored, ck, opt->coding.profile == CKP_PROFILE_WEIGHTS, ckpi_memory_budget(&opt->coding),
                                     opt->coding.threads, err);
    if (st == CKP_OK)
        st = ckpi_plan_make(out, stored.state, opt, CKPI_PACK_ORDERED, err);
    ckpi_stored_free(&stored);
    return st;
}

/* ---- other people's files ---------------------------------------------------------------------------------------------- */

static ckp_status
plan_foreign(ckp_plan **out, ckpi_reader *r, const ckp_plan_options *opt, ckp_error *err)
{
    const ckpi_foreign_options fo = {.notice = opt->notice, .notice_user = opt->notice_user, .check_crc = true,
                                     .drop_optimizers = opt->coding.profile == CKP_PROFILE_WEIGHTS};
    ckpi_foreign *f = NULL;

    ckp_status st = ckpi_foreign_open(&f, r, &fo, err);
    if (st == CKP_OK)
        st = ckpi_plan_make(out, ckpi_foreign_state(f), opt, CKPI_PACK_ORDERED, err);
    ckpi_foreign_close(f);
    return st;
}

ckp_status
ckp_plan_file(ckp_plan **out, const char *path, const ckp_plan_options *opt, ckp_error *err)
{
    ckp_checkpoint *ck = NULL;
    ckpi_reader *r = NULL;

    if (out == NULL || path == NULL || opt == NULL)
        return ckpi_fail(err, CKP_EINVAL, "plan_file: NULL argument");
    *out = NULL;
    ckp_status st = ckpi_plan_check(opt, err);
    if (st == CKP_OK)
        st = ckpi_reader_plain(&r, path, err);
    if (st == CKP_OK)
        st = ckp_checkpoint_open_file(&ck, path, NULL, 0, err);
    if (st == CKP_OK)
        st = plan_packed(out, ck, opt, err);
    else if (st == CKP_EFORMAT)
        st = plan_foreign(out, r, opt, err);
    if (st != CKP_OK)
        ckpi_fail_file(err, path);
    ckp_checkpoint_close(ck);
    ckpi_reader_free(r);
    return st;
}
