/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint says about itself and its tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "run/checkpoint.h"
#include "run/profile.h"

static uint32_t
payload_of(const ckpi_table *t, uint32_t i)
{
    return t->rec[i].alias_of != CKPI_NO_TENSOR ? t->rec[i].alias_of : i;
}

size_t
ckp_checkpoint_count(const ckp_checkpoint *ck)
{
    return ckpi_checkpoint_check(ck, NULL) == CKP_OK ? ck->lin->table->n : 0;
}

uint32_t
ckp_checkpoint_find(const ckp_checkpoint *ck, const char *name)
{
    if (ckpi_checkpoint_check(ck, NULL) != CKP_OK || name == NULL)
        return CKPI_NO_TENSOR;
    return ckpi_table_find(ck->lin->table, name);
}

const char *
ckp_checkpoint_notes(const ckp_checkpoint *ck)
{
    return ckpi_checkpoint_check(ck, NULL) == CKP_OK && ck->notes.data != NULL ? (const char *)ck->notes.data : "";
}

bool
ckp_checkpoint_metric(const ckp_checkpoint *ck, size_t index, ckp_metric *out)
{
    if (ckpi_checkpoint_check(ck, NULL) != CKP_OK || ck->manifest == NULL || index >= ck->manifest->n_metrics || out == NULL)
        return false;
    *out = (ckp_metric){ck->manifest->metrics[index].name, ck->manifest->metrics[index].value};
    return true;
}

const void *
ckp_checkpoint_tree(const ckp_checkpoint *ck, size_t *len)
{
    *len = 0;
    if (ckpi_checkpoint_check(ck, NULL) != CKP_OK)
        return NULL;
    *len = ck->lin->level[0].f->tree_len;
    return ck->lin->level[0].f->tree;
}

/* Of a file: what its header says. */
static ckp_profile
profile_recorded(uint8_t profile)
{
    return profile != 0 && ckp_profile_name((ckp_profile)(profile - 1)) != NULL ? (ckp_profile)(profile - 1) : CKP_PROFILE_LOSSLESS;
}

static void
add_errors(const ckpi_fmt_file *f, ckp_checkpoint_info *info)
{
    for (size_t i = 0; i < f->n_errs; i++) {
        const ckpi_errrec *e = &f->errs[i];
        const ckp_role r = f->table->rec[e->tensor].role;
        info->rms_error_by_role[r] = CKPI_MAX(info->rms_error_by_role[r], (double)e->rms_rel);
        info->max_error_by_role[r] = CKPI_MAX(info->max_error_by_role[r], (double)e->max_rel);
    }
}

static void
add_sizes(const ckpi_fmt_file *f, ckp_checkpoint_info *info)
{
    uint64_t frames = 0;

    for (size_t i = 0; i < f->table->n; i++) {
        const ckpi_rec *r = &f->table->rec[i];
        if (r->alias_of != CKPI_NO_TENSOR)
            continue;
        info->raw_bytes += r->bytes;
        info->raw_by_role[r->role] += r->bytes;
        info->params_by_role[r->role] += r->numel;
    }
    for (size_t i = 0; i < f->n_chunks; i++) {
        info->stored_by_role[f->chunk[i].role] += f->chunk[i].frame_len;
        frames += f->chunk[i].frame_len;
        info->lossy = info->lossy || f->chunk[i].quant != 0;
    }
    info->stored_bytes = f->length;
    info->overhead_bytes = f->length - frames;
}

void
ckp_checkpoint_get_info(const ckp_checkpoint *ck, ckp_checkpoint_info *info)
{
    if (ckpi_checkpoint_check(ck, NULL) != CKP_OK || info == NULL || info->size != sizeof *info)
        return;
    const ckpi_fmt_file *f = ck->lin->level[0].f;
    const ckpi_manifest *m = ck->manifest;
    *info = (ckp_checkpoint_info){.size = sizeof *info, .is_delta = f->info.is_delta, .chain = f->info.chain,
                                  .format_major = CKPI_FORMAT_MAJOR, .format_minor = CKPI_FORMAT_MINOR};
    info->profile = profile_recorded(f->info.profile);
    add_sizes(f, info);
    add_errors(f, info);
    ckpi_id_hex(m != NULL ? m->content : f->content, info->content_id);
    if (m != NULL ? m->kind == CKPI_CKPT_DELTA : f->info.is_delta)
        ckpi_id_hex(m != NULL ? m->base : f->info.base_content, info->base_id);
    (void)snprintf(info->name, sizeof info->name, "%s", ck->name);
    info->memory_bytes = ck->from_memory;
    if (m != NULL) {
        info->is_delta = m->kind == CKPI_CKPT_DELTA;
        info->chain = m->chain;          /* the file's counts the base model too */
        info->step = m->step;
        info->sequence = m->sequence;
        info->restore_count = m->restores;
        info->profile = ckpi_profile_named(m->profile);
    }
}

/* "planes", "quant-w+mask": static text for each pair. */
static const char *
codec_label(uint8_t quant, uint8_t codec)
{
#define ROW(q) {q "?", q "raw", q "zero", q "rans", q "planes", q "mask", q "diff", q "lz", q "rearranged"}
    static const char *const label[6][9] = {ROW(""), ROW("quant-v+"), ROW("quant-m+"), ROW("quant-w+"), ROW("quant-index+"), ROW("quant-cluster+")};
#undef ROW
    return quant < 6 && codec < 9 ? label[quant][codec] : "?";
}

/* Frames of a chunk shared by several tensors count by elements. */
static void
add_stored(const ckpi_lineage *lin, uint32_t payload, ckp_tensor_info *info)
{
    double stored = 0.0;
    size_t n;
    const ckpi_chunk_key *key = ckpi_lineage_pieces(lin, 0, payload, &n);

    for (size_t i = 0; i < n; i++) {
        const ckpi_chunk *c = &lin->level[0].f->chunk[key[i].chunk];
        stored += (double)c->frame_len * (double)c->piece[key[i].piece].count / (double)c->n;
        if (info->codec == NULL)
            info->codec = codec_label(c->quant, c->codec);
        info->lossy = info->lossy || c->quant != 0;
    }
    info->stored_bytes = (uint64_t)(stored + 0.5);
    info->bits_per_element = info->numel != 0 ? 8.0 * stored / (double)info->numel : 0.0;
    if (info->codec == NULL)
        info->codec = "none";
}

static int
by_tensor(const void *key, const void *rec)
{
    const uint32_t t = *(const uint32_t *)key, at = ((const ckpi_errrec *)rec)->tensor;
    return t < at ? -1 : t > at;
}

ckp_status
ckp_checkpoint_tensor(const ckp_checkpoint *ck, size_t index, ckp_tensor_info *info, ckp_error *err)
{
    const ckp_status st = ckpi_checkpoint_check(ck, err);
    if (st != CKP_OK)
        return st;
    if (info == NULL || info->size != sizeof *info)
        return ckpi_fail(err, CKP_EINVAL, "checkpoint_tensor: bad info");
    const ckpi_fmt_file *f = ck->lin->level[0].f;
    if (index >= f->table->n)
        return ckpi_fail(err, CKP_ENOTFOUND, "no tensor %zu; there are %zu", index, f->table->n);
    const ckpi_rec *r = &f->table->rec[index];
    const uint32_t payload = payload_of(f->table, (uint32_t)index);
    *info = (ckp_tensor_info){.size = sizeof *info, .name = r->name, .role = r->role, .dtype = r->dtype, .ndim = r->ndim, .shape = r->shape,
                              .numel = r->numel, .raw_bytes = r->bytes, .owner = r->owner, .alias_of = r->alias_of,
                              .copy_of = f->table->rec[payload].copy_of};
    if (info->copy_of != CKPI_NO_TENSOR) {
        ckp_tensor_info master = {.size = sizeof master};
        add_stored(ck->lin, info->copy_of, &master);
        info->codec = "derived";
        info->lossy = master.lossy;
    }
    add_stored(ck->lin, payload, info);
    if (payload != index)
        info->stored_bytes = 0;
    const ckpi_errrec *e = f->n_errs != 0 ? bsearch(&payload, f->errs, f->n_errs, sizeof *f->errs, by_tensor) : NULL;
    if (e != NULL) {
        info->max_rel_error = (double)e->max_rel;
        info->rms_rel_error = (double)e->rms_rel;
        info->n_nan = e->n_nan;
        info->n_inf = e->n_inf;
    }
    return CKP_OK;
}
