/* SPDX-License-Identifier: Apache-2.0 */
/* torch.save's files: a pickle that describes tensors, and the storages they are views of. */
#ifndef CKPI_IO_TORCH_H
#define CKPI_IO_TORCH_H
#include "io/foreign.h"
#include "io/pickle/pickle.h"

/*
 * The unpickled object as a state: tensors with their names and aliases, and the tree. Storages must have been placed.
 * p: for its length, which bounds what repeated references may unfold to.
 */
CKP_MUST_USE ckp_status ckpi_pt_emit(ckpi_foreign *f, const ckpi_pickle *p, ckpi_pv *root, ckp_error *err);

/* Names of tensors: the path to them, keys joined by "/" (emit_names.c). */
typedef struct ckpi_path { ckpi_buf text; } ckpi_path;
/* Appends a key; *mark is what ckpi_path_pop needs. index: its place among its siblings, for keys that have no text. */
void ckpi_path_push(ckpi_path *path, const ckpi_pv *key, uint64_t index, size_t *mark);
void ckpi_path_push_index(ckpi_path *path, uint64_t index, size_t *mark);
void ckpi_path_push_text(ckpi_path *path, const char *text, size_t *mark);
void ckpi_path_pop(ckpi_path *path, size_t mark);
/* The path as a tensor's name that no other tensor of the state has; NUL-terminated, in the arena. *tried: names that were taken. NULL on lack of memory. */
char *ckpi_path_name(const ckpi_path *path, const ckp_state *s, ckpi_io_arena *a, unsigned *tried);
#endif
