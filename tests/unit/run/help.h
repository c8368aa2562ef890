/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that go away, states of a model saved and read back, and whole checkpoints as bytes in memory. */
#ifndef CKP_TESTS_RUN_HELP_H
#define CKP_TESTS_RUN_HELP_H
#include <ckpress/run.h>
#include <stdio.h>
#include <stdlib.h>
#include "harness/check.h"
#include "harness/sim.h"

#define OK_OR_FAIL(call)                                       \
    do {                                                       \
        if ((call) != CKP_OK)                                  \
            fail_msg("%s: %s", #call, err.text);               \
    } while (0)

/* Makes a directory of its own; free()d by help_remove, which removes all that is in it. */
char *help_dir(void);
void help_remove(char *dir);
/* path of a name below a directory; static memory, four at a time */
const char *help_path(const char *dir, const char *name);

typedef struct help_image { size_t n; char **name; uint8_t **data; size_t *len; } help_image;

/* Everything that a checkpoint holds; fails the test when it cannot be read. */
help_image *help_read(ckp_checkpoint *ck);
help_image *help_read_run(const char *dir, int64_t step);
void help_image_free(help_image *i);
bool help_same(const help_image *a, const help_image *b);
/* Whether it holds the model's bits, tensor by tensor. */
bool help_is_model(const help_image *i, const sim *m);

/* A model with tensors of most kinds, some hundred elements each (small) or some ten thousand. */
sim *help_model(uint64_t seed, bool small);

ckp_run *help_open(const char *dir, ckp_profile profile, unsigned key_every, unsigned keep_last);
/* Saves, waits, and fails the test on failure. opt may be NULL. */
void help_save(ckp_run *run, const sim *m, const ckp_save_options *opt);
ckp_status help_save_try(ckp_run *run, const sim *m, const ckp_save_options *opt, ckp_error *err);

/* Whole files. */
uint8_t *help_file(const char *path, size_t *len);
void help_write(const char *path, const void *p, size_t len);
/* Path of the shard of the checkpoint with a sequence number (1: the first), or of the newest with 0. */
char *help_shard(const char *dir, uint64_t sequence);
/* Checkpoints that `list` calls ok. */
size_t help_count(const char *dir);
#endif
