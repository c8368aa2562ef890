/* SPDX-License-Identifier: Apache-2.0 */
/* Thinning and rebasing: which checkpoints, and how. The writing: rewrite.c. */
#include <string.h>
#include "base/fail.h"
#include "engine/decode.h"
#include "run/rewrite.h"

static const char *
told_dropped(const ckpi_manifest *m)
{
    return m != NULL && m->dropped != NULL ? "the optimizer's first moments were dropped (thin): they are zeros" : NULL;
}

const char *
ckp_checkpoint_dropped(const ckp_checkpoint *ck)
{
    return ckpi_checkpoint_check(ck, NULL) == CKP_OK ? told_dropped(ck->manifest) : NULL;
}

const char *
ckp_list_entry_dropped(const ckp_list_entry *e)
{
    return e != NULL ? told_dropped(e->manifest) : NULL;
}

static ckp_status
check(const char *what, const char *dir, const ckp_rewrite_opts *o, ckp_rewritten *done, ckp_error *err)
{
    if (dir == NULL || o->size != sizeof *o || done == NULL || done->size != sizeof *done)
        return ckpi_fail(err, CKP_EINVAL, "%s: NULL argument or bad size", what);
    *done = (ckp_rewritten){.size = sizeof *done};
    return CKP_OK;
}

/* ---- thin ---------------------------------------------------------------------------------------------------------- */

/* Whether chunk i is a difference to one of its base that thinning would make zeros of. */
static bool
needs_base(const ckp_checkpoint *ck, size_t i)
{
    const ckpi_chunk *k = &ck->lin->level[0].f->chunk[i], *base = NULL;

    if (k->flags & CKPI_CHUNK_USES_BASE)
        base = ckpi_lineage_like(ck->lin, 1, k, NULL);
    return base != NULL && (base->quant == CKPI_QUANT_NONE || ck->unit[ck->unit_of[i]].v != CKPI_NO_CHUNK);
}

ckp_status
ckpi_rewriting_look(ckpi_rewriting *r, size_t i, ckpi_moments *out, ckp_error *err)
{
    ckp_checkpoint *ck = NULL;

    *out = (ckpi_moments){0};
    const ckp_status st = ckpi_checkpoint_open_listed(&ck, r->s, &r->place, &r->all, i, r->o->base_model, err);
    for (size_t c = 0; st == CKP_OK && c < ck->lin->level[0].f->n_chunks; c++) {
        const ckpi_chunk *k = &ck->lin->level[0].f->chunk[c];
        if (k->role != CKP_ROLE_M && k->role != CKP_ROLE_MOMENTUM)
            continue;
        out->on_base = out->on_base || needs_base(ck, c);
        out->droppable = out->droppable || ckpi_rewrite_drops(ck, c);
        out->bytes += ckpi_rewrite_drops(ck, c) ? k->frame_len : 0;
    }
    ckp_checkpoint_close(ck);
    return st;
}

/* From the newest down: whoever keeps its moments, and has them as differences, keeps its base's. */
static ckp_status
choose(ckpi_rewriting *r, ckp_error *err)
{
    uint64_t newer = 0;
    ckp_status st = CKP_OK;

    for (size_t i = r->all.n; st == CKP_OK && i-- > 0;) {
        const ckpi_entry *e = &r->all.v[i];
        ckpi_moments m = {0};
        if (e->health != CKPI_HEALTH_OK || ckpi_stand_in(&r->all, i) != SIZE_MAX)
            continue;
        const bool old = newer++ >= r->o->older_than;
        if (e->m->dropped != NULL)
            continue;
        st = ckpi_rewriting_look(r, i, &m, err);
        if (old && !r->needed[i] && m.droppable) {
            r->how[i] = CKPI_REWRITE_THIN;
            r->done->freed_bytes += r->o->dry_run ? m.bytes : 0;
        } else if (m.on_base && e->base != SIZE_MAX) {
            r->needed[e->base] = true;
        }
        r->needed[i] = r->needed[i] && old;
    }
    return st;
}

ckp_status
ckp_run_thin(const char *dir, const ckp_rewrite_opts *opt, ckp_rewritten *done, ckp_error *err)
{
    const ckp_rewrite_opts o = opt != NULL ? *opt : (ckp_rewrite_opts)CKP_REWRITE_OPTS_INIT;
    ckpi_rewriting r;

    ckp_status st = check("run_thin", dir, &o, done, err);
    if (st != CKP_OK)
        return st;
    if (o.older_than == 0)
        return ckpi_fail(err, CKP_EINVAL, "run_thin: the newest checkpoint keeps its optimizer state");
    st = ckpi_rewriting_start(&r, dir, &o, done, err);
    if (st == CKP_OK)
        st = choose(&r, err);
    if (st == CKP_OK)
        st = ckpi_rewriting_run(&r, err);
    ckpi_fail_file(st != CKP_OK ? err : NULL, dir);
    ckpi_rewriting_free(&r);
    return st;
}

/* ---- rebase -------------------------------------------------------------------------------------------------------- */

static size_t
newest_of_step(const ckpi_entries *all, uint64_t step)
{
    for (size_t i = all->n; i-- > 0;)
        if (all->v[i].health == CKPI_HEALTH_OK && all->v[i].step == step && ckpi_stand_in(all, i) == SIZE_MAX)
            return i;
    return SIZE_MAX;
}

/* A lossy delta's reconstruction, codes of v and factors are what later ones go on from; a key would begin them anew. */
static ckp_status
refuse_lossy(ckpi_rewriting *r, size_t i, ckp_error *err)
{
    ckp_checkpoint *ck = NULL;

    ckp_status st = ckpi_checkpoint_open_listed(&ck, r->s, &r->place, &r->all, i, r->o->base_model, err);
    for (size_t c = 0; st == CKP_OK && c < ck->lin->level[0].f->n_chunks; c++) {
        const ckpi_chunk *k = &ck->lin->level[0].f->chunk[c];
        if (k->quant == CKPI_QUANT_NONE)
            continue;
        st = ckpi_fail(err, CKP_EUNSUPPORTED, "%s is coded lossily (%s): what later deltas stand on is its codes and what they were rounded from, not only what "
                       "it restores to, so no key can take its place", r->all.v[i].dir, r->all.v[i].m->profile);
        ckpi_fail_tensor(err, ck->lin->table->rec[k->piece[0].tensor].name);
    }
    ckp_checkpoint_close(ck);
    return st;
}

ckp_status
ckp_run_rebase(const char *dir, uint64_t step, const ckp_rewrite_opts *opt, ckp_rewritten *done, ckp_error *err)
{
    const ckp_rewrite_opts o = opt != NULL ? *opt : (ckp_rewrite_opts)CKP_REWRITE_OPTS_INIT;
    ckpi_rewriting r;

    ckp_status st = check("run_rebase", dir, &o, done, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_rewriting_start(&r, dir, &o, done, err);
    const size_t at = st == CKP_OK ? newest_of_step(&r.all, step) : SIZE_MAX;
    if (st == CKP_OK && at == SIZE_MAX)
        st = ckpi_fail(err, CKP_ENOTFOUND, "the run has no restorable checkpoint of step %llu", (unsigned long long)step);
    if (st == CKP_OK && (r.all.v[at].m->kind == CKPI_CKPT_DELTA || r.all.v[at].m->base_model != NULL)) {
        st = refuse_lossy(&r, at, err);
        r.how[at] = CKPI_REWRITE_KEY;
    }
    if (st == CKP_OK)
        st = ckpi_rewriting_run(&r, err);
    ckpi_fail_file(st != CKP_OK ? err : NULL, dir);
    ckpi_rewriting_free(&r);
    return st;
}
