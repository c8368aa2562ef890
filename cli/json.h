/* SPDX-License-Identifier: Apache-2.0 */
/* JSON on standard output, written as it goes; one value a document, indented by two. */
#ifndef CLI_JSON_H
#define CLI_JSON_H
#include "ui.h"

typedef struct cli_json {
    unsigned depth;
    bool first;              /* nothing yet in the innermost container */
} cli_json;

/* key NULL inside arrays and for the document itself. */
void cli_json_open(cli_json *j, const char *key, char bracket);   /* '{' or '[' */
void cli_json_close(cli_json *j, char bracket);                   /* '}' or ']' */
void cli_json_str(cli_json *j, const char *key, const char *value);   /* NULL: null */
void cli_json_u64(cli_json *j, const char *key, uint64_t value);
void cli_json_num(cli_json *j, const char *key, double value);    /* what JSON cannot hold: null */
void cli_json_double(cli_json *j, const char *key, double value);  /* all digits; "NaN", "Infinity" and "-Infinity" as texts */
void cli_json_bool(cli_json *j, const char *key, bool value);
#endif
