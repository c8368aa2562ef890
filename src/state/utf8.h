/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPI_STATE_UTF8_H
#define CKPI_STATE_UTF8_H
#include <stdbool.h>
#include <stddef.h>

/*
 * Well-formed UTF-8: shortest forms up to U+10FFFF. surrogates: lone surrogates as three bytes are allowed too, because Python strings
 * may hold them (its "surrogatepass").
 */
bool ckpi_utf8_ok(const void *p, size_t n, bool surrogates);
#endif
