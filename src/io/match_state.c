/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roles for the tensors of a file that holds a model and its optimizer. Found by shape (match_find.c), solved by names or order (match.c),
 * and written into the state here. What stays unmatched keeps role OTHER and is stored losslessly.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/hash.h"
#include "io/arena.h"
#include "io/io.h"
#include "io/match.h"
#include "io/match_find.h"
#include "state/hindex.h"
#include "state/state.h"

#define NONE UINT32_MAX
#define OPTIMIZERS_MAX 64u       /* each is tried against every model: a file of nothing but optimizers must not take for ever */

typedef struct slot {            /* one parameter of the optimizer and what is kept for it; tensors by index */
    uint32_t m, v, momentum, master;
    uint32_t step;               /* node */
} slot;

typedef struct matcher {
    ckp_state *s;
    ckpi_nodes t;
    uint32_t *parent;
    ckpi_notice_fn notice;
    void *user;
    ckp_error *err;
    ckpi_io_arena arena;         /* names; freed with everything */
    uint8_t *owned;              /* per tensor: some optimizer's state belongs to it already */

    /* the optimizer at hand */
    uint32_t groups;             /* node of its param_groups */
    ckpi_match_param *param;
    slot *slot;
    uint32_t *to;
    size_t n_params;
    /* the model at hand */
    ckpi_match_entry *entry;
    uint32_t *tensor;            /* of each entry */
    size_t n_entries;
} matcher;

static void CKPI_PRINTF(2, 3)
say(const matcher *m, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    if (m->notice == NULL)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    m->notice(m->user, text);
}

static ckp_status
no_memory(const matcher *m)
{
    return ckpi_fail(m->err, CKP_ENOMEM, "matching optimizer state: out of memory");
}

static bool
is_float(const ckpi_tensor *t)
{
    const ckpi_dtype_info *info = ckpi_dtype_get(t->dtype);
    return info != NULL && info->kind == CKPI_KIND_FLOAT && info->bits >= 16;
}

/* ---- the optimizer ---- */

/* A float tensor under that key of a parameter's state, or NONE. */
static uint32_t
moment(const matcher *m, uint32_t state, const char *key)
{
    const uint32_t node = ckpi_node_get(&m->t, state, key);
    if (node == CKPI_NO_NODE || m->t.v[node].type != CKP_TREE_TENSOR)
        return NONE;
    const ckpi_tensor *t = &m->s->t[m->t.v[node].tensor];
    return is_float(t) && t->alias_of == CKPI_NO_TENSOR ? m->t.v[node].tensor : NONE;
}

static bool
same_shape(const ckpi_tensor *a, const ckpi_tensor *b)
{
    return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0);
}

/* What optimizers call the fp32 values of a parameter that is held in bf16 or fp16. */
static uint32_t
find_master(const matcher *m, uint32_t state)
{
    static const char *const key[] = {"master_param", "master_weight", "master", "fp32_param", "param_fp32", "main_param", "param"};

    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        const uint32_t t = moment(m, state, key[i]);
        if (t != NONE && m->s->t[t].dtype == CKP_F32)
            return t;
    }
    return NONE;
}

/* Adam's pair counts only if both have one shape; a lone first moment is a momentum (Lion). */
static void
read_slot(const matcher *m, uint32_t state, slot *s, ckpi_match_param *p)
{
    *s = (slot){NONE, NONE, NONE, find_master(m, state), ckpi_node_get(&m->t, state, "step")};
    const uint32_t first = moment(m, state, "exp_avg"), second = moment(m, state, "exp_avg_sq");
    if (first != NONE && second != NONE && same_shape(&m->s->t[first], &m->s->t[second])) {
        s->m = first;
        s->v = second;
    } else if (first != NONE && second == NONE) {
        s->momentum = first;
    } else {
        s->momentum = moment(m, state, "momentum_buffer");
    }
    const uint32_t t = s->m != NONE ? s->m : s->momentum;
    if (t != NONE) {
        p->ndim = m->s->t[t].ndim;
        p->shape = m->s->t[t].shape;
    }
}

static uint64_t
key_hash(const ckpi_node *k)
{
    return k->type == CKP_TREE_INT ? ckpi_hash64(&k->u.i, sizeof k->u.i) : ckpi_hash64(k->u.s.p, k->u.s.n);
}

static bool
same_key(const ckpi_node *a, const ckpi_node *b)
{
    if (a->type != b->type)
        return false;
    return a->type == CKP_TREE_INT ? a->u.i == b->u.i : a->u.s.n == b->u.s.n && memcmp(a->u.s.p, b->u.s.p, a->u.s.n) == 0;
}

/* States by their key: an id, or a name in optimizers that were saved by name. */
static bool
index_states(const matcher *m, uint32_t state, ckpi_hindex *ix)
{
    uint32_t key = state + 1;
    for (uint64_t k = 0; k < m->t.v[state].count; k++) {
        const ckpi_node *n = &m->t.v[key];
        if ((n->type == CKP_TREE_INT || n->type == CKP_TREE_STR) && !ckpi_hindex_put(ix, key_hash(n), key))
            return false;
        key = m->t.v[n->end].end;
    }
    return true;
}

static uint32_t
find_state(const matcher *m, const ckpi_hindex *ix, const ckpi_node *id)
{
    uint32_t row;
    for (size_t at = 0; (row = ckpi_hindex_next(ix, key_hash(id), &at)) != CKPI_HINDEX_NONE;)
        if (same_key(&m->t.v[row], id))
            return ckpi_node_inner(&m->t, m->t.v[row].end);
    return CKPI_NO_NODE;
}

static uint64_t
count_params(const matcher *m)
{
    uint64_t n = 0;
    uint32_t at = m->groups + 1;
    for (uint64_t k = 0; k < m->t.v[m->groups].count; k++, at = m->t.v[at].end)
        n += m->t.v[ckpi_node_get(&m->t, at, "params")].count;
    return n;
}

static char *
copy_name(matcher *m, const ckpi_node *n)
{
    return ckpi_io_arena_copy(&m->arena, n->u.s.p, n->u.s.n);
}

static ckp_status
read_group(matcher *m, uint32_t group, unsigned number, const ckpi_hindex *states)
{
    const uint32_t params = ckpi_node_get(&m->t, group, "params"), names = ckpi_node_get(&m->t, group, "param_names");
    const bool named = names != CKPI_NO_NODE && m->t.v[names].type == CKP_TREE_LIST && m->t.v[names].count == m->t.v[params].count;
    uint32_t at = params + 1, name = named ? names + 1 : 0;
    for (uint64_t k = 0; k < m->t.v[params].count; k++, at = m->t.v[at].end) {
        const ckpi_node *id = &m->t.v[at];
        ckpi_match_param *p = &m->param[m->n_params];
        *p = (ckpi_match_param){.group = number};
        m->slot[m->n_params] = (slot){NONE, NONE, NONE, NONE, CKPI_NO_NODE};
        const bool known = id->type == CKP_TREE_INT || id->type == CKP_TREE_STR;
        const uint32_t state = known ? find_state(m, states, id) : CKPI_NO_NODE;
        if (state != CKPI_NO_NODE)
            read_slot(m, state, &m->slot[m->n_params], p);
        const ckpi_node *text = named && m->t.v[name].type == CKP_TREE_STR ? &m->t.v[name] : id->type == CKP_TREE_STR ? id : NULL;
        if (text != NULL && (p->name = copy_name(m, text)) == NULL)
            return no_memory(m);
        if (named)
            name = m->t.v[name].end;
        m->n_params++;
    }
    return CKP_OK;
}

static ckp_status
read_optimizer(matcher *m, uint32_t optimizer)
{
    ckpi_hindex states = {0};
    m->groups = ckpi_node_get(&m->t, optimizer, "param_groups");
    m->n_params = 0;
    const size_t n = (size_t)count_params(m);
    m->param = ckpi_calloc(n, sizeof *m->param);
    m->slot = ckpi_calloc(n, sizeof *m->slot);
    m->to = ckpi_malloc(n, sizeof *m->to);
    ckp_status st = CKP_OK;
    if (m->param == NULL || m->slot == NULL || m->to == NULL || !index_states(m, ckpi_node_get(&m->t, optimizer, "state"), &states))
        st = no_memory(m);
    uint32_t at = m->groups + 1;
    for (uint64_t k = 0; k < m->t.v[m->groups].count && st == CKP_OK; k++, at = m->t.v[at].end)
        st = read_group(m, at, (unsigned)k, &states);
    ckpi_hindex_free(&states);
    return st;
}

static void
drop_optimizer(matcher *m)
{
    free(m->param);
    free(m->slot);
    free(m->to);
    m->param = NULL;
    m->slot = NULL;
    m->to = NULL;
}

/* ---- the model ---- */

static uint32_t
payload(const matcher *m, uint32_t tensor)
{
    return m->s->t[tensor].alias_of != CKPI_NO_TENSOR ? m->s->t[tensor].alias_of : tensor;
}

/* Floats that are no buffers, each payload once: what model.parameters() would give. */
static ckp_status
read_model(matcher *m, uint32_t model)
{
    uint8_t *seen = ckpi_calloc(m->s->n, 1);
    m->entry = ckpi_calloc((size_t)m->t.v[model].count, sizeof *m->entry);
    m->tensor = ckpi_calloc((size_t)m->t.v[model].count, sizeof *m->tensor);
    m->n_entries = 0;
    ckp_status st = seen == NULL || m->entry == NULL || m->tensor == NULL ? no_memory(m) : CKP_OK;
    uint32_t key = model + 1;
    for (uint64_t k = 0; k < m->t.v[model].count && st == CKP_OK; k++) {
        const uint32_t value = ckpi_node_inner(&m->t, m->t.v[key].end);
        const ckpi_node *n = &m->t.v[value];
        const char *name = copy_name(m, &m->t.v[key]);
        if (name == NULL) {
            st = no_memory(m);
        } else if (n->type == CKP_TREE_TENSOR && is_float(&m->s->t[n->tensor]) && !seen[payload(m, n->tensor)] && !ckpi_match_is_buffer(name)) {
            const ckpi_tensor *t = &m->s->t[n->tensor];
            seen[payload(m, n->tensor)] = 1;
            m->entry[m->n_entries] = (ckpi_match_entry){name, t->ndim, t->shape};
            m->tensor[m->n_entries++] = payload(m, n->tensor);
        }
        key = m->t.v[m->t.v[key].end].end;
    }
    free(seen);
    return st;
}

static void
drop_model(matcher *m)
{
    free(m->entry);
    free(m->tensor);
    m->entry = NULL;
    m->tensor = NULL;
}

static const char *
stripped(matcher *m, const char *name)
{
    const size_t n = strlen(name);
    char *s = ckpi_io_arena_get(&m->arena, n + 1, 1);
    if (s != NULL)
        (void)ckpi_match_strip(name, n, s);
    return s;
}

/* Names are compared without the prefixes of wrappers: a model may be saved bare and its optimizer from under torch.compile, or the reverse. */
static ckp_status
strip_names(matcher *m)
{
    for (size_t i = 0; i < m->n_entries; i++)
        if ((m->entry[i].name = stripped(m, m->entry[i].name)) == NULL)
            return no_memory(m);
    for (size_t k = 0; k < m->n_params; k++)
        if (m->param[k].name != NULL && (m->param[k].name = stripped(m, m->param[k].name)) == NULL)
            return no_memory(m);
    return CKP_OK;
}

/* ---- results ---- */

static size_t
count_matched(const matcher *m)
{
    size_t n = 0;
    for (size_t k = 0; k < m->n_params; k++)
        n += m->to[k] != NONE;
    return n;
}

static ckp_status
set_role(matcher *m, uint32_t tensor, ckp_role role, uint32_t owner)
{
    ckpi_tensor *t = &m->s->t[tensor];
    char *name = ckpi_strdup(m->s->t[owner].name);
    if (name == NULL)
        return no_memory(m);
    free(t->owner_name);
    t->owner_name = name;
    t->role = role;
    return CKP_OK;
}

/* A step counter: an int, a float or a tensor of one element. 0: none that counts. */
static ckp_status
read_step(const matcher *m, uint32_t node, uint64_t *step)
{
    uint8_t raw[8] = {0};
    double f = 0;
    *step = 0;
    if (node == CKPI_NO_NODE)
        return CKP_OK;
    const ckpi_node *n = &m->t.v[node];
    if (n->type == CKP_TREE_INT)
        f = n->u.i > 0 ? (double)n->u.i : 0;
    else if (n->type == CKP_TREE_FLOAT)
        f = n->u.f;
    else if (n->type == CKP_TREE_TENSOR) {
        const ckpi_tensor *t = &m->s->t[n->tensor];
        if (t->numel != 1 || (t->dtype != CKP_F32 && t->dtype != CKP_F64 && t->dtype != CKP_I64))
            return CKP_OK;
        const ckp_status st = ckpi_tensor_copy_out(t, 0, 1, raw, m->err);
        if (st != CKP_OK)
            return st;
        float f32;
        memcpy(&f32, raw, sizeof f32);
        memcpy(&f, raw, sizeof f);
        f = t->dtype == CKP_F32 ? (double)f32 : t->dtype == CKP_F64 ? f : (double)(int64_t)ckpi_ld64(raw);
    }
    if (f >= 1 && f < 9e15)
        *step = (uint64_t)f;
    return CKP_OK;
}

static bool
read_betas(const matcher *m, uint32_t group, double beta[2])
{
    const uint32_t node = ckpi_node_get(&m->t, group, "betas");
    if (node == CKPI_NO_NODE || (m->t.v[node].type != CKP_TREE_TUPLE && m->t.v[node].type != CKP_TREE_LIST) || m->t.v[node].count != 2)
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        const ckpi_node *n = &m->t.v[node + 1 + i];      /* scalars: one node each */
        if (n->type != CKP_TREE_FLOAT || !(n->u.f >= 0 && n->u.f < 1))
            return false;
        beta[i] = n->u.f;
    }
    return true;
}

static ckp_status
apply(matcher *m, size_t k, uint32_t group)
{
    const slot *s = &m->slot[k];
    const uint32_t owner = m->tensor[m->to[k]];
    double beta[2];
    uint64_t step = 0;
    ckp_status st = CKP_OK;
    m->owned[owner] = 1;
    m->s->t[owner].role = CKP_ROLE_WEIGHT;
    const bool half = m->s->t[owner].dtype == CKP_BF16 || m->s->t[owner].dtype == CKP_F16;
    if (half && s->master != NONE && same_shape(&m->s->t[s->master], &m->s->t[owner]))
        st = set_role(m, s->master, CKP_ROLE_MASTER, owner);
    if (st != CKP_OK)
        return st;
    if (s->momentum != NONE)
        return set_role(m, s->momentum, CKP_ROLE_MOMENTUM, owner);
    if (s->m == NONE)
        return CKP_OK;
    st = set_role(m, s->m, CKP_ROLE_M, owner);
    if (st == CKP_OK)
        st = set_role(m, s->v, CKP_ROLE_V, owner);
    if (st == CKP_OK)
        st = read_step(m, s->step, &step);
    if (st == CKP_OK && step != 0 && read_betas(m, group, beta))
        st = ckp_state_set_adam(m->s, m->s->t[owner].name, beta[0], beta[1], step, m->err);
    return st;
}

static ckp_status
apply_all(matcher *m)
{
    size_t k = 0;
    uint32_t group = m->groups + 1;
    ckp_status st = CKP_OK;
    for (uint64_t g = 0; g < m->t.v[m->groups].count && st == CKP_OK; g++, group = m->t.v[group].end) {
        size_t n = 0, left = 0;
        for (; k < m->n_params && m->param[k].group == g && st == CKP_OK; k++, n++) {
            if (m->to[k] != NONE && !m->owned[m->tensor[m->to[k]]])
                st = apply(m, k, group);
            else
                left += m->slot[k].m != NONE || m->slot[k].momentum != NONE;
        }
        if (left != 0 && st == CKP_OK)
            say(m, "optimizer state of param_groups[%llu]: %zu of its %zu parameters cannot be matched to the model's entries without doubt; they "
                "are stored losslessly", (unsigned long long)g, left, n);
    }
    return st;
}

/* ---- one optimizer ---- */

static ckp_status
try_model(matcher *m, uint32_t model)
{
    ckp_status st = read_model(m, model);
    if (st == CKP_OK)
        st = strip_names(m);
    return st == CKP_OK ? ckpi_match_solve(m->entry, m->n_entries, m->param, m->n_params, m->to, m->err) : st;
}

/* The likeliest of the models that fit best; two that fit equally well under unknown names are no match at all. */
static ckp_status
choose_model(matcher *m, const ckpi_candidate *c, size_t n, uint32_t *best)
{
    size_t most = 0;
    unsigned rank = 0;
    *best = CKPI_NO_NODE;
    for (size_t i = 0; i < n; i++) {
        const ckp_status st = try_model(m, c[i].node);
        const size_t matched = st == CKP_OK ? count_matched(m) : 0;
        drop_model(m);
        if (st != CKP_OK)
            return st;
        if (matched > most) {
            most = matched;
            rank = c[i].rank;
            *best = c[i].node;
        } else if (matched != 0 && matched == most && c[i].rank == rank && rank == CKPI_RANK_UNKNOWN) {
            *best = CKPI_NO_NODE;
        }
    }
    return CKP_OK;
}

static ckp_status
match_optimizer(matcher *m, uint32_t optimizer)
{
    ckpi_candidate c[CKPI_CANDIDATES_MAX];
    uint32_t model = CKPI_NO_NODE;
    const size_t n = ckpi_find_models(&m->t, m->parent, optimizer, c);
    ckp_status st = read_optimizer(m, optimizer);
    if (st == CKP_OK)
        st = choose_model(m, c, n, &model);
    if (st == CKP_OK && model == CKPI_NO_NODE)
        for (size_t k = 0; k < m->n_params; k++)
            m->to[k] = NONE;
    else if (st == CKP_OK)
        st = try_model(m, model);
    if (st == CKP_OK)
        st = apply_all(m);
    drop_model(m);
    drop_optimizer(m);
    return st;
}

/* Without an optimizer's state, a state_dict is what the file is about: its floats are weights. */
static void
mark_weights(matcher *m, uint32_t model)
{
    uint32_t key = model + 1;
    for (uint64_t k = 0; k < m->t.v[model].count; k++) {
        const ckpi_node *key_node = &m->t.v[key];
        const ckpi_node *n = &m->t.v[ckpi_node_inner(&m->t, key_node->end)];
        const char *name = copy_name(m, key_node);
        if (n->type == CKP_TREE_TENSOR && is_float(&m->s->t[n->tensor]) && name != NULL && !ckpi_match_is_buffer(name))
            m->s->t[n->tensor].role = CKP_ROLE_WEIGHT;
        key = m->t.v[key_node->end].end;
    }
}

/* An optimizer that keeps nothing yet says nothing about the file. */
static bool
has_state(const matcher *m, uint32_t optimizer)
{
    return m->t.v[ckpi_node_get(&m->t, optimizer, "state")].count != 0;
}

static ckp_status
match_all(matcher *m)
{
    size_t optimizers = 0;
    ckp_status st = CKP_OK;
    for (uint32_t i = 0; i < m->t.n && st == CKP_OK && optimizers < OPTIMIZERS_MAX; i++)
        if (ckpi_find_is_optimizer(&m->t, i) && has_state(m, i)) {
            optimizers++;
            st = match_optimizer(m, i);
        }
    for (uint32_t i = 0; i < m->t.n && optimizers == 0; i++)
        if (ckpi_find_is_model(&m->t, i))
            mark_weights(m, i);
    return st;
}

ckp_status
ckpi_match_state(ckp_state *s, ckpi_notice_fn notice, void *user, ckp_error *err)
{
    matcher m = {.s = s, .notice = notice, .user = user, .err = err};
    if (s->tree.len == 0 || s->n == 0)
        return CKP_OK;
    ckp_status st = ckpi_nodes_load(&m.t, s->tree.data, s->tree.len, err);
    if (st == CKP_OK) {
        m.parent = ckpi_find_parents(&m.t);
        m.owned = ckpi_calloc(s->n, 1);
        st = m.parent != NULL && m.owned != NULL ? match_all(&m) : no_memory(&m);
    }
    free(m.parent);
    free(m.owned);
    ckpi_nodes_free(&m.t);
    ckpi_io_arena_free(&m.arena);
    return st;
}
