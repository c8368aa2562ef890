/* SPDX-License-Identifier: Apache-2.0 */
#include "chain.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/cpu.h"
#include "base/fail.h"
#include "engine/values.h"

ckpi_settings
chain_settings(const char *profile)
{
    ckpi_settings s = {.lossy = true, .f = 1.2, .clamp_lo = 0.25, .clamp_hi = 1.5, .k_move = 64.0, .vstep = 512, .mthree = true,
                       .mshare = 0.01, .mstep = 4.0, .fine_shift = 4};
    if (strcmp(profile, "lossless") == 0)
        s = (ckpi_settings){0};
    else if (strcmp(profile, "clusters") == 0)
        s = (ckpi_settings){.clusters = CKPI_CLUSTERS_AFFINE};
    else if (strcmp(profile, "centres") == 0)
        s = (ckpi_settings){.clusters = CKPI_CLUSTERS_CENTRES};
    else if (strcmp(profile, "small") == 0)
        s.f = 2.0;
    else if (strcmp(profile, "weights") == 0) {
        s.f = 0.2;
        s.k_move = 0.0;
        s.weights_only = true;
    } else if (strcmp(profile, "uniform") == 0) {     /* no profile: the other kind of moments */
        s.mthree = false;
        s.vstep = 128;
    } else if (strcmp(profile, "dynaquant") == 0 || strcmp(profile, "codebook") == 0) {
        s.dynaquant = true;
    }
    return s;
}

chain *
chain_new(const char *profile, unsigned threads, uint32_t cpu_mask)
{
    ckp_error err;
    chain *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->set = chain_settings(profile);
    if (strcmp(profile, "dynaquant") == 0)
        c->dq.num = (ckpi_dq_numbers){.bins = 6, .bins_embedding = 12, .prune = 0.2, .protect = 0.01, .by_score = true};
    else                         /* no value is pruned or kept that could be indexed */
        c->dq.num = (ckpi_dq_numbers){.bins = 16, .bins_embedding = 32};
    c->keep_raw = c->staged = true;
    assert_ok(ckpi_ctx_new(&c->ctx, threads, false, &err));
    c->ctx->cpu &= cpu_mask;
    return c;
}

static void
free_pred(chain *c)
{
    for (size_t g = 0; c->stages != NULL && g < c->pred->layout->n; g++)
        ckpi_stage_free(&c->stages[g]);
    free(c->stages);
    ckpi_pred_free(c->pred);
    c->stages = NULL;
    c->pred = NULL;
    free(c->dq.kind);
    free((void *)(uintptr_t)c->dq.score);
    c->dq.kind = NULL;
    c->dq.score = NULL;
}

void
chain_free(chain *c)
{
    free_pred(c);
    for (size_t i = 0; i < CHAIN_MAX; i++) {             /* a save that has failed may have begun the file after the last */
        ckpi_buf_free(&c->file[i]);
        ckpi_buf_free(&c->tree[i]);
    }
    ckpi_ctx_free(c->ctx);
    free(c);
}

/* ---- saving ---- */

static ckp_status
new_pred(ckpi_pred **out, const chain *c, const ckp_state *s, ckp_error *err)
{
    ckpi_table *t = NULL;
    ckpi_layout *l = NULL;
    bool *no_loss = calloc(s->n + 1, 1);
    for (size_t i = 0; i < s->n; i++)
        no_loss[i] = s->t[i].lossless;
    ckp_status st = ckpi_table_from_state(&t, s, err);
    if (st == CKP_OK)
        st = ckpi_layout_new(&l, t, c->set.lossy, ckpi_settings_alone(&c->set), no_loss, c->packing, err);
    free(no_loss);
    if (st == CKP_OK)
        return ckpi_pred_new(out, t, l, err);
    ckpi_table_free(t);
    return st;
}

static ckp_status
stage_all(chain *c, const ckpi_pass *pass, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (size_t g = 0; st == CKP_OK && g < c->pred->layout->n; g++) {
        ckpi_scratch_reset(c->ctx->ws[0]);
        st = ckpi_stage_alloc(&c->stages[g], &c->pred->layout->g[g], pass->set, err);
        if (st == CKP_OK)
            st = ckpi_pass_group(pass, g, &c->stages[g], c->ctx->ws[0], err);
    }
    if (st == CKP_OK && pass->set->lossy)
        ckpi_pass_finish(pass, c->stages);
    return st;
}

static ckp_status
code_again(chain *c, const ckpi_pass *pass, ckp_error *err)
{
    c->dq.num = *c->again;
    ckp_status st = ckpi_dq_prepare(c->ctx, pass, err);
    for (size_t g = 0; st == CKP_OK && g < c->pred->layout->n; g++) {
        ckpi_scratch_reset(c->ctx->ws[0]);
        st = ckpi_dq_again(pass, g, &c->stages[g], c->ctx->ws[0], err);
    }
    return st;
}

static ckpi_file_info
info_of(const chain *c, bool key)
{
    ckpi_file_info i = {.features = ckpi_settings_features(&c->set)};
    if (!key) {
        i.is_delta = 1;
        i.features |= CKPI_FEAT_DELTA;
        i.chain = (uint16_t)(c->n - c->key_at);
        i.base_content = c->sum[c->n - 1].content;
        i.table_content = c->sum[c->key_at].content;
    }
    return i;
}

static ckp_status
write_file(chain *c, const ckp_state *s, const ckpi_pass *pass, ckp_error *err)
{
    ckpi_writer *w = NULL;
    ckpi_fmt_writer *fw = NULL;
    const ckpi_file_info info = info_of(c, pass->key);
    const ckpi_buf *tree = &c->tree[c->key_at];
    const ckpi_encode_job job = {.pred = c->pred, .stages = c->staged ? c->stages : NULL, .pass = pass, .keep_raw = c->keep_raw,
                                 .progress = c->progress, .progress_user = c->progress_user, .load = c->load, .load_user = c->load_user,
                                 .late = c->late};
    ckp_status st = ckpi_writer_mem(&w, &c->file[c->n], err);
    if (st == CKP_OK)
        st = ckpi_fmt_writer_new(&fw, w, &info, c->pred->table, s->tree.data, s->tree.len, pass->key ? NULL : c->pred->table, tree->data,
                                 pass->key ? 0 : tree->len, err);
    if (st == CKP_OK)
        st = ckpi_encode_file(c->ctx, &job, fw, &c->sum[c->n], err);
    ckpi_fmt_writer_free(fw);
    if (st == CKP_OK)
        st = ckpi_writer_finish(w, err);
    ckpi_writer_free(w);
    return st;
}

static ckp_status
save_state(chain *c, ckp_state *s, bool key, bool exact, ckp_error *err)
{
    ckpi_settings set = c->set;
    ckp_status st = ckpi_state_seal(s, err);
    if (st == CKP_OK && c->pred == NULL)
        st = new_pred(&c->pred, c, s, err);
    if (st == CKP_OK && c->stages == NULL)
        c->stages = calloc(c->pred->layout->n + 1, sizeof *c->stages);
    if (st != CKP_OK)
        return st;
    set.exact_weights = exact && set.lossy;
    if (c->dq.kind == NULL) {
        c->dq.kind = calloc(s->n + 1, sizeof *c->dq.kind);
        c->dq.score = calloc(s->n + 1, sizeof *c->dq.score);
        for (size_t i = 1; i < s->n; i++)
            c->dq.kind[i] = (uint8_t)(CKPI_LAYER_ATTENTION + i % 3);
    }
    const ckpi_pass pass = {.pred = c->pred, .state = s, .set = &set, .dq = &c->dq, .lasting = c->lone ? NULL : &c->lasting, .key = key,
                            .lone = c->lone, .run_key = 7, .restore_count = c->restore_count,
                            .cpu = c->ctx->cpu};
    if (set.lossy && key)
        st = ckpi_pass_prepare(c->ctx, &pass, err);
    if (st == CKP_OK && set.lossy)
        ckpi_pass_steps(&pass);
    if (st == CKP_OK && set.dynaquant && !set.exact_weights)
        st = ckpi_dq_prepare(c->ctx, &pass, err);
    if (st == CKP_OK && c->staged)
        st = stage_all(c, &pass, err);
    if (st == CKP_OK && c->again != NULL)
        st = code_again(c, &pass, err);
    if (st == CKP_OK)
        st = write_file(c, s, &pass, err);
    if (st != CKP_OK)
        return st;
    ckpi_buf_put(&c->tree[c->n], s->tree.data, s->tree.len);
    if (key)
        c->key_at = c->n;
    c->n++;
    return CKP_OK;
}

ckp_status
chain_save_try(chain *c, const sim *m, bool key, bool exact, ckp_error *err)
{
    ckp_state *s = sim_state(m);
    const ckp_status st = save_state(c, s, key || c->n == 0, exact, err);
    ckp_state_free(s);
    return st;
}

void
chain_save(chain *c, const sim *m, bool key, bool exact)
{
    ckp_error err;
    if (chain_save_try(c, m, key, exact, &err) != CKP_OK)
        fail_msg("save %zu: %s", c->n, err.text);
}

/* ---- reading ---- */

ckp_status
chain_open_try(const chain *c, size_t i, const void *bytes, size_t len, ckpi_lineage **out, ckp_error *err)
{
    ckpi_fmt_file *f[CHAIN_MAX] = {NULL};
    size_t n = 0;
    *out = NULL;
    for (size_t k = i + 1; k-- > 0; n++) {
        char name[32];
        ckpi_reader *r = NULL;
        (void)snprintf(name, sizeof name, "save-%zu", k);
        ckp_status st = ckpi_reader_mem(&r, k == i ? bytes : c->file[k].data, k == i ? len : c->file[k].len, name, err);
        if (st == CKP_OK)
            st = ckpi_fmt_open(&f[n], r, err);
        if (st != CKP_OK) {
            for (size_t j = 0; j < n; j++)
                ckpi_fmt_close(f[j]);
            return st;
        }
        if (!f[n]->info.is_delta) {
            n++;
            break;
        }
    }
    return ckpi_lineage_new(out, f, n, err);
}

ckpi_lineage *
chain_open(const chain *c, size_t i)
{
    ckpi_lineage *l = NULL;
    ckp_error err;
    if (chain_open_try(c, i, c->file[i].data, c->file[i].len, &l, &err) != CKP_OK)
        fail_msg("open %zu: %s", i, err.text);
    return l;
}

static unsigned
all_of(const ckpi_unit *u)
{
    return (u->w != CKPI_NO_CHUNK ? CKPI_WANT_W : 0U) | (u->m != CKPI_NO_CHUNK ? CKPI_WANT_M : 0U) | (u->v != CKPI_NO_CHUNK ? CKPI_WANT_V : 0U);
}

typedef struct sink { const ckpi_table *t; uint32_t tensor; uint8_t *dst; } sink;

static ckp_status
take(void *user, const ckpi_chunk *c, const void *bytes, ckp_error *err)
{
    const sink *s = user;
    const uint8_t *p = bytes;
    (void)err;
    for (size_t k = 0; k < c->n_pieces; k++) {
        const ckp_dtype dt = s->t->rec[c->piece[k].tensor].dtype;
        uint64_t at = 0, len = 0;
        assert_true(ckpi_dtype_bytes(dt, c->piece[k].first, &at) && ckpi_dtype_bytes(dt, c->piece[k].count, &len));
        if (c->piece[k].tensor == s->tensor)
            memcpy(s->dst + at, p, (size_t)len);
        p += len;
    }
    return CKP_OK;
}

static ckp_status
decode_units(const chain *c, const ckpi_lineage *l, sink *s, ckp_error *err)
{
    ckpi_unit *u = NULL;
    size_t n = 0;
    ckp_status st = ckpi_units(l, &u, &n, err);
    for (size_t i = 0; st == CKP_OK && i < n; i++) {
        ckpi_scratch_reset(c->ctx->ws[0]);
        st = ckpi_decode_unit(l, &u[i], all_of(&u[i]), s != NULL ? take : NULL, s, c->ctx->ws[0], c->ctx->cpu, err);
    }
    free(u);
    return st;
}

ckp_status
chain_decode_all(const chain *c, const ckpi_lineage *l, ckp_error *err)
{
    return decode_units(c, l, NULL, err);
}

void
chain_read(const chain *c, const ckpi_lineage *l, uint32_t tensor, uint8_t *dst)
{
    sink s = {l->table, tensor, dst};
    ckp_error err;
    if (decode_units(c, l, &s, &err) != CKP_OK)
        fail_msg("decode: %s", err.text);
}

static const ckpi_unit *
unit_of(const ckpi_lineage *l, const ckpi_unit *u, size_t n, const ckpi_group *g)
{
    for (size_t i = 0; i < n; i++) {
        if (u[i].w == CKPI_NO_CHUNK)
            continue;
        const ckpi_chunk *k = &l->level[0].f->chunk[u[i].w];
        if (k->piece[0].tensor == g->piece[0].tensor && k->piece[0].first == g->piece[0].first)
            return &u[i];
    }
    fail_msg("no unit of a group");
    return NULL;
}

static void
check_indices(const ckpi_indices *x, const ckpi_indices *y, const ckpi_group *g, size_t index)
{
    assert_int_equal(x->code != NULL, y->code != NULL);
    if (x->code == NULL)
        return;
    if (memcmp(x->code, y->code, (size_t)g->n) != 0)
        fail_msg("group %zu: indices of encoder and decoder differ", index);
    assert_int_equal(x->n_kept, y->n_kept);
    assert_true(x->n_kept == 0 || memcmp(x->kept, y->kept, x->n_kept * sizeof *x->kept) == 0);
    for (size_t k = 0; k < g->n_pieces; k++) {
        assert_int_equal(x->book[k].k, y->book[k].k);
        assert_true(memcmp(x->book[k].centre, y->book[k].centre, x->book[k].k * sizeof x->book[k].centre[0]) == 0);
    }
}

static void
check_group(const ckpi_recon *x, const ckpi_recon *y, const ckpi_group *g, size_t index)
{
    if (memcmp(x->wrec, y->wrec, (size_t)g->n * sizeof *x->wrec) != 0)
        fail_msg("group %zu: w^ of encoder and decoder differ", index);
    if (g->has_v && memcmp(x->vcode, y->vcode, (size_t)g->n) != 0)
        fail_msg("group %zu: codes of v differ", index);
    check_indices(&x->idx, &y->idx, g, index);
    assert_int_equal(x->fac.mem_n, y->fac.mem_n);
    if (x->fac.mem_n != 0 && memcmp(x->fac.mem, y->fac.mem, x->fac.mem_n * sizeof *x->fac.mem) != 0)
        fail_msg("group %zu: factors differ", index);
    for (size_t k = 0; k < x->fac.n; k++)
        assert_true(x->fac.at[k].vstep == y->fac.at[k].vstep && x->fac.at[k].lift == y->fac.at[k].lift && x->fac.at[k].cols == y->fac.at[k].cols);
}

void
chain_check_recon(const chain *c, size_t i)
{
    ckpi_lineage *l = chain_open(c, i);
    ckpi_pred *p = NULL;
    ckpi_layout *lay = NULL;
    ckpi_unit *u = NULL;
    size_t n = 0;
    ckp_error err;
    bool *no_loss = calloc(l->table->n + 1, 1);
    for (size_t t = 0; t < l->table->n; t++) {          /* weights without a lossy group are lossless ones */
        no_loss[t] = true;
        for (size_t g = 0; g < c->pred->layout->n; g++)
            for (size_t k = 0; (c->pred->layout->g[g].lossy || c->pred->layout->g[g].clustered) && k < c->pred->layout->g[g].n_pieces; k++) {
                const ckpi_group *grp = &c->pred->layout->g[g];
                if (grp->piece[k].tensor == t || (grp->has_m && grp->m[k] == t) || (grp->has_v && grp->v[k] == t))
                    no_loss[t] = false;
            }
    }
    assert_ok(ckpi_layout_new(&lay, l->table, c->set.lossy, ckpi_settings_alone(&c->set), no_loss, c->packing, &err));
    assert_true(ckpi_layout_equal(lay, c->pred->layout));
    assert_ok(ckpi_pred_new(&p, ckpi_table_share((ckpi_table *)(uintptr_t)l->table), lay, &err));
    assert_ok(ckpi_units(l, &u, &n, &err));
    for (size_t g = 0; g < lay->n; g++) {
        ckpi_scratch_reset(c->ctx->ws[0]);
        if (ckpi_decode_into_pred(l, unit_of(l, u, n, &lay->g[g]), p, g, c->keep_raw, c->ctx->ws[0], c->ctx->cpu, &err) != CKP_OK)
            fail_msg("group %zu: %s", g, err.text);
        if (lay->g[g].lossy)
            check_group(&c->pred->rec[g], &p->rec[g], &lay->g[g], g);
        else if (c->keep_raw && !lay->g[g].clustered && memcmp(c->pred->raw[g], p->raw[g], (size_t)lay->g[g].bytes) != 0)
            fail_msg("group %zu: lossless base differs", g);
    }
    free(no_loss);
    free(u);
    ckpi_pred_free(p);
    ckpi_lineage_free(l);
}

static bool
is_lossy(const ckpi_lineage *l, uint32_t t)
{
    const ckpi_chunk_key *k = ckpi_lineage_find(l, 0, t, 0);
    return k != NULL && l->level[0].f->chunk[k->chunk].quant != CKPI_QUANT_NONE;
}

/* Where first moments have second ones of their shape right behind: what one is measured in, 1 / sqrt(v). Else 1. */
static double
measure(const sim_tensor *t, size_t i)
{
    if (t->role != CKP_ROLE_M || t[1].role != CKP_ROLE_V || t[1].n != t->n)
        return 1.0;
    float v = 0.0F;
    ckpi_floats_from(t[1].dtype, &v, t[1].dense + i * (t[1].bytes / (size_t)t[1].n), 1);
    return v > 0.0F && isfinite(v) ? 1.0 / sqrt((double)v) : 0.0;
}

/* NaN and Inf come back bit for bit; of the rest, the error is a share of the RMS, or (first moments, momentum) the projection is kept. */
static void
check_close(const sim_tensor *t, const uint8_t *got, bool v_in_its_size)
{
    float *x = calloc((size_t)t->n + 1, sizeof *x), *y = calloc((size_t)t->n + 1, sizeof *y);
    const size_t e = t->bytes / (size_t)t->n;
    const bool first = t->role == CKP_ROLE_M || t->role == CKP_ROLE_MOMENTUM;
    double err2 = 0.0, sum2 = 0.0, along = 0.0;
    ckpi_floats_from(t->dtype, x, t->dense, (size_t)t->n);
    ckpi_floats_from(t->dtype, y, got, (size_t)t->n);
    for (size_t i = 0; i < t->n; i++) {
        if (!isfinite(x[i]) && memcmp(t->dense + i * e, got + i * e, e) != 0)
            fail_msg("%s[%zu]: not finite, and not the same bits", t->name, i);
        if (!isfinite(x[i]))
            continue;
        if (!isfinite(y[i]))
            fail_msg("%s[%zu]: %g became %g", t->name, i, (double)x[i], (double)y[i]);
        /* two octaves of sqrt v are a factor of 4 either way; the lift may double that */
        if (v_in_its_size && t->role == CKP_ROLE_V && x[i] > 0.0F && !(y[i] > x[i] / 10.0F && y[i] < x[i] * 10.0F))
            fail_msg("%s[%zu]: v of %g became %g", t->name, i, (double)x[i], (double)y[i]);
        if (t->role == CKP_ROLE_V)
            continue;
        const double a = (double)x[i] * measure(t, i), b = (double)y[i] * measure(t, i);
        err2 += (a - b) * (a - b);
        sum2 += a * a;
        along += a * b;
    }
    /* loose: it only finds what is wildly wrong. The promises are in the tests of the quantizers. */
    if (v_in_its_size && first && along > 4.0 * sum2 + 1e-30)
        fail_msg("%s: projection %g of %g", t->name, along, sum2);
    if (!first && err2 > 4.0 * sum2 + 1e-30)
        fail_msg("%s: error %g of %g", t->name, sqrt(err2), sqrt(sum2));
    free(x);
    free(y);
}

void
chain_check_values(const chain *c, const sim *m, size_t i)
{
    ckpi_lineage *l = chain_open(c, i);
    assert_int_equal(l->table->n, m->n);
    for (uint32_t t = 0; t < m->n; t++) {
        const sim_tensor *mt = &m->t[t];
        if (mt->n == 0 || l->table->rec[t].alias_of != CKPI_NO_TENSOR)
            continue;
        uint8_t *got = calloc(1, mt->bytes + 1);
        chain_read(c, l, t, got);
        if (is_lossy(l, t))
            check_close(mt, got, c->set.clusters != CKPI_CLUSTERS_CENTRES);
        else if (memcmp(got, mt->dense, mt->bytes) != 0)
            fail_msg("%s: not the same bits", mt->name);
        free(got);
    }
    ckpi_lineage_free(l);
}
