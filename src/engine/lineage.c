/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "engine/lineage.h"

static int
by_place(const void *a, const void *b)
{
    const ckpi_chunk_key *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static ckp_status
index_level(ckpi_level *l, ckp_error *err)
{
    size_t total = 0, k = 0;

    for (size_t i = 0; i < l->f->n_chunks; i++)
        total += l->f->chunk[i].n_pieces;
    l->key = ckpi_malloc(total, sizeof *l->key);
    if (l->key == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to index %zu pieces", total);
    for (size_t i = 0; i < l->f->n_chunks; i++) {
        uint64_t before = 0;
        for (size_t j = 0; j < l->f->chunk[i].n_pieces; j++) {
            const ckpi_piece *p = &l->f->chunk[i].piece[j];
            l->key[k++] = (ckpi_chunk_key){p->tensor, p->first, (uint32_t)i, (uint32_t)j, before};
            before += p->count;
        }
    }
    l->n_keys = total;
    qsort(l->key, total, sizeof *l->key, by_place);
    return CKP_OK;
}

/* Number of keys that are not beyond (tensor, elem). */
static size_t
keys_up_to(const ckpi_level *l, uint32_t tensor, uint64_t elem)
{
    size_t lo = 0, hi = l->n_keys;

    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const ckpi_chunk_key *k = &l->key[mid];
        if (k->tensor < tensor || (k->tensor == tensor && k->first <= elem))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const ckpi_chunk_key *
ckpi_lineage_pieces(const ckpi_lineage *c, size_t level, uint32_t tensor, size_t *n)
{
    const ckpi_level *l = &c->level[level];
    const size_t from = tensor != 0 ? keys_up_to(l, tensor - 1, UINT64_MAX) : 0;

    *n = keys_up_to(l, tensor, UINT64_MAX) - from;
    return l->key + from;
}

const ckpi_chunk_key *
ckpi_lineage_find(const ckpi_lineage *c, size_t level, uint32_t tensor, uint64_t elem)
{
    const ckpi_level *l = &c->level[level];
    const size_t lo = keys_up_to(l, tensor, elem);

    if (lo == 0 || l->key[lo - 1].tensor != tensor)
        return NULL;
    const ckpi_chunk_key *k = &l->key[lo - 1];
    return elem - k->first < l->f->chunk[k->chunk].piece[k->piece].count ? k : NULL;
}

const ckpi_chunk *
ckpi_lineage_like(const ckpi_lineage *c, size_t level, const ckpi_chunk *like, size_t *index)
{
    if (level >= c->n)
        return NULL;
    const ckpi_chunk_key *k = ckpi_lineage_find(c, level, like->piece[0].tensor, like->piece[0].first);
    if (k == NULL || k->piece != 0)
        return NULL;
    const ckpi_chunk *got = &c->level[level].f->chunk[k->chunk];
    if (got->n_pieces != like->n_pieces || got->dtype != like->dtype || got->role != like->role)
        return NULL;
    for (size_t i = 0; i < got->n_pieces; i++)
        if (got->piece[i].tensor != like->piece[i].tensor || got->piece[i].first != like->piece[i].first ||
            got->piece[i].count != like->piece[i].count)
            return NULL;
    if (index != NULL)
        *index = k->chunk;
    return got;
}

/* ---- order and resolve ------------------------------------------------------------------------------------------- */

/*
 * A save that changed nothing has its base's content id, so the id alone may fit several files: of bases the one with the right chain
 * length is meant, or else any, for the error; of tables the one that stores it.
 */
static size_t
find_base(ckpi_fmt_file **files, size_t i, size_t n)
{
    size_t at = SIZE_MAX;

    for (size_t k = i + 1; k < n; k++) {
        if (!ckpi_id_eq(files[k]->content, files[i]->info.base_content))
            continue;
        if (files[k]->info.chain + 1 == files[i]->info.chain)
            return k;
        at = at == SIZE_MAX ? k : at;
    }
    return at;
}

static size_t
find_table(ckpi_fmt_file **files, size_t i, size_t n)
{
    for (size_t k = i + 1; k < n; k++)
        if (ckpi_id_eq(files[k]->content, files[i]->info.table_content) && ckpi_id_is_zero(files[k]->info.table_content))
            return k;
    return SIZE_MAX;
}

/* files[i + 1] becomes the base of files[i]; *depth is the length of the chain. */
static ckp_status
order(ckpi_fmt_file **files, size_t n, size_t *depth, ckp_error *err)
{
    size_t i = 0;

    while (files[i]->info.is_delta) {
        const size_t at = find_base(files, i, n);
        if (at == SIZE_MAX) {
            char want[33], have[33] = "none";
            ckpi_id_hex(files[i]->info.base_content, want);
            if (i + 1 < n)
                ckpi_id_hex(files[i + 1]->content, have);
            ckp_status st = ckpi_fail(err, CKP_EBASE, "this delta needs the base with content id %s; given: %s%s", want, have,
                                      i + 2 < n ? " and others" : "");
            ckpi_fail_file(err, ckpi_reader_name(files[i]->r));
            return st;
        }
        ckpi_fmt_file *f = files[at];
        files[at] = files[i + 1];
        files[i + 1] = f;
        if (f->info.chain + 1 != files[i]->info.chain) {
            ckp_status st = ckpi_fail(err, CKP_ECORRUPT, "chain length %u does not follow its base's %u", (unsigned)files[i]->info.chain,
                                      (unsigned)f->info.chain);
            ckpi_fail_file(err, ckpi_reader_name(files[i]->r));
            return st;
        }
        i++;
    }
    *depth = i + 1;
    return CKP_OK;
}

static ckp_status
resolve(ckpi_fmt_file **files, size_t n, ckp_error *err)
{
    for (size_t i = n; i-- > 0;) {
        if (files[i]->table != NULL)
            continue;
        const size_t at = find_table(files, i, n);
        if (at == SIZE_MAX || files[at]->table == NULL) {
            ckp_status st = ckpi_fail(err, CKP_EBASE, "the file that stores this delta's table is not in its chain");
            ckpi_fail_file(err, ckpi_reader_name(files[i]->r));
            return st;
        }
        const ckp_status st = ckpi_fmt_resolve(files[i], files[at], err);
        if (st != CKP_OK)
            return st;
    }
    return CKP_OK;
}

/* Quantizers are for weights and moments of the small float dtypes: decoders rely on it. */
static bool
kind_fits(const ckpi_chunk *k)
{
    const bool m = k->role == CKP_ROLE_M || k->role == CKP_ROLE_MOMENTUM, w = ckpi_role_is_weight(k->role);

    if (k->quant == CKPI_QUANT_NONE)
        return true;
    if (k->quant == CKPI_QUANT_CLUSTER)
        return (m || k->role == CKP_ROLE_V) && k->dtype == CKP_F32 && !(k->flags & CKPI_CHUNK_USES_BASE);
    return ckpi_is_small_float((ckp_dtype)k->dtype) &&
           ((k->quant == CKPI_QUANT_V && k->role == CKP_ROLE_V) || (k->quant == CKPI_QUANT_M && m) ||
            ((k->quant == CKPI_QUANT_W || k->quant == CKPI_QUANT_INDEX) && w));
}

static ckp_status
check_kinds(const ckpi_lineage *c, ckp_error *err)
{
    for (size_t l = 0; l < c->n; l++)
        for (size_t i = 0; i < c->level[l].f->n_chunks; i++) {
            const ckpi_chunk *k = &c->level[l].f->chunk[i];
            if (kind_fits(k))
                continue;
            ckp_status st = ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "a chunk of role %u and dtype %u with quantizer %u", k->role, k->dtype,
                                         k->quant);
            ckpi_fail_tensor(err, c->level[l].f->table->rec[k->piece[0].tensor].name);
            ckpi_fail_file(err, ckpi_reader_name(c->level[l].f->r));
            return st;
        }
    return CKP_OK;
}

static bool
has_base(const ckpi_lineage *c, size_t l, const ckpi_chunk *k)
{
    const ckpi_chunk *like = k->flags & CKPI_CHUNK_USES_BASE ? ckpi_lineage_like(c, l + 1, k, NULL) : NULL;
    return !(k->flags & CKPI_CHUNK_USES_BASE) || (like != NULL && like->quant != CKPI_QUANT_CLUSTER);
}

/* What was predicted from chunks that are lost is lost too. */
static ckp_status
leave_out_orphans(ckpi_lineage *c, size_t l, ckp_error *err)
{
    ckpi_level *v = &c->level[l];
    bool *keep = ckpi_calloc(v->f->n_chunks, sizeof *keep);

    if (keep == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu chunks", v->f->n_chunks);
    for (size_t i = 0; i < v->f->n_chunks; i++)
        keep[i] = has_base(c, l, &v->f->chunk[i]);
    ckpi_fmt_keep_chunks(v->f, keep);
    free(keep);
    free(v->key);
    v->key = NULL;
    return index_level(v, err);
}

/* From the bottom up: whatever a level loses, the next one may have used. */
static ckp_status
check_bases(ckpi_lineage *c, ckp_error *err)
{
    for (size_t l = c->n; l-- > 0;) {
        if (l + 1 < c->n && c->level[l + 1].f->partial) {
            const ckp_status st = leave_out_orphans(c, l, err);
            if (st != CKP_OK)
                return st;
            continue;
        }
        for (size_t i = 0; i < c->level[l].f->n_chunks; i++) {
            const ckpi_chunk *k = &c->level[l].f->chunk[i];
            if (has_base(c, l, k))
                continue;
            ckp_status st = ckpi_fail_at(err, CKP_ECORRUPT, k->offset, "a chunk predicts from a base that has no like chunk");
            ckpi_fail_tensor(err, c->level[l].f->table->rec[k->piece[0].tensor].name);
            ckpi_fail_file(err, ckpi_reader_name(c->level[l].f->r));
            return st;
        }
    }
    return CKP_OK;
}

ckp_status
ckpi_lineage_new(ckpi_lineage **out, ckpi_fmt_file **files, size_t n, ckp_error *err)
{
    ckpi_lineage *c = ckpi_calloc(1, sizeof *c);
    size_t depth = 0;
    ckp_status st = CKP_OK;

    *out = NULL;
    if (c != NULL)
        c->level = ckpi_calloc(n, sizeof *c->level);
    if (c == NULL || c->level == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "no memory for a chain of %zu files", n);
        goto done;
    }
    st = order(files, n, &depth, err);
    if (st == CKP_OK)
        st = resolve(files, depth, err);
    for (size_t i = 0; st == CKP_OK && i < depth; i++)
        /* pieces of a base chunk name tensors of the base's table: they mean the same only if the tables are equal */
        if (i + 1 < depth && !ckpi_id_eq(files[i]->table_id, files[i + 1]->table_id))
            st = ckpi_fail(err, CKP_EBASE, "table differs from its base's");
    if (st != CKP_OK)
        goto done;
    for (size_t i = 0; i < depth; i++) {
        c->level[i].f = files[i];
        files[i] = NULL;
        c->n = i + 1;
        st = index_level(&c->level[i], err);
        if (st != CKP_OK)
            goto done;
    }
    c->table = c->level[0].f->table;
    st = check_kinds(c, err);
    if (st == CKP_OK)
        st = check_bases(c, err);
    if (st != CKP_OK)
        goto done;
    *out = c;
    c = NULL;
done:
    for (size_t i = 0; i < n; i++)
        ckpi_fmt_close(files[i]);
    ckpi_lineage_free(c);
    return st;
}

ckp_status
ckpi_lineage_alone(ckpi_lineage **out, ckpi_fmt_file *f, ckp_error *err)
{
    ckpi_lineage *c = ckpi_calloc(1, sizeof *c);
    ckp_status st = CKP_OK;

    *out = NULL;
    if (c != NULL)
        c->level = ckpi_calloc(1, sizeof *c->level);
    if (c == NULL || c->level == NULL) {
        ckpi_fmt_close(f);
        ckpi_lineage_free(c);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a file");
    }
    c->level[0].f = f;
    c->n = 1;
    c->table = f->table;
    st = check_kinds(c, err);
    if (st == CKP_OK)
        st = index_level(&c->level[0], err);
    if (st == CKP_OK)
        *out = c;
    else
        ckpi_lineage_free(c);
    return st;
}

void
ckpi_lineage_free(ckpi_lineage *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; c->level != NULL && i < c->n; i++) {
        ckpi_fmt_close(c->level[i].f);
        free(c->level[i].key);
    }
    free(c->level);
    free(c);
}

/* ---- data check --------------------------------------------------------------------------------------------------- */

typedef struct data_check { const ckpi_lineage *c; size_t *start; } data_check;

static ckp_status
check_chunk(void *user, size_t index, ckpi_scratch *ws, ckp_error *err)
{
    const data_check *d = user;
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk k;
    size_t level = 0;

    (void)ws;
    while (index >= d->start[level + 1])
        level++;
    const ckp_status st = ckpi_fmt_read_chunk(d->c->level[level].f, index - d->start[level], &buf, &k, err);
    ckpi_buf_free(&buf);
    return st;
}

ckp_status
ckpi_lineage_check_data(const ckpi_lineage *c, ckpi_ctx *ctx, ckp_error *err)
{
    data_check d = {c, ckpi_calloc(c->n + 1, sizeof *d.start)};

    if (d.start == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory to check %zu files", c->n);
    for (size_t l = 0; l < c->n; l++)
        d.start[l + 1] = d.start[l] + c->level[l].f->n_chunks;
    const ckp_status st = ckpi_ctx_run(ctx, d.start[c->n], check_chunk, &d, err);
    free(d.start);
    return st;
}
