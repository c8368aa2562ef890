/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/fail.h"
#include "engine/values.h"
#include "io/io.h"
#include "os/target.h"
#include "run/base_model.h"
#include "run/base_names.h"
#include "run/stored.h"
#include "base/limits.h"
#include "state/utf8.h"

struct ckpi_base_model {
    char *path;
    ckpi_reader *r;
    ckpi_foreign *foreign;       /* either this */
    ckpi_stored stored;          /* or that */
    const ckp_state *state;      /* of one of them */
    ckpi_endings names;
};

const char *
ckpi_base_model_path(const ckpi_base_model *b)
{
    return b->path;
}

void
ckpi_base_model_free(ckpi_base_model *b)
{
    if (b == NULL)
        return;
    ckpi_endings_free(&b->names);
    ckpi_foreign_close(b->foreign);
    ckpi_stored_free(&b->stored);
    ckpi_reader_free(b->r);
    free(b->path);
    free(b);
}

static ckp_status
open_state(ckpi_base_model *b, ckp_error *err)
{
    const ckpi_foreign_options fo = {.drop_optimizers = true, .no_match = true};
    ckp_checkpoint *ck = NULL;

    ckp_status st = ckp_checkpoint_open_file(&ck, b->path, NULL, 0, err);
    if (st == CKP_OK) {
        st = ckpi_stored_read(&b->stored, ck, true, UINT64_MAX, 0, err);
        b->state = b->stored.state;
        ckp_checkpoint_close(ck);
    } else if (st == CKP_EFORMAT) {
        st = ckpi_foreign_open(&b->foreign, b->r, &fo, err);
        b->state = st == CKP_OK ? ckpi_foreign_state(b->foreign) : NULL;
    }
    return st;
}

ckp_status
ckpi_base_model_open(ckpi_base_model **out, const char *path, ckp_error *err)
{
    ckpi_base_model *b = ckpi_calloc(1, sizeof *b);
    ckp_status st = CKP_OK;

    *out = NULL;
    if (b == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for a base model");
    st = ckpi_reader_plain(&b->r, path, err);
    if (st == CKP_OK)
        st = ckpi_target_path(&b->path, path, err);
    if (st == CKP_OK && (strlen(b->path) > CKPI_MAX_NAME || !ckpi_utf8_ok(b->path, strlen(b->path), false)))
        st = ckpi_fail(err, CKP_EINVAL, "a base model's path must be UTF-8, of at most %u bytes: checkpoints name it", (unsigned)CKPI_MAX_NAME);
    if (st == CKP_OK)
        st = open_state(b, err);
    if (st == CKP_OK)
        st = ckpi_endings_new(&b->names, b->state, err);
    if (st != CKP_OK) {
        ckpi_fail_file(err, path);
        ckpi_base_model_free(b);
        return st;
    }
    *out = b;
    return CKP_OK;
}

/* The tensor there that row i is about. A base model calls a weight what the model does: where that is derived from a master, it is the master's. */
static uint32_t
like_of(const ckpi_base_model *b, const ckpi_table *t, uint32_t i)
{
    uint32_t got = ckpi_endings_match(&b->names, b->state, &t->rec[i]);
    if (!ckpi_role_is_weight(t->rec[i].role))            /* most rows are moments */
        return got;
    for (size_t c = 0; got == CKPI_NO_TENSOR && c < t->n; c++)
        if (t->rec[c].copy_of == i)
            got = ckpi_endings_match(&b->names, b->state, &t->rec[c]);
    return got;
}

size_t
ckpi_base_model_matches(const ckpi_base_model *b, const ckpi_table *t, bool *has)
{
    size_t n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        has[i] = like_of(b, t, i) != CKPI_NO_TENSOR;
        n += has[i];
    }
    return n;
}

/* In another float dtype than it has. */
static ckp_status
read_converted(const ckpi_tensor *t, const ckpi_piece *p, ckp_dtype to, void *dst, ckp_error *err)
{
    const size_t n = (size_t)p->count;
    float *f = ckpi_malloc(n, sizeof *f);
    void *raw = ckpi_malloc(n, sizeof *f);
    ckp_status st = f != NULL && raw != NULL ? ckpi_tensor_copy_out(t, p->first, p->count, raw, err)
                                             : ckpi_fail(err, CKP_ENOMEM, "no memory to convert %zu elements", n);

    if (st == CKP_OK) {
        ckpi_floats_from(t->dtype, f, raw, n);
        ckpi_floats_to(to, dst, f, n);
    }
    free(f);
    free(raw);
    return st;
}

ckp_status
ckpi_base_model_read(const ckpi_base_model *b, const ckpi_table *t, const ckpi_piece *piece, size_t n_pieces, void *dst, ckp_error *err)
{
    uint8_t *to = dst;

    for (size_t k = 0; k < n_pieces; k++) {
        const ckpi_rec *r = &t->rec[piece[k].tensor];
        const uint32_t i = like_of(b, t, piece[k].tensor);
        uint64_t bytes = 0;
        ckp_status st = CKP_OK;
        (void)ckpi_dtype_bytes(r->dtype, piece[k].count, &bytes);
        if (i == CKPI_NO_TENSOR)
            (void)memset(to, 0, (size_t)bytes);
        else if (b->state->t[i].dtype == r->dtype)
            st = ckpi_tensor_copy_out(&b->state->t[i], piece[k].first, piece[k].count, to, err);
        else
            st = read_converted(&b->state->t[i], &piece[k], r->dtype, to, err);
        if (st != CKP_OK) {
            ckpi_fail_tensor(err, b->state->t[i].name);
            ckpi_fail_file(err, b->path);
            return st;
        }
        to += bytes;
    }
    return CKP_OK;
}
