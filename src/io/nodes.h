/* SPDX-License-Identifier: Apache-2.0 */
/* A state tree with random access: the nodes in a row, each with where its value ends. */
#ifndef CKPI_IO_NODES_H
#define CKPI_IO_NODES_H
#include <ckpress/state.h>
#include "base/buf.h"

/* Values that follow a node, right below it: of a dict keys and values. */
uint64_t ckpi_tree_children(const ckp_tree_node *n);

typedef struct ckpi_node {
    ckp_tree_type type;
    uint32_t end;                /* index of the node after this value */
    uint32_t tensor;
    uint64_t count;
    union { int64_t i; double f; struct { const char *p; size_t n; } s; } u;
} ckpi_node;

typedef struct ckpi_nodes { ckpi_node *v; size_t n; } ckpi_nodes;

/* Texts point into the tree. *out is empty on failure. */
CKP_MUST_USE ckp_status ckpi_nodes_load(ckpi_nodes *out, const void *tree, size_t len, ckp_error *err);
void ckpi_nodes_free(ckpi_nodes *n);

#define CKPI_NO_NODE UINT32_MAX
/* The node that matters: an OrderedDict with attributes stands for its items, a frozen Parameter for its tensor. */
uint32_t ckpi_node_inner(const ckpi_nodes *t, uint32_t i);
bool ckpi_node_is_dict(const ckpi_nodes *t, uint32_t i);
bool ckpi_node_is_text(const ckpi_nodes *t, uint32_t i, const char *text);
/* Value of a dict under a text key, seen through ckpi_node_inner; CKPI_NO_NODE when absent or no dict. */
uint32_t ckpi_node_get(const ckpi_nodes *t, uint32_t dict, const char *key);
/*
 * for (uint32_t at = i + 1, k = 0; k < count; k++, at = t->v[at].end) walks the children; of a dict in turn keys and values.
 */
#endif
