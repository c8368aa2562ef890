/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the room: the file system, its requests, what is staged. */
#ifndef CKPI_OBJECTS_INTERNAL_H
#define CKPI_OBJECTS_INTERNAL_H
#include <pthread.h>
#include "objects/objects.h"

/* ---- upload.c: bytes on their way ---- */

/* The largest that waits in memory where there is a directory for more. */
#define CKPI_UPLOAD_MEMORY ((size_t)8 << 20)

typedef struct ckpi_upload {
    ckp_object_bytes bytes;      /* first: what callbacks get is a stage */
    ckpi_buf mem;                /* as long as fd < 0 */
    int fd;
    const char *dir;             /* NULL: memory only; the table's */
} ckpi_upload;

void ckpi_upload_init(ckpi_upload *s, const char *dir);
void ckpi_upload_free(ckpi_upload *s);
CKP_MUST_USE ckp_status ckpi_upload_append(ckpi_upload *s, const void *src, size_t n, ckp_error *err);

/* ---- request.c: one callback each, with errors that name the object ---- */

/* A key of which a failed put may yet arrive. */
typedef struct ckpi_doubt { struct ckpi_doubt *next; char key[]; } ckpi_doubt;
/* A file with a temporary name: closed, and to be published or forgotten. */
typedef struct ckpi_pending { struct ckpi_pending *next; ckpi_upload stage; char name[]; } ckpi_pending;

/* An object that a survey has found; data: a manifest's bytes, NULL: not kept. */
typedef struct ckpi_known { char *key; uint64_t size; uint8_t *data; } ckpi_known;
typedef struct ckpi_survey ckpi_survey;

typedef struct objects_fs {
    ckpi_fs fs;
    ckp_objects table;
    char *name;
    char *stage_dir;             /* what table.stage_dir is */
    int64_t owner;               /* process (docs/runs.md, invariant 11) */
    pthread_mutex_t mutex;       /* guards the lists and the survey */
    ckpi_pending *pending;
    ckpi_doubt *doubt;
    ckpi_survey *survey;
} objects_fs;

/* What a callback said of a key, as the library says it: err is filled, unknown statuses become CKP_EIO. */
ckp_status ckpi_object_answer(const objects_fs *fs, const char *key, ckp_status st, const ckp_error *said, const char *what, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_object_stat(const objects_fs *fs, const char *key, uint64_t *bytes, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_object_get(const objects_fs *fs, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err);
/* CKP_OK also when there is none. */
CKP_MUST_USE ckp_status ckpi_object_remove(const objects_fs *fs, const char *key, ckp_error *err);
/* No entries: CKP_OK. Names that could not be a file's are passed over. */
CKP_MUST_USE ckp_status ckpi_object_list(const objects_fs *fs, const char *dir, bool (*fn)(void *user, const char *entry, bool is_dir), void *user, ckp_error *err);
/* Every object of the run. */
CKP_MUST_USE ckp_status ckpi_object_list_all(const objects_fs *fs, bool (*fn)(void *user, const char *key, uint64_t bytes), void *user, ckp_error *err);
/* CKP_EEXIST: something else has the key (never with replace). Other failures: see send.c. */
CKP_MUST_USE ckp_status ckpi_object_send(objects_fs *fs, const char *key, const ckpi_upload *s, bool replace, ckp_error *err);
/* Whether a put into that directory may yet arrive. */
bool ckpi_object_doubtful(objects_fs *fs, const char *dir);

/* ---- survey.c: a run read as a whole ---- */

ckpi_survey *ckpi_survey_new(void);
void ckpi_survey_free(ckpi_survey *s);
/* Without list_all(), or where that fails, it does nothing. CKP_ENOMEM. */
CKP_MUST_USE ckp_status ckpi_survey_begin(objects_fs *fs, ckp_error *err);
void ckpi_survey_end(objects_fs *fs);
/* To the thread that began it. False: not known to be there. */
bool ckpi_survey_size(objects_fs *fs, const char *key, uint64_t *size);
/* A manifest's bytes, the caller's; NULL: ask the store. */
uint8_t *ckpi_survey_copy(objects_fs *fs, const char *key, uint64_t *size);

/* ---- read.c, write.c: open files ---- */

CKP_MUST_USE ckp_status ckpi_object_open_read(objects_fs *fs, const char *key, ckpi_file **out, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_object_open_new(objects_fs *fs, const char *key, ckpi_file **out, ckp_error *err);
ckp_status ckpi_object_read_at(ckpi_file *f, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err);
ckp_status ckpi_object_write(ckpi_file *f, const void *src, size_t n, ckp_error *err);
ckp_status ckpi_object_size(ckpi_file *f, uint64_t *size, ckp_error *err);
ckp_status ckpi_object_sync(ckpi_file *f, ckp_error *err);
void ckpi_object_close(ckpi_file *f);
void ckpi_pending_free(ckpi_pending *p);

/* One shape for both kinds, since they share their methods. */
#define CKPI_OBJECT_BLOCK ((size_t)1 << 20)
#define CKPI_OBJECT_BLOCKS 4

typedef struct object_block { uint64_t at; uint8_t *data; size_t len; uint64_t used; } object_block;

typedef struct object_file {
    ckpi_file file;
    ckpi_pending *made;          /* being written; NULL: being read */
    bool is_tmp, sent;           /* written */
    uint64_t size;               /* read: of the object when it was opened */
    pthread_mutex_t mutex;       /* read: guards the blocks */
    object_block block[CKPI_OBJECT_BLOCKS];
    uint64_t clock;
    char key[];
} object_file;
#endif
