/* SPDX-License-Identifier: Apache-2.0 */
/* A run's checkpoints, from manifests and indexes: nothing is decoded but widths of moments (report_widths.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "report.h"

const char *const report_part_name[REPORT_PARTS] = {"weights", "m", "v", "rest"};
const char *const report_part_color[REPORT_PARTS] = {"#3b6fb6", "#d08b2c", "#4a9a5b", "#999999"};

static int
part_of(int role)
{
    switch (role) {
    case CKP_ROLE_WEIGHT:
    case CKP_ROLE_MASTER:
    case CKP_ROLE_AVERAGE:
    case CKP_ROLE_COPY: return REPORT_W;
    case CKP_ROLE_M:
    case CKP_ROLE_MOMENTUM: return REPORT_M;
    case CKP_ROLE_V: return REPORT_V;
    default: return REPORT_REST;
    }
}

/* Room for one more of `size` bytes; what is new is zero. */
static void *
grow(void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    const size_t more = *cap != 0 ? 2 * *cap : 64;
    void *grown = cli_alloc(more * size);
    if (n != 0)
        (void)memcpy(grown, v, n * size);
    free(v);
    *cap = more;
    return grown;
}

/* ---- series -------------------------------------------------------------------------------------------------------- */

const report_series *
report_find(const report_list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->v[i].name, name) == 0)
            return &l->v[i];
    return NULL;
}

/* Value of the newest point. Arrays are as long as points can be: cap of them. */
static void
put_value(const report *r, report_list *l, const ckp_metric *m)
{
    report_series *s = (report_series *)(uintptr_t)report_find(l, m->name);

    if (s == NULL && l->n == REPORT_NAMES) {
        l->cut = true;
        return;
    }
    if (s == NULL) {
        if (l->v == NULL)
            l->v = cli_alloc(REPORT_NAMES * sizeof *l->v);
        s = &l->v[l->n++];
        s->name = cli_copy(m->name);
        s->value = cli_alloc(r->cap * sizeof *s->value);
        s->has = cli_alloc(r->cap * sizeof *s->has);
        for (size_t i = 0; i < r->cap; i++)
            s->value[i] = (double)NAN;
    }
    s->value[r->n] = m->value;
    s->has[r->n] = true;
}

/* The points' array has grown: so do those beside it. */
static void
stretch(report_list *l, size_t from, size_t to)
{
    for (size_t i = 0; i < l->n; i++) {
        report_series *s = &l->v[i];
        double *value = cli_alloc(to * sizeof *value);
        bool *has = cli_alloc(to * sizeof *has);
        (void)memcpy(value, s->value, from * sizeof *value);
        (void)memcpy(has, s->has, from * sizeof *has);
        for (size_t k = from; k < to; k++)
            value[k] = (double)NAN;
        free(s->value);
        free(s->has);
        s->value = value;
        s->has = has;
    }
}

/* ---- one checkpoint ------------------------------------------------------------------------------------------------ */

static void
add_parts(report_point *p, const ckp_checkpoint_info *i)
{
    p->overhead_bytes = i->overhead_bytes;
    p->part_bytes[REPORT_REST] = i->overhead_bytes;
    for (int role = 0; role < CKP_ROLE_COUNT_; role++) {
        p->stored_by_role[role] = i->stored_by_role[role];
        p->part_bytes[part_of(role)] += i->stored_by_role[role];
        p->rms_error[role] = i->rms_error_by_role[role];
        p->max_error[role] = i->max_error_by_role[role];
    }
}

/* Names are mostly those of the checkpoint before, at the same places. */
static const char *
keep_name(report *r, const char *name, size_t index)
{
    for (size_t k = r->n; k-- > 0;) {
        const report_point *p = &r->point[k];
        if (p->tensor == NULL)
            continue;
        if (index < p->n_tensors && strcmp(p->tensor[index].name, name) == 0)
            return p->tensor[index].name;
        break;
    }
    r->name = grow(r->name, r->n_names, &r->names_cap, sizeof *r->name);
    return r->name[r->n_names++] = cli_copy(name);
}

static void
add_tensors(report *r, report_point *p, const ckp_checkpoint *ck)
{
    const size_t n = ckp_checkpoint_count(ck);

    p->tensor = cli_alloc(n * sizeof *p->tensor);
    for (size_t i = 0; i < n; i++) {
        ckp_tensor_info t = {.size = sizeof t};
        if (ckp_checkpoint_tensor(ck, i, &t, NULL) != CKP_OK || t.alias_of != UINT32_MAX || t.copy_of != UINT32_MAX)
            continue;
        p->tensor[p->n_tensors++] =
            (report_tensor){.name = keep_name(r, t.name, p->n_tensors), .role = t.role, .lossy = t.lossy, .numel = t.numel,
                            .stored_bytes = t.stored_bytes, .bits = t.bits_per_element, .rms_error = t.rms_rel_error, .max_error = t.max_rel_error};
    }
}

/* Evenly, and the newest for certain. */
static bool
is_look(const report *r)
{
    const size_t stride = (r->expected + REPORT_LOOKS - 1) / REPORT_LOOKS;
    return stride < 2 || r->n % stride == 0 || r->n + 1 >= r->expected;
}

static void
add_point(report *r, const ckp_list_entry *e, const ckp_checkpoint *ck, const ckp_error *why)
{
    const size_t cap = r->cap;
    ckp_metric m;

    r->point = grow(r->point, r->n, &r->cap, sizeof *r->point);
    if (r->cap != cap) {
        stretch(&r->settings, cap, r->cap);
        stretch(&r->metrics, cap, r->cap);
    }
    report_point *p = &r->point[r->n];
    *p = (report_point){.step = e->step, .sequence = e->sequence, .stored_bytes = e->stored_bytes, .raw_bytes = e->raw_bytes, .params = e->params,
                        .restore_count = e->restore_count, .saved_unix = e->saved_unix, .is_delta = e->is_delta, .chain = e->chain,
                        .profile = e->profile, .dir = cli_copy(e->dir), .base_dir = cli_copy(e->base_dir), .parent_dir = cli_copy(e->parent_dir),
                        .base_model = e->base_model != NULL ? cli_copy(e->base_model) : NULL};
    if (strcmp(e->health, "ok") != 0)
        p->problem = cli_copy(e->health);
    else if (ck == NULL)
        p->problem = cli_copy(why != NULL && why->text[0] != '\0' ? why->text : "cannot be opened");
    p->whole = p->problem == NULL;
    p->looked = ck != NULL;
    if (ck != NULL) {
        ckp_checkpoint_info i = {.size = sizeof i};
        ckp_checkpoint_get_info(ck, &i);
        add_parts(p, &i);
        if (r->tensors && is_look(r))
            add_tensors(r, p, ck);
    }
    for (size_t i = 0; ckp_list_entry_metric(e, i, &m); i++)
        put_value(r, &r->metrics, &m);
    for (size_t i = 0; ckp_list_entry_setting(e, i, &m); i++)
        put_value(r, &r->settings, &m);
    r->n++;
}

static int
take(void *user, const ckp_list_entry *e, const ckp_checkpoint *ck, const ckp_error *why)
{
    report *r = user;

    if (e->sequence != 0) {
        add_point(r, e, ck, why);
    } else {
        if (r->n_odd < REPORT_ODD)
            r->odd[r->n_odd] = (report_odd){cli_copy(e->dir), cli_copy(e->health), e->step};
        r->n_odd++;
    }
    return cli_signal();
}

static int
count(void *user, const ckp_list_entry *e)
{
    *(size_t *)user += e->sequence != 0;
    return cli_signal();
}

int
report_gather(report *r, const char *path, bool tensors)
{
    ckp_error e = {0};

    *r = (report){.path = path, .tensors = tensors};
    ckp_status st = ckp_run_list(path, count, &r->expected, &e);
    if (st == CKP_OK)
        st = ckp_run_inspect(path, take, r, &e);
    return st == CKP_OK && tensors ? report_gather_widths(r) : cli_told(st, &e);
}

static void
free_list(report_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].name);
        free(l->v[i].value);
        free(l->v[i].has);
    }
    free(l->v);
}

void
report_free(report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->point[i].dir);
        free(r->point[i].base_dir);
        free(r->point[i].parent_dir);
        free(r->point[i].base_model);
        free(r->point[i].problem);
        free(r->point[i].tensor);
    }
    for (size_t i = 0; i < r->n_odd && i < REPORT_ODD; i++) {
        free(r->odd[i].dir);
        free(r->odd[i].what);
    }
    for (size_t i = 0; i < r->n_names; i++)
        free(r->name[i]);
    free(r->name);
    free(r->point);
    free_list(&r->settings);
    free_list(&r->metrics);
    *r = (report){0};
}

/* ---- what is asked of it ------------------------------------------------------------------------------------------- */

const char *
report_title(const report *r)
{
    const char *name = r->path, *from = r->path;

    /* "runs/gpt/" has no last part of its own: what comes before the slash is said with it */
    for (; *from != '\0'; from++)
        if (*from == '/' && from[1] != '/' && from[1] != '\0')
            name = from + 1;
    return name;
}

const report_point *
report_point_of(const report *r, const char *dir)
{
    for (size_t i = r->n; i-- > 0;)
        if (strcmp(r->point[i].dir, dir) == 0)
            return &r->point[i];
    return NULL;
}

double
report_value(const report_list *l, const char *name, size_t i)
{
    const report_series *s = report_find(l, name);
    return s != NULL && s->has[i] ? s->value[i] : (double)NAN;
}

bool
report_is_exact(const report *r, size_t i)
{
    return report_value(&r->settings, "step", i) == 0.0;
}

bool
report_is_own(const char *name)
{
    return strncmp(name, "ckpress.", 8) == 0;
}

const report_point *
report_newest(const report *r)
{
    for (size_t i = r->n; i-- > 0;)
        if (r->point[i].tensor != NULL)
            return &r->point[i];
    return NULL;
}

const report_point *
report_newest_lossy(const report *r)
{
    for (size_t i = r->n; i-- > 0;)
        if (r->point[i].tensor != NULL && (r->point[i].rms_error[CKP_ROLE_WEIGHT] > 0.0 || r->point[i].rms_error[CKP_ROLE_MASTER] > 0.0))
            return &r->point[i];
    return report_newest(r);
}

uint64_t
report_committed(const report *r)
{
    uint64_t most = 0;
    for (size_t i = 0; i < r->n; i++)
        most = r->point[i].sequence > most ? r->point[i].sequence : most;
    return most;
}

size_t
report_bad(const report *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += !r->point[i].whole;
    return n;
}

/* Points of a slot, all slots alike but the last. */
static size_t
stride(const report *r)
{
    return r->n > REPORT_SLOTS ? (r->n + REPORT_SLOTS - 1) / REPORT_SLOTS : 1;
}

size_t
report_slots(const report *r)
{
    return (r->n + stride(r) - 1) / stride(r);
}

void
report_slot(const report *r, size_t slot, size_t *first, size_t *end)
{
    *first = slot * stride(r);
    *end = *first + stride(r) < r->n ? *first + stride(r) : r->n;
}

double
report_bits(const report_point *p, double bytes)
{
    return p->params != 0 ? 8.0 * bytes / (double)p->params : (double)NAN;
}
