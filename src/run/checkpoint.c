/* SPDX-License-Identifier: Apache-2.0 */
/* Opening checkpoints, with fall-back to the newest valid one. What is inside: info.c; reading: read.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ckpress/run_objects.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "os/host.h"
#include "os/private.h"
#include "run/checkpoint.h"
#include "run/group.h"
#include "run/memory.h"
#include "run/session.h"

ckp_status
ckpi_checkpoint_check(const ckp_checkpoint *ck, ckp_error *err)
{
    if (ck == NULL)
        return ckpi_fail(err, CKP_EINVAL, "no checkpoint");
    if (ck->pid != ckpi_pid())
        return ckpi_fail(err, CKP_EFORK, "this checkpoint was opened by process %lld; a forked child cannot use it", (long long)ck->pid);
    return CKP_OK;
}

ckp_status
ckp_checkpoint_hold(ckp_checkpoint *ck, uint64_t max_bytes, ckp_error *err)
{
    uint64_t left = max_bytes;
    ckp_status st = ckpi_checkpoint_check(ck, err);

    for (size_t l = 0; st == CKP_OK && l < ck->lin->n; l++) {
        const ckpi_fmt_file *f = ck->lin->level[l].f;
        if (f == ck->model.f)    /* is in memory */
            break;
        if (f->length > left)
            return ckpi_fail(err, CKP_ELIMIT, "the chain's files have more than %llu bytes", (unsigned long long)max_bytes);
        left -= f->length;
    }
    for (size_t l = 0; st == CKP_OK && l < ck->lin->n; l++)
        st = ckpi_fmt_hold(ck->lin->level[l].f, err);
    return st;
}

void
ckp_checkpoint_close(ckp_checkpoint *ck)
{
    if (ck == NULL)
        return;
    ckpi_lineage_free(ck->lin);
    ckpi_buf_free(&ck->model.bytes);
    free(ck->model_path);
    if (!ck->store_lent)
        ckpi_store_free(ck->store);
    ckpi_manifest_free(ck->manifest);
    ckpi_buf_free(&ck->notes);
    ckpi_buf_free(&ck->memory_names);
    ckpi_fs_free(ck->memory);
    free(ck->unit);
    free(ck->unit_of);
    free(ck->stage_dir);
    free(ck->run_dir);
    free(ck);
}

static ckp_checkpoint *
new_checkpoint(ckp_error *err)
{
    ckp_checkpoint *ck = ckpi_calloc(1, sizeof *ck);
    if (ck == NULL)
        (void)ckpi_fail(err, CKP_ENOMEM, "no memory for a checkpoint");
    else
        ck->pid = ckpi_pid();
    return ck;
}

const ckpi_fmt_file *
ckpi_checkpoint_table_file(const ckp_checkpoint *ck)
{
    const ckpi_fmt_file *f = ck->lin->level[0].f;
    if (ckpi_id_is_zero(f->info.table_content))
        return f;
    for (size_t l = 1; l < ck->lin->n; l++)
        if (ckpi_id_eq(ck->lin->level[l].f->content, f->info.table_content) && ckpi_id_is_zero(ck->lin->level[l].f->info.table_content))
            return ck->lin->level[l].f;
    return f;                    /* cannot be: the lineage was resolved */
}

static void
note_units(ckp_checkpoint *ck)
{
    for (uint32_t u = 0; u < ck->n_units; u++) {
        const uint32_t c[3] = {ck->unit[u].w, ck->unit[u].m, ck->unit[u].v};
        for (int i = 0; i < 3; i++)
            if (c[i] != CKPI_NO_CHUNK)
                ck->unit_of[c[i]] = u;
    }
}

ckp_status
ckpi_checkpoint_from_files(ckp_checkpoint *ck, ckpi_fmt_file **files, size_t n, ckp_error *err)
{
    ckp_status st = ckpi_lineage_new(&ck->lin, files, n, err);
    if (st == CKP_OK)
        st = ckpi_units(ck->lin, &ck->unit, &ck->n_units, err);
    if (st != CKP_OK)
        return st;
    ck->unit_of = ckpi_calloc(ck->lin->level[0].f->n_chunks, sizeof *ck->unit_of);
    if (ck->unit_of == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a checkpoint's chunks");
    note_units(ck);
    return CKP_OK;
}

static ckp_status
check_payload(const ckp_checkpoint *ck, ckp_error *err)
{
    ckpi_ctx *ctx = NULL;
    ckp_status st = ckpi_ctx_new(&ctx, 0, false, err);
    if (st == CKP_OK)
        st = ckpi_lineage_check_data(ck->lin, ctx, err);
    ckpi_ctx_free(ctx);
    return st;
}

/* ---- of a run --------------------------------------------------------------------------------------------------- */

/* memory: a reader of the shard's copy, or NULL. */
static ckp_status
open_shard(ckpi_store *s, ckpi_reader *memory, const char *dir, const ckpi_manifest *m, size_t shard, ckpi_fmt_file **out, ckp_error *err)
{
    char path[2 * CKPI_DIR_NAME_MAX + 64];
    ckpi_reader *r = memory;

    (void)snprintf(path, sizeof path, "%s/%.64s", dir, m->shards[shard].file);
    ckp_status st = r != NULL ? CKP_OK : ckpi_reader_file(&r, ckpi_store_fs(s), path, err);
    if (st == CKP_OK)
        st = ckpi_fmt_open(out, r, err);
    if (st == CKP_OK && !ckpi_id_eq((*out)->content, m->shards[shard].content)) {
        ckpi_fmt_close(*out);
        *out = NULL;
        st = ckpi_fail(err, CKP_ECORRUPT, "content id of the shard differs from its manifest's");
        ckpi_fail_file(err, path);
    }
    return st;
}

ckp_status
ckpi_checkpoint_open_shard(ckpi_store *s, const char *dir, const ckpi_manifest *m, size_t shard, ckpi_fmt_file **out, ckp_error *err)
{
    if (shard >= m->n_shards)
        return ckpi_fail(err, CKP_EBASE, "%s has %zu shards only", dir, m->n_shards);
    return open_shard(s, NULL, dir, m, shard, out, err);
}

/* Of one writer: from memory where a copy is the very same, else from the run. */
static ckp_status
open_nearest(ckp_checkpoint *ck, const char *dir, const ckpi_manifest *m, ckpi_fmt_file **out, ckp_error *err)
{
    char name[CKPI_MEMORY_NAME];

    if (ck->memory == NULL || m->n_shards != 1)
        return ckpi_checkpoint_open_shard(ck->store, dir, m, 0, out, err);
    if (ckpi_memory_name(name, dir, m->shards[0].file))
        ckpi_buf_put(&ck->memory_names, name, strlen(name) + 1);
    ckpi_reader *r = ckpi_memory_reader(ck->memory, dir, &m->shards[0]);
    ck->from_memory += r != NULL ? m->shards[0].length : 0;
    return open_shard(ck->store, r, dir, m, 0, out, err);
}

/* Of one writer. */
static ckp_status
open_single(ckp_checkpoint *ck, const ckpi_chain *ch, const char *base_model, ckp_error *err)
{
    const size_t n = ch->n + (ch->m[0]->base_model != NULL);
    ckpi_fmt_file **files = ckpi_calloc(n, sizeof *files);
    ckp_status st = files != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a chain of %zu", n);

    for (size_t i = 0; st == CKP_OK && i < ch->n; i++)
        st = open_nearest(ck, ch->dir[ch->n - 1 - i], ch->m[ch->n - 1 - i], &files[i], err);
    if (st == CKP_OK && n != ch->n)
        st = ckpi_checkpoint_open_model(ck, ch->m[0], files[ch->n - 1], base_model, &files[ch->n], err);
    if (st != CKP_OK) {
        for (size_t i = 0; files != NULL && i < n; i++)
            ckpi_fmt_close(files[i]);
        free(files);
        return st;
    }
    st = ckpi_checkpoint_from_files(ck, files, n, err);
    free(files);
    return st;
}

/* ch: from the key to the checkpoint itself. */
static ckp_status
open_chain(ckp_checkpoint *ck, const ckpi_chain *ch, const char *base_model, bool verify_payload, ckp_error *err)
{
    ckp_status st = ch->m[ch->n - 1]->n_shards == 1 ? open_single(ck, ch, base_model, err) : ckpi_checkpoint_open_shards(ck, ch, err);
    if (st == CKP_OK && verify_payload)
        st = check_payload(ck, err);
    if (st == CKP_OK)
        st = ckpi_manifest_copy(&ck->manifest, ch->m[ch->n - 1], err);
    (void)snprintf(ck->name, sizeof ck->name, "%s", ch->dir[ch->n - 1]);
    return st;
}

static void
drop_contents(ckp_checkpoint *ck)
{
    ckpi_lineage_free(ck->lin);
    ckpi_buf_free(&ck->model.bytes);
    ckpi_manifest_free(ck->manifest);
    free(ck->model_path);
    free(ck->unit);
    free(ck->unit_of);
    ck->lin = NULL;
    ck->model = (ckpi_base_file){0};
    ck->model_path = NULL;
    ck->manifest = NULL;
    ck->unit = NULL;
    ck->unit_of = NULL;
    ck->n_units = 0;
    ckpi_buf_clear(&ck->memory_names);
    ck->from_memory = 0;
}

static void
add_note(ckp_checkpoint *ck, const char *dir, const ckp_error *e)
{
    ckpi_buf_put(&ck->notes, dir, strlen(dir));
    ckpi_buf_put(&ck->notes, ": ", 2);
    ckpi_buf_put(&ck->notes, e->text, strlen(e->text));
    ckpi_buf_put(&ck->notes, "\n", 1);
}

/* Memory, threads or a signal failing says nothing about a checkpoint: no reason to pass over it. */
bool
ckpi_is_damage(ckp_status st)
{
    return st <= CKP_EIO && st != CKP_EINTERNAL;
}

/* A writer that keeps the last few may delete what was just listed: then something newer is there. */
#define MAX_LOOKS 64

static bool
newer_came(ckp_checkpoint *ck, uint64_t tried)
{
    ckpi_chain ch = CKPI_CHAIN_INIT;
    const bool newer = ckpi_store_latest(ck->store, UINT64_MAX, &ch, NULL, NULL) == CKP_OK && ch.m[ch.n - 1]->sequence > tried;
    ckpi_chain_free(&ch);
    return newer;
}

/* From the newest down to the first that opens. *tried: the newest that was looked at. */
static ckp_status
open_downwards(ckp_checkpoint *ck, const char *base_model, uint64_t below, bool verify_payload, uint64_t *tried, ckp_error *err)
{
    const bool newest = below == UINT64_MAX;
    ckpi_order place = {.sequence = below};

    for (;;) {
        ckpi_chain ch = CKPI_CHAIN_INIT;
        ckp_error e;
        ckpi_error_clear(&e);
        ckp_status st = ckpi_store_before(ck->store, &place, &ch, &ck->notes, err);
        if (st != CKP_OK)
            return st;
        st = open_chain(ck, &ch, base_model, verify_payload, &e);
        place = ckpi_order_of(ch.m[ch.n - 1], ch.dir[ch.n - 1]);
        *tried = CKPI_MAX(*tried, place.sequence);
        const bool damage = ckpi_is_damage(st) && !ck->model_fails;
        if (st != CKP_OK && damage)
            add_note(ck, ch.dir[ch.n - 1], &e);
        ckpi_chain_free(&ch);
        if (st != CKP_OK && !damage && err != NULL)
            *err = e;
        if (st == CKP_OK || !damage)
            return st;
        drop_contents(ck);
        if (newest && newer_came(ck, *tried))
            return ckpi_fail(err, CKP_ENOTFOUND, "checkpoints go faster than they can be opened");
    }
}

static ckp_status
open_newest(ckp_checkpoint *ck, const char *base_model, uint64_t below, bool verify_payload, ckp_error *err)
{
    uint64_t tried = 0;
    ckp_status st = CKP_ENOTFOUND;

    for (int look = 0; look < MAX_LOOKS && st == CKP_ENOTFOUND; look++) {
        ckpi_buf_clear(&ck->notes);
        st = open_downwards(ck, base_model, below, verify_payload, &tried, err);
        if (st != CKP_ENOTFOUND || below != UINT64_MAX || !newer_came(ck, tried))
            break;
    }
    return st;
}

ckpi_place
ckpi_checkpoint_place(const ckp_checkpoint *ck)
{
    return (ckpi_place){ck->run_dir, ck->on_objects ? &ck->objects : NULL};
}

static ckp_status
set_place(ckp_checkpoint *ck, const ckpi_place *run, ckp_error *err)
{
    ck->run_dir = ckpi_strdup(run->name);
    if (ck->run_dir == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a path");
    ck->on_objects = run->objects != NULL;
    return ck->on_objects ? ckpi_place_copy_objects(&ck->objects, &ck->stage_dir, run->objects, err) : CKP_OK;
}

/* How it is to be opened, from now on; shards may be NULL. That there is no directory of copies, or one that is not to be trusted, is no failure. */
static void
set_shards(ckp_checkpoint *ck, const ckpi_shards *shards)
{
    if (shards == NULL)
        return;
    ck->shards = *shards;
    ck->shards.memory = NULL;    /* the caller's */
    if (shards->memory != NULL && ckpi_fs_private(&ck->memory, shards->memory, ckpi_user(), false, NULL) != CKP_OK)
        ck->memory = NULL;
}

static ckp_status
open_store(ckp_checkpoint *ck, const ckpi_place *run, ckp_error *err)
{
    ckpi_fs *fs = NULL;

    ckp_status st = set_place(ck, run, err);
    if (st == CKP_OK)
        st = ckpi_place_fs(&fs, run, false, err);
    return st == CKP_OK ? ckpi_store_open(&ck->store, fs, CKPI_STORE_READ, NULL, err) : st;
}

static ckp_status
finish_open(ckp_checkpoint **out, ckp_checkpoint *ck, ckp_status st, const char *where, ckp_error *err)
{
    if (st == CKP_OK) {
        ckpi_buf_u8(&ck->notes, 0);
        st = ckpi_buf_status(&ck->notes, err, "notes");
    }
    if (st != CKP_OK) {
        ckpi_fail_file(err, where);
        ckp_checkpoint_close(ck);
        return st;
    }
    *out = ck;
    return CKP_OK;
}

ckp_status
ckp_checkpoint_open_run(ckp_checkpoint **out, const char *dir, int64_t step, bool verify_payload, ckp_error *err)
{
    return ckp_checkpoint_open_run_on(out, dir, NULL, step, verify_payload, err);
}

ckp_status
ckp_checkpoint_open_run_on(ckp_checkpoint **out, const char *dir, const char *base_model, int64_t step, bool verify_payload, ckp_error *err)
{
    return ckp_checkpoint_open_run_in(out, NULL, dir, base_model, step, verify_payload, err);
}

ckp_status
ckp_checkpoint_open_run_in(ckp_checkpoint **out, const ckp_objects *in, const char *dir, const char *base_model, int64_t step, bool verify_payload,
                           ckp_error *err)
{
    const ckpi_place place = {dir, in};
    if (out == NULL || dir == NULL || step < CKP_STEP_NEWEST)
        return ckpi_fail(err, CKP_EINVAL, "checkpoint_open_run: bad argument");
    return ckpi_checkpoint_open_as(out, &place, NULL, base_model, step, UINT64_MAX, verify_payload, err);
}

ckp_status
ckpi_checkpoint_open_as(ckp_checkpoint **out, const ckpi_place *run, const ckpi_shards *shards, const char *base_model, int64_t step, uint64_t below,
                        bool verify_payload, ckp_error *err)
{
    *out = NULL;
    ckp_checkpoint *ck = new_checkpoint(err);
    if (ck == NULL)
        return CKP_ENOMEM;
    set_shards(ck, shards);
    ckp_status st = open_store(ck, run, err);
    if (st == CKP_OK && step == CKP_STEP_NEWEST) {
        st = open_newest(ck, base_model, below, verify_payload, err);
    } else if (st == CKP_OK) {
        ckpi_chain ch = CKPI_CHAIN_INIT;
        st = ckpi_store_at_step(ck->store, (uint64_t)step, &ch, err);
        if (st == CKP_OK)
            st = open_chain(ck, &ch, base_model, verify_payload, err);
        ckpi_chain_free(&ch);
    }
    return finish_open(out, ck, st, run->name, err);
}

ckp_status
ckpi_checkpoint_open_dir(ckp_checkpoint **out, const ckpi_place *run, const ckpi_shards *shards, const char *dir, const char *base_model, bool verify_payload,
                         ckp_error *err)
{
    ckpi_chain ch = CKPI_CHAIN_INIT;

    *out = NULL;
    ckp_checkpoint *ck = new_checkpoint(err);
    if (ck == NULL)
        return CKP_ENOMEM;
    set_shards(ck, shards);
    ckp_status st = open_store(ck, run, err);
    if (st == CKP_OK)
        st = ckpi_store_chain(ck->store, dir, &ch, err);
    if (st == CKP_OK)
        st = open_chain(ck, &ch, base_model, verify_payload, err);
    ckpi_chain_free(&ch);
    return finish_open(out, ck, st, dir, err);
}

/* The chain of a listed checkpoint, by the list's own manifests. c->dir and c->m are freed by free(). */
static ckp_status
listed_chain(const ckpi_entries *all, size_t at, ckpi_chain *c, ckp_error *err)
{
    size_t n = 0;

    for (size_t i = at; i != SIZE_MAX; i = all->v[i].base)
        n++;
    *c = (ckpi_chain){.m = ckpi_calloc(n, sizeof *c->m), .dir = ckpi_calloc(n, sizeof *c->dir), .n = n};
    if (c->m == NULL || c->dir == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a chain of %zu checkpoints", n);
    for (size_t i = at; i != SIZE_MAX; i = all->v[i].base) {
        n--;
        c->m[n] = all->v[i].m;
        memcpy(c->dir[n], all->v[i].dir, sizeof c->dir[n]);
    }
    return CKP_OK;
}

ckp_status
ckpi_checkpoint_open_listed(ckp_checkpoint **out, ckpi_store *s, const ckpi_place *run, const ckpi_entries *all, size_t at, const char *base_model,
                            ckp_error *err)
{
    ckpi_chain ch = CKPI_CHAIN_INIT;

    *out = NULL;
    ckp_checkpoint *ck = new_checkpoint(err);
    if (ck == NULL)
        return CKP_ENOMEM;
    ck->store = s;
    ck->store_lent = true;
    ckp_status st = set_place(ck, run, err);
    if (st == CKP_OK)
        st = listed_chain(all, at, &ch, err);
    if (st == CKP_OK)
        st = open_chain(ck, &ch, base_model, false, err);
    free(ch.m);
    free(ch.dir);
    return finish_open(out, ck, st, run->name, err);
}

ckp_status
ckp_checkpoint_open(ckp_checkpoint **out, ckp_run *run, int64_t step, ckp_error *err)
{
    const ckp_status st = ckpi_session_check(run, err);
    if (st != CKP_OK)
        return st;
    if (run->talk != NULL)
        return ckpi_group_open(out, run, step, false, err);
    if (out == NULL || step < CKP_STEP_NEWEST)
        return ckpi_fail(err, CKP_EINVAL, "checkpoint_open: bad argument");
    ckpi_session_drain(run);
    const ckpi_shards shards = ckpi_group_shards(run, false);
    const ckp_status opened = ckpi_checkpoint_open_as(out, &(ckpi_place){run->dir, run->opt.objects}, &shards, run->opt.base_model, step, UINT64_MAX, true, err);
    if (opened == CKP_OK)
        (*out)->parts = true;
    return opened;
}

/* ---- plain files ------------------------------------------------------------------------------------------------- */

static ckp_status
open_one(const char *path, ckpi_fmt_file **out, ckp_error *err)
{
    ckpi_reader *r = NULL;
    ckp_status st = ckpi_reader_plain(&r, path, err);
    if (st == CKP_OK)
        st = ckpi_fmt_open(out, r, err);
    ckpi_fail_file(st != CKP_OK ? err : NULL, path);
    return st;
}

/* The file and its bases, *n of them; a base that is no .ckp file may be the base model. */
static ckp_status
open_all(ckp_checkpoint *ck, const char *path, const char *const *bases, size_t n_bases, ckpi_fmt_file **files, size_t *n, ckp_error *err)
{
    ckp_status first = CKP_OK;
    ckp_error told, e;           /* of the first that is none, should it be of no use; of the one at hand */

    ckp_status st = open_one(path, &files[*n], err);
    *n += st == CKP_OK;
    for (size_t i = 0; st == CKP_OK && i < n_bases; i++) {
        st = open_one(bases[i], &files[*n], &e);
        *n += st == CKP_OK;
        if (st == CKP_EFORMAT) {
            told = first == CKP_OK ? e : told;
            first = st;
            st = CKP_OK;
        } else if (st != CKP_OK && err != NULL) {
            *err = e;
        }
    }
    if (st == CKP_OK && n_bases != 0)
        st = ckpi_checkpoint_find_model(ck, files, n, bases, n_bases, err);
    if (st != CKP_OK || first == CKP_OK || ck->model_path != NULL)
        return st;
    if (err != NULL)
        *err = told;
    return first;
}

ckp_status
ckp_checkpoint_open_file(ckp_checkpoint **out, const char *path, const char *const *bases, size_t n_bases, ckp_error *err)
{
    size_t n = 0;

    if (out == NULL || path == NULL || (n_bases != 0 && bases == NULL))
        return ckpi_fail(err, CKP_EINVAL, "checkpoint_open_file: NULL argument");
    *out = NULL;
    ckp_checkpoint *ck = new_checkpoint(err);
    ckpi_fmt_file **files = ckpi_calloc(n_bases + 2, sizeof *files);
    if (ck == NULL || files == NULL) {
        free(files);
        ckp_checkpoint_close(ck);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a checkpoint");
    }
    (void)snprintf(ck->name, sizeof ck->name, "%.255s", path);
    ckp_status st = open_all(ck, path, bases, n_bases, files, &n, err);
    if (st == CKP_OK)
        st = ckpi_checkpoint_from_files(ck, files, n, err);
    else
        for (size_t i = 0; i < n; i++)
            ckpi_fmt_close(files[i]);
    free(files);
    return finish_open(out, ck, st, path, err);
}
