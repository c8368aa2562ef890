/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that is open for reading: a resolved lineage and what is known about it. */
#ifndef CKPI_RUN_CHECKPOINT_H
#define CKPI_RUN_CHECKPOINT_H
#include <ckpress/run.h>
#include "engine/decode.h"
#include "run/base_model.h"
#include "run/place.h"
#include "store/store.h"

/* How a checkpoint of several writers is seen: all shards as one file, beginning with shard `lead` (or 0), or that shard alone where there are `of`. */
typedef struct ckpi_shards {
    uint32_t lead;
    uint32_t of;                 /* 0: never one alone */
    const char *memory;          /* directory of copies in shared memory (memory.h), to look in first; NULL: none. Of one writer */
} ckpi_shards;

struct ckp_checkpoint {
    int64_t pid;
    ckpi_store *store;           /* of the run; NULL for plain files */
    bool store_lent;             /* by who opened it; outlives it */
    ckpi_lineage *lin;
    ckpi_unit *unit;
    size_t n_units;
    uint32_t *unit_of;           /* by chunk of level 0 */
    char name[256];
    char *run_dir;               /* directory, or name of a run in objects; NULL for plain files */
    ckp_objects objects;         /* where the run lies, if on_objects */
    char *stage_dir;             /* what objects.stage_dir is */
    bool on_objects;
    ckpi_fs *memory;             /* of copies in shared memory; NULL: there is nothing */
    ckpi_buf memory_names;       /* of the chain's copies, each with its NUL */
    uint64_t from_memory;        /* bytes of the chain's files that are read there */
    ckpi_manifest *manifest;     /* NULL for plain files */
    ckpi_base_file model;        /* last of the lineage, where its key has a base model */
    char *model_path;            /* of that */
    ckpi_shards shards;          /* how it is to be opened */
    bool parts;                  /* opened by who has saved it: parts of tensors are read as such */
    bool model_fails;            /* it is not there: nothing is wrong with the checkpoint */
    ckpi_buf notes;              /* NUL-terminated */
};

CKP_MUST_USE ckp_status ckpi_checkpoint_check(const ckp_checkpoint *ck, ckp_error *err);
/* Of one that is of a run; valid while ck lives. */
ckpi_place ckpi_checkpoint_place(const ckp_checkpoint *ck);
/*
 * The last file of a chain, for a key whose manifest names a base model: from `given` (may be NULL), from the run's directory, or from where it
 * was. CKP_EBASE: not there, or another.
 */
CKP_MUST_USE ckp_status ckpi_checkpoint_open_model(ckp_checkpoint *ck, const ckpi_manifest *key, const ckpi_fmt_file *key_file, const char *given,
                                                   ckpi_fmt_file **out, ckp_error *err);
/* The same for plain files: of the paths given the first that is the base model of the chain in files[0 .. *n), if that begins on one; then the next of files. */
CKP_MUST_USE ckp_status ckpi_checkpoint_find_model(ckp_checkpoint *ck, ckpi_fmt_file **files, size_t *n, const char *const *paths, size_t n_paths,
                                                   ckp_error *err);
/* Of a directory of a run (no fall-back). shards may be NULL: all, as one. */
CKP_MUST_USE ckp_status ckpi_checkpoint_open_dir(ckp_checkpoint **out, const ckpi_place *run, const ckpi_shards *shards, const char *dir,
                                                 const char *base_model, bool verify_payload, ckp_error *err);
/* Of a restorable entry of a list, through the caller's store, which must outlive it. */
CKP_MUST_USE ckp_status ckpi_checkpoint_open_listed(ckp_checkpoint **out, ckpi_store *s, const ckpi_place *run, const ckpi_entries *all, size_t at,
                                                    const char *base_model, ckp_error *err);
/* Whether a failure says something about the files, not about memory, threads or a signal. */
bool ckpi_is_damage(ckp_status st);
/* Takes the opened files; fills lineage and units. */
CKP_MUST_USE ckp_status ckpi_checkpoint_from_files(ckp_checkpoint *ck, ckpi_fmt_file **files, size_t n, ckp_error *err);
/*
 * Whether a target can take its tensor: CKP_ENOTFOUND, CKP_EMISMATCH (dtype, shape), CKP_EUNSUPPORTED (a part of a tensor), or CKP_EINVAL (memory).
 * parts: a flat range may be read; its target has the whole tensor's shape, and memory for the range.
 */
CKP_MUST_USE ckp_status ckpi_target_check(const ckpi_table *t, const ckp_target *target, bool parts, ckp_error *err);
/* CKP_EUNSUPPORTED with the name of a tensor that a file holds a part of, where a whole one is promised. */
ckp_status ckpi_refuse_part(const ckpi_rec *r, ckp_error *err);
/* One shard of a checkpoint, which m lists and whose content id it must have. */
CKP_MUST_USE ckp_status ckpi_checkpoint_open_shard(ckpi_store *s, const char *dir, const ckpi_manifest *m, size_t shard, ckpi_fmt_file **out,
                                                   ckp_error *err);
/* Lineage and units of a chain whose last checkpoint has several shards, as ck->shards says. */
CKP_MUST_USE ckp_status ckpi_checkpoint_open_shards(ckp_checkpoint *ck, const ckpi_chain *ch, ckp_error *err);
/* Whether one shard alone is to be opened of a checkpoint. */
bool ckpi_shards_alone(const ckpi_shards *s, const ckpi_manifest *m);
/* The newest that opens with a sequence below `below`, or, step not CKP_STEP_NEWEST, the newest of that step. */
CKP_MUST_USE ckp_status ckpi_checkpoint_open_as(ckp_checkpoint **out, const ckpi_place *run, const ckpi_shards *shards, const char *base_model, int64_t step,
                                                uint64_t below, bool verify_payload, ckp_error *err);
/* Level whose file stores table and tree. */
const ckpi_fmt_file *ckpi_checkpoint_table_file(const ckp_checkpoint *ck);
#endif
