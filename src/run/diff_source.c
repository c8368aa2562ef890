/* SPDX-License-Identifier: Apache-2.0 */
#include "run/diff_source.h"
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "engine/values.h"
#include "run/subset.h"
#include "state/state.h"

/* ---- opening -------------------------------------------------------------------------------------------------------- */

static ckp_status
make_room(ckpi_diff_source *s, size_t n, ckp_error *err)
{
    s->n = n;
    s->item = ckpi_calloc(n + 1, sizeof *s->item);
    s->by_name = ckpi_calloc(n + 1, sizeof *s->by_name);
    return s->item != NULL && s->by_name != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", n);
}

static ckp_status
add_record(ckpi_diff_source *s, uint32_t i, ckp_role role, ckp_error *err)
{
    const ckpi_rec *r = &s->ck->lin->table->rec[i];

    if (r->flat || r->box_shape != NULL) {
        const ckp_status st = ckpi_fail(err, CKP_EUNSUPPORTED, "a part of a tensor: one shard of several cannot be compared");
        ckpi_fail_tensor(err, r->name);
        return st;
    }
    s->item[i] = (ckpi_diff_item){r->name, role, r->dtype, r->ndim, r->shape, r->numel, r->alias_of != CKPI_NO_TENSOR ? r->alias_of : i, false};
    return CKP_OK;
}

static ckp_status
list_checkpoint(ckpi_diff_source *s, ckp_error *err)
{
    const size_t n = ckp_checkpoint_count(s->ck);
    ckp_role *role = ckpi_calloc(n + 1, sizeof *role);
    bool matched = false;

    ckp_status st = role != NULL ? make_room(s, n, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu tensors", n);
    if (st == CKP_OK)
        st = ckp_checkpoint_roles(s->ck, role, n, &matched, err);
    for (uint32_t i = 0; st == CKP_OK && i < n; i++)
        st = add_record(s, i, role[i], err);
    if (st == CKP_OK)
        st = ckpi_ctx_new(&s->ctx, 1, false, err);
    s->tree = ckp_checkpoint_tree(s->ck, &s->tree_len);
    free(role);
    return st;
}

static ckp_status
list_foreign(ckpi_diff_source *s, ckp_error *err)
{
    const ckp_state *state = ckpi_foreign_state(s->foreign);

    const ckp_status st = make_room(s, state->n, err);
    for (uint32_t i = 0; st == CKP_OK && i < state->n; i++) {
        const ckpi_tensor *t = &state->t[i];
        s->item[i] = (ckpi_diff_item){t->name, t->role, t->dtype, t->ndim, t->shape, t->numel, t->alias_of != CKPI_NO_TENSOR ? t->alias_of : i, false};
    }
    s->tree = state->tree.data;
    s->tree_len = state->tree.len;
    return st;
}

static ckp_status
open_file(ckpi_diff_source *s, const ckp_diff_side *side, ckp_error *err)
{
    const ckpi_foreign_options fo = {.check_crc = true};
    ckp_error e;

    ckp_status st = ckpi_reader_plain(&s->r, side->path, err);
    if (st == CKP_OK)
        st = ckp_checkpoint_open_file(&s->own, side->path, side->bases, side->n_bases, err);
    s->ck = s->own;
    if (st == CKP_EFORMAT) {
        ckpi_error_clear(&e);
        st = ckpi_foreign_open(&s->foreign, s->r, &fo, &e);
        /* no file of any kind; but a .ckp one of whose bases is none says that already */
        if (err != NULL && (st != CKP_EFORMAT || side->n_bases == 0))
            *err = e;
    }
    if (st == CKP_OK)
        st = s->foreign != NULL ? list_foreign(s, err) : list_checkpoint(s, err);
    if (st != CKP_OK)
        ckpi_fail_file(err, side->path);
    return st;
}

/* Nothing happens to a side that has no such object. */
static void
leave_out(ckpi_diff_source *s, const char *only)
{
    for (size_t i = 0; only != NULL && i < s->n; i++)
        s->has_object = s->has_object || ckpi_subset_name(s->item[i].name, only) != NULL;
    for (size_t i = 0; s->has_object && i < s->n; i++) {
        const char *name = ckpi_subset_name(s->item[i].name, only);
        s->item[i].left_out = name == NULL;
        s->item[i].name = name != NULL ? name : s->item[i].name;
    }
}

/* qsort has no place for the names: pairs carry them. */
typedef struct pair { const char *name; uint32_t at; } pair;

static int
by_text(const void *x, const void *y)
{
    return strcmp(((const pair *)x)->name, ((const pair *)y)->name);
}

static ckp_status
sort_names(ckpi_diff_source *s, ckp_error *err)
{
    pair *p = ckpi_calloc(s->n + 1, sizeof *p);

    if (p == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu names", s->n);
    for (uint32_t i = 0; i < s->n; i++)
        if (!s->item[i].left_out)
            p[s->n_names++] = (pair){s->item[i].name, i};
    qsort(p, s->n_names, sizeof *p, by_text);
    for (size_t i = 0; i < s->n_names; i++)
        s->by_name[i] = p[i].at;
    free(p);
    return CKP_OK;
}

ckp_status
ckpi_diff_source_open(ckpi_diff_source *s, const ckp_diff_side *side, const char *only, ckp_error *err)
{
    ckp_status st;

    *s = (ckpi_diff_source){.path = side->path, .ck = side->ck, .chunk = CKPI_NO_CHUNK};
    if (side->ck == NULL) {
        st = open_file(s, side, err);
    } else {
        st = ckpi_checkpoint_check(side->ck, err);
        if (st == CKP_OK)
            st = list_checkpoint(s, err);
    }
    if (st != CKP_OK)
        return st;
    leave_out(s, only);
    return sort_names(s, err);
}

void
ckpi_diff_source_close(ckpi_diff_source *s)
{
    ckpi_ctx_free(s->ctx);
    ckpi_foreign_close(s->foreign);
    ckpi_reader_free(s->r);
    ckp_checkpoint_close(s->own);
    free(s->item);
    free(s->by_name);
    free(s->bytes);
    *s = (ckpi_diff_source){0};
}

uint32_t
ckpi_diff_source_find(const ckpi_diff_source *s, const char *name)
{
    size_t low = 0, high = s->n_names;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int c = strcmp(name, s->item[s->by_name[mid]].name);
        if (c == 0)
            return s->by_name[mid];
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return CKPI_NO_TENSOR;
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */

static ckp_status
keep_chunk(void *user, const ckpi_chunk *c, const void *bytes, ckp_error *err)
{
    ckpi_diff_source *s = user;
    const uint64_t n = ckpi_chunk_bytes(s->ck->lin->table, c);

    if (n > s->room) {
        free(s->bytes);
        s->room = 0;
        s->bytes = ckpi_malloc((size_t)n, 1);
        if (s->bytes == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory for a chunk of %llu bytes", (unsigned long long)n);
        s->room = (size_t)n;
    }
    (void)memcpy(s->bytes, bytes, (size_t)n);
    return CKP_OK;
}

static ckp_status
decode_chunk(ckpi_diff_source *s, uint32_t chunk, ckp_error *err)
{
    const ckpi_unit *u = &s->ck->unit[s->ck->unit_of[chunk]];
    const unsigned want = chunk == u->w ? CKPI_WANT_W : chunk == u->m ? CKPI_WANT_M : CKPI_WANT_V;

    s->chunk = CKPI_NO_CHUNK;    /* a failure leaves no chunk */
    ckpi_scratch_reset(s->ctx->ws[0]);
    const ckp_status st = ckpi_decode_unit(s->ck->lin, u, want, keep_chunk, s, s->ctx->ws[0], s->ctx->cpu, err);
    if (st == CKP_OK)
        s->chunk = chunk;
    return st;
}

static uint64_t
bytes_of(ckp_dtype dt, uint64_t n)
{
    uint64_t bytes = 0;
    (void)ckpi_dtype_bytes(dt, n, &bytes);      /* sizes were checked when the table was read */
    return bytes;
}

/* What the chunk at hand has of [first, first + count), as `as`: its piece is the one that holds `first`. */
static uint64_t
take_piece(const ckpi_diff_source *s, const ckpi_chunk_key *k, uint64_t first, uint64_t count, ckp_dtype as, void *dst)
{
    const ckpi_table *t = s->ck->lin->table;
    const ckpi_piece *p = &s->ck->lin->level[0].f->chunk[s->chunk].piece[k->piece];
    const ckp_dtype dt = t->rec[p->tensor].dtype;
    const uint64_t n = CKPI_MIN(count, p->first + p->count - first);
    const uint8_t *src = s->bytes + bytes_of(dt, k->before) + bytes_of(dt, first - p->first);

    if (as == dt)
        (void)memcpy(dst, src, (size_t)bytes_of(dt, n));
    else
        ckpi_round_copy(as, dst, src, (size_t)n);
    return n;
}

static ckp_status
read_chunks(ckpi_diff_source *s, uint32_t i, uint64_t first, uint64_t count, uint8_t *dst, ckp_error *err)
{
    const ckpi_diff_item *t = &s->item[i];
    const uint64_t end = first + count;
    const uint32_t holder = ckpi_table_holder(s->ck->lin->table, i);

    ckp_status st = CKP_OK;
    for (uint64_t at = first; st == CKP_OK && at < end;) {
        const ckpi_chunk_key *k = ckpi_lineage_find(s->ck->lin, 0, holder, at);
        if (k == NULL)
            st = ckpi_fail(err, CKP_EINTERNAL, "element %llu of %s is in no chunk", (unsigned long long)at, t->name);
        else if (k->chunk != s->chunk)
            st = decode_chunk(s, k->chunk, err);
        if (st == CKP_OK)
            at += take_piece(s, k, at, end - at, t->dtype, dst + bytes_of(t->dtype, at - first));
    }
    return st;
}

ckp_status
ckpi_diff_source_read(ckpi_diff_source *s, uint32_t i, uint64_t first, uint64_t count, void *dst, ckp_error *err)
{
    if (s->ck != NULL)
        return read_chunks(s, i, first, count, dst, err);
    const ckp_state *state = ckpi_foreign_state(s->foreign);
    const ckp_status st = ckpi_tensor_copy_out(&state->t[s->item[i].payload], first, count, dst, err);
    if (st != CKP_OK) {
        ckpi_fail_tensor(err, s->item[i].name);
        ckpi_fail_file(err, s->path);
    }
    return st;
}
