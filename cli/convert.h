/* SPDX-License-Identifier: Apache-2.0 */
/* What compress and decompress share: names, checks before the work, the summary after it. */
#ifndef CLI_CONVERT_H
#define CLI_CONVERT_H
#include "place.h"

/* One argument and what becomes of it. */
typedef struct cli_job {
    const char *in;
    cli_place place;         /* of `in`; nothing in it for "-" */
    char *out;               /* owned; NULL after a failure that was told */
    int code;
} cli_job;

typedef struct cli_convert {
    const char *verb;
    bool packs;              /* the output is the smaller side; runs make no sense */
    /* The default name of the output; may fill in the step of a run. NULL after an error that was told (exit code in job->code). */
    char *(*name)(cli_job *job, const cli_args *a);
    ckp_status (*run)(const cli_args *a, const cli_job *job, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err);
} cli_convert;

/* Every argument in turn; goes on after a failure, whose exit code it returns (the first one's). */
int cli_convert_all(const cli_convert *c, const cli_args *a);
#endif
