/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress diff: what changed between two checkpoints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "diff.h"

bool
diff_any(const cli_diff *d)
{
    return d->count[CKP_DIFF_SAME] != d->n || d->n_values != 0;
}

double
diff_relative(double rms, double rms_a)
{
    return rms == 0.0 ? 0.0 : rms_a > 0.0 ? rms / rms_a : (double)INFINITY;
}

/* ---- gathering ------------------------------------------------------------------------------------------------------- */

/* Room for one more of `size` bytes. */
static void *
grow(void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    *cap = *cap != 0 ? 2 * *cap : 64;
    void *grown = cli_alloc(*cap * size);
    if (n != 0)
        (void)memcpy(grown, v, n * size);
    free(v);
    return grown;
}

static const uint64_t *
copy_shape(const uint64_t *shape, unsigned ndim)
{
    uint64_t *out = cli_alloc(ndim * sizeof *out);

    if (ndim != 0)
        (void)memcpy(out, shape, ndim * sizeof *out);
    return out;
}

/* Elements under two names count once. */
static void
add_to_role(diff_role *r, const ckp_diff_tensor *t)
{
    const double root = sqrt((double)t->numel);

    if ((t->kind != CKP_DIFF_SAME && t->kind != CKP_DIFF_VALUES) || t->alias)
        return;
    r->tensors++;
    r->same += t->kind == CKP_DIFF_SAME;
    r->elements += t->numel;
    r->differ += t->differ;
    r->numbers = r->numbers || t->numbers;
    r->max_abs = fmax(r->max_abs, t->max_abs);
    r->norm = hypot(r->norm, t->rms * root);
    r->norm_a = hypot(r->norm_a, t->rms_a * root);
}

static int
take_tensor(void *user, const ckp_diff_tensor *t)
{
    cli_diff *d = user;

    d->tensor = grow(d->tensor, d->n, &d->cap, sizeof *d->tensor);
    diff_tensor *x = &d->tensor[d->n++];
    *x = (diff_tensor){.name = cli_copy(t->name), .t = *t};
    x->t.name = NULL;
    x->t.shape_a = copy_shape(t->shape_a, t->ndim_a);
    x->t.shape_b = copy_shape(t->shape_b, t->ndim_b);
    x->relative = t->numbers ? diff_relative(t->rms, t->rms_a) : (double)NAN;
    d->count[t->kind]++;
    add_to_role(&d->role[t->role], t);
    return cli_signal();
}

static int
take_value(void *user, const ckp_diff_value *v)
{
    cli_diff *d = user;

    d->value = grow(d->value, d->n_values, &d->values_cap, sizeof *d->value);
    d->value[d->n_values++] = (diff_value){cli_copy(v->path), v->a != NULL ? cli_copy(v->a) : NULL, v->b != NULL ? cli_copy(v->b) : NULL};
    return cli_signal();
}

/* Where a tensor stands: what became NaN or infinite above all, then by relative change, then what has no numbers, then identical ones. */
static double
weight_of(const diff_tensor *x)
{
    if (x->t.kind != CKP_DIFF_VALUES)
        return x->t.kind == CKP_DIFF_SAME ? -2.0 : -1.5;
    if (!x->t.numbers)
        return -1.0;
    return x->t.not_finite != 0 ? (double)INFINITY : x->relative;
}

static int
by_change(const void *x, const void *y)
{
    const diff_tensor *a = x, *b = y;
    const double u = weight_of(a), v = weight_of(b);

    return u != v ? (u > v ? -1 : 1) : strcmp(a->name, b->name);
}

static void
free_diff(cli_diff *d)
{
    for (size_t i = 0; i < d->n; i++) {
        free(d->tensor[i].name);
        free((void *)(uintptr_t)d->tensor[i].t.shape_a);
        free((void *)(uintptr_t)d->tensor[i].t.shape_b);
    }
    for (size_t i = 0; i < d->n_values; i++) {
        free(d->value[i].path);
        free(d->value[i].a);
        free(d->value[i].b);
    }
    free(d->tensor);
    free(d->value);
}

/* ---- the two sides --------------------------------------------------------------------------------------------------- */

/* A run's checkpoint is opened here, a file by the library, which sees what kind it is. */
static int
open_side(cli_diff *d, int i, ckp_diff_side *side)
{
    const cli_place *p = &d->place[i];
    ckp_checkpoint_info info = {.size = sizeof info};

    if (!p->is_run) {
        *side = (ckp_diff_side){.path = p->path, .bases = d->a->base, .n_bases = d->a->n_base};
        return CLI_OK;
    }
    const int code = cli_place_open(&side->ck, p, d->a);
    if (code == CLI_OK) {
        ckp_checkpoint_get_info(side->ck, &info);
        d->has_step[i] = true;
        d->step[i] = info.step;
    }
    return code;
}

static int
compare(cli_diff *d, const ckp_diff_side *side)
{
    ckp_diff_options opt = CKP_DIFF_OPTIONS_INIT;
    cli_progress p;
    ckp_error e = {0};

    opt.tensor = take_tensor;
    opt.value = take_value;
    opt.user = d;
    opt.only = d->a->only;
    opt.progress = cli_progress_step;
    opt.progress_user = &p;
    cli_progress_start(&p, d->a, "compare");
    const ckp_status st = ckp_diff(&side[0], &side[1], &opt, &e);
    (void)cli_progress_end(&p);
    if (st == CKP_OK && d->n != 0)
        qsort(d->tensor, d->n, sizeof *d->tensor, by_change);
    return cli_told(st, &e);
}

static int
diff(const cli_args *a)
{
    cli_place place[2] = {{0}, {0}};
    ckp_diff_side side[2] = {{0}, {0}};
    cli_diff d = {.a = a, .place = place};

    int code = cli_place_parse(&place[0], a->arg[0]);
    if (code == CLI_OK)
        code = cli_place_parse(&place[1], a->arg[1]);
    for (int i = 0; code == CLI_OK && i < 2; i++)
        code = open_side(&d, i, &side[i]);
    if (code == CLI_OK)
        code = compare(&d, side);
    if (code == CLI_OK && a->json)
        diff_json(&d);
    else if (code == CLI_OK)
        diff_print(&d);
    if (code == CLI_OK && a->exit_code && diff_any(&d))
        code = CLI_DIFFERS;
    free_diff(&d);
    for (int i = 0; i < 2; i++) {
        ckp_checkpoint_close(side[i].ck);
        cli_place_free(&place[i]);
    }
    return code;
}

const cli_command cli_cmd_diff = {
    .name = "diff",
    .args = "A B",
    .summary = "Show what changed between two checkpoints or files",
    .text = "A and B are each a file (.ckp, safetensors, PyTorch's) or a RUN[@STEP]. Tensors belong together by name. For each whose elements differ:\n"
            "the share of elements with other bits, the largest difference, the RMS of B - A, and that RMS by A's own, the largest first; then what is\n"
            "in one only or has another type or shape, what changed by role, and plain values (steps, learning rates) by path. -0 is not 0, and a NaN\n"
            "equals one of the same bits; elements that are NaN or infinite are in no sum. Types that are no numbers are compared as bytes. Memory\n"
            "does not grow with the files. With --only, the tensors of one object of a run (model), also against a file of just those.\n"
            "The exit code is 0 whether there are differences or not; with --exit-code it is 7 when there are.\n"
            "\n"
            "  ckpress diff runs/gpt@10000 runs/gpt@12000\n"
            "  ckpress diff runs/gpt@10000 base.safetensors --only model\n"
            "  ckpress diff model.safetensors model.ckp --exit-code",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_ALL) | CLI_HAS(CLI_OPT_EXIT_CODE) | CLI_HAS(CLI_OPT_ONLY) | CLI_HAS(CLI_OPT_BASE) | CLI_HAS(CLI_OPT_JSON) |
               CLI_HAS(CLI_OPT_PROGRESS),
    .min_args = 2,
    .max_args = 2,
    .run = diff,
};
