/* SPDX-License-Identifier: Apache-2.0 */
/* One state to one .ckp file or pipe, window by window: memory does not grow with the state. */
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "base/limits.h"
#include "os/host.h"
#include "os/os.h"
#include "os/target.h"
#include "run/dynaquant.h"
#include "run/file.h"
#include "run/steps.h"

/* ---- where it goes ----------------------------------------------------------------------------------------------- */

void
ckpi_out_free(ckpi_out *o)
{
    ckpi_writer_free(o->w);
    ckpi_fs_free(o->fs);
    free(o->dir);
    free(o->path);
    *o = (ckpi_out){0};
}

static ckp_status
split_path(ckpi_out *o, const char *path, ckp_error *err)
{
    const char *slash = strrchr(path, '/');
    ckp_status st = ckpi_path_ok(slash != NULL ? slash + 1 : path, err);
    if (st == CKP_OK)
        st = ckpi_target_path(&o->path, path, err);
    if (st != CKP_OK)
        return st;
    slash = strrchr(o->path, '/');
    o->name = slash != NULL ? slash + 1 : o->path;
    o->dir = slash == NULL      ? ckpi_strdup(".")
             : slash == o->path ? ckpi_strdup("/")
                                : ckpi_strndup(o->path, (size_t)(slash - o->path));
    return o->dir != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
}

typedef struct sweeper { ckpi_fs *fs; ckpi_proc self; } sweeper;

static bool
sweep_one(void *user, const char *entry, bool is_dir)
{
    const sweeper *s = user;
    if (!is_dir && ckpi_tmp_dead(&s->self, entry))
        (void)s->fs->ops->unlink(s->fs, entry, NULL);
    return true;
}

/* What killed processes of this host left beside the output. Best effort: it is others' litter, and only what is proven dead is touched. */
static void
sweep(ckpi_fs *fs)
{
    sweeper s = {.fs = fs};
    ckpi_proc_self(&s.self);
    (void)fs->ops->list(fs, "", sweep_one, &s, NULL);
}

/* The temporary's name means nothing to a user: the directory is what can be mended. */
static ckp_status
open_tmp(ckpi_out *o, ckp_error *err)
{
    const ckp_status st = ckpi_writer_file(&o->w, o->fs, o->tmp, err);
    if (st == CKP_OK || err == NULL || err->sys_errno == 0)
        return st;
    (void)ckpi_fail_errno(err, err->sys_errno, "cannot create a file in this directory");
    ckpi_fail_file(err, o->dir);
    return st;
}

ckp_status
ckpi_out_open(ckpi_out *o, const char *path, bool replace, const char *like, ckp_error *err)
{
    ckpi_stat sb;

    *o = (ckpi_out){.replace = replace};
    if (strcmp(path, "-") == 0)
        return ckpi_writer_fd(&o->w, 1, err);
    ckp_status st = split_path(o, path, err);
    if (st == CKP_OK)
        st = ckpi_tmp_name(o->tmp, o->name, err);
    if (st == CKP_OK)
        st = ckpi_fs_posix(&o->fs, o->dir, false, err);
    if (st == CKP_OK && !replace && o->fs->ops->stat(o->fs, o->name, &sb, NULL) == CKP_OK)
        st = ckpi_fail(err, CKP_EEXIST, "it exists already");
    if (st == CKP_OK)
        sweep(o->fs);
    if (st == CKP_OK)
        st = open_tmp(o, err);
    if (st == CKP_OK && like != NULL)
        ckpi_target_mode(o->fs, o->tmp, like);
    if (st != CKP_OK) {
        ckpi_fail_file(err, path);
        ckpi_out_free(o);
    }
    return st;
}

/* What is based on a file that is written over is lost with it: there may be no other copy. */
ckp_status
ckpi_out_spares(const ckp_checkpoint *ck, size_t first, const char *path, ckp_error *err)
{
    bool reads = ck != NULL && ck->model_path != NULL && ckpi_target_same(ck->model_path, path);

    for (size_t l = first; ck != NULL && !reads && l < ck->lin->n; l++)
        reads = ckpi_fmt_reads(ck->lin->level[l].f, path);
    if (!reads)
        return CKP_OK;
    const ckp_status st = ckpi_fail(err, CKP_EINVAL, "it is a base, which what is based on it cannot be read without: it is not written over");
    ckpi_fail_file(err, path);
    return st;
}

ckp_status
ckpi_out_commit(ckpi_out *o, ckp_error *err)
{
    return o->fs == NULL ? ckpi_writer_finish(o->w, err) : ckpi_writer_publish(o->w, o->name, o->replace, err);
}

/* ---- what goes there --------------------------------------------------------------------------------------------- */

/* Whether the layout can be coded against the base: group by group the same pieces. */
static bool
base_fits(const ckp_checkpoint *base, const ckpi_pred *pred)
{
    bool fits = ckpi_id_eq(base->lin->table->id, pred->table->id);
    for (size_t g = 0; fits && g < pred->layout->n; g++)
        fits = ckpi_unit_of_group(base, &pred->layout->g[g]) != NULL;
    return fits;
}

typedef struct load_job { const ckp_checkpoint *ck; ckpi_pred *pred; } load_job;

static ckp_status
load_base(void *user, size_t g, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    const load_job *j = user;
    return ckpi_decode_into_pred(j->ck->lin, ckpi_unit_of_group(j->ck, &j->pred->layout->g[g]), j->pred, g, true, ws, cpu, err);
}

ckp_status
ckpi_state_pred(ckpi_pred **out, const ckp_state *s, const ckpi_settings *set, const ckp_coding *coding, ckpi_packing packing,
                const ckpi_copies *copies, ckp_error *err)
{
    ckpi_table *table = NULL;
    ckpi_layout *layout = NULL;

    ckp_status st = ckpi_lay_out(&table, &layout, s, set, coding, packing, copies, err);
    if (st == CKP_OK)
        st = ckpi_pred_new(out, table, layout, err);
    return st == CKP_OK ? ckpi_steps_set(*out, s, coding, err) : st;
}

static ckpi_file_info
info_for(const ckp_checkpoint *base, const ckpi_settings *set, ckp_profile profile)
{
    ckpi_file_info i = {.features = ckpi_settings_features(set), .profile = (uint8_t)(1 + profile)};
    if (base != NULL) {
        i.is_delta = 1;
        i.features |= CKPI_FEAT_DELTA;
        i.chain = (uint16_t)(base->lin->level[0].f->info.chain + 1);
        i.base_content = base->lin->level[0].f->content;
        i.table_content = ckpi_checkpoint_table_file(base)->content;
    }
    return i;
}

/* The first tensor that only one of two tables of the same names derives from its master, or CKPI_NO_TENSOR. */
static uint32_t
other_copy(const ckpi_table *a, const ckpi_table *b)
{
    for (uint32_t i = 0; a->n == b->n && i < a->n; i++)
        if (strcmp(a->rec[i].name, b->rec[i].name) != 0)
            break;
        else if ((a->rec[i].copy_of != CKPI_NO_TENSOR) != (b->rec[i].copy_of != CKPI_NO_TENSOR))
            return i;
    return CKPI_NO_TENSOR;
}

static ckp_status
check_base(const ckp_checkpoint *base, const ckpi_pred *pred, ckp_error *err)
{
    if (base == NULL)
        return CKP_OK;
    const uint32_t copy = other_copy(base->lin->table, pred->table);
    if (copy != CKPI_NO_TENSOR) {
        const ckp_status st = ckpi_fail(err, CKP_EBASE, "the rounding of its master in only one of the base %s and what is saved: save without a base",
                                        base->name);
        ckpi_fail_tensor(err, pred->table->rec[copy].name);
        return st;
    }
    if (!base_fits(base, pred))
        return ckpi_fail(err, CKP_EBASE, "tensors of the base %s differ in name, dtype, shape or coding from what is saved", base->name);
    if (base->lin->level[0].f->info.chain >= CKPI_MAX_CHAIN)
        return ckpi_fail(err, CKP_ELIMIT, "the base %s has %u deltas behind it: no more can follow", base->name, (unsigned)CKPI_MAX_CHAIN);
    return CKP_OK;
}

ckp_status
ckpi_state_encode(ckpi_ctx *ctx, ckpi_writer *w, const ckpi_pass *pass, const ckp_coding *coding, ckp_checkpoint *base, uint64_t *quantized_w,
                  ckp_error *err)
{
    ckpi_pred *pred = pass->pred;
    const ckp_state *s = pass->state;
    const ckpi_file_info info = info_for(base, pass->set, coding->profile);
    const ckpi_fmt_file *ref = base != NULL ? ckpi_checkpoint_table_file(base) : NULL;
    load_job lj = {base, pred};
    ckpi_encode_job job = {.pred = pred, .pass = pass, .serial_pass = ckpi_state_pulls(s), .effort = (ckpi_effort)coding->effort,
                           .load = base != NULL ? load_base : NULL, .load_user = &lj, .drop_base = true,
                           .progress = coding->progress, .progress_user = coding->progress_user, .quantized_w = quantized_w};
    ckpi_fmt_writer *fw = NULL;
    ckpi_fmt_sum sum;

    for (size_t g = 0; g < pred->layout->n; g++)
        job.total_bytes += pred->layout->g[g].bytes;
    ckp_status st = ckpi_fmt_writer_new(&fw, w, &info, pred->table, s->tree.data, s->tree.len, ref != NULL ? ref->table : NULL,
                                        ref != NULL ? ref->tree : NULL, ref != NULL ? ref->tree_len : 0, err);
    if (st == CKP_OK)
        st = ckpi_encode_file(ctx, &job, fw, &sum, err);
    ckpi_fmt_writer_free(fw);
    return st;
}

/* Weights with the moments that go with them, and moments in clusters; each tensor at its first element. */
static uint64_t
count_lossy(const ckpi_layout *l)
{
    uint64_t n = 0;
    for (size_t g = 0; g < l->n; g++)
        for (size_t k = 0; (l->g[g].lossy || l->g[g].clustered) && k < l->g[g].n_pieces; k++)
            if (l->g[g].piece[k].first == 0)
                n += 1u + (l->g[g].lossy && l->g[g].m[k] != CKPI_NO_TENSOR) + (l->g[g].lossy && l->g[g].v[k] != CKPI_NO_TENSOR);
    return n;
}

ckp_status
ckpi_state_write(ckpi_writer *w, ckp_state *s, const ckp_coding *coding, ckp_checkpoint *base, ckpi_packing packing, bool derive,
                 uint64_t *n_lossy, ckp_error *err)
{
    const ckpi_settings set = ckpi_profile_settings(coding);
    ckpi_ctx *ctx = NULL;
    ckpi_pred *pred = NULL;
    ckpi_dq dq = {0};

    ckp_status st = ckpi_state_seal(s, err);
    if (st == CKP_OK)
        st = ckpi_ctx_new(&ctx, coding->threads, false, err);
    if (st == CKP_OK)
        st = ckpi_state_pred(&pred, s, &set, coding, packing,
                             &(ckpi_copies){derive ? ctx : NULL, base != NULL ? base->lin->table : NULL, !set.lossy}, err);
    if (st == CKP_OK)
        st = check_base(base, pred, err);
    if (st == CKP_OK) {
        const ckpi_pass pass = {.pred = pred, .state = s, .set = &set, .dq = &dq, .key = base == NULL, .lone = base == NULL, .cpu = ctx->cpu};
        if (n_lossy != NULL)
            *n_lossy = count_lossy(pred->layout);
        if (set.lossy)
            st = ckpi_pass_prepare(ctx, &pass, err);
        if (st == CKP_OK && set.lossy)
            ckpi_pass_steps(&pass);
        if (st == CKP_OK && set.dynaquant)
            st = ckpi_dynaquant_bind(&dq, coding->dynaquant, pred->table, err);
        if (st == CKP_OK && set.dynaquant)
            st = ckpi_dq_prepare(ctx, &pass, err);
        if (st == CKP_OK)
            st = ckpi_state_encode(ctx, w, &pass, coding, base, NULL, err);
    }
    ckpi_dynaquant_unbind(&dq);
    ckpi_pred_free(pred);
    ckpi_ctx_free(ctx);
    return st;
}

ckp_status
ckp_file_save(const char *path, ckp_state *state, const ckp_coding *coding, ckp_checkpoint *base, bool replace, ckp_error *err)
{
    const ckp_coding defaults = CKP_CODING_INIT;
    ckpi_out out;

    if (path == NULL || state == NULL)
        return ckpi_fail(err, CKP_EINVAL, "file_save: NULL argument");
    coding = coding != NULL ? coding : &defaults;
    ckp_status st = ckpi_coding_check(coding, err);
    if (st == CKP_OK && base != NULL)
        st = ckpi_checkpoint_check(base, err);
    if (st == CKP_OK)
        st = ckpi_out_spares(base, 0, path, err);
    if (st == CKP_OK)
        st = ckpi_out_open(&out, path, replace, NULL, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_state_write(out.w, state, coding, base, CKPI_PACK_GROUPED, out.fs != NULL, NULL, err);
    if (st == CKP_OK)
        st = ckpi_out_commit(&out, err);
    if (st != CKP_OK)
        ckpi_fail_file(err, path);
    ckpi_out_free(&out);
    return st;
}
