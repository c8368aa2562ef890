/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CKPRESS_OBJECTS_H
#define CKPRESS_OBJECTS_H
/*
 * A run in an object store, through callbacks: what a program gives so that ckpress reads and writes there. run_objects.h has the functions
 * that take them.
 *
 * Keys are relative to the run ("run.json", "step-00000100-9f3a61c2/manifest.json"); where the run itself lies is the callbacks' affair. Objects are written
 * whole or not at all, and are found as soon as they are written. Nothing is renamed, appended to or synced.
 *
 * Callbacks are called from several threads at once, each of which has to come back: with a deadline of its own, and after whatever retries
 * it makes. They return CKP_OK, or fill err's text (never NULL; ckp_objects_fail does it) and return
 *   CKP_ENOTFOUND, CKP_EEXIST   as below
 *   CKP_EACCESS, CKP_ENOSPC, CKP_EINVAL, CKP_ENOMEM, CKP_ECANCELLED   it was not done, and will not be
 *   CKP_EIO                     everything else, also where nobody knows whether it was done, or may yet be (a lost answer, a deadline)
 * Other values count as CKP_EIO.
 * Threads of the library's own that call them have all signals blocked. A process that a callback starts inherits that, and has to unblock them.
 */
#include <stdbool.h>
#include <ckpress/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is to be put: bytes that lie in memory or in a temporary file. */
typedef struct ckp_object_bytes {
    uint64_t size;
    /**
     * Copies bytes [off, off + n) to dst; from any thread, in any order and as often as wanted (parts, retries) until put() returns.
     * CKP_EINVAL beyond the end; CKP_EIO from the temporary file.
     */
    ckp_status (*read)(const struct ckp_object_bytes *bytes, uint64_t off, void *dst, size_t n, ckp_error *err);
} ckp_object_bytes;

/** How much of what was put is read back before anything relies on it. */
typedef enum ckp_read_back {
    CKP_READ_BACK_BYTES = 0,     /**< all of it, compared with what was put: each upload costs a download */
    CKP_READ_BACK_SIZE = 1       /**< its size */
} ckp_read_back;

/** Initialise with CKP_OBJECTS_INIT, then fill in. The table is copied; `user` must stay valid until all that was opened with it is closed. */
typedef struct ckp_objects {
    size_t size;                 /**< sizeof(ckp_objects) */
    void *user;                  /**< first argument of each callback */
    /** Bytes of an object. CKP_ENOTFOUND: there is none of that key. */
    ckp_status (*stat)(void *user, const char *key, uint64_t *bytes, ckp_error *err);
    /** Exactly bytes [off, off + n), n > 0, to dst. Fewer are a failure (CKP_EIO), never CKP_OK. */
    ckp_status (*get)(void *user, const char *key, uint64_t off, void *dst, size_t n, ckp_error *err);
    /**
     * Makes an object of all of `bytes`, in one request or in parts, so that it is there whole or not at all.
     * replace false: only where there is none of that key, else CKP_EEXIST. What a retry of its own meets may be reported as CKP_EEXIST too: the library
     * looks whether it is what it put. Where the store cannot put on this condition, look first and then put: the run's lock keeps writers apart (docs/runs.md).
     */
    ckp_status (*put)(void *user, const char *key, const ckp_object_bytes *bytes, bool replace, ckp_error *err);
    /**
     * Calls fn for each entry right below `dir` ("" is the run), in any order: objects "dir/NAME", and, with is_dir, each NAME for which there is any
     * "dir/NAME/...". fn returns false to stop, which is no failure. No entries: CKP_OK or CKP_ENOTFOUND.
     */
    ckp_status (*list)(void *user, const char *dir, bool (*fn)(void *fn_user, const char *name, bool is_dir), void *fn_user, ckp_error *err);
    /** Deletes an object. CKP_OK (or CKP_ENOTFOUND) also when there is none. */
    ckp_status (*remove)(void *user, const char *key, ckp_error *err);
    /**
     * May be NULL. Calls fn for every object of the run, by its whole key, with its bytes: in few requests what stat() and list() take many for. As list() otherwise.
     * Objects that it lacks are asked for by stat(). What it fails with is not told: the requests that are then made are.
     */
    ckp_status (*list_all)(void *user, bool (*fn)(void *fn_user, const char *key, uint64_t bytes), void *fn_user, ckp_error *err);
    /** Where shards larger than some MB wait for their upload, as temporary files without a name; NULL: in memory. Copied. */
    const char *stage_dir;
    ckp_read_back read_back;
} ckp_objects;
#define CKP_OBJECTS_INIT {sizeof(ckp_objects), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, CKP_READ_BACK_BYTES}

/** For callbacks: fills err (may be NULL) with a sentence and returns st. */
CKP_API ckp_status ckp_objects_fail(ckp_error *err, ckp_status st, const char *text);

#ifdef __cplusplus
}
#endif
#endif
