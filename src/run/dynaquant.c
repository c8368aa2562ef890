/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include "base/fail.h"
#include "run/dynaquant.h"

static bool
is_share(double x)
{
    return x >= 0.0 && x < 1.0;
}

ckp_status
ckpi_dynaquant_check(const ckp_dynaquant *c, ckp_profile profile, ckp_error *err)
{
    if (c->size != sizeof *c)
        return ckpi_fail(err, CKP_EINVAL, "dynaquant options of size %zu; this library knows %zu", c->size, sizeof *c);
    if (profile == CKP_PROFILE_LOSSLESS)
        return ckpi_fail(err, CKP_EINVAL, "dynaquant is for lossy profiles");
    if (c->bins < 1 || c->bins > CKPI_CODEBOOK_MAX || c->bins_embedding < 1 || c->bins_embedding > CKPI_CODEBOOK_MAX)
        return ckpi_fail(err, CKP_EINVAL, "dynaquant: %u and %u bins are not between 1 and %d", c->bins, c->bins_embedding, CKPI_CODEBOOK_MAX);
    if (!is_share(c->prune) || !is_share(c->protect))
        return ckpi_fail(err, CKP_EINVAL, "dynaquant: prune %g and protect %g are not from 0 to below 1", c->prune, c->protect);
    if (c->prune_by != CKP_SCORE_MAGNITUDE && c->prune_by != CKP_SCORE_SENSITIVITY)
        return ckpi_fail(err, CKP_EINVAL, "dynaquant: no score %d", (int)c->prune_by);
    bool whole = (c->n_embeddings == 0 || c->embeddings != NULL) && (c->n_sensitivity == 0 || c->sensitivity != NULL);
    for (size_t i = 0; whole && i < c->n_embeddings; i++)
        whole = c->embeddings[i] != NULL;
    for (size_t i = 0; whole && i < c->n_sensitivity; i++)
        whole = c->sensitivity[i].name != NULL && c->sensitivity[i].score != NULL;
    return whole ? CKP_OK : ckpi_fail(err, CKP_EINVAL, "dynaquant: a NULL in its lists");
}

/* ---- copies ------------------------------------------------------------------------------------------------------- */

static void
free_names(const char *const *name, size_t n)
{
    for (size_t i = 0; name != NULL && i < n; i++)
        free((char *)(uintptr_t)name[i]);
    free((void *)(uintptr_t)name);
}

void
ckpi_dynaquant_free(ckp_dynaquant *c)
{
    if (c == NULL)
        return;
    free_names(c->embeddings, c->n_embeddings);
    for (size_t i = 0; c->sensitivity != NULL && i < c->n_sensitivity; i++)
        free((char *)(uintptr_t)c->sensitivity[i].name);
    free((void *)(uintptr_t)c->sensitivity);
    free(c);
}

ckp_status
ckpi_dynaquant_copy(ckp_dynaquant **out, const ckp_dynaquant *c, ckp_error *err)
{
    ckp_dynaquant *copy = ckpi_calloc(1, sizeof *copy);
    const char **name = c->embeddings != NULL ? ckpi_calloc(c->n_embeddings, sizeof *name) : NULL;
    ckp_sensitivity *s = ckpi_calloc(c->n_sensitivity, sizeof *s);

    *out = NULL;
    bool ok = copy != NULL && s != NULL && (name != NULL || c->embeddings == NULL);
    for (size_t i = 0; ok && i < c->n_embeddings; i++)
        ok = (name[i] = ckpi_strdup(c->embeddings[i])) != NULL;
    for (size_t i = 0; ok && i < c->n_sensitivity; i++) {
        s[i] = c->sensitivity[i];
        ok = (s[i].name = ckpi_strdup(c->sensitivity[i].name)) != NULL;
    }
    if (copy != NULL) {
        *copy = *c;
        copy->embeddings = name;
        copy->sensitivity = s;
        if (ok) {
            *out = copy;
            return CKP_OK;
        }
        ckpi_dynaquant_free(copy);
    } else {
        free(name);
        free(s);
    }
    return ckpi_fail(err, CKP_ENOMEM, "no memory for a copy of dynaquant's options");
}

/* ---- kinds of layers ---------------------------------------------------------------------------------------------- */

static char
lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Whether a name has one of these parts, in letters of any case. */
static bool
mentions(const char *name, const char *const *part, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(part[i]);
        for (const char *p = name; *p != '\0'; p++) {
            size_t k = 0;
            while (k < len && lower(p[k]) == part[i][k])
                k++;
            if (k == len)
                return true;
        }
    }
    return false;
}

static ckpi_layer
kind_of(const ckp_dynaquant *c, const ckpi_rec *r)
{
    static const char *const embedding[] = {"embed", "wte", "wpe"};
    static const char *const attention[] = {"attn", "attention", "qkv", "q_proj", "k_proj", "v_proj", "o_proj"};

    if (r->ndim > 2)
        return CKPI_LAYER_CONV;
    if (c->embeddings == NULL && mentions(r->name, embedding, sizeof embedding / sizeof *embedding))
        return CKPI_LAYER_EMBEDDING;
    return mentions(r->name, attention, sizeof attention / sizeof *attention) ? CKPI_LAYER_ATTENTION : CKPI_LAYER_LINEAR;
}

/* The tensor that is coded for the one of this name: an embedding that is the output layer too stays one. CKPI_NO_TENSOR: not here. */
static uint32_t
holder_of(const ckpi_table *t, const char *name)
{
    const uint32_t at = ckpi_table_find(t, name);
    return at != CKPI_NO_TENSOR ? ckpi_table_holder(t, at) : at;
}

static ckp_status
bind_sensitivity(ckpi_dq *d, const ckp_dynaquant *c, const ckpi_table *t, ckp_error *err)
{
    for (size_t i = 0; i < c->n_sensitivity; i++) {
        const ckp_sensitivity *s = &c->sensitivity[i];
        const uint32_t at = holder_of(t, s->name);
        if (at == CKPI_NO_TENSOR)
            continue;
        if (s->count != t->rec[at].numel) {
            const ckp_status st = ckpi_fail(err, CKP_EMISMATCH, "dynaquant: %llu sensitivities for %llu elements", (unsigned long long)s->count,
                                            (unsigned long long)t->rec[at].numel);
            ckpi_fail_tensor(err, s->name);
            return st;
        }
        d->score[at] = s->score;
    }
    return CKP_OK;
}

ckp_status
ckpi_dynaquant_bind(ckpi_dq *out, const ckp_dynaquant *c, const ckpi_table *t, ckp_error *err)
{
    ckpi_dynaquant_unbind(out);
    out->num = (ckpi_dq_numbers){.bins = c->bins, .bins_embedding = c->bins_embedding, .prune = c->prune, .protect = c->protect,
                                 .by_score = c->prune_by == CKP_SCORE_SENSITIVITY};
    out->kind = ckpi_calloc(t->n, sizeof *out->kind);
    out->score = ckpi_calloc(t->n, sizeof *out->score);
    if (out->kind == NULL || out->score == NULL) {
        ckpi_dynaquant_unbind(out);
        return ckpi_fail(err, CKP_ENOMEM, "no memory for the kinds of %zu tensors", t->n);
    }
    for (uint32_t i = 0; i < t->n; i++)
        out->kind[i] = (uint8_t)kind_of(c, &t->rec[i]);
    for (size_t i = 0; i < c->n_embeddings; i++) {
        const uint32_t at = holder_of(t, c->embeddings[i]);
        if (at != CKPI_NO_TENSOR)
            out->kind[at] = CKPI_LAYER_EMBEDDING;
    }
    return bind_sensitivity(out, c, t, err);
}

void
ckpi_dynaquant_unbind(ckpi_dq *d)
{
    free(d->kind);
    free((void *)(uintptr_t)d->score);
    *d = (ckpi_dq){0};
}
