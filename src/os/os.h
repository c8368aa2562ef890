/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one seam to files. A ckpi_fs is a table of methods over slash-separated names relative to a root: POSIX here,
 * callbacks for object stores, and a fault-injecting wrapper in tests/harness. Nothing else in src opens a file.
 */
#ifndef CKPI_OS_H
#define CKPI_OS_H
#include <stdbool.h>
#include "base/buf.h"
#include "base/hash.h"

typedef struct ckpi_fs ckpi_fs;
typedef struct ckpi_file ckpi_file;

typedef enum ckpi_open_how {
    CKPI_OPEN_READ,
    CKPI_OPEN_NEW          /* create for writing; CKP_EEXIST when there */
} ckpi_open_how;

typedef struct ckpi_stat { uint64_t size; bool is_dir; bool is_link; bool is_special; } ckpi_stat; /* special: pipe, socket, device */

/*
 * Method table. All names are relative, checked by ckpi_path_ok() before they get here (no "..", no absolute, no NUL, no empty
 * component), resolved below the root's directory handle without following symbolic links.
 * Reads and writes loop over short counts and EINTR inside the method; after CKP_OK everything was done.
 */
typedef struct ckpi_fs_ops {
    const char *name;
    ckp_status (*open)(ckpi_fs *fs, const char *name, ckpi_open_how how, ckpi_file **out, ckp_error *err);
    ckp_status (*read_at)(ckpi_file *f, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err);   /* got < n only at the end */
    ckp_status (*write)(ckpi_file *f, const void *src, size_t n, ckp_error *err);                          /* appends */
    ckp_status (*size)(ckpi_file *f, uint64_t *size, ckp_error *err);
    ckp_status (*sync)(ckpi_file *f, ckp_error *err);            /* data is durable; a failure is final */
    void (*close)(ckpi_file *f);                                 /* never fails: sync came before */
    ckp_status (*stat)(ckpi_fs *fs, const char *name, ckpi_stat *st, ckp_error *err);
    /* Calls fn for each entry of a directory, in any order; fn returns false to stop. */
    ckp_status (*list)(ckpi_fs *fs, const char *dir, bool (*fn)(void *user, const char *entry, bool is_dir), void *user, ckp_error *err);
    ckp_status (*mkdir)(ckpi_fs *fs, const char *name, ckp_error *err);                    /* CKP_EEXIST when there */
    ckp_status (*unlink)(ckpi_fs *fs, const char *name, ckp_error *err);
    ckp_status (*rmdir)(ckpi_fs *fs, const char *name, ckp_error *err);
    /* Atomically give `from` the name `to`. replace false: CKP_EEXIST when `to` is there (link or RENAME_NOREPLACE). */
    ckp_status (*publish)(ckpi_fs *fs, const char *from, const char *to, bool replace, ckp_error *err);
    ckp_status (*sync_dir)(ckpi_fs *fs, const char *dir, ckp_error *err);                  /* "" is the root */
    /* May be NULL, both: until the end, this thread's stat and open of what checkpoints consist of may be answered by what was there at the begin, but never
       that something is missing. Fails with CKP_ENOMEM alone. */
    ckp_status (*survey)(ckpi_fs *fs, ckp_error *err);
    void (*survey_end)(ckpi_fs *fs);
    void (*destroy)(ckpi_fs *fs);
    bool late;      /* what a process asked for may be done after it has died: a request on its way */
} ckpi_fs_ops;

struct ckpi_fs { const ckpi_fs_ops *ops; };     /* implementations embed this first */
struct ckpi_file { ckpi_fs *fs; };

/*
 * A POSIX file system rooted at dir; create: makes the directory (and its parents) when missing. In a forked child whatever
 * would change the disk fails with CKP_EFORK.
 */
CKP_MUST_USE ckp_status ckpi_fs_posix(ckpi_fs **out, const char *dir, bool create, ckp_error *err);
void ckpi_fs_free(ckpi_fs *fs);                 /* accepts NULL */

/* Relative, no empty, "." or ".." component, no NUL, no backslash, at most CKPI_PATH_MAX bytes: CKP_EPATH otherwise. */
CKP_MUST_USE ckp_status ckpi_path_ok(const char *name, ckp_error *err);

/* Whole small files. */
CKP_MUST_USE ckp_status ckpi_fs_read(ckpi_fs *fs, const char *name, size_t max, ckpi_buf *out, ckp_error *err);

/*
 * The one function that publishes a file: temporary name in the same directory, write all, fsync, close, publish, fsync the
 * directory. On any failure the temporary is removed and the target is as it was. tmp must be unique to this writer.
 */
CKP_MUST_USE ckp_status ckpi_fs_publish(ckpi_fs *fs, const char *tmp, const char *name, const void *data, size_t n, bool replace, ckp_error *err);

/* ---- writers: where a .ckp goes ------------------------------------------------------------------------------- */

/*
 * Append-only sink with a position and a sticky error; buffers so that writes are large. Kinds: a new file of a ckpi_fs under a
 * temporary name, published by commit; a pipe or stdout (file descriptor); memory; nowhere.
 */
typedef struct ckpi_writer ckpi_writer;
CKP_MUST_USE ckp_status ckpi_writer_file(ckpi_writer **out, ckpi_fs *fs, const char *tmp, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_writer_fd(ckpi_writer **out, int fd, ckp_error *err);         /* fd stays the caller's */
CKP_MUST_USE ckp_status ckpi_writer_mem(ckpi_writer **out, ckpi_buf *buf, ckp_error *err); /* buf stays the caller's */
CKP_MUST_USE ckp_status ckpi_writer_null(ckpi_writer **out, ckp_error *err);               /* counts only: no hash, nothing is kept */
CKP_MUST_USE ckp_status ckpi_writer_put(ckpi_writer *w, const void *p, size_t n, ckp_error *err);
uint64_t ckpi_writer_pos(const ckpi_writer *w);
/* fn gets all bytes, in order and in large pieces, as they leave for where they go. Before the first put; not for writers that only count. */
void ckpi_writer_watch(ckpi_writer *w, void (*fn)(void *user, const void *p, size_t n), void *user);
/* XXH3-128 of every byte put. CKP_ESTATE before finish. */
CKP_MUST_USE ckp_status ckpi_writer_hash(const ckpi_writer *w, ckpi_id *out, ckp_error *err);
/* Flush and (file) fsync and close; the file still has its temporary name. */
CKP_MUST_USE ckp_status ckpi_writer_finish(ckpi_writer *w, ckp_error *err);
/* finish if needed, then give the file its name and fsync its directory. Only for file writers. */
CKP_MUST_USE ckp_status ckpi_writer_publish(ckpi_writer *w, const char *name, bool replace, ckp_error *err);
/* Frees; the file of an unfinished or failed writer is removed, not by a forked child. Accepts NULL. */
void ckpi_writer_free(ckpi_writer *w);

/* ---- readers --------------------------------------------------------------------------------------------------- */

/*
 * Random access (file, memory) or sequential (pipe). Sequential ones go forward, dropping what is skipped; only the last
 * CKPI_READER_BACK bytes can be read once more (so that a format may be recognised by its first bytes).
 */
#define CKPI_READER_BACK 65536u
typedef struct ckpi_reader ckpi_reader;
CKP_MUST_USE ckp_status ckpi_reader_file(ckpi_reader **out, ckpi_fs *fs, const char *name, ckp_error *err);
CKP_MUST_USE ckp_status ckpi_reader_path(ckpi_reader **out, const char *path, ckp_error *err);   /* any local path; follows links */
CKP_MUST_USE ckp_status ckpi_reader_plain(ckpi_reader **out, const char *path, ckp_error *err);  /* the same; CKP_EINVAL unless it is seekable */
CKP_MUST_USE ckp_status ckpi_reader_fd(ckpi_reader **out, int fd, const char *name, ckp_error *err); /* sequential when not seekable */
CKP_MUST_USE ckp_status ckpi_reader_mem(ckpi_reader **out, const void *p, size_t n, const char *name, ckp_error *err);
bool ckpi_reader_seekable(const ckpi_reader *r);
const char *ckpi_reader_name(const ckpi_reader *r);
/* Whether what it reads is the file that a path names. False where the system does not tell. */
bool ckpi_reader_is(const ckpi_reader *r, const char *path);
/* CKP_EUNSUPPORTED for a pipe. */
CKP_MUST_USE ckp_status ckpi_reader_size(ckpi_reader *r, uint64_t *size, ckp_error *err);
/* Exactly n bytes at off; a shorter file is CKP_ETRUNCATED naming both lengths. Thread-safe on seekable readers. */
CKP_MUST_USE ckp_status ckpi_reader_read(ckpi_reader *r, uint64_t off, void *dst, size_t n, ckp_error *err);
/* Up to n bytes; *got says how many (less only at the end). */
CKP_MUST_USE ckp_status ckpi_reader_some(ckpi_reader *r, uint64_t off, void *dst, size_t n, size_t *got, ckp_error *err);
/* Keeps the whole file in memory: later reads cannot fail. Before the reader is shared among threads; a failure leaves it as it was. */
CKP_MUST_USE ckp_status ckpi_reader_hold(ckpi_reader *r, ckp_error *err);
/* Asked whenever a signal interrupts the wait for a pipe; not 0: the read fails with CKP_ECANCELLED. fn may be NULL: reads go on. */
void ckpi_reader_on_interrupt(ckpi_reader *r, ckp_progress_fn fn, void *user);
void ckpi_reader_free(ckpi_reader *r);
#endif
