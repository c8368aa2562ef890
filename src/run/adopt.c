/* SPDX-License-Identifier: Apache-2.0 */
/* Going on from a restored checkpoint: the next save is a delta against it. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/fail.h"
#include "run/file.h"
#include "run/group.h"

static ckpi_lasting
lasting_of(const ckpi_manifest *m)
{
    ckpi_lasting l = {0};

    double share, rms;

    l.moved = ckpi_manifest_setting(m, "movement", &share) && ckpi_manifest_setting(m, "rms", &rms) && share > 0.0 && rms > 0.0
           && isfinite(share * rms);
    l.move = l.moved ? share * rms : 0.0;
    return l;
}

/* After a checkpoint that other writers have divided otherwise: no shard of theirs can be the base of ours. */
static void
go_on_anew(ckp_run *run, const ckpi_manifest *m, const char *dir)
{
    double quality;

    (void)snprintf(run->parent, sizeof run->parent, "%.63s", dir);
    run->restore_count = (uint64_t)m->restores + 1;
    run->key_next = true;
    run->lasting = lasting_of(m);
    if (ckpi_manifest_setting(m, "quality", &quality))
        ckpi_rate_resume(&run->rate, quality);
    ckp_checkpoint_close(run->adopted);
    run->adopted = NULL;
}

ckp_status
ckp_run_adopt(ckp_run *run, ckp_checkpoint *ck, ckp_error *err)
{
    ckp_checkpoint *own = NULL;
    ckpi_buf tree = CKPI_BUF_INIT;

    ckp_status st = ckpi_session_check_free(run, err);
    if (st == CKP_OK)
        st = ckpi_checkpoint_check(ck, err);
    if (st != CKP_OK)
        return st;
    if (ck->manifest == NULL || !ckpi_id_eq(ck->manifest->run_id, ckpi_store_run_id(run->store)))
        return ckpi_fail(err, CKP_EINVAL, "%s is no checkpoint of this run", ck->name);
    ckpi_session_drain(run);
    const ckpi_place place = ckpi_checkpoint_place(ck);
    const ckpi_shards shards = ckpi_group_shards(run, false);
    if (ck->manifest->n_shards != run->group.world) {
        go_on_anew(run, ck->manifest, ck->name);
        return CKP_OK;
    }
    st = ckpi_checkpoint_open_dir(&own, &place, &shards, ck->name, run->opt.base_model, false, err);
    if (st != CKP_OK)
        return st;
    const ckpi_fmt_file *f = own->lin->level[0].f, *t = ckpi_checkpoint_table_file(own);
    ckpi_buf_put(&tree, t->tree, t->tree_len);
    st = ckpi_buf_status(&tree, err, "the state tree");
    if (st != CKP_OK) {
        ckpi_buf_free(&tree);
        ckp_checkpoint_close(own);
        return st;
    }
    /* A run that began on a base model goes on with it. */
    if (run->model == NULL && own->model_path != NULL && ckpi_base_model_open(&run->model, own->model_path, NULL) == CKP_OK)
        run->opt.base_model = ckpi_base_model_path(run->model);
    ckpi_memory_adopt(&run->memory, &own->memory_names);
    /* From here on nothing fails: base and predictor change together or not at all. */
    ckpi_buf_free(&run->base.table_tree);
    run->base.table_tree = tree;
    (void)memcpy(run->base.dir, own->name, sizeof run->base.dir);
    (void)memcpy(run->parent, own->name, sizeof run->parent);
    run->base.checkpoint = own->manifest->content;
    run->base.shard = f->content;
    run->base.chain = own->manifest->chain;
    run->base.shard_chain = run->talk != NULL ? (uint32_t)own->lin->n - 1 : own->manifest->chain;
    run->base.on_model = own->model.bytes.len != 0;
    run->base.key_bytes = own->lin->level[own->lin->n - 1].f->length;
    run->base.table_content = t->content;
    run->restore_count = (uint64_t)own->manifest->restores + 1;
    run->key_next = false;
    run->lasting = lasting_of(own->manifest);
    double quality;
    if (ckpi_manifest_setting(own->manifest, "quality", &quality))
        ckpi_rate_resume(&run->rate, quality);
    ckp_checkpoint_close(run->adopted);
    run->adopted = own;
    return CKP_OK;
}

/* ---- at the next save: the predictor from the adopted lineage ---------------------------------------------------- */

typedef struct load_job { const ckp_checkpoint *ck; ckpi_pred *pred; bool keep_raw; uint32_t cpu; } load_job;

const ckpi_unit *
ckpi_unit_of_group(const ckp_checkpoint *ck, const ckpi_group *g)
{
    const ckpi_chunk_key *k = ckpi_lineage_find(ck->lin, 0, g->piece[0].tensor, g->piece[0].first);
    if (k == NULL || k->piece != 0)
        return NULL;
    const ckpi_chunk *c = &ck->lin->level[0].f->chunk[k->chunk];
    if (c->n_pieces != g->n_pieces)
        return NULL;
    for (size_t i = 0; i < g->n_pieces; i++)
        if (c->piece[i].tensor != g->piece[i].tensor || c->piece[i].first != g->piece[i].first || c->piece[i].count != g->piece[i].count)
            return NULL;
    const ckpi_unit *u = &ck->unit[ck->unit_of[k->chunk]];
    const bool clustered = c->quant == CKPI_QUANT_CLUSTER;
    const bool lossy = u->m != CKPI_NO_CHUNK || u->v != CKPI_NO_CHUNK || (c->quant != CKPI_QUANT_NONE && !clustered);
    if (clustered != g->clustered)
        return NULL;
    if (lossy != g->lossy || (u->m != CKPI_NO_CHUNK) != g->has_m || (u->v != CKPI_NO_CHUNK) != g->has_v)
        return NULL;
    return u;
}

static ckp_status
load_group(void *user, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    const load_job *j = user;
    return ckpi_decode_into_pred(j->ck->lin, ckpi_unit_of_group(j->ck, &j->pred->layout->g[g]), j->pred, g, j->keep_raw, ws, j->cpu, err);
}

ckp_status
ckpi_session_load(ckp_run *run, ckp_error *err)
{
    ckp_checkpoint *ck = run->adopted;
    load_job j = {ck, run->pred, true, run->front->cpu};
    ckp_status st = CKP_OK;

    if (ck == NULL)
        return CKP_OK;
    bool fits = ckpi_id_eq(ck->lin->table->id, run->pred->table->id);
    for (size_t g = 0; fits && g < run->pred->layout->n; g++)
        fits = ckpi_unit_of_group(ck, &run->pred->layout->g[g]) != NULL;
    if (fits)
        st = ckpi_ctx_run(run->front, run->pred->layout->n, load_group, &j, err);
    run->key_next = !fits || st != CKP_OK;
    run->adopted = NULL;
    ckp_checkpoint_close(ck);
    return st;
}
