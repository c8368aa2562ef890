/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest: the small JSON file that lists a checkpoint's shards and is, by being there, its commit
 * (docs/runs.md, "Manifest"). Parsing trusts nothing: own hash first, then every field, name and number.
 */
#ifndef CKPI_FORMAT_MANIFEST_H
#define CKPI_FORMAT_MANIFEST_H
#include <stdbool.h>
#include "base/buf.h"
#include "base/hash.h"

#define CKPI_MANIFEST_FORMAT 1u
#define CKPI_DIR_NAME_MAX 64       /* "step-" + 20 digits + "-" + 8 hex digits + NUL fits */

typedef struct ckpi_shard_ref {
    char *file;                    /* plain name inside the checkpoint's directory */
    uint64_t length;               /* bytes of the file */
    ckpi_id hash;                  /* XXH3-128 of the whole file: what `verify` needs, without knowing what is inside */
    ckpi_id content;               /* content id of the shard (docs/format.md) */
} ckpi_shard_ref;

typedef struct ckpi_metric {
    char *name;
    double value;                  /* may be NaN or infinite */
} ckpi_metric;

typedef enum ckpi_ckpt_kind { CKPI_CKPT_KEY = 0, CKPI_CKPT_DELTA = 1 } ckpi_ckpt_kind;

/* All strings and arrays are owned by the manifest (malloc). Fields marked (store) are filled by ckpi_store_commit. */
typedef struct ckpi_manifest {
    ckpi_id run_id;                /* (store) */
    uint64_t step;                 /* (store) at most INT64_MAX */
    uint64_t sequence;             /* (store) one more than the highest in the run; 1 for the first */
    uint32_t attempt;              /* (store) the hex digits at the end of the directory's name */
    uint64_t epoch;                /* (store) of the lock under which it was written */
    int64_t created;               /* (store) Unix seconds; information only, nothing is decided by it */
    char *library;                 /* (store) version that wrote it */
    char *parent;                  /* directory of the checkpoint that this training state came from; NULL for none */
    ckpi_ckpt_kind kind;
    char *base_dir;                /* delta: directory of its base, never a path; NULL for a key */
    ckpi_id base;                  /* delta: content id of its base */
    char *base_model;              /* key: path, as its writer had it, of the file that its weights are predicted from; NULL: none */
    char *replaces;                /* directory of the checkpoint that this one was made of and stands in for (docs/runs.md); NULL: none */
    char *dropped;                 /* role of what was dropped from the state ("m"); NULL: nothing */
    uint32_t chain;                /* 0 for a key, the base's + 1 for a delta; at most CKPI_MAX_CHAIN */
    char *profile;                 /* "lossless", "resume", "small", "weights" */
    uint32_t restores;             /* restored checkpoint's + 1 */
    ckpi_id content;               /* content id of the checkpoint */
    uint64_t params;               /* parameters, for bits per parameter in listings; 0 when unknown */
    uint64_t raw_bytes;            /* of the state, before coding */
    ckpi_shard_ref *shards;
    size_t n_shards;
    ckpi_metric *metrics;
    size_t n_metrics;
    ckpi_metric *settings;         /* what a lossy save was coded with, by name; information only */
    size_t n_settings;
    char *errors;                  /* error summary: text of one JSON object, or NULL */
} ckpi_manifest;

/* Cleared; a key without shards. NULL on lack of memory. */
ckpi_manifest *ckpi_manifest_new(void);
void ckpi_manifest_free(ckpi_manifest *m);                       /* accepts NULL */
CKP_MUST_USE ckp_status ckpi_manifest_copy(ckpi_manifest **out, const ckpi_manifest *m, ckp_error *err);
/* Replaces one owned string (m->parent, m->base_dir, m->profile, ...); s may be NULL. */
CKP_MUST_USE ckp_status ckpi_manifest_set(char **field, const char *s, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_manifest_add_shard(ckpi_manifest *m, const char *file, uint64_t length, ckpi_id hash, ckpi_id content, ckp_error *err);
/* A name that is there already gets the new value. */
CKP_MUST_USE ckp_status ckpi_manifest_add_metric(ckpi_manifest *m, const char *name, double value, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_manifest_add_setting(ckpi_manifest *m, const char *name, double value, ckp_error *err);
/* The metric's value; false when there is none of that name. */
bool ckpi_manifest_metric(const ckpi_manifest *m, const char *name, double *value);
bool ckpi_manifest_setting(const ckpi_manifest *m, const char *name, double *value);
/* Sum of the shards' lengths (saturates). */
uint64_t ckpi_manifest_bytes(const ckpi_manifest *m);

/*
 * Everything that parse demands, demanded of a struct: plain unique names, numbers in range, key and delta consistent.
 * CKP_EINVAL with the field's name otherwise.
 */
CKP_MUST_USE ckp_status ckpi_manifest_check(const ckpi_manifest *m, ckp_error *err);

/* Appends the file's bytes to *out. CKP_EINVAL when check() fails; CKP_ENOMEM. */
CKP_MUST_USE ckp_status ckpi_manifest_print(const ckpi_manifest *m, ckpi_buf *out, ckp_error *err);
/*
 * CKP_ECORRUPT: hash or a field is wrong; CKP_EFORMAT: not a manifest; CKP_EVERSION: a newer format;
 * CKP_EUNSUPPORTED: asks for a feature that this version does not know (named); CKP_EPATH: a name that leaves its directory;
 * CKP_ELIMIT: beyond a cap; CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_manifest_parse(ckpi_manifest **out, const void *data, size_t n, ckp_error *err);

/* "step-%08llu-%08x" */
void ckpi_dir_name(char out[CKPI_DIR_NAME_MAX], uint64_t step, uint32_t attempt);
/* The exact inverse: false for every name that ckpi_dir_name would not print ("step-abc", "step-7-...", "7 (copy)"). */
bool ckpi_dir_name_parse(const char *name, uint64_t *step, uint32_t *attempt);
/* "shard-%05u-of-%05u.ckp" */
void ckpi_shard_name(char out[CKPI_DIR_NAME_MAX], uint32_t index, uint32_t count);
#endif
