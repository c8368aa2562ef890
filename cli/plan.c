/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include "plan.h"

bool
cli_has_budget(const cli_args *a)
{
    return a->target_bits > 0.0 || a->target_ratio > 0.0 || a->max_error > 0.0;
}

ckp_profile
cli_profile(const cli_args *a)
{
    return cli_has_budget(a) && !a->has_profile ? CKP_PROFILE_WEIGHTS : a->profile;
}

int
cli_check_budget(const cli_args *a)
{
    if ((a->target_bits > 0.0) + (a->target_ratio > 0.0) + (a->max_error > 0.0) > 1)
        return cli_fail(CLI_USAGE, "--target-bits, --target-ratio and --max-error are three budgets: one at a time.");
    if (a->has_profile && a->profile == CKP_PROFILE_LOSSLESS)
        return cli_fail(CLI_USAGE, "a budget is for a lossy profile, and --profile lossless is none.");
    if (a->quality != 1.0)
        return cli_fail(CLI_USAGE, "--quality scales the steps of a profile, but a budget chooses them.");
    if (a->n_base != 0)
        return cli_fail(CLI_USAGE, "a budget is for a file that stands alone: it cannot have a --base.");
    for (size_t i = 0; i < a->n_arg; i++)
        if (strcmp(a->arg[i], "-") == 0)
            return cli_fail(CLI_USAGE, "a budget needs a file: it is read more than once, and a pipe cannot be.");
    return CLI_OK;
}

ckp_status
cli_plan_file(ckp_plan **out, const cli_args *a, const char *path, ckp_progress_fn progress, void *progress_user,
              void (*notice)(void *user, const char *text), ckp_error *err)
{
    ckp_plan_options opt = CKP_PLAN_OPTIONS_INIT;

    opt.coding.profile = cli_profile(a);
    opt.coding.threads = a->threads;
    opt.coding.effort = a->effort;
    opt.coding.progress = progress;
    opt.coding.progress_user = progress_user;
    opt.target = a->target_bits > 0.0 ? CKP_PLAN_BITS : a->target_ratio > 0.0 ? CKP_PLAN_RATIO : CKP_PLAN_ERROR;
    opt.value = a->target_bits > 0.0 ? a->target_bits : a->target_ratio > 0.0 ? a->target_ratio : a->max_error;
    opt.notice = notice;
    return ckp_plan_file(out, path, &opt, err);
}

const char *
cli_budget_text(cli_text *t, const cli_args *a)
{
    if (a->target_bits > 0.0)
        (void)snprintf(t->s, sizeof t->s, "%.4g bits a parameter", a->target_bits);
    else if (a->target_ratio > 0.0)
        (void)snprintf(t->s, sizeof t->s, "%.4gx", a->target_ratio);
    else
        (void)snprintf(t->s, sizeof t->s, "an error of %.4g", a->max_error);
    return t->s;
}
