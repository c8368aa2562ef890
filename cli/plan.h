/* SPDX-License-Identifier: Apache-2.0 */
/* Planning for the commands that take a budget: plan and compress. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H
#include "ui.h"

/* Whether the command line names a budget. */
bool cli_has_budget(const cli_args *a);
/* The profile to code with: with a budget, weights unless one was named. */
ckp_profile cli_profile(const cli_args *a);
/* CLI_OK, or CLI_USAGE (told): two budgets, or options that do not go with one. */
int cli_check_budget(const cli_args *a);
/* The plan for one file. notice may be NULL. */
ckp_status cli_plan_file(ckp_plan **out, const cli_args *a, const char *path, ckp_progress_fn progress, void *progress_user,
                         void (*notice)(void *user, const char *text), ckp_error *err);
/* "2 bits a parameter" ...: what was asked for. Returns buf. */
const char *cli_budget_text(cli_text *t, const cli_args *a);
#endif
