/* SPDX-License-Identifier: Apache-2.0 */
/* Other people's files to .ckp. The way back: decompress.c. */
#include <stdio.h>
#include <string.h>
#include "base/fail.h"
#include "io/io.h"
#include "run/convert.h"
#include "state/state.h"

ckp_status
ckpi_in_open(ckpi_reader **out, const char *path, const ckp_coding *coding, ckp_error *err)
{
    const bool standard = strcmp(path, "-") == 0;
    const ckp_status st = standard ? ckpi_reader_fd(out, 0, "standard input", err) : ckpi_reader_path(out, path, err);
    if (st == CKP_OK)
        ckpi_reader_on_interrupt(*out, coding->progress, coding->progress_user);
    else if (!standard)
        ckpi_fail_file(err, path);
    return st;
}

ckp_status
ckpi_convert_check(const char *in, const char *out, const ckp_convert_options *opt, const ckp_convert_result *res, ckp_error *err)
{
    if (in == NULL || (out == NULL && !opt->dry_run) || opt->size != sizeof *opt || (opt->n_bases != 0 && opt->bases == NULL) ||
        (res != NULL && res->size != sizeof *res))
        return ckpi_fail(err, CKP_EINVAL, "convert: NULL argument, or options of another version");
    return ckpi_coding_check(&opt->coding, err);
}

void
ckpi_convert_done(ckp_convert_result *res, ckpi_reader *r, const ckpi_writer *w, uint64_t tensors, const char *kind)
{
    res->out_bytes = ckpi_writer_pos(w);
    res->tensors = tensors;
    if (r != NULL && ckpi_reader_seekable(r) && ckpi_reader_size(r, &res->in_bytes, NULL) != CKP_OK)
        res->in_bytes = 0;
    (void)snprintf(res->kind, sizeof res->kind, "%s", kind);
}

/* The base of a delta, with its own chain behind it. */
static ckp_status
open_base(ckp_checkpoint **base, const ckp_convert_options *opt, ckp_error *err)
{
    if (opt->n_bases == 0)
        return CKP_OK;
    return ckp_checkpoint_open_file(base, opt->bases[0], opt->bases + 1, opt->n_bases - 1, err);
}

static bool
has_role(const ckp_state *s, ckp_role role)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->t[i].role == role)
            return true;
    return false;
}

/* Nothing was matched, or nothing could be: an hour later is too late to wonder why the file is no smaller. */
static void
tell_why_lossless(const ckp_state *s, const ckp_convert_options *opt, ckp_convert_result *res)
{
    const bool moments = has_role(s, CKP_ROLE_M) || has_role(s, CKP_ROLE_MOMENTUM), weights = has_role(s, CKP_ROLE_WEIGHT);
    char text[256];

    (void)snprintf(res->why_lossless, sizeof res->why_lossless, "%s",
                   opt->coding.profile == CKP_PROFILE_WEIGHTS ? "the file holds no weights that were recognised as such"
                   : moments && weights                       ? "its weights are no floats of 16 or 32 bits"
                                                              : "no optimizer state was found for its weights, by which this profile codes them");
    (void)snprintf(text, sizeof text, "everything is stored losslessly: %s", res->why_lossless);
    if (opt->notice != NULL)
        opt->notice(opt->notice_user, text);
}

static void
tell_dropped(const ckpi_foreign *f, const ckp_convert_options *opt, ckp_convert_result *res)
{
    const ckpi_dropped d = ckpi_foreign_dropped(f);
    char text[160];

    res->dropped = d.tensors;
    res->dropped_bytes = d.bytes;
    (void)snprintf(text, sizeof text, "optimizer state is left out: %llu tensors, %llu bytes", (unsigned long long)d.tensors,
                   (unsigned long long)d.bytes);
    if (d.tensors != 0 && opt->notice != NULL)
        opt->notice(opt->notice_user, text);
}

static ckp_status
compress_state(ckpi_reader *r, ckpi_foreign *f, const char *in, const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    ckp_state *s = ckpi_foreign_state(f);
    ckp_checkpoint *base = NULL;
    ckpi_out o = {0};
    ckp_convert_result done = {.size = sizeof done};
    /* comparing needs tensors out of their order, and so does the reader of what is derived */
    const bool derive = ckpi_reader_seekable(r) && (out == NULL || strcmp(out, "-") != 0);

    if (!ckpi_reader_seekable(r) && ckpi_foreign_what(f) == CKPI_FOREIGN_SAFETENSORS && opt->coding.profile != CKP_PROFILE_LOSSLESS)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "a lossy profile reads tensors twice: it needs a file, not a pipe");
    ckp_status st = open_base(&base, opt, err);
    if (st == CKP_OK && !opt->dry_run)
        st = ckpi_out_spares(base, 0, out, err);
    if (st == CKP_OK)
        st = opt->dry_run ? ckpi_writer_null(&o.w, err) : ckpi_out_open(&o, out, opt->replace, in, err);
    if (st == CKP_OK)
        st = ckpi_state_write(o.w, s, &opt->coding, base, CKPI_PACK_ORDERED, derive, &done.lossy, err);
    if (st == CKP_OK)
        st = ckpi_foreign_finish(f, err);
    if (st == CKP_OK)
        st = ckpi_out_commit(&o, err);
    if (st == CKP_OK) {
        ckpi_convert_done(&done, r, o.w, ckp_state_count(s), ckpi_foreign_kind_name(ckpi_foreign_what(f)));
        tell_dropped(f, opt, &done);
        if ((opt->coding.profile != CKP_PROFILE_LOSSLESS || opt->coding.optimizer_states != CKP_STATES_PROFILE) && done.lossy == 0)
            tell_why_lossless(s, opt, &done);
        if (res != NULL)
            *res = done;
    }
    ckpi_out_free(&o);
    ckp_checkpoint_close(base);
    return st;
}

ckp_status
ckp_compress(const char *in, const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err)
{
    const ckp_convert_options defaults = CKP_CONVERT_OPTIONS_INIT;
    ckpi_reader *r = NULL;
    ckpi_foreign *f = NULL;

    opt = opt != NULL ? opt : &defaults;
    ckp_status st = ckpi_convert_check(in, out, opt, res, err);
    if (st == CKP_OK)
        st = ckpi_in_open(&r, in, &opt->coding, err);
    if (st != CKP_OK)
        return st;
    const ckpi_foreign_options fo = {.notice = opt->notice, .notice_user = opt->notice_user, .check_crc = true,
                                     .drop_optimizers = opt->coding.profile == CKP_PROFILE_WEIGHTS,
                                     .no_match = opt->coding.profile == CKP_PROFILE_LOSSLESS && opt->coding.optimizer_states == CKP_STATES_PROFILE};
    st = ckpi_foreign_open(&f, r, &fo, err);
    if (st == CKP_OK)
        st = compress_state(r, f, in, out, opt, res, err);
    if (st != CKP_OK)
        ckpi_fail_file(err, in);
    ckpi_foreign_close(f);
    ckpi_reader_free(r);
    return st;
}
