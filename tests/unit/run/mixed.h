/* SPDX-License-Identifier: Apache-2.0 */
/* A training in mixed precision for the tests of copies: weights of 16 bits, masters of 32, moments. */
#ifndef CKP_TESTS_RUN_MIXED_H
#define CKP_TESTS_RUN_MIXED_H
#include "model.h"

static const uint64_t SHAPE[4] = {48, 96}, LINE[4] = {40};

/* Who says that a master is one: it, by its owner; the copy, by its; nobody. */
typedef enum how { DECLARED, AS_COPY, UNDECLARED } how;

model_tensor *find(model *m, const char *name);
/* What the specification says, element by element. */
void round_to(model_tensor *copy, const model_tensor *master);
/* "w" and "line" in dtype with moments; "w/master" and "line/master" in f32. Undeclared, nothing says what belongs to what. */
void mixed(model *m, const char *seed, ckp_dtype dtype, how h);
/* Masters move a little; copies follow. */
void step(model *m);
/* Of the newest checkpoint. copy_of: 1 where it is the right one, else 0; no text. */
ckp_tensor_info info_of(const char *dir, const char *name);
/* Bit 2 of the features that are needed to read says that there are copies: older readers refuse such a file by it. */
bool needs_copies(const char *path);
/* Whether a tensor of the newest checkpoint, saved at step `at`, takes no bytes and says of what it is the copy. */
void assert_derived(const char *dir, uint64_t at, const char *name, bool want);
/* model_path's memory goes round. */
char *own_path(void **state, const char *name);
#endif
