/* SPDX-License-Identifier: Apache-2.0 */
/* A training of several ranks: what each of them does, for ranks_run. */
#ifndef CKP_TESTS_RUN_GROUPS_H
#define CKP_TESTS_RUN_GROUPS_H
#include "model.h"
#include "ranks.h"

#define WORLD 4u
#define SAVES 5

typedef struct training {
    const char *dir;
    const ckp_objects *objects[RANKS_MAX];   /* NULL: the directory */
    ckp_profile profile;
    unsigned key_every;
    model m[RANKS_MAX];          /* of each rank: tensors of its own */
    ckp_run *run[RANKS_MAX];
    int64_t step;                /* to restore */
    unsigned odd;                /* a rank that does something else */
    unsigned saves;
    char found[RANKS_MAX][256], notes[RANKS_MAX][2048];
    bool key[RANKS_MAX];
    bool equal[RANKS_MAX];
} training;

/* A model for each rank, with tensors of its own and one whose name all have. */
void group_make_models(training *t, unsigned world);
void group_free_models(training *t, unsigned world);
/* For ranks_run: */
ckp_status group_open_rank(ranks *r, unsigned rank);
ckp_status group_close_rank(ranks *r, unsigned rank);
ckp_status group_save_rank(ranks *r, unsigned rank);
void group_train(training *t, unsigned world);
void group_all_ok(const ranks *r);
void group_step(ranks *r);
/* The same answer everywhere, and it names the rank. */
void group_all_say(const ranks *r, ckp_status want, const char *text);
/* Restores into a copy of the rank's model, which it becomes; t->equal: it is as it was. */
ckp_status group_restore_rank(ranks *r, unsigned rank);
/* For ckp_run_list: the last whole one into char[256]; how many are whole. */
int group_last_dir(void *user, const ckp_list_entry *e);
int group_count_ok(void *user, const ckp_list_entry *e);
#endif
