/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the rearranged codec. Layout and reasons: README.md. */
#ifndef CKPI_CODEC_REARRANGED_H
#define CKPI_CODEC_REARRANGED_H
#include "base/buf.h"
#include "base/cursor.h"
#include "codec/codec.h"

/* Wire values. */
enum { CKPI_REARRANGED_STORED = 0, CKPI_REARRANGED_GROUPS = 1 };
enum { CKPI_REARRANGED_KIND_RUNS = 0 }; /* other kinds of a group are ids of codecs */

#define CKPI_REARRANGED_MAX 40                              /* FORMAT groups of one base value */
#define CKPI_REARRANGED_PARTS (CKPI_REARRANGED_MAX + 1)     /* and all others together, which is part 0 */
#define CKPI_REARRANGED_SLACK 64                            /* kernels store and load whole vectors behind each part */

/* Which values of the base have a part of their own: part i + 1 is value[i], rising as unsigned bytes. */
typedef struct ckpi_rearranged_plan {
    unsigned own;
    uint8_t value[CKPI_REARRANGED_MAX];
} ckpi_rearranged_plan;

/* What pays, by the entropies of a sample. Same on every machine. */
void ckpi_rearranged_choose(ckpi_rearranged_plan *plan, const uint8_t *code, const uint8_t *base, size_t n);

/* Elements of each part. */
void ckpi_rearranged_count(const ckpi_rearranged_plan *plan, const uint8_t *base, size_t n, size_t count[CKPI_REARRANGED_PARTS], uint32_t cpu);
/* Symbols code - base to the parts' places and back (code = symbol + base). at[] moves on. */
void ckpi_rearranged_split(const ckpi_rearranged_plan *plan, uint8_t **at, const uint8_t *code, const uint8_t *base, size_t n, uint32_t cpu);
void ckpi_rearranged_merge(const ckpi_rearranged_plan *plan, const uint8_t **at, uint8_t *code, const uint8_t *base, size_t n, uint32_t cpu);

/* n symbols of which `count` > 0 are not zero, as distances and values. out is sticky: CKP_ELIMIT when it has no room. */
CKP_MUST_USE ckp_status ckpi_runs_put(ckpi_buf *out, const uint8_t *sym, size_t n, size_t count, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_runs_get(ckpi_rd *in, uint8_t *sym, size_t n, ckpi_scratch *ws, uint32_t cpu, ckp_error *err);
#endif
