/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two halves of copying: which checkpoints (copy.c), and one of them (copy_one.c). */
#ifndef CKPI_STORE_COPY_H
#define CKPI_STORE_COPY_H
#include "store/internal.h"

#define CKPI_COPY_PIECE ((size_t)1 << 20)

typedef struct ckpi_copying {
    ckpi_store *from, *to;
    const ckpi_copy_ask *ask;
    ckpi_copied *done;
    ckpi_copyfile record, written;     /* what copied.json is to say; what it says */
    uint64_t bytes, total;             /* for progress */
    int64_t refreshed;
    uint8_t *piece;
    bool source_bad;                   /* what failed was reading the source's data */
    bool uncounted;                    /* what is copied is no shard */
    char (*seen)[CKPI_DIR_NAME_MAX];   /* told already, in an earlier round */
    size_t n_seen;
    ckp_status first;                  /* damage that was left out */
    ckp_error first_err;
} ckpi_copying;

/*
 * Copies one checkpoint, whose bases are there. After a failure the copy is without it; c->source_bad says that its data is bad or cannot be
 * read, so that others may still be copied.
 */
CKP_MUST_USE ckp_status ckpi_copy_one(ckpi_copying *c, const ckpi_entry *e, ckp_error *err);
/* Makes copied.json say c->record, unless it does. */
CKP_MUST_USE ckp_status ckpi_copy_put_record(ckpi_copying *c, ckp_error *err);
void ckpi_copy_set_name(char to[CKPI_DIR_NAME_MAX], const char *dir);
#endif
