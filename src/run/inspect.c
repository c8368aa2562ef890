/* SPDX-License-Identifier: Apache-2.0 */
/* Looking back on a training: each checkpoint from its own shard, without its bases. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ckpress/run_inspect.h>
#include "base/fail.h"
#include "engine/settings.h"
#include "os/host.h"
#include "run/checkpoint.h"
#include "run/list.h"

static bool
take_number(const ckpi_manifest *m, size_t index, ckp_metric *out)
{
    if (m == NULL || index >= m->n_settings || out == NULL)
        return false;
    *out = (ckp_metric){m->settings[index].name, m->settings[index].value};
    return true;
}

bool
ckp_checkpoint_setting(const ckp_checkpoint *ck, size_t index, ckp_metric *out)
{
    return ckpi_checkpoint_check(ck, NULL) == CKP_OK && take_number(ck->manifest, index, out);
}

bool
ckp_list_entry_setting(const ckp_list_entry *e, size_t index, ckp_metric *out)
{
    return e != NULL && take_number(e->manifest, index, out);
}

/* ---- one tensor ---------------------------------------------------------------------------------------------------- */

/* The chunk with a tensor's first elements, of one that has its own; *piece: which of its pieces. SIZE_MAX: there is none. */
static size_t
first_chunk(const ckpi_lineage *lin, uint32_t tensor, size_t *piece)
{
    size_t n;
    const ckpi_chunk_key *k = ckpi_lineage_pieces(lin, 0, tensor, &n);
    *piece = n != 0 ? k->piece : 0;
    return n != 0 ? k->chunk : SIZE_MAX;
}

static ckp_status
read_settings(const ckpi_fmt_file *f, size_t chunk, size_t piece, ckpi_piece_settings *out, ckp_error *err)
{
    ckpi_buf body = CKPI_BUF_INIT;
    ckpi_chunk c;

    ckp_status st = ckpi_fmt_read_chunk(f, chunk, &body, &c, err);
    if (st == CKP_OK)
        st = ckpi_piece_settings_get(&c, piece, out, err);
    ckpi_buf_free(&body);
    if (st != CKP_OK) {
        ckpi_fail_tensor(err, f->table->rec[f->chunk[chunk].piece[piece].tensor].name);
        ckpi_fail_file(err, ckpi_reader_name(f->r));
    }
    return st;
}

/* Of a tensor in clusters: errors of all its pieces, each by its elements. */
static ckp_status
add_errors(const ckpi_lineage *lin, uint32_t tensor, ckpi_piece_settings *s, ckp_error *err)
{
    const ckpi_fmt_file *f = lin->level[0].f;
    double mse = 0.0, mre = 0.0, n = 0.0;
    ckp_status st = CKP_OK;
    size_t n_keys;
    const ckpi_chunk_key *key = ckpi_lineage_pieces(lin, 0, tensor, &n_keys);

    for (size_t i = 0; st == CKP_OK && i < n_keys; i++) {
        ckpi_piece_settings one = {.quantizer = ""};
        const double count = (double)f->chunk[key[i].chunk].piece[key[i].piece].count;
        st = read_settings(f, key[i].chunk, key[i].piece, &one, err);
        mse += count * one.mse;
        mre += count * one.mre;
        n += count;
    }
    s->mse = n > 0.0 ? mse / n : 0.0;
    s->mre = n > 0.0 ? mre / n : 0.0;
    return st;
}

ckp_status
ckp_checkpoint_tensor_settings(const ckp_checkpoint *ck, size_t index, ckp_tensor_settings *out, ckp_error *err)
{
    ckpi_piece_settings s = {.quantizer = "none"};
    size_t piece = 0;

    const ckp_status checked = ckpi_checkpoint_check(ck, err);
    if (checked != CKP_OK)
        return checked;
    if (out == NULL || out->size != sizeof *out)
        return ckpi_fail(err, CKP_EINVAL, "checkpoint_tensor_settings: bad settings");
    const ckpi_fmt_file *f = ck->lin->level[0].f;
    if (index >= f->table->n)
        return ckpi_fail(err, CKP_ENOTFOUND, "no tensor %zu; there are %zu", index, f->table->n);
    const uint32_t alias = f->table->rec[index].alias_of;
    const size_t chunk = first_chunk(ck->lin, alias != CKPI_NO_TENSOR ? alias : (uint32_t)index, &piece);
    /* lossless chunks have no parameters: their bodies need not be read */
    ckp_status st = chunk != SIZE_MAX && f->chunk[chunk].quant != 0 ? read_settings(f, chunk, piece, &s, err) : CKP_OK;
    if (st == CKP_OK && chunk != SIZE_MAX && f->chunk[chunk].quant == CKPI_QUANT_CLUSTER)
        st = add_errors(ck->lin, f->chunk[chunk].piece[piece].tensor, &s, err);
    if (st == CKP_OK)
        *out = (ckp_tensor_settings){.size = sizeof *out, .quantizer = s.quantizer, .step_follows = s.follows, .step = (double)s.step,
                                     .step_min = (double)s.lo, .step_max = (double)s.hi, .magnitude = (double)s.magnitude,
                                     .octaves = (double)s.vstep / 256.0, .levels = s.levels, .mse = s.mse, .mre = s.mre};
    return st;
}

/* ---- a run --------------------------------------------------------------------------------------------------------- */

typedef struct inspection {
    ckpi_store *s;
    ckpi_entries all;
    const ckpi_place *place;
    ckpi_fmt_file *kept;         /* stores the table of those that come after it, mostly */
} inspection;

/* The file that stores the table which f refers to: the one that is kept, or one of entry i's bases. */
static ckp_status
find_table(inspection *in, size_t i, const ckpi_fmt_file *f, ckp_error *err)
{
    if (in->kept != NULL && ckpi_id_eq(in->kept->content, f->info.table_content))
        return CKP_OK;
    for (size_t j = in->all.v[i].base; j != SIZE_MAX; j = in->all.v[j].base) {
        const ckpi_entry *e = &in->all.v[j];
        ckpi_fmt_file *found = NULL;
        if (e->m == NULL || e->m->n_shards != 1 || !ckpi_id_eq(e->m->shards[0].content, f->info.table_content))
            continue;
        const ckp_status st = ckpi_checkpoint_open_shard(in->s, e->dir, e->m, 0, &found, err);
        if (st != CKP_OK) {
            ckpi_fmt_close(found);
            return st;
        }
        ckpi_fmt_close(in->kept);
        in->kept = found;
        return CKP_OK;
    }
    return ckpi_fail(err, CKP_EBASE, "the checkpoint that stores its table is not there");
}

static ckp_status
open_alone(inspection *in, size_t i, ckpi_fmt_file **out, ckp_error *err)
{
    const ckpi_entry *e = &in->all.v[i];

    ckp_status st = ckpi_checkpoint_open_shard(in->s, e->dir, e->m, 0, out, err);
    if (st == CKP_OK && (*out)->table == NULL) {
        st = find_table(in, i, *out, err);
        if (st == CKP_OK)
            st = ckpi_fmt_resolve(*out, in->kept, err);
        if (st != CKP_OK)
            ckpi_fail_file(err, ckpi_reader_name((*out)->r));
    }
    if (st != CKP_OK) {
        ckpi_fmt_close(*out);
        *out = NULL;
    }
    return st;
}

static ckp_status
make_checkpoint(inspection *in, size_t i, ckp_checkpoint *ck, ckp_error *err)
{
    ckpi_fmt_file *f = NULL;

    ck->pid = ckpi_pid();
    (void)snprintf(ck->name, sizeof ck->name, "%s", in->all.v[i].dir);
    ckp_status st = open_alone(in, i, &f, err);
    if (st == CKP_OK)
        st = ckpi_lineage_alone(&ck->lin, f, err);
    if (st == CKP_OK)
        st = ckpi_manifest_copy(&ck->manifest, in->all.v[i].m, err);
    return st;
}

/* A file with a table of its own is kept after use: those that follow refer to it. */
static void
release(inspection *in, ckp_checkpoint *ck)
{
    if (ck->lin != NULL && ckpi_id_is_zero(ck->lin->level[0].f->info.table_content)) {
        ckpi_fmt_close(in->kept);
        in->kept = ck->lin->level[0].f;
        ck->lin->level[0].f = NULL;
    }
    ckp_checkpoint_close(ck);
}

/* Of several writers: which chunks there are is known once the chains of all shards are. */
static ckp_status
open_several(inspection *in, size_t i, ckp_checkpoint **out, ckp_error *err)
{
    const ckpi_entry *e = &in->all.v[i];
    if (e->health != CKPI_HEALTH_OK)
        return ckpi_fail(err, CKP_ECORRUPT, "%s: %s: %s", e->dir, ckpi_health_name(e->health), e->reason != NULL ? e->reason : "");
    return ckpi_checkpoint_open_listed(out, in->s, in->place, &in->all, i, NULL, err);
}

static ckp_status
inspect_one(inspection *in, size_t i, ckp_inspect_fn fn, void *user, ckp_error *err)
{
    ckp_list_entry e;
    ckp_error why;
    ckp_checkpoint *ck = NULL;
    ckp_status st = CKP_OK;

    ckpi_error_clear(&why);
    ckpi_list_fill(&in->all, &in->all.v[i], &e);
    const bool several = in->all.v[i].m != NULL && in->all.v[i].m->n_shards > 1;
    if (several) {
        st = open_several(in, i, &ck, &why);
    } else if (in->all.v[i].m != NULL) {
        ck = ckpi_calloc(1, sizeof *ck);
        st = ck != NULL ? make_checkpoint(in, i, ck, &why) : ckpi_fail(&why, CKP_ENOMEM, "no memory for a checkpoint");
    }
    if (st == CKP_ENOMEM && err != NULL)
        *err = why;
    const bool stop = st != CKP_ENOMEM && fn(user, &e, st == CKP_OK ? ck : NULL, st != CKP_OK ? &why : NULL) != 0;
    if (several)
        ckp_checkpoint_close(ck);
    else if (ck != NULL)
        release(in, ck);
    if (stop)
        return ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
    return st == CKP_ENOMEM ? st : CKP_OK;
}

ckp_status
ckp_run_inspect(const char *dir, ckp_inspect_fn fn, void *user, ckp_error *err)
{
    return ckp_run_inspect_in(NULL, dir, fn, user, err);
}

ckp_status
ckp_run_inspect_in(const ckp_objects *in_store, const char *dir, ckp_inspect_fn fn, void *user, ckp_error *err)
{
    const ckpi_place place = {dir, in_store};
    inspection in = {.place = &place};

    if (dir == NULL || fn == NULL)
        return ckpi_fail(err, CKP_EINVAL, "run_inspect: NULL argument");
    ckp_status st = ckpi_list_reader(&place, &in.s, err);
    if (st == CKP_OK)
        st = ckpi_store_list(in.s, &in.all, err);
    /* checkpoints first, then what only looks like one */
    for (int round = 0; st == CKP_OK && round < 2; round++)
        for (size_t i = 0; st == CKP_OK && i < in.all.n; i++)
            if ((in.all.v[i].m != NULL) == (round == 0))
                st = inspect_one(&in, i, fn, user, err);
    ckpi_fmt_close(in.kept);
    ckpi_entries_free(&in.all);
    ckpi_store_free(in.s);
    return st;
}
