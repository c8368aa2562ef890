/* SPDX-License-Identifier: Apache-2.0 */
/* Talking to people: errors, sizes, progress, signals. */
#ifndef CLI_UI_H
#define CLI_UI_H
#include <stdio.h>
#include "cli.h"

#if defined(__GNUC__)
#define CLI_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define CLI_PRINTF(a, b)
#endif

/* "ckpress: ..." on stderr; returns code. */
int cli_fail(int code, const char *format, ...) CLI_PRINTF(2, 3);
void cli_note(const char *format, ...) CLI_PRINTF(1, 2);
/* The exit code of a status. */
int cli_code(ckp_status st);
/* Tells the library's sentence on stderr; returns the exit code. CKP_OK: 0, silently. */
int cli_told(ckp_status st, const ckp_error *e);
/* The same of a command that does one thing after another: stopped by a signal, it has done some of them. */
int cli_told_part(ckp_status st, const ckp_error *e);

/* Text from files may hold control characters that a terminal would obey: they are shown as "?". */
void cli_safe(FILE *f, const char *text);
/* Length of the UTF-8 sequence at p, 0 when it is none: file names can be anything. */
size_t cli_utf8_len(const unsigned char *p);
/* Three digits: "21.3 MB" of 10^6 bytes, "112 M" without a unit. Returns buf. */
typedef struct cli_text { char s[32]; } cli_text;
const char *cli_size(cli_text *t, uint64_t bytes);
const char *cli_count(cli_text *t, uint64_t n);
const char *cli_ratio(cli_text *t, uint64_t raw, uint64_t stored);   /* "175x", "-" */
const char *cli_bits(cli_text *t, uint64_t bytes, uint64_t params);  /* "0.55", "-" */

/* "2026-11-30 12:00" in local time, or with seconds; "-" when it is not known. */
const char *cli_when(cli_text *t, int64_t unix_seconds, bool seconds);
/* "40 s", "12 min", "5 h", "3 d"; "-" for less than none: clocks differ. */
const char *cli_duration(cli_text *t, int64_t seconds);

/* Or the end of the process, with CLI_BUSY. */
void *cli_alloc(size_t n);
char *cli_copy(const char *s);
double cli_seconds(void);
bool cli_ends_with(const char *s, const char *end);

/* ---- signals ------------------------------------------------------------------------------------------------------ */

/* SIGINT, SIGTERM and SIGHUP ask for a stop at the next progress call; a second one ends the process at once. */
void cli_signals_catch(void);
int cli_signal(void);        /* the one that came, or 0 */

/* ---- progress ----------------------------------------------------------------------------------------------------- */

typedef struct cli_progress {
    const char *what;
    double started, shown;
    bool draw;
} cli_progress;
/* A bar on stderr when that is a terminal (or --progress), unless --quiet. */
void cli_progress_start(cli_progress *p, const cli_args *a, const char *what);
int cli_progress_step(void *progress, uint64_t done, uint64_t total);   /* a ckp_progress_fn */
/* Wipes the bar; returns the seconds since start. */
double cli_progress_end(cli_progress *p);
#endif
