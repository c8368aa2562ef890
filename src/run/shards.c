/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of several writers. Each shard has a chain of its own: the shards of its number in the checkpoints before, down to its key, which need
 * not be the checkpoint's. Chains are resolved one by one; then either one is all that is asked for, or the shards of each level are joined to one file.
 */
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "format/join.h"
#include "run/checkpoint.h"

bool
ckpi_shards_alone(const ckpi_shards *s, const ckpi_manifest *m)
{
    return s->of != 0 && m->n_shards == s->of && s->lead < s->of;
}

/* The chain of one shard, resolved. */
static ckp_status
open_one(const ckp_checkpoint *ck, const ckpi_chain *ch, size_t shard, ckpi_lineage **out, ckp_error *err)
{
    ckpi_fmt_file **files = ckpi_calloc(ch->n, sizeof *files);
    size_t n = 0;
    bool more = true;
    ckp_status st = files != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for a chain of %zu", ch->n);

    *out = NULL;
    for (; st == CKP_OK && more && n < ch->n; n += st == CKP_OK) {
        const size_t at = ch->n - 1 - n;
        st = ckpi_checkpoint_open_shard(ck->store, ch->dir[at], ch->m[at], shard, &files[n], err);
        more = st == CKP_OK && files[n]->info.is_delta;
    }
    if (st == CKP_OK) {
        st = ckpi_lineage_new(out, files, n, err);
    } else {
        for (size_t i = 0; files != NULL && i < n; i++)
            ckpi_fmt_close(files[i]);
    }
    free(files);
    return st;
}

typedef struct level_job { ckpi_lineage **lin; size_t n, lead, depth; ckpi_join join; const char *dir; } level_job;

/* The shards of one level as a file; their lineages give them up. */
static ckp_status
join_level(level_job *j, size_t level, const ckpi_fmt_file *base, ckpi_fmt_file **out, ckp_error *err)
{
    ckpi_fmt_file **part = ckpi_calloc(j->n, sizeof *part);
    if (part == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", j->n);
    for (size_t s = 0; s < j->n; s++) {
        if (level >= j->lin[s]->n)
            continue;
        part[s] = j->lin[s]->level[level].f;
        j->lin[s]->level[level].f = NULL;
    }
    ckpi_file_info info = {.is_delta = base != NULL, .chain = (uint16_t)(j->depth - 1 - level)};
    if (base != NULL)
        info.base_content = base->content;
    if (part[j->lead] != NULL)
        info.profile = part[j->lead]->info.profile;
    const ckp_status st = ckpi_fmt_join(out, &j->join, part, j->lead, &info, j->dir, err);
    free(part);
    return st;
}

static ckp_status
join_all(ckp_checkpoint *ck, level_job *j, ckp_error *err)
{
    ckpi_fmt_file **files = ckpi_calloc(j->depth, sizeof *files), **part = ckpi_calloc(j->n, sizeof *part);
    ckp_status st = files != NULL && part != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory to join %zu shards", j->n);

    for (size_t s = 0; st == CKP_OK && s < j->n; s++)
        part[s] = j->lin[s]->level[0].f;
    if (st == CKP_OK)
        st = ckpi_join_new(&j->join, part, j->n, j->lead, err);
    free(part);
    for (size_t l = j->depth; st == CKP_OK && l-- > 0;)
        st = join_level(j, l, l + 1 < j->depth ? files[l + 1] : NULL, &files[l], err);
    if (st == CKP_OK)
        st = ckpi_checkpoint_from_files(ck, files, j->depth, err);
    else
        for (size_t l = 0; files != NULL && l < j->depth; l++)
            ckpi_fmt_close(files[l]);
    free(files);
    ckpi_join_free(&j->join);
    return st;
}

/* As ckpi_checkpoint_from_files, of a lineage that is there. */
static ckp_status
take_alone(ckp_checkpoint *ck, ckpi_lineage *lin, ckp_error *err)
{
    const size_t n = lin->n;
    ckpi_fmt_file **files = ckpi_calloc(n, sizeof *files);
    if (files == NULL) {
        ckpi_lineage_free(lin);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a chain of %zu", n);
    }
    for (size_t l = 0; l < n; l++) {
        files[l] = lin->level[l].f;
        lin->level[l].f = NULL;
    }
    ckpi_lineage_free(lin);
    const ckp_status st = ckpi_checkpoint_from_files(ck, files, n, err);
    free(files);
    return st;
}

ckp_status
ckpi_checkpoint_open_shards(ckp_checkpoint *ck, const ckpi_chain *ch, ckp_error *err)
{
    const ckpi_manifest *m = ch->m[ch->n - 1];
    level_job j = {.n = m->n_shards, .lead = ck->shards.lead < m->n_shards ? ck->shards.lead : 0, .dir = ch->dir[ch->n - 1]};
    ckpi_lineage *own = NULL;

    if (ch->m[0]->base_model != NULL)
        return ckpi_fail(err, CKP_EUNSUPPORTED, "%s: several shards on a base model", j.dir);
    if (ckpi_shards_alone(&ck->shards, m)) {
        const ckp_status st = open_one(ck, ch, j.lead, &own, err);
        return st == CKP_OK ? take_alone(ck, own, err) : st;
    }
    j.lin = ckpi_calloc(j.n, sizeof *j.lin);
    ckp_status st = j.lin != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu shards", j.n);
    for (size_t s = 0; st == CKP_OK && s < j.n; s++) {
        st = open_one(ck, ch, s, &j.lin[s], err);
        j.depth = st == CKP_OK && j.lin[s]->n > j.depth ? j.lin[s]->n : j.depth;
    }
    if (st == CKP_OK)
        st = join_all(ck, &j, err);
    for (size_t s = 0; j.lin != NULL && s < j.n; s++)
        ckpi_lineage_free(j.lin[s]);
    free(j.lin);
    return st;
}
