/* SPDX-License-Identifier: Apache-2.0 */
/* Text tables on standard output: cells first, then printed with the widths they need. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H
#include "ui.h"

typedef struct cli_table {
    char **cell;             /* row by row */
    size_t n, cap, columns;
    const char *align;       /* 'l' or 'r' a column */
    struct cli_table_line *note;
    size_t n_notes, notes_cap;
} cli_table;
/* align, one letter a column, must outlive the table. */
void cli_table_init(cli_table *t, const char *align);
void cli_table_add(cli_table *t, const char *cell);
/* A line under the row that was added last, with the width that rows must not pass: long ones are broken between words. */
void cli_table_note(cli_table *t, const char *text);
/* Prints with every line indented by so many blanks, and frees. */
void cli_table_print(cli_table *t, unsigned indent);
void cli_table_free(cli_table *t);
#endif
