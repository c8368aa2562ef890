/* SPDX-License-Identifier: Apache-2.0 */
/* What compress and decompress share: names, checks before the work, the summary after it. */
#ifndef CLI_CONVERT_H
#define CLI_CONVERT_H
#include "ui.h"

typedef struct cli_convert {
    const char *verb;
    bool binary_in;          /* standard input must not be a terminal; else it need not be checked */
    /* The default name of the output; NULL after an error that was told (exit code in *code). */
    char *(*name)(const char *in, const cli_args *a, int *code);
    ckp_status (*run)(const char *in, const char *out, const ckp_convert_options *opt, ckp_convert_result *res, ckp_error *err);
    bool packs;              /* the output is the smaller side */
} cli_convert;

/* Every argument in turn; goes on after a failure, whose exit code it returns (the first one's). */
int cli_convert_all(const cli_convert *c, const cli_args *a);
#endif
