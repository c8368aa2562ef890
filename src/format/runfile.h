/* SPDX-License-Identifier: Apache-2.0 */
/* The other small files of a run: its identity (run.json), its writer's lock, what came by copying (docs/runs.md). Sealed JSON. */
#ifndef CKPI_FORMAT_RUNFILE_H
#define CKPI_FORMAT_RUNFILE_H
#include "base/buf.h"
#include "base/hash.h"
#include "format/manifest.h"
#include "os/host.h"

#define CKPI_RUN_FORMAT 1u
#define CKPI_RUNFILE_MAX 65536u      /* bytes; all are far smaller */

typedef struct ckpi_runfile {
    ckpi_id id;                      /* 128 random bits */
    int64_t created;
} ckpi_runfile;

/* One writer's claim. There is a file per epoch; the highest epoch is the one that counts. */
typedef struct ckpi_lockfile {
    ckpi_id run_id;
    uint64_t epoch;                  /* 1 for the first writer; one more with every writer after it */
    uint64_t nonce;                  /* random; tells two claims apart and seeds the attempts' names */
    bool held;                       /* false: released in good order */
    int64_t time;                    /* of the last refresh, Unix seconds */
    uint32_t expiry;                 /* seconds after which an unrefreshed lock may be taken over */
    ckpi_proc owner;
} ckpi_lockfile;

/* copied.json: up to where a run's checkpoints came from another copy of it. */
typedef struct ckpi_copyfile {
    ckpi_id run_id;
    uint64_t sequence;               /* the highest that was copied; 0: none yet */
    char dir[CKPI_DIR_NAME_MAX];     /* that checkpoint's directory, or "" */
    char next[CKPI_DIR_NAME_MAX];    /* the directory being copied, or "" */
} ckpi_copyfile;

CKP_MUST_USE ckp_status ckpi_runfile_print(const ckpi_runfile *r, ckpi_buf *out, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_runfile_parse(ckpi_runfile *out, const void *data, size_t n, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_lockfile_print(const ckpi_lockfile *l, ckpi_buf *out, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_lockfile_parse(ckpi_lockfile *out, const void *data, size_t n, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_copyfile_print(const ckpi_copyfile *c, ckpi_buf *out, ckp_error *err);
/* Both names are checkpoints' or "". */
CKP_MUST_USE ckp_status ckpi_copyfile_parse(ckpi_copyfile *out, const void *data, size_t n, ckp_error *err);
#endif
