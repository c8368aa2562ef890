/* SPDX-License-Identifier: Apache-2.0 */
/* Finding frames in a damaged file. Private to the room. */
#ifndef CKPI_FORMAT_SCAN_H
#define CKPI_FORMAT_SCAN_H
#include "format/wire.h"

/*
 * The first place at or after `from` where a frame's head or the index's head proves itself by its hash. *left: bytes that all scans of a file may read
 * together, so that one made of heads that prove nothing does not cost its size squared; where they are used up nothing is found.
 */
CKP_MUST_USE ckp_status ckpi_scan(ckpi_reader *r, uint64_t from, uint64_t *left, uint64_t *place, bool *found, ckp_error *err);
#endif
