/* SPDX-License-Identifier: Apache-2.0 */
/* Saving what a damaged .ckp still holds. Nothing is believed: every chunk is decoded and its hash compared before it is written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "base/dtype.h"
#include "base/limits.h"
#include "io/io.h"
#include "io/safetensors/st.h"
#include "os/os.h"
#include "run/convert.h"
#include "run/give.h"

/* Elements that can be had, of one tensor, in order; neighbours joined. */
typedef struct haves {
    ckpi_give_range *r;
    size_t n, cap;
    const uint32_t *next;        /* by tensor: the next one that comes from the same elements, or CKPI_NO_TENSOR */
} haves;

static bool
have(haves *h, uint32_t tensor, uint64_t first, uint64_t count)
{
    if (h->n == h->cap) {
        const size_t cap = h->cap != 0 ? 2 * h->cap : 64;
        ckpi_give_range *r = ckpi_realloc(h->r, cap, sizeof *r);
        if (r == NULL)
            return false;
        h->r = r;
        h->cap = cap;
    }
    h->r[h->n++] = (ckpi_give_range){tensor, first, count};
    return true;
}

static int
by_place(const void *a, const void *b)
{
    const ckpi_give_range *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static void
join(haves *h)
{
    size_t n = 0;

    if (h->n == 0)
        return;
    qsort(h->r, h->n, sizeof *h->r, by_place);
    for (size_t i = 0; i < h->n; i++) {
        ckpi_give_range *last = n != 0 ? &h->r[n - 1] : NULL;
        if (last != NULL && last->tensor == h->r[i].tensor && last->first + last->count == h->r[i].first)
            last->count += h->r[i].count;
        else
            h->r[n++] = h->r[i];
    }
    h->n = n;
}

/* ---- proof ---------------------------------------------------------------------------------------------------------- */

static ckp_status
note_chunk(void *user, const ckpi_chunk *c, const void *bytes, ckp_error *err)
{
    haves *h = user;

    (void)bytes;
    for (size_t k = 0; k < c->n_pieces; k++)
        for (uint32_t t = c->piece[k].tensor; t != CKPI_NO_TENSOR; t = h->next[t])
            if (!have(h, t, c->piece[k].first, c->piece[k].count))
                return ckpi_fail(err, CKP_ENOMEM, "salvage: no memory");
    return CKP_OK;
}

static void
put_after(uint32_t *next, uint32_t i, uint32_t after)
{
    if (after == CKPI_NO_TENSOR)
        return;
    next[i] = next[after];
    next[after] = i;
}

/* Masters with their copies, and all with their aliases, in lists that begin with what is stored. */
static uint32_t *
link_same(const ckpi_table *t)
{
    uint32_t *next = ckpi_malloc(t->n + 1, sizeof *next);

    for (size_t i = 0; next != NULL && i < t->n; i++)
        next[i] = CKPI_NO_TENSOR;
    for (uint32_t i = 0; next != NULL && i < t->n; i++)
        put_after(next, i, t->rec[i].copy_of);
    for (uint32_t i = 0; next != NULL && i < t->n; i++)
        put_after(next, i, t->rec[i].alias_of);
    return next;
}

/* Each role of each unit by itself: weights may be readable where their moments are not. */
static ckp_status
prove(const ckp_checkpoint *ck, haves *h, ckp_error *err)
{
    ckpi_ctx *ctx = NULL;
    uint32_t *next = link_same(ck->lin->table);

    h->next = next;
    ckp_status st = next != NULL ? ckpi_ctx_new(&ctx, 1, false, err) : ckpi_fail(err, CKP_ENOMEM, "salvage: no memory");
    for (size_t u = 0; st == CKP_OK && u < ck->n_units; u++) {
        const uint32_t chunk[3] = {ck->unit[u].w, ck->unit[u].m, ck->unit[u].v};
        for (unsigned k = 0; st == CKP_OK && k < 3; k++) {
            ckp_error e;
            if (chunk[k] == CKPI_NO_CHUNK)
                continue;
            ckpi_scratch_reset(ctx->ws[0]);
            ckpi_error_clear(&e);
            const ckp_status one = ckpi_decode_unit(ck->lin, &ck->unit[u], 1u << k, note_chunk, h, ctx->ws[0], ctx->cpu, &e);
            if (one == CKP_ENOMEM) {
                st = one;
                if (err != NULL)
                    *err = e;
            }
        }
    }
    ckpi_ctx_free(ctx);
    free(next);
    h->next = NULL;
    join(h);
    return st;
}

/* ---- output --------------------------------------------------------------------------------------------------------- */

typedef struct sink { ckpi_export *e; const uint32_t *place; size_t at; uint64_t left; const ckpi_give_range *r; } sink;

static ckp_status
feed(void *user, uint32_t tensor, uint64_t first, uint64_t count, const void *bytes, size_t len, ckp_error *err)
{
    sink *s = user;
    ckp_status st = CKP_OK;

    (void)tensor;
    (void)first;
    if (s->left == 0) {
        st = ckpi_export_begin(s->e, s->place[s->at], err);
        s->left = s->r[s->at].count;
        s->at++;
    }
    s->left -= count;
    return st == CKP_OK ? ckpi_export_put(s->e, bytes, len, err) : st;
}

/* The tensors of one safetensors file. */
typedef struct picked {
    ckpi_out_tensor *t;
    ckpi_give_range *in, *ordered;
    char **name;
    uint64_t *extent;            /* of the 1-D ones */
    size_t n;
} picked;

static void
picked_free(picked *x)
{
    for (size_t i = 0; x->name != NULL && i < x->n; i++)
        free(x->name[i]);
    free(x->name);
    free(x->t);
    free(x->in);
    free(x->ordered);
    free(x->extent);
}

#define RANGE_TEXT 48u           /* "[", two numbers of 64 bits, ":" or "," and "]" */

/* Where a box lies in its tensor, as a slice of it. */
static size_t
box_text(char *to, size_t cap, const ckpi_rec *r)
{
    size_t n = 0;

    for (unsigned i = 0; i < r->ndim; i++)
        n += (size_t)snprintf(to + n, cap - n, "%s%llu:%llu%s", i == 0 ? "[" : ",", (unsigned long long)r->box_first[i],
                              (unsigned long long)(r->box_first[i] + r->box_shape[i]), i + 1 == r->ndim ? "]" : "");
    return n;
}

/* NAME; NAME[first:last] for a part, in elements of the tensor; NAME[slice][first:last] for one of a box; and NAME@dtype for bytes of a dtype that safetensors
   does not know. */
static char *
name_for(const ckpi_rec *r, const ckpi_give_range *range, bool whole, bool as_bytes)
{
    const size_t cap = strlen(r->name) + (r->ndim + 3) * RANGE_TEXT;
    const uint64_t first = range->first + (r->flat ? r->flat_first : 0);
    const bool box = r->box_first != NULL && !ckpi_rec_whole(r);
    char *name = ckpi_malloc(cap, 1);
    size_t n = 0;

    if (name == NULL)
        return NULL;
    n += (size_t)snprintf(name, cap, "%s", r->name);
    if (!whole && box)
        n += box_text(name + n, cap - n, r);
    if (!whole && (!box || range->count != r->numel))
        n += (size_t)snprintf(name + n, cap - n, "[%llu:%llu]", (unsigned long long)first, (unsigned long long)(first + range->count));
    (void)snprintf(name + n, cap - n, "%s%s", as_bytes ? "@" : "", as_bytes ? ckp_dtype_name(r->dtype) : "");
    return name;
}

/* Whole tensors keep their shapes; parts, and what can only be bytes, have one dimension. */
static bool
pick_one(picked *x, const ckpi_table *t, const ckpi_give_range *range, bool whole)
{
    const size_t k = x->n;
    const ckpi_rec *r = &t->rec[range->tensor];
    const bool as_bytes = ckpi_st_dtype_name(r->dtype) == NULL;
    const bool shaped = whole && !as_bytes;
    uint64_t bytes = 0;

    x->name[k] = name_for(r, range, whole, as_bytes);
    if (x->name[k] == NULL)
        return false;
    (void)ckpi_dtype_bytes(r->dtype, range->count, &bytes);
    x->in[k] = *range;
    x->extent[k] = as_bytes ? bytes : range->count;
    x->t[k] = (ckpi_out_tensor){.name = x->name[k], .dtype = as_bytes ? CKP_U8 : r->dtype, .ndim = shaped ? r->ndim : 1, .bytes = bytes,
                                .alias_of = CKPI_NO_TENSOR, .shape = shaped ? r->shape : &x->extent[k]};
    x->n++;
    return true;
}

static ckp_status
pick(picked *x, const ckpi_table *t, const haves *h, bool whole, ckp_error *err)
{
    bool ok = true;

    x->t = ckpi_calloc(h->n, sizeof *x->t);
    x->in = ckpi_calloc(h->n, sizeof *x->in);
    x->ordered = ckpi_calloc(h->n, sizeof *x->ordered);
    x->name = ckpi_calloc(h->n, sizeof *x->name);
    x->extent = ckpi_calloc(h->n, sizeof *x->extent);
    ok = x->t != NULL && x->in != NULL && x->ordered != NULL && x->name != NULL && x->extent != NULL;
    for (size_t i = 0; ok && i < h->n; i++)
        if ((h->r[i].count == t->rec[h->r[i].tensor].numel && ckpi_rec_whole(&t->rec[h->r[i].tensor])) == whole)
            ok = pick_one(x, t, &h->r[i], whole);
    return ok ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "salvage: no memory");
}

static ckp_status
write_picked(const ckp_checkpoint *ck, picked *x, ckpi_writer *w, ckp_error *err)
{
    ckpi_export *e = NULL;
    size_t n = 0;

    ckp_status st = ckpi_export_st_new(&e, w, x->t, x->n, err);
    if (st == CKP_OK) {
        const uint32_t *order = ckpi_export_order(e, &n);
        for (size_t i = 0; i < n; i++)
            x->ordered[i] = x->in[order[i]];
        sink s = {.e = e, .place = order, .r = x->ordered};
        st = ckpi_give(ck, x->ordered, n, 1, feed, &s, NULL, NULL, err);
    }
    if (st == CKP_OK)
        st = ckpi_export_finish(e, err);
    ckpi_export_free(e);
    return st;
}

/* One safetensors file: of the whole tensors, or of the parts. None when there are none. */
static ckp_status
write_file(const ckp_checkpoint *ck, const haves *h, bool whole, const char *dir, const char *file, bool replace, ckp_error *err)
{
    picked x = {0};
    char path[CKPI_PATH_MAX];
    ckpi_out o = {0};

    ckp_status st = pick(&x, ck->lin->table, h, whole, err);
    if (st != CKP_OK || x.n == 0)
        goto done;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, file) >= sizeof path) {
        st = ckpi_fail(err, CKP_EPATH, "%s/%s: the path is too long", dir, file);
        goto done;
    }
    st = ckpi_out_open(&o, path, replace, NULL, err);
    if (st == CKP_OK)
        st = write_picked(ck, &x, o.w, err);
    if (st == CKP_OK)
        st = ckpi_out_commit(&o, err);
done:
    ckpi_out_free(&o);
    picked_free(&x);
    return st;
}

static void
tell(const ckp_checkpoint *ck, const haves *h, void (*fn)(void *user, const char *tensor, uint64_t have, uint64_t of), void *user)
{
    const ckpi_table *t = ck->lin->table;
    size_t k = 0;

    for (uint32_t i = 0; fn != NULL && i < t->n; i++) {
        uint64_t got = 0;
        for (; k < h->n && h->r[k].tensor == i; k++)
            got += h->r[k].count;
        fn(user, t->rec[i].name, got, t->rec[i].numel);
    }
}

/* ---- the damaged file with its bases ---------------------------------------------------------------------------------- */

/* A base that is damaged too, by what is left of it. NULL: it is none of our files, perhaps the base model. */
static ckp_status
open_base(ckpi_fmt_file **out, const char *path, const ckpi_fmt_file *ref, ckp_error *err)
{
    ckpi_reader *r = NULL;
    uint64_t skipped = 0;
    ckp_error e;

    *out = NULL;
    ckp_status st = ckpi_reader_plain(&r, path, err);
    if (st == CKP_OK)
        st = ckpi_fmt_open(out, r, err);
    if (st != CKP_ECORRUPT && st != CKP_ETRUNCATED)
        return st == CKP_EFORMAT ? CKP_OK : st;
    const ckp_status again = ckpi_reader_plain(&r, path, err);
    if (again != CKP_OK)
        return again;
    return ckpi_fmt_salvage(out, r, ref, &skipped, &e) == CKP_OK ? CKP_OK : st;
}

/* The one whose table others share is the last of a chain, and comes first here. files[1] and on; *n grows by those there are. */
static ckp_status
open_bases(ckpi_fmt_file **files, size_t *n, const char *const *bases, size_t n_bases, const ckpi_fmt_file **ref, ckp_error *err)
{
    ckp_status st = CKP_OK;

    *ref = NULL;
    for (size_t i = n_bases; st == CKP_OK && i-- > 0;) {
        st = open_base(&files[1 + i], bases[i], *ref, err);
        if (st == CKP_OK && files[1 + i] != NULL && files[1 + i]->table != NULL && *ref == NULL)
            *ref = files[1 + i];
    }
    for (size_t i = 1; i <= n_bases; i++)
        if (files[i] != NULL) {
            ckpi_fmt_file *f = files[i];
            files[i] = NULL;
            files[(*n)++] = f;
        }
    return st;
}

/* A damaged base cannot say what it is: it is taken for what it was named as, and chunks that are not of it fail their proof. */
static void
name_damaged(ckpi_fmt_file **files, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (files[i]->partial && files[i - 1]->info.is_delta)
            files[i]->content = files[i - 1]->info.base_content;
}

static ckp_status
open_damaged(ckp_checkpoint **out, const char *in, const char *const *bases, size_t n_bases, ckp_error *err)
{
    ckp_checkpoint *ck = ckpi_calloc(1, sizeof *ck);
    ckpi_fmt_file **files = ckpi_calloc(n_bases + 2, sizeof *files);
    ckpi_reader *r = NULL;
    uint64_t skipped = 0;
    size_t n = 1;
    ckp_status st = ck != NULL && files != NULL ? CKP_OK : ckpi_fail(err, CKP_ENOMEM, "salvage: no memory");

    /* bases whose table lives further down are resolved with the lineage; the one that stores it is what salvage needs */
    const ckpi_fmt_file *ref = NULL;
    if (st == CKP_OK)
        st = open_bases(files, &n, bases, n_bases, &ref, err);
    if (st == CKP_OK)
        st = ckpi_reader_plain(&r, in, err);
    if (st == CKP_OK)
        st = ckpi_fmt_salvage(&files[0], r, ref, &skipped, err);
    if (st == CKP_OK) {
        ck->pid = ckpi_pid();
        (void)snprintf(ck->name, sizeof ck->name, "%.255s", in);
        name_damaged(files, n);
        if (n_bases == 0)        /* chunks that need no base can still be had */
            files[0]->info.is_delta = 0;
        else
            st = ckpi_checkpoint_find_model(ck, files, &n, bases, n_bases, err);
    }
    if (st == CKP_OK) {
        st = ckpi_checkpoint_from_files(ck, files, n, err);
    } else {
        for (size_t i = 0; files != NULL && i < n; i++)
            ckpi_fmt_close(files[i]);
    }
    free(files);
    if (st != CKP_OK) {
        ckp_checkpoint_close(ck);
        ck = NULL;
    }
    *out = ck;
    return st;
}

ckp_status
ckp_salvage(const char *in, const char *const *bases, size_t n_bases, const char *out, bool replace,
            void (*fn)(void *user, const char *tensor, uint64_t have, uint64_t of), void *user, ckp_error *err)
{
    ckp_checkpoint *ck = NULL;
    ckpi_fs *fs = NULL;
    haves h = {0};

    if (in == NULL || out == NULL || (n_bases != 0 && bases == NULL))
        return ckpi_fail(err, CKP_EINVAL, "salvage: NULL argument");
    ckp_status st = open_damaged(&ck, in, bases, n_bases, err);
    if (st == CKP_OK)
        st = prove(ck, &h, err);
    if (st == CKP_OK)
        st = ckpi_fs_posix(&fs, out, true, err);
    if (st == CKP_OK)
        st = write_file(ck, &h, true, out, "salvaged.safetensors", replace, err);
    if (st == CKP_OK)
        st = write_file(ck, &h, false, out, "salvaged-parts.safetensors", replace, err);
    if (st == CKP_OK)
        tell(ck, &h, fn, user);
    else
        ckpi_fail_file(err, in);
    ckpi_fs_free(fs);
    free(h.r);
    ckp_checkpoint_close(ck);
    return st;
}
