/* SPDX-License-Identifier: Apache-2.0 */
/* zstd for tables, trees and indexes, with an optional prefix. Private to the room. */
#ifndef CKPI_FORMAT_ZPACK_H
#define CKPI_FORMAT_ZPACK_H
#include "base/buf.h"

/*
 * The most that `stored` bytes (and a prefix of `dict` bytes, which they may repeat) are believed to unpack to: what a section costs to
 * look at is bounded by what it brings. Writers store a section raw rather than pass this bound.
 */
uint64_t ckpi_zpack_most(uint64_t stored, uint64_t dict);
/* Appends the packed bytes. dict may be NULL. Same input, same bytes. */
CKP_MUST_USE ckp_status ckpi_zpack(ckpi_buf *out, const void *src, size_t n, const void *dict, size_t dict_len, ckp_error *err);
/* Exactly raw_len bytes into out (cleared first); CKP_ECORRUPT otherwise. One shot, so that no window is allocated on a frame's word. */
CKP_MUST_USE ckp_status ckpi_zunpack(ckpi_buf *out, size_t raw_len, const void *src, size_t n, const void *dict, size_t dict_len,
                                     ckp_error *err);
#endif
