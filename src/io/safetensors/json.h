/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict pull scanner for JSON (RFC 8259) in memory. No tree is built: a header of 100 MB would need gigabytes as one.
 * Sticky: after the first fault every call fails and the position stays.
 */
#ifndef CKPI_IO_JSON_H
#define CKPI_IO_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "io/arena.h"

typedef struct ckpi_json {
    const uint8_t *data;
    size_t len, pos;
    const char *fault;        /* NULL while all is well; a static sentence */
    bool no_memory;           /* the fault is ours */
} ckpi_json;

typedef struct ckpi_json_str { const char *p; size_t len; } ckpi_json_str;   /* unescaped; NUL behind it, and none inside */

/* The next byte that is no white space, not consumed; 0 at the end. */
uint8_t ckpi_json_peek(ckpi_json *j);
/* Consumes the byte c after white space; a fault if it is another. */
bool ckpi_json_take(ckpi_json *j, char c);
/* In a list or object that began already: true when another element follows (past its comma), false after consuming `close`. */
bool ckpi_json_more(ckpi_json *j, char close, bool first);
bool ckpi_json_string(ckpi_json *j, ckpi_io_arena *a, ckpi_json_str *out);
/* A non-negative integer without sign, fraction or exponent. */
bool ckpi_json_u64(ckpi_json *j, uint64_t *out);
/* Any value, checked and passed over. Nested at most max_depth deep. */
bool ckpi_json_skip(ckpi_json *j, ckpi_io_arena *a, unsigned max_depth);
bool ckpi_json_fail(ckpi_json *j, const char *fault);      /* marks a fault from outside; false */
#endif
