/* SPDX-License-Identifier: Apache-2.0 */
/* The grid of DynaQuant's configurations as a partial order: four axes, each from aggressive (0) to precise, and two metrics of pruning. */
#ifndef CKPI_PLAN_GRID_H
#define CKPI_PLAN_GRID_H
#include <ckpress/plan.h>

enum { CKPI_BINS = 0, CKPI_EMBEDDING = 1, CKPI_PRUNE = 2, CKPI_PROTECT = 3, CKPI_AXES = 4, CKPI_METRICS = 2 };
enum { CKPI_GRID = CKP_SEARCH_CONFIGS, CKPI_NO_CONFIG = -1 };

/* Where a configuration lies. */
typedef struct ckpi_at {
    int axis[CKPI_AXES];
    int metric;
} ckpi_at;

/* How many values an axis has. */
int ckpi_grid_length(int axis);
ckpi_at ckpi_grid_at(int id);
/* Of a place inside the grid. Where nothing is pruned: the one by magnitude. */
int ckpi_grid_id(const ckpi_at *at);
/* Whether a is at least as precise as b in every axis, and they are comparable: of one metric, or a prunes nothing. */
bool ckpi_at_covers(const ckpi_at *a, const ckpi_at *b);
bool ckpi_grid_covers(int a, int b);
#endif
