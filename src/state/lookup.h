/* SPDX-License-Identifier: Apache-2.0 */
/* What state.c looks up: tensors by name, payloads by address, Adam's constants by owner. Private to the room. */
#ifndef CKPI_STATE_LOOKUP_H
#define CKPI_STATE_LOOKUP_H
#include "state/hindex.h"
#include "state/state.h"

typedef struct ckpi_lookup { ckpi_hindex names, payloads, adam; } ckpi_lookup;

void ckpi_lookup_free(void *lookup);                              /* accepts NULL */
/* Indexes the row that is about to become s->t[s->n], and sets its alias_of. False on lack of memory: nothing was indexed. */
bool ckpi_lookup_add(ckp_state *s, ckpi_tensor *row);
/* Fills an empty index with the rows that stay, under their new numbers. False on lack of memory. */
bool ckpi_lookup_renumber(ckpi_lookup *fresh, const ckp_state *s, const uint32_t *to);
size_t ckpi_lookup_adam(const ckp_state *s, uint32_t owner);      /* row of s->adam, SIZE_MAX when absent */
bool ckpi_lookup_add_adam(ckp_state *s, uint32_t owner);          /* for the row that is about to become s->adam[s->n_adam] */
#endif
