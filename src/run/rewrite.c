/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing checkpoints anew. Chunks are copied as they are, params, escapes and payload, with the hashes of what they decode to: no code
 * changes, and the decoded hashes prove that the new file gives what the old one gave. What is made anew is lossless: zeros for moments that
 * are dropped, and for a key the bytes that a lossless delta decodes to.
 *
 * A file's header names its base by content id, so everything based on a rewritten checkpoint is rewritten too, bases first. Each is decoded
 * whole before it is published.
 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/cpu.h"
#include "codec/codec.h"
#include "engine/encode.h"
#include "engine/layout.h"
#include "run/list.h"
#include "run/rewrite.h"

#define REFRESH_SECONDS 5.0

/* One checkpoint on its way. */
typedef struct item {
    ckpi_rewriting *r;
    const ckpi_entry *old;
    ckpi_rewrite_how how;
    ckp_checkpoint *ck;          /* the old one */
    ckp_checkpoint *base;        /* the new base; NULL: as it was, or none */
    ckpi_fmt_writer *fw;
    ckpi_buf body, coded;
} item;

/* ---- chunks -------------------------------------------------------------------------------------------------------- */

bool
ckpi_rewrite_drops(const ckp_checkpoint *ck, size_t i)
{
    const ckpi_chunk *k = &ck->lin->level[0].f->chunk[i];

    if (k->role != CKP_ROLE_M && k->role != CKP_ROLE_MOMENTUM)
        return false;
    /* without second moments, the factors that weights' steps follow are in the chunk of momentum */
    return k->quant == CKPI_QUANT_NONE || ck->unit[ck->unit_of[i]].v != CKPI_NO_CHUNK;
}

static ckp_status
put_zeros(item *x, const ckpi_chunk *like, ckp_error *err)
{
    const size_t bytes = (size_t)ckpi_chunk_bytes(x->ck->lin->table, like);
    ckpi_chunk c = *like;
    uint8_t *zeros = ckpi_calloc(bytes + 1, 1);

    if (zeros == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a chunk");
    c.quant = CKPI_QUANT_NONE;
    c.codec = CKPI_CODEC_ZERO;
    c.flags = 0;
    c.params_len = c.escapes_len = c.payload_len = 0;
    c.params = c.escapes = c.payload = NULL;
    c.decoded_hash = ckpi_hash64(zeros, bytes);
    free(zeros);
    return ckpi_fmt_writer_chunk(x->fw, &c, err);
}

typedef struct decoded { item *x; ckpi_scratch *ws; ckpi_chunk c; } decoded;

static ckp_status
code_plain(void *user, const ckpi_chunk *k, const void *bytes, ckp_error *err)
{
    decoded *d = user;
    const ckpi_table *t = d->x->ck->lin->table;
    const size_t cols = k->n_pieces == 1 ? ckpi_matrix_cols(&t->rec[k->piece[0].tensor]) : 0;
    const ckpi_block b = ckpi_block_of((ckp_dtype)k->dtype, bytes, NULL, ckpi_chunk_bytes(t, k), cols);
    const size_t cap = ckpi_codec_pick_bound(&b);
    size_t len = 0;
    bool used_base = false;

    d->c = *k;
    d->c.flags = 0;
    ckpi_buf_clear(&d->x->coded);
    if (!ckpi_buf_reserve(&d->x->coded, cap))
        return ckpi_buf_status(&d->x->coded, err, "a chunk");
    const ckp_status st = ckpi_codec_pick(&b, CKPI_EFFORT_FAST, d->x->coded.data, cap, &len, &d->c.codec, &used_base, d->ws, d->x->r->ctx->cpu, err);
    d->c.params_len = d->c.escapes_len = 0;
    d->c.params = d->c.escapes = NULL;
    d->c.payload = d->x->coded.data;
    d->c.payload_len = len;
    return st;
}

static ckp_status
put_plain(item *x, size_t i, ckp_error *err)
{
    decoded d = {.x = x, .ws = x->r->ctx->ws[0]};

    ckpi_scratch_reset(d.ws);
    ckp_status st = ckpi_decode_unit(x->ck->lin, &x->ck->unit[x->ck->unit_of[i]], CKPI_WANT_W, code_plain, &d, d.ws, x->r->ctx->cpu, err);
    return st == CKP_OK ? ckpi_fmt_writer_chunk(x->fw, &d.c, err) : st;
}

static ckp_status
put_chunk(item *x, size_t i, ckp_error *err)
{
    const ckpi_fmt_file *f = x->ck->lin->level[0].f;
    ckpi_chunk c;

    if (x->how == CKPI_REWRITE_THIN && ckpi_rewrite_drops(x->ck, i))
        return put_zeros(x, &f->chunk[i], err);
    if (x->how == CKPI_REWRITE_KEY && (f->chunk[i].flags & CKPI_CHUNK_USES_BASE))
        return put_plain(x, i, err);
    ckpi_buf_clear(&x->body);
    const ckp_status st = ckpi_fmt_read_chunk(f, i, &x->body, &c, err);
    return st == CKP_OK ? ckpi_fmt_writer_chunk(x->fw, &c, err) : st;
}

/* Says that this writer lives, and how far it is. */
static ckp_status
beat(ckpi_rewriting *r, uint64_t bytes, ckp_error *err)
{
    r->read += bytes;
    if (r->o->progress != NULL && r->o->progress(r->o->user, CKPI_MIN(r->read, r->total), r->total) != 0)
        return ckpi_fail(err, CKP_ECANCELLED, "cancelled");
    if (ckpi_seconds() - r->refreshed < REFRESH_SECONDS)
        return CKP_OK;
    r->refreshed = ckpi_seconds();
    return ckpi_store_refresh(r->s, err);
}

/* ---- one file ------------------------------------------------------------------------------------------------------ */

/* Of the chain below the new file, the one that stores the same table. */
static const ckpi_fmt_file *
table_holder(const item *x)
{
    const ckpi_lineage *l = x->base != NULL ? x->base->lin : x->ck->lin;

    if (x->how == CKPI_REWRITE_KEY || x->old->m->kind == CKPI_CKPT_KEY)
        return NULL;
    for (size_t i = x->base != NULL ? 0 : 1; i < l->n; i++)
        if (ckpi_id_is_zero(l->level[i].f->info.table_content) && ckpi_id_eq(l->level[i].f->table->id, x->ck->lin->table->id))
            return l->level[i].f;
    return NULL;
}

static ckpi_file_info
info_of(const item *x, const ckpi_fmt_file *holder)
{
    ckpi_file_info i = x->ck->lin->level[0].f->info;

    i.table_content = holder != NULL ? holder->content : (ckpi_id){0, 0};
    if (x->how == CKPI_REWRITE_KEY) {
        i.is_delta = 0;
        i.chain = 0;
        i.base_content = (ckpi_id){0, 0};
        i.features &= ~CKPI_FEAT_DELTA;
    } else if (x->base != NULL) {
        i.chain = (uint16_t)(x->base->lin->level[0].f->info.chain + 1);
        i.base_content = x->base->lin->level[0].f->content;
    }
    return i;
}

/* Error records of what is still coded lossily. *n of them; freed by free(). */
static ckpi_errrec *
errors_of(const item *x, size_t *n)
{
    const ckpi_fmt_file *f = x->ck->lin->level[0].f;
    ckpi_errrec *e = ckpi_calloc(f->n_errs + 1, sizeof *e);

    *n = 0;
    for (size_t i = 0; e != NULL && i < f->n_errs; i++) {
        const ckp_role role = x->ck->lin->table->rec[f->errs[i].tensor].role;
        bool dropped = false;
        size_t n_keys;
        const ckpi_chunk_key *key = ckpi_lineage_pieces(x->ck->lin, 0, f->errs[i].tensor, &n_keys);
        for (size_t k = 0; x->how == CKPI_REWRITE_THIN && (role == CKP_ROLE_M || role == CKP_ROLE_MOMENTUM) && k < n_keys; k++)
            dropped = dropped || ckpi_rewrite_drops(x->ck, key[k].chunk);
        if (!dropped)
            e[(*n)++] = f->errs[i];
    }
    return e;
}

static ckp_status
write_file(item *x, ckpi_writer *w, ckpi_fmt_sum *sum, ckp_error *err)
{
    const ckpi_fmt_file *f = x->ck->lin->level[0].f, *holder = table_holder(x);
    const ckpi_file_info info = info_of(x, holder);
    size_t n_errs = 0;
    ckpi_errrec *errs = errors_of(x, &n_errs);

    ckp_status st = errs != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a file");
    if (st == CKP_OK)
        st = ckpi_fmt_writer_new(&x->fw, w, &info, x->ck->lin->table, f->tree, f->tree_len, holder != NULL ? holder->table : NULL,
                                 holder != NULL ? holder->tree : NULL, holder != NULL ? holder->tree_len : 0, err);
    for (size_t i = 0; st == CKP_OK && i < f->n_chunks; i++) {
        st = put_chunk(x, i, err);
        if (st == CKP_OK)
            st = beat(x->r, f->chunk[i].frame_len, err);
    }
    if (st == CKP_OK)
        st = ckpi_fmt_writer_finish(x->fw, errs, n_errs, sum, err);
    free(errs);
    return st;
}

/* ---- proof --------------------------------------------------------------------------------------------------------- */

static ckp_status
decode_one(void *user, size_t u, ckpi_scratch *ws, ckp_error *err)
{
    const ckp_checkpoint *ck = user;
    const ckpi_unit *unit = &ck->unit[u];
    const unsigned want = (unit->w != CKPI_NO_CHUNK ? CKPI_WANT_W : 0) | (unit->m != CKPI_NO_CHUNK ? CKPI_WANT_M : 0) |
                          (unit->v != CKPI_NO_CHUNK ? CKPI_WANT_V : 0);
    return ckpi_decode_unit(ck->lin, unit, want, NULL, NULL, ws, ckpi_cpu(), err);
}

/* The files that a new one stands on, taken from the checkpoint that has them open, which is good for nothing but closing then. */
static size_t
take_files(item *x, ckpi_fmt_file **to)
{
    ckp_checkpoint *from = x->base != NULL ? x->base : x->ck;
    size_t n = 0;

    if (x->how == CKPI_REWRITE_KEY)
        return 0;
    for (size_t l = x->base != NULL ? 0 : 1; l < from->lin->n; l++) {
        to[n++] = from->lin->level[l].f;
        from->lin->level[l].f = NULL;
    }
    return n;
}

/* Decodes everything that the attempt's file holds: every hash is that of the old one, but for what was dropped. */
static ckp_status
prove(item *x, const char *dir, const ckpi_manifest *m, ckp_error *err)
{
    const size_t n_chunks = x->ck->lin->level[0].f->n_chunks;
    ckp_checkpoint *ck = ckpi_calloc(1, sizeof *ck);
    ckpi_fmt_file **files = ckpi_calloc((x->base != NULL ? x->base : x->ck)->lin->n + 1, sizeof *files);
    size_t n = 0;

    ckp_status st = ck != NULL && files != NULL ? ckpi_checkpoint_open_shard(x->r->s, dir, m, 0, &files[0], err)
                                                : ckpi_fail(err, CKP_ENOMEM, "no memory for a checkpoint");
    if (st == CKP_OK) {
        ck->pid = x->ck->pid;
        n = 1 + take_files(x, files + 1);
        st = ckpi_checkpoint_from_files(ck, files, n, err);
    }
    if (st == CKP_OK && ck->lin->level[0].f->n_chunks != n_chunks)
        st = ckpi_fail(err, CKP_EINTERNAL, "%s: %zu chunks of %zu were written", dir, ck->lin->level[0].f->n_chunks, n_chunks);
    if (st == CKP_OK)
        st = ckpi_ctx_run(x->r->ctx, ck->n_units, decode_one, ck, err);
    if (ck != NULL)
        ckp_checkpoint_close(ck);
    free(files);
    return st;
}

/* ---- one checkpoint ------------------------------------------------------------------------------------------------- */

static ckp_status
fill_manifest(const item *x, const ckpi_writer *w, const ckpi_fmt_sum *sum, ckpi_manifest *m, ckp_error *err)
{
    ckp_status st = ckpi_writer_hash(w, &m->shards[0].hash, err);

    m->shards[0].length = ckpi_writer_pos(w);
    m->shards[0].content = sum->content;
    m->content = ckpi_hash128(&m->shards[0].content, sizeof m->shards[0].content);
    if (st == CKP_OK && x->how == CKPI_REWRITE_THIN)
        st = ckpi_manifest_set(&m->dropped, "m", err);
    if (st == CKP_OK && x->how == CKPI_REWRITE_KEY) {
        m->kind = CKPI_CKPT_KEY;
        m->chain = 0;
        m->base = (ckpi_id){0, 0};
        st = ckpi_manifest_set(&m->base_dir, NULL, err);
        if (st == CKP_OK)
            st = ckpi_manifest_set(&m->base_model, NULL, err);
    } else if (st == CKP_OK && x->base != NULL) {
        m->base = x->base->manifest->content;
        m->chain = x->base->manifest->chain + 1;
        st = ckpi_manifest_set(&m->base_dir, x->base->name, err);
    }
    return st;
}

static ckp_status
make(item *x, char made[CKPI_DIR_NAME_MAX], ckp_error *err)
{
    ckpi_attempt *a = NULL;
    ckpi_writer *w = NULL;
    ckpi_manifest *m = NULL;
    ckpi_fmt_sum sum;
    char dir[CKPI_DIR_NAME_MAX];

    ckp_status st = ckpi_manifest_copy(&m, x->old->m, err);
    if (st == CKP_OK)
        st = ckpi_store_begin(x->r->s, x->old->step, &a, err);
    if (st == CKP_OK) {
        (void)memcpy(dir, ckpi_attempt_dir(a), strlen(ckpi_attempt_dir(a)) + 1);
        st = ckpi_store_shard(x->r->s, a, 0, 1, &w, err);
    }
    if (st == CKP_OK)
        st = write_file(x, w, &sum, err);
    ckpi_keeper *k = st == CKP_OK ? ckpi_store_keep(x->r->s) : NULL;
    if (st == CKP_OK)
        st = ckpi_writer_finish(w, err);
    if (st == CKP_OK)
        st = fill_manifest(x, w, &sum, m, err);
    if (st == CKP_OK)
        st = prove(x, dir, m, err);
    ckpi_keeper_stop(k);
    if (st == CKP_OK) {
        st = ckpi_store_replace(x->r->s, a, m, x->old->m, err);
        a = NULL;
    }
    if (st == CKP_OK) {
        (void)memcpy(made, dir, sizeof dir);
        x->r->done->new_bytes += m->shards[0].length;
    }
    ckpi_writer_free(w);
    ckpi_store_abort(x->r->s, a);
    ckpi_manifest_free(m);
    return st;
}

/* The directory that stands in for entry i by now; NULL: none. Whatever stands in has a lower sequence than what is based on it, so it is done. */
static const char *
new_dir(const ckpi_rewriting *r, size_t i)
{
    const size_t in = r->stands[i];
    if (in != SIZE_MAX)
        return r->made[in][0] != '\0' ? r->made[in] : r->all.v[in].dir;
    return r->made[i][0] != '\0' ? r->made[i] : NULL;
}

static ckp_status
rewrite_one(ckpi_rewriting *r, size_t i, ckp_error *err)
{
    item x = {.r = r, .old = &r->all.v[i], .how = r->how[i], .body = CKPI_BUF_INIT, .coded = CKPI_BUF_INIT};
    const char *base = x.old->base != SIZE_MAX && x.how != CKPI_REWRITE_KEY ? new_dir(r, x.old->base) : NULL;

    ckp_status st = x.old->m->n_shards == 1 ? ckpi_checkpoint_open_listed(&x.ck, r->s, &r->place, &r->all, i, r->o->base_model, err)
                                            : ckpi_fail(err, CKP_EUNSUPPORTED, "%s has %zu shards; this version rewrites those of one writer", x.old->dir,
                                                        x.old->m->n_shards);
    if (st == CKP_OK && base != NULL)
        st = ckpi_checkpoint_open_dir(&x.base, &r->place, NULL, base, r->o->base_model, false, err);
    if (st == CKP_OK)
        st = make(&x, r->made[i], err);
    ckpi_fmt_writer_free(x.fw);
    ckp_checkpoint_close(x.ck);
    ckp_checkpoint_close(x.base);
    ckpi_buf_free(&x.body);
    ckpi_buf_free(&x.coded);
    return st;
}

/* ---- all of them ---------------------------------------------------------------------------------------------------- */

/* What a repair would have to judge must not be written anew or deleted. */
static ckp_status
refuse_damage(const ckpi_entries *e, ckp_error *err)
{
    for (size_t i = 0; i < e->n; i++) {
        const ckpi_health h = e->v[i].health;
        if (h != CKPI_HEALTH_OK && h != CKPI_HEALTH_INCOMPLETE && h != CKPI_HEALTH_DELETING && h != CKPI_HEALTH_FOREIGN)
            return ckpi_fail(err, CKP_ECORRUPT, "nothing is written anew while %s is damaged (repair): %s: %s", e->v[i].dir, ckpi_health_name(h),
                             e->v[i].reason);
    }
    return CKP_OK;
}

ckp_status
ckpi_rewriting_start(ckpi_rewriting *r, const char *dir, const ckp_rewrite_opts *o, ckp_rewritten *done, ckp_error *err)
{
    ckpi_fs *fs = NULL;

    *r = (ckpi_rewriting){.place = {dir, NULL}, .o = o, .done = done, .refreshed = ckpi_seconds()};
    ckp_status st = ckpi_list_reader(&r->place, &r->s, err);       /* tells a directory that is no run before anything is made in it */
    if (st == CKP_OK && !o->dry_run) {
        ckpi_store_free(r->s);
        r->s = NULL;
        st = ckpi_fs_posix(&fs, dir, false, err);
        if (st == CKP_OK)
            st = ckpi_store_open(&r->s, fs, CKPI_STORE_WRITE, NULL, err);
    }
    if (st == CKP_OK)
        st = ckpi_store_list(r->s, &r->all, err);
    if (st == CKP_OK)
        st = refuse_damage(&r->all, err);
    if (st != CKP_OK)
        return st;
    r->how = ckpi_calloc(r->all.n + 1, sizeof *r->how);
    r->needed = ckpi_calloc(r->all.n + 1, sizeof *r->needed);
    r->made = ckpi_calloc(r->all.n + 1, sizeof *r->made);
    r->stands = ckpi_calloc(r->all.n + 1, sizeof *r->stands);
    if (r->how == NULL || r->needed == NULL || r->made == NULL || r->stands == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to list a run");
    return ckpi_ctx_new(&r->ctx, o->threads, false, err);
}

void
ckpi_rewriting_free(ckpi_rewriting *r)
{
    ckpi_ctx_free(r->ctx);
    free(r->how);
    free(r->needed);
    free(r->made);
    free(r->stands);
    ckpi_entries_free(&r->all);
    ckpi_store_free(r->s);
}

/* A thin was cut short, and is not what is asked for now: whose moments are differences to what has none in its stand-in stays where it is. */
static ckp_status
stays_behind(ckpi_rewriting *r, size_t i, bool *stays, ckp_error *err)
{
    const size_t in = r->stands[r->all.v[i].base];
    ckpi_moments m = {0};
    ckp_status st = CKP_OK;

    if (in != SIZE_MAX && r->all.v[in].m->dropped != NULL)
        st = ckpi_rewriting_look(r, i, &m, err);
    *stays = m.on_base;
    return st;
}

/* What is based on something that is, or was by an earlier call, written anew must move to it. */
static ckp_status
spread(ckpi_rewriting *r, ckp_error *err)
{
    ckp_status st = CKP_OK;

    for (size_t i = 0; st == CKP_OK && i < r->all.n; i++) {
        bool stays = false;
        const ckpi_entry *e = &r->all.v[i];
        r->stands[i] = e->health == CKPI_HEALTH_OK ? ckpi_stand_in(&r->all, i) : SIZE_MAX;
        const bool moved = e->base != SIZE_MAX && (r->how[e->base] != CKPI_REWRITE_NONE || r->stands[e->base] != SIZE_MAX);
        if (r->stands[i] != SIZE_MAX) {
            r->how[i] = CKPI_REWRITE_NONE;
        } else if (e->health == CKPI_HEALTH_OK && moved && r->how[i] == CKPI_REWRITE_NONE) {
            st = stays_behind(r, i, &stays, err);
            r->how[i] = stays ? CKPI_REWRITE_NONE : CKPI_REWRITE_MOVE;
        }
        r->total += r->how[i] != CKPI_REWRITE_NONE ? e->bytes : 0;
    }
    return st;
}

static void
tell(ckpi_rewriting *r, size_t i, uint64_t new_bytes)
{
    const ckp_rewrite_fate fate = r->how[i] == CKPI_REWRITE_MOVE   ? CKP_REWRITE_MOVED
                                  : r->how[i] != CKPI_REWRITE_NONE ? CKP_REWRITE_DONE
                                  : r->needed[i]                   ? CKP_REWRITE_NEEDED
                                                                   : CKP_REWRITE_LEFT;
    ckp_list_entry e;

    r->done->done += fate == CKP_REWRITE_DONE;
    r->done->moved += fate == CKP_REWRITE_MOVED;
    r->done->needed += fate == CKP_REWRITE_NEEDED;
    ckpi_list_fill(&r->all, &r->all.v[i], &e);
    if (r->o->told != NULL)
        r->o->told(r->o->told_user, &e, fate, new_bytes);
}

ckp_status
ckpi_rewriting_run(ckpi_rewriting *r, ckp_error *err)
{
    ckp_status st = spread(r, err);
    size_t deleted = 0;

    for (size_t i = 0; st == CKP_OK && i < r->all.n; i++) {
        const uint64_t before = r->done->new_bytes;
        if (r->all.v[i].health != CKPI_HEALTH_OK || r->stands[i] != SIZE_MAX)
            continue;
        if (r->how[i] != CKPI_REWRITE_NONE && !r->o->dry_run)
            st = rewrite_one(r, i, err);
        if (st == CKP_OK)
            tell(r, i, r->done->new_bytes - before);
    }
    if (st == CKP_OK && !r->o->dry_run) {
        uint64_t freed = 0;
        st = ckpi_store_drop_replaced(r->s, &deleted, &freed, err);
        r->done->freed_bytes = freed;
    }
    r->done->deleted = deleted;
    return st;
}
