/* SPDX-License-Identifier: Apache-2.0 */
/* Where in a state tree models and optimizers are, by what they look like: state_dicts as torch makes them. */
#ifndef CKPI_IO_MATCH_FIND_H
#define CKPI_IO_MATCH_FIND_H
#include "io/nodes.h"

/* A dict from texts to tensors (extra states may be anything). */
bool ckpi_find_is_model(const ckpi_nodes *t, uint32_t i);
/* {"state": {...}, "param_groups": [{"params": [...], ...}, ...]} */
bool ckpi_find_is_optimizer(const ckpi_nodes *t, uint32_t i);
/* Parents of all nodes; CKPI_NO_NODE for the root. Freed by free(). NULL on lack of memory. */
uint32_t *ckpi_find_parents(const ckpi_nodes *t);

typedef struct ckpi_candidate { uint32_t node; unsigned rank; } ckpi_candidate;      /* rank: 0 is the likeliest name */
#define CKPI_RANK_UNKNOWN 100u
#define CKPI_CANDIDATES_MAX 32u

/* Models beside an optimizer: in the nearest dict around it that holds any, or one level below that. Likeliest first. */
size_t ckpi_find_models(const ckpi_nodes *t, const uint32_t *parent, uint32_t optimizer, ckpi_candidate out[CKPI_CANDIDATES_MAX]);
#endif
