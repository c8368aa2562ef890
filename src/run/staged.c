/* SPDX-License-Identifier: Apache-2.0 */
/* A save that is held between its pass and its writing, so that the caller can judge what would come back. */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fail.h"
#include "engine/values.h"
#include "run/checkpoint.h"
#include "run/session.h"

static ckp_status
need_staged(const ckp_run *run, ckp_error *err)
{
    const ckp_status st = ckpi_session_check(run, err);
    return st != CKP_OK || run->staged ? st : ckpi_fail(err, CKP_EINVAL, "no save is staged");
}

/* What a pass that left no stages behind means here. */
static ckp_status
fits(ckp_run *run, ckp_error *err)
{
    if (!run->job.inline_pass)
        return CKP_OK;
    run->key_next = true;
    return ckpi_fail(err, CKP_ELIMIT, "a staged save of this state does not fit into the memory budget of %llu bytes",
                     (unsigned long long)ckpi_memory_budget(&run->opt.coding));
}

ckp_status
ckp_run_stage(ckp_run *run, uint64_t step, ckp_state *state, const ckp_save_options *opt, bool *staged, ckp_error *err)
{
    const ckp_save_options defaults = CKP_SAVE_OPTIONS_INIT;
    const double started = ckpi_seconds();
    ckpi_pass pass;

    ckp_status st = ckpi_session_check_free(run, err);
    if (st == CKP_OK && staged == NULL)
        st = ckpi_fail(err, CKP_EINVAL, "run_stage: NULL argument");
    if (st == CKP_OK && run->talk != NULL)
        st = ckpi_fail(err, CKP_EUNSUPPORTED, "a save in two steps in a group");
    if (st != CKP_OK)
        return st;
    *staged = false;
    if (ckpi_session_skip(run))
        return CKP_OK;
    st = ckpi_session_take(run, step, state, opt != NULL ? opt : &defaults, &pass, err);
    if (st == CKP_OK)
        st = fits(run, err);
    run->last_stall = ckpi_seconds() - started;
    run->staged = *staged = st == CKP_OK;
    return st;
}

ckp_status
ckp_run_restage(ckp_run *run, ckp_state *state, double quality, ckp_error *err)
{
    const double started = ckpi_seconds();

    ckp_status st = need_staged(run, err);
    if (st == CKP_OK && (state == NULL || !(quality >= 0.01 && quality <= 100.0)))
        st = ckpi_fail(err, CKP_EINVAL, "run_restage: no state, or a quality of %g, which is not between 0.01 and 100", quality);
    if (st != CKP_OK)
        return st;
    st = ckpi_session_retake(run, state, quality, NULL, err);
    if (st == CKP_OK)
        st = fits(run, err);
    run->last_stall += ckpi_seconds() - started;
    run->staged = st == CKP_OK;
    return st;
}

ckp_status
ckp_run_restage_dynaquant(ckp_run *run, ckp_state *state, const ckp_dynaquant *config, ckp_error *err)
{
    const double started = ckpi_seconds();

    ckp_status st = need_staged(run, err);
    if (st == CKP_OK && (state == NULL || config == NULL))
        st = ckpi_fail(err, CKP_EINVAL, "run_restage_dynaquant: NULL argument");
    if (st == CKP_OK)
        st = ckpi_dynaquant_check(config, run->opt.coding.profile, err);
    if (st != CKP_OK)
        return st;
    st = ckpi_session_same(run, state, err);
    if (st == CKP_EINVAL)        /* nothing has happened to the staged save */
        return st;
    if (st == CKP_OK && run->job.set.dynaquant && !run->job.set.exact_weights)
        st = ckpi_session_recode(run, state, config, err);
    else if (st == CKP_OK)
        st = ckpi_session_retake(run, state, 0.0, config, err);
    if (st == CKP_OK)
        st = fits(run, err);
    if (st != CKP_OK)
        ckp_run_unstage(run);
    run->last_stall += ckpi_seconds() - started;
    return st;
}

/* ---- size --------------------------------------------------------------------------------------------------------- */

typedef struct size_job { ckp_run *run; ckp_role role; uint64_t *bytes; } size_job;

static ckp_status
size_one(void *user, size_t g, ckpi_scratch *ws, ckp_error *err)
{
    const size_job *j = user;
    ckp_run *run = j->run;

    if (run->pred->layout->g[g].role != j->role)
        return CKP_OK;
    return ckpi_encode_weights_size(run->pred, g, &run->stages[g], (ckpi_effort)run->opt.coding.effort, run->front->cpu, &j->bytes[g], ws, err);
}

ckp_status
ckp_run_staged_bytes(ckp_run *run, ckp_role role, uint64_t *bytes, ckp_error *err)
{
    ckp_status st = need_staged(run, err);
    if (st == CKP_OK && (bytes == NULL || role == CKP_ROLE_M || role == CKP_ROLE_V || role == CKP_ROLE_MOMENTUM))
        st = ckpi_fail(err, CKP_EINVAL, "run_staged_bytes: NULL argument, or a role of moments");
    if (st != CKP_OK)
        return st;
    const size_t n = run->pred->layout->n;
    uint64_t *each = ckpi_calloc(n, sizeof *each);
    size_job j = {run, role, each};
    st = each != NULL ? ckpi_ctx_run(run->front, n, size_one, &j, err) : ckpi_fail(err, CKP_ENOMEM, "no memory for %zu sizes", n);
    *bytes = 0;
    for (size_t g = 0; st == CKP_OK && g < n; g++)
        *bytes += each[g];
    free(each);
    return st;
}

ckp_status
ckp_run_commit(ckp_run *run, const ckp_metric *more, size_t n, ckp_error *err)
{
    ckp_status st = need_staged(run, err);
    if (st == CKP_OK && n != 0 && more == NULL)
        st = ckpi_fail(err, CKP_EINVAL, "run_commit: NULL metrics");
    if (st == CKP_OK)
        st = ckpi_session_add_metrics(&run->job, more, n, err);
    if (st != CKP_OK)
        return st;
    run->staged = false;
    ckpi_session_hand_over(run);
    return CKP_OK;
}

bool
ckp_run_staged_key(const ckp_run *run)
{
    return run != NULL && run->staged && run->job.key;
}

void
ckp_run_unstage(ckp_run *run)
{
    if (run == NULL || !run->staged || ckpi_session_check(run, NULL) != CKP_OK)
        return;
    run->staged = false;
    run->key_next = true;        /* the reconstruction is of what was never committed */
    if (run->pred != NULL)       /* a state that could not be laid out has none */
        run->pred->valid = false;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static ckp_status
check_target(const ckpi_table *tab, const ckp_target *t, ckp_error *err)
{
    ckp_status st = ckpi_target_check(tab, t, true, err);
    if (st != CKP_OK)
        return st;
    const ckpi_rec *r = &tab->rec[t->index];
    if (t->strides != NULL)
        st = ckpi_fail(err, CKP_EINVAL, "targets of a staged save are contiguous");
    else if (r->role == CKP_ROLE_M || r->role == CKP_ROLE_V || r->role == CKP_ROLE_MOMENTUM || ckp_dtype_bits(r->dtype) % 8 != 0)
        st = ckpi_fail(err, CKP_EUNSUPPORTED, "moments and packed dtypes of a staged save cannot be read");
    if (st != CKP_OK)
        ckpi_fail_tensor(err, r->name);
    return st;
}

/* The same piece, rounded to a copy of its tensor. */
static void
round_piece(const ckp_run *run, size_t g, size_t k, size_t at, ckp_dtype dt, uint8_t *data)
{
    const ckpi_group *grp = &run->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    const ckpi_stage *s = &run->stages[g];
    const void *src = grp->lossy && !s->exact_w ? (const void *)(run->pred->rec[g].wrec + at) : s->raw + 4 * at;

    ckpi_round_copy(dt, data + 2 * (size_t)pc->first, src, (size_t)pc->count);
}

/* Elements of piece k of group g, which start at element `at` of the group, into a tensor's memory. */
static void
copy_piece(const ckp_run *run, size_t g, size_t k, size_t at, uint8_t *data)
{
    const ckpi_group *grp = &run->pred->layout->g[g];
    const ckpi_piece *pc = &grp->piece[k];
    const ckpi_stage *s = &run->stages[g];
    const size_t width = ckp_dtype_bits(grp->dtype) / 8, n = (size_t)pc->count;
    uint8_t *dst = data + (size_t)pc->first * width;

    if (grp->lossy && !s->exact_w)
        ckpi_floats_to(grp->dtype, dst, run->pred->rec[g].wrec + at, n);
    else
        (void)memcpy(dst, s->raw + at * width, n * width);
}

static uint32_t
payload_of(const ckpi_table *tab, const ckp_target *t)
{
    const uint32_t alias = tab->rec[t->index].alias_of;
    return alias != CKPI_NO_TENSOR ? alias : t->index;
}

/* Where a tensor's values go, by tensor, and the next one that lies in the same chunks: a copy of it. */
typedef struct staged_targets { uint8_t **dst; uint32_t *next; } staged_targets;

static void
read_piece(const ckp_run *run, size_t g, size_t k, size_t at, const staged_targets *to)
{
    const uint32_t t = run->pred->layout->g[g].piece[k].tensor;

    if (to->dst[t] != NULL)
        copy_piece(run, g, k, at, to->dst[t]);
    for (uint32_t c = to->next[t]; c != CKPI_NO_TENSOR; c = to->next[c])
        round_piece(run, g, k, at, run->pred->table->rec[c].dtype, to->dst[c]);
}

static void
read_all(const ckp_run *run, const staged_targets *to)
{
    for (size_t g = 0; g < run->pred->layout->n; g++) {
        const ckpi_group *grp = &run->pred->layout->g[g];
        size_t at = 0;
        for (size_t k = 0; k < grp->n_pieces; k++) {
            read_piece(run, g, k, at, to);
            at += (size_t)grp->piece[k].count;
        }
    }
}

/* Copies that are wanted, behind their masters. */
static void
link_targets(const ckpi_table *tab, staged_targets *to)
{
    for (size_t i = 0; i < tab->n; i++)
        to->next[i] = CKPI_NO_TENSOR;
    for (size_t i = 0; i < tab->n; i++) {
        const uint32_t master = tab->rec[i].copy_of;
        if (master == CKPI_NO_TENSOR || to->dst[i] == NULL)
            continue;
        to->next[i] = to->next[master];
        to->next[master] = (uint32_t)i;
    }
}

ckp_status
ckp_run_staged_read(ckp_run *run, const ckp_target *t, size_t n, ckp_error *err)
{
    ckp_status st = need_staged(run, err);
    if (st == CKP_OK && n != 0 && t == NULL)
        st = ckpi_fail(err, CKP_EINVAL, "run_staged_read: NULL targets");
    for (size_t i = 0; st == CKP_OK && i < n; i++)
        st = check_target(run->pred->table, &t[i], err);
    if (st != CKP_OK)
        return st;
    const ckpi_table *tab = run->pred->table;
    staged_targets to = {ckpi_calloc(tab->n + 1, sizeof *to.dst), ckpi_malloc(tab->n + 1, sizeof *to.next)};
    if (to.dst == NULL || to.next == NULL) {
        free(to.dst);
        free(to.next);
        return ckpi_fail(err, CKP_ENOMEM, "no memory to read %zu tensors", n);
    }
    for (size_t i = 0; i < n; i++)
        if (to.dst[payload_of(tab, &t[i])] == NULL)
            to.dst[payload_of(tab, &t[i])] = t[i].data;
    link_targets(tab, &to);
    read_all(run, &to);
    for (size_t i = 0; i < n; i++) {                        /* aliases beyond the first */
        const uint8_t *first = to.dst[payload_of(tab, &t[i])];
        if (first != t[i].data && first != NULL)
            (void)memcpy(t[i].data, first, (size_t)tab->rec[t[i].index].bytes);
    }
    free(to.dst);
    free(to.next);
    return CKP_OK;
}
