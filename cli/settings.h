/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint was coded with and found to lose, for `info`. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H
#include "json.h"

/* Of all tensors that are coded by one quantizer. */
typedef struct cli_quantizer {
    char name[16];
    uint64_t tensors;
    bool follows;            /* steps follow second moments */
    double low, high;        /* least and largest of what the quantizer's unit is, w: step, m: value of a code, v: octaves; 0: not said */
} cli_quantizer;

/* Of all tensors of a role that are in clusters. */
typedef struct cli_clustered { double n, mse, mre; } cli_clustered;

typedef struct cli_settings {
    cli_quantizer v[8];
    size_t n;
    cli_clustered role[CKP_ROLE_COUNT_];
} cli_settings;

/* From the parameters in the file, a chunk a tensor. Exit code. */
int cli_settings_gather(cli_settings *s, const ckp_checkpoint *ck);
/* Whether a metric is one that cli_recorded_print tells. */
bool cli_is_measured(const char *metric);
/* What was recorded and what was measured: a line each, where there is any. */
void cli_recorded_print(const ckp_checkpoint *ck);
/* The table of quantizers; nothing for lossless ones. */
void cli_settings_print(const cli_settings *s);
void cli_settings_json(cli_json *j, const cli_settings *s, const ckp_checkpoint *ck);

/* The measured losses of a run's checkpoints, the last few or all; nothing when none was measured. Exit code. */
int cli_measured_print(const char *run, bool all);
#endif
