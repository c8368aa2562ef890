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
/* Opens the checkpoint that a place names; why newer ones were passed over is told on stderr. Exit code. */
int cli_place_open(ckp_checkpoint **out, const cli_place *p, const cli_args *a);

/* model.safetensors -> model.ckp. Owned by the caller. */
char *cli_name_packed(const char *in);
/* model.ckp -> model and the ending that fits what it was. */
char *cli_name_unpacked(const char *in, const ckp_checkpoint *ck);
/* Whether both are the same existing file. */
bool cli_same_file(const char *a, const char *b);
#endif
