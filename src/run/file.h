/* SPDX-License-Identifier: Apache-2.0 */
/* Single files: outputs that appear whole or not at all, and a state written to one. */
#ifndef CKPI_RUN_FILE_H
#define CKPI_RUN_FILE_H
#include <ckpress/run_file.h>
#include "engine/encode.h"
#include "os/host.h"
#include "run/checkpoint.h"
#include "run/copies.h"
#include "run/profile.h"

/* A path or "-" (standard output). Until commit a file has a temporary name in the same directory. */
typedef struct ckpi_out {
    ckpi_writer *w;
    ckpi_fs *fs;                 /* NULL: a pipe */
    char *dir;
    char *path;                  /* links followed */
    const char *name;            /* in path */
    char tmp[CKPI_TMP_MAX];
    bool replace;
} ckpi_out;
/* like: a file whose permissions the new one may not exceed, or NULL. */
CKP_MUST_USE ckp_status ckpi_out_open(ckpi_out *o, const char *path, bool replace, const char *like, ckp_error *err);
/* CKP_EINVAL where a path names a file that ck is read from, from level `first` of its chain on, or its base model. ck may be NULL. */
CKP_MUST_USE ckp_status ckpi_out_spares(const ckp_checkpoint *ck, size_t first, const char *path, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_out_commit(ckpi_out *o, ckp_error *err);
void ckpi_out_free(ckpi_out *o);           /* uncommitted: nothing stays */

/* Seals the state and writes one .ckp; base NULL: a key. derive: copies of masters are not stored. n_lossy (may be NULL): tensors that were coded lossily. */
CKP_MUST_USE ckp_status ckpi_state_write(ckpi_writer *w, ckp_state *s, const ckp_coding *coding, ckp_checkpoint *base, ckpi_packing packing,
                                         bool derive, uint64_t *n_lossy, ckp_error *err);
/* Its two halves: the predictor, and everything that the file holds, from a prepared pass on. quantized_w: as in ckpi_encode_job. */
CKP_MUST_USE ckp_status ckpi_state_pred(ckpi_pred **out, const ckp_state *s, const ckpi_settings *set, const ckp_coding *coding,
                                        ckpi_packing packing, const ckpi_copies *copies, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_state_encode(ckpi_ctx *ctx, ckpi_writer *w, const ckpi_pass *pass, const ckp_coding *coding, ckp_checkpoint *base,
                                          uint64_t *quantized_w, ckp_error *err);
/* The unit of a checkpoint with exactly the pieces and kinds of a group; NULL when it is laid out otherwise. */
const ckpi_unit *ckpi_unit_of_group(const ckp_checkpoint *ck, const ckpi_group *g);
#endif
