/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest checkpoint, with its chain since the key, as files in shared memory: they outlive the process, so a training that was killed restores without
 * asking its disk or object store for more than manifests (docs/runs.md, "In memory").
 *
 *     begin -> put ... -> finish -> [commit in the store] -> commit
 *                   \-> abort (any time)
 *
 * Nothing here can fail a save or a restore: a copy is there or it is not, and `note` says why not. Nothing here is believed: what is read counts
 * only with the length and hash that the store's manifest states.
 */
#ifndef CKPI_RUN_MEMORY_H
#define CKPI_RUN_MEMORY_H
#include "format/manifest.h"
#include "os/os.h"

#define CKPI_MEMORY_NAME 160
#define CKPI_MEMORY_TMP 192
#define CKPI_MEMORY_USUAL ((uint64_t)512 << 20)

typedef struct ckpi_memory_ask {
    const char *base;            /* directory of shared memory */
    int64_t user;                /* whose files to trust */
    ckpi_id run;
    const char *place;           /* of the run: copies of one run in two places are two */
    uint64_t budget;             /* 0: none */
    unsigned room;               /* there must be so many times the budget left */
} ckpi_memory_ask;

typedef struct ckpi_memory {
    ckpi_fs *fs;                 /* NULL: none */
    char base[64], dir[160];
    uint64_t budget;
    uint64_t used;               /* by files that are there, temporaries left out */
    ckpi_buf kept;               /* names of the newest checkpoint's chain, each with its NUL */
    ckpi_writer *writer;         /* of the copy that is being written; NULL: it was given up */
    char name[CKPI_MEMORY_NAME];
    bool key, there;             /* the copy at hand: of a key; published */
    char note[160];              /* why there is no copy, or not of all; "" */
} ckpi_memory;

/* Also takes away what dead runs of the same user have left, where that is old or there is no room. */
void ckpi_memory_open(ckpi_memory *m, const ckpi_memory_ask *ask);
/* keep: the files stay, as after a crash. */
void ckpi_memory_close(ckpi_memory *m, bool keep);

void ckpi_memory_begin(ckpi_memory *m, const char *dir, const char *file, bool key);
/* For ckpi_writer_watch. */
void ckpi_memory_put(void *memory, const void *p, size_t n);
/* The shard is durable. */
void ckpi_memory_finish(ckpi_memory *m);
/* The checkpoint is committed: what is not of its chain goes. */
void ckpi_memory_commit(ckpi_memory *m);
void ckpi_memory_abort(ckpi_memory *m);
/* The chain of a checkpoint that training goes on from: names, each with its NUL. */
void ckpi_memory_adopt(ckpi_memory *m, const ckpi_buf *names);

/* Name of a shard's copy; false: too long to have one. */
bool ckpi_memory_name(char out[CKPI_MEMORY_NAME], const char *dir, const char *file);
/* A reader of the copy of that shard, if there is one of that length and hash; else NULL. */
ckpi_reader *ckpi_memory_reader(ckpi_fs *fs, const char *dir, const ckpi_shard_ref *shard);
#endif
