/* SPDX-License-Identifier: Apache-2.0 */
/* What `diff` found: gathered once, then shown as tables or as JSON. */
#ifndef CLI_DIFF_H
#define CLI_DIFF_H
#include "place.h"

typedef struct diff_tensor {
    char *name;
    ckp_diff_tensor t;       /* its name is not valid any more; its shapes are this one's own */
    double relative;         /* RMS of the difference by A's RMS; infinite where that is 0, NaN without numbers */
} diff_tensor;

typedef struct diff_value { char *path, *a, *b; } diff_value;

typedef struct diff_role {
    uint64_t tensors, same, elements, differ;
    bool numbers;
    double max_abs, norm, norm_a;   /* norms: roots of the sums of squares */
} diff_role;

typedef struct cli_diff {
    const cli_args *a;
    const cli_place *place;  /* of A and B */
    bool has_step[2];
    uint64_t step[2];        /* of the checkpoints that were opened */
    diff_tensor *tensor;     /* the largest relative change first; identical ones last */
    size_t n, cap;
    diff_value *value;       /* those that differ */
    size_t n_values, values_cap;
    size_t count[5];         /* tensors by ckp_diff_kind */
    diff_role role[CKP_ROLE_COUNT_];
} cli_diff;

/* Whether there is any difference. */
bool diff_any(const cli_diff *d);
double diff_relative(double rms, double rms_a);

void diff_print(const cli_diff *d);
void diff_json(const cli_diff *d);
#endif
