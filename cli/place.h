/* SPDX-License-Identifier: Apache-2.0 */
/* What an argument names: a .ckp file, a run, or one checkpoint of a run (RUN@STEP). */
#ifndef CLI_PLACE_H
#define CLI_PLACE_H
#include "ui.h"

typedef struct cli_place {
    char *path;              /* owned: file, or the run's directory */
    bool is_run, has_step;
    int64_t step;            /* CKP_STEP_NEWEST without @STEP */
} cli_place;

int cli_place_parse(cli_place *p, const char *arg);
void cli_place_free(cli_place *p);
/* --base for a run: where its base model is now; NULL: where it was. */
const char *cli_base_model(const cli_args *a);
/* Opens the checkpoint that a place names; why newer ones were passed over is told on stderr. Exit code. */
int cli_place_open(ckp_checkpoint **out, const cli_place *p, const cli_args *a);

/* model.safetensors -> model.ckp. Owned by the caller. */
char *cli_name_packed(const char *in);
/* model.ckp -> model and the ending that fits what it was. */
char *cli_name_unpacked(const char *in, const ckp_checkpoint *ck);
/* runs/gpt/ and step 7 -> runs/gpt@7.pt */
char *cli_name_of_step(const char *run, uint64_t step);
/* Where an output goes: --output, or `made` in it when that is a directory, or `made`. NULL: --output is no directory though it ends in "/". */
char *cli_output_path(const cli_args *a, const char *made);
/* Whether --output names a directory to put files into. */
bool cli_output_is_dir(const cli_args *a);
/* Whether two outputs, which need not exist, would be one. */
bool cli_same_target(const char *a, const char *b);
/* Whether both are the same existing file. */
bool cli_same_file(const char *a, const char *b);
#endif
