/* SPDX-License-Identifier: Apache-2.0 */
/* Text and tables of an HTML page. Whatever comes from files goes through cli_html_text or cli_html_name. */
#ifndef CLI_HTML_H
#define CLI_HTML_H
#include "ui.h"

/* With & < > " ' as entities; control characters and what is no UTF-8 become U+FFFD. Fit for attribute values in quotes too. */
void cli_html_text(FILE *f, const char *text);
/* The same of a name from a file; one of more than 240 bytes without its middle, so that no name makes a page long. */
void cli_html_short(FILE *f, const char *name);
/* That as an element that keeps its writing direction to itself. */
void cli_html_name(FILE *f, const char *name);

/* "1,234,567" */
const char *cli_html_count(cli_text *t, uint64_t n);
/* Up to four digits; an en dash for NaN. */
const char *cli_html_number(cli_text *t, double v);
/* "2026-11-28 08:47:54" in UTC, or an en dash. */
const char *cli_html_time(cli_text *t, int64_t unix_seconds);

/* <table> with a caption and headings; align: 'l' or 'r' a column. Cells are written one after another, rows end by themselves. */
typedef struct cli_html_table { FILE *f; const char *align; size_t at; } cli_html_table;
void cli_html_table_begin(cli_html_table *t, FILE *f, const char *caption, const char *align, const char *const *head);
void cli_html_cell(cli_html_table *t, const char *text);
void cli_html_cell_name(cli_html_table *t, const char *name);
void cli_html_cell_number(cli_html_table *t, double v);
void cli_html_cell_count(cli_html_table *t, uint64_t n);
void cli_html_table_end(cli_html_table *t);
#endif
