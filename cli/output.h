/* SPDX-License-Identifier: Apache-2.0 */
/* A file that appears whole under its name, or not at all; or standard output. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H
#include "ui.h"

typedef struct cli_output {
    FILE *f;
    const char *path;        /* must outlive this */
    char *tmp;               /* NULL: standard output */
    bool named;              /* there is a file of the name tmp */
    bool replace;
} cli_output;

/* Exit codes, told on stderr. */
int cli_output_open(cli_output *o, const char *path, bool replace);
int cli_output_put(cli_output *o, const void *p, size_t n);
/* fsync, then the name. */
int cli_output_commit(cli_output *o);
/* Removes what was not committed. */
void cli_output_free(cli_output *o);
#endif
