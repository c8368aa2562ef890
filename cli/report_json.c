/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a report, all of them, as JSON on standard output. */
#include <stdlib.h>
#include <string.h>
#include "report.h"

static void
json_roles(cli_json *j, const report_point *p)
{
    cli_json_open(j, "stored_by_role", '{');
    for (int k = 0; k < CKP_ROLE_COUNT_; k++)
        if (p->stored_by_role[k] != 0)
            cli_json_u64(j, ckp_role_name((ckp_role)k), p->stored_by_role[k]);
    cli_json_close(j, '}');
    cli_json_u64(j, "overhead_bytes", p->overhead_bytes);
    cli_json_open(j, "bits_per_param", '{');
    for (int k = 0; k < REPORT_PARTS; k++)
        cli_json_num(j, report_part_name[k], report_bits(p, (double)p->part_bytes[k]));
    cli_json_num(j, "all", report_bits(p, (double)p->stored_bytes));
    cli_json_close(j, '}');
    cli_json_open(j, "rms_error_by_role", '{');
    for (int k = 0; k < CKP_ROLE_COUNT_; k++)
        if (p->max_error[k] > 0.0 && k != CKP_ROLE_V)
            cli_json_num(j, ckp_role_name((ckp_role)k), p->rms_error[k]);
    cli_json_close(j, '}');
    cli_json_open(j, "max_error_by_role", '{');
    for (int k = 0; k < CKP_ROLE_COUNT_; k++)
        if (p->max_error[k] > 0.0)
            cli_json_num(j, ckp_role_name((ckp_role)k), p->max_error[k]);
    cli_json_close(j, '}');
}

static void
json_series(cli_json *j, const char *key, const report_list *l, size_t i)
{
    cli_json_open(j, key, '{');
    for (size_t k = 0; k < l->n; k++)
        if (l->v[k].has[i])
            cli_json_double(j, l->v[k].name, l->v[k].value[i]);
    cli_json_close(j, '}');
}

/* Of the parameters of an optimizer whose moments stay in a few bits: [m, v], or one of a momentum alone. */
static void
json_widths(cli_json *j, const report_point *p)
{
    bool open = false;

    for (size_t i = 0; i < p->n_tensors; i++) {
        const report_tensor *t = &p->tensor[i];
        if (t->width[0] == 0)
            continue;
        if (!open)
            cli_json_open(j, "moment_bits", '{');
        open = true;
        char *name = cli_copy(t->name);
        name[strlen(name) - (sizeof REPORT_WIDTHS - 1)] = '\0';
        cli_json_open(j, name, '[');
        cli_json_u64(j, NULL, t->width[0]);
        if (t->width[1] != 0)
            cli_json_u64(j, NULL, t->width[1]);
        cli_json_close(j, ']');
        free(name);
    }
    if (open)
        cli_json_close(j, '}');
}

void
report_json_point(cli_json *j, const report *r, size_t i)
{
    const report_point *p = &r->point[i];

    cli_json_str(j, "dir", p->dir);
    cli_json_u64(j, "step", p->step);
    cli_json_u64(j, "sequence", p->sequence);
    cli_json_str(j, "kind", p->is_delta ? "delta" : "key");
    cli_json_u64(j, "chain_length", p->chain);
    cli_json_str(j, "base", p->base_dir[0] != '\0' ? p->base_dir : NULL);
    cli_json_str(j, "base_model", p->base_model);
    cli_json_str(j, "parent", p->parent_dir[0] != '\0' ? p->parent_dir : NULL);
    cli_json_str(j, "profile", ckp_profile_name(p->profile));
    cli_json_u64(j, "restore_count", p->restore_count);
    cli_json_u64(j, "saved_unix", p->saved_unix > 0 ? (uint64_t)p->saved_unix : 0);
    cli_json_str(j, "problem", p->problem);
    cli_json_u64(j, "stored_bytes", p->stored_bytes);
    cli_json_u64(j, "raw_bytes", p->raw_bytes);
    cli_json_u64(j, "params", p->params);
    cli_json_num(j, "ratio", (double)p->raw_bytes / (double)p->stored_bytes);
    if (p->looked)
        json_roles(j, p);
    json_series(j, "settings", &r->settings, i);
    json_series(j, "metrics", &r->metrics, i);
    json_widths(j, p);
}

void
report_json_odd(cli_json *j, const report *r)
{
    cli_json_open(j, "no_checkpoints", '[');
    for (size_t i = 0; i < r->n_odd && i < REPORT_ODD; i++) {
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "dir", r->odd[i].dir);
        cli_json_u64(j, "step", r->odd[i].step);
        cli_json_str(j, "what", r->odd[i].what);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

static void
json_tensors(cli_json *j, const report_point *p)
{
    cli_json_open(j, "tensors_of_newest", '[');
    for (size_t i = 0; p != NULL && i < p->n_tensors; i++) {
        const report_tensor *t = &p->tensor[i];
        cli_json_open(j, NULL, '{');
        cli_json_str(j, "name", t->name);
        cli_json_str(j, "role", ckp_role_name(t->role));
        cli_json_u64(j, "elements", t->numel);
        cli_json_u64(j, "stored_bytes", t->stored_bytes);
        cli_json_num(j, "bits_per_element", t->bits);
        cli_json_bool(j, "lossy", t->lossy);
        cli_json_num(j, "rms_rel_error", t->rms_error);
        cli_json_num(j, "max_rel_error", t->max_error);
        cli_json_close(j, '}');
    }
    cli_json_close(j, ']');
}

void
report_json_begin(cli_json *j, const report *r)
{
    cli_json_open(j, NULL, '{');
    cli_json_str(j, "path", r->path);
    cli_json_u64(j, "saves", report_committed(r));
    cli_json_u64(j, "damaged", report_bad(r));
    cli_json_open(j, "checkpoints", '[');
}

void
report_json(const report *r)
{
    cli_json j = {0};

    report_json_begin(&j, r);
    for (size_t i = 0; i < r->n; i++) {
        cli_json_open(&j, NULL, '{');
        report_json_point(&j, r, i);
        cli_json_close(&j, '}');
    }
    cli_json_close(&j, ']');
    report_json_odd(&j, r);
    json_tensors(&j, report_newest(r));
    cli_json_close(&j, '}');
}
