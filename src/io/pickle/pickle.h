/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine for pickles (protocols 0 to 5) that builds plain values and descriptions of tensors, and executes nothing: a name outside
 * the allow-list (globals.c) is CKP_EUNSAFE where it stands. Stack, memo and memory are bounded by the length of the pickle.
 */
#ifndef CKPI_IO_PICKLE_H
#define CKPI_IO_PICKLE_H
#include "base/fail.h"
#include "io/pickle/globals.h"
#include "io/pickle/value.h"
#include "state/hindex.h"

#define CKPI_PICKLE_SMALL 256      /* ints that are shared instead of made */

typedef struct ckpi_pickle {
    ckpi_io_arena *arena;        /* where values live; the caller's */
    const uint8_t *data;         /* must outlive the values: strings point into it */
    size_t len, pos;
    uint64_t file_offset;        /* of data[0], for messages */
    bool short_of_data;          /* the failure was that data ended: more of it might help */
    ckp_error *err;
    ckp_status fault;            /* of the last failure that was reported */

    ckpi_pv **stack;
    size_t n_stack, cap_stack;
    size_t *mark;
    size_t n_mark, cap_mark;
    ckpi_pv **memo;
    size_t n_memo, cap_memo;
    ckpi_pv *small;              /* None, False, True, then ints 0 to 255: shared, for they never change */

    ckpi_pstorage **storage;     /* that the pickle names, in order of appearance */
    size_t n_storage, cap_storage;
    ckpi_hindex by_key;
} ckpi_pickle;

/* len at most CKPI_MAX_PICKLE. */
CKP_MUST_USE ckp_status ckpi_pickle_init(ckpi_pickle *p, ckpi_io_arena *a, const void *data, size_t len, uint64_t file_offset, ckp_error *err);
/*
 * Reads one pickle from p->pos to its STOP. Several may follow one another (legacy files); each has its own memo.
 * @return CKP_OK; CKP_EUNSAFE; CKP_ECORRUPT, CKP_ETRUNCATED (short_of_data); CKP_EUNSUPPORTED; CKP_ELIMIT; CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_pickle_load(ckpi_pickle *p, ckpi_pv **out);
void ckpi_pickle_free(ckpi_pickle *p);      /* not the arena */
/* The storage of that key, or NULL. */
ckpi_pstorage *ckpi_pickle_storage(const ckpi_pickle *p, const uint8_t *key, size_t len);

/* ---- between the machine's files ---- */

ckp_status ckpi_pickle_bad(ckpi_pickle *p, ckp_status st, const char *fmt, ...) CKPI_PRINTF(3, 4);
/* Arena memory that counts against what the pickle may cost; NULL: *st says why. */
void *ckpi_pickle_get(ckpi_pickle *p, size_t n, size_t size);
ckp_status ckpi_pickle_no_memory(ckpi_pickle *p);     /* the status after a NULL */
ckpi_pv *ckpi_pickle_new(ckpi_pickle *p, ckpi_pv_kind kind);
ckpi_pv *ckpi_pickle_text(ckpi_pickle *p, ckpi_pv_kind kind, const void *data, size_t n);
ckpi_pv *ckpi_pickle_const(ckpi_pickle *p, ckpi_pv_kind kind);       /* NONE, FALSE, TRUE */
ckpi_pv *ckpi_pickle_int(ckpi_pickle *p, int64_t v);
bool ckpi_pickle_add(ckpi_pickle *p, ckpi_pv *container, ckpi_pv *const *items, size_t n);
ckpi_pv *ckpi_pickle_named(ckpi_pickle *p, const char *name, ckpi_pv *v);      /* NULL if v is */
/* A tuple of n. */
ckpi_pv *ckpi_pickle_tuple(ckpi_pickle *p, ckpi_pv *const *items, size_t n);

/* literals.c: what stands in the pickle as text or little-endian bytes. Each gives NULL with the error set. */
ckpi_pv *ckpi_pickle_long(ckpi_pickle *p, const uint8_t *le, size_t n);
ckpi_pv *ckpi_pickle_int_line(ckpi_pickle *p);          /* I, L */
ckpi_pv *ckpi_pickle_float_line(ckpi_pickle *p);        /* F */
ckpi_pv *ckpi_pickle_string_line(ckpi_pickle *p);       /* S */
ckpi_pv *ckpi_pickle_unicode_line(ckpi_pickle *p);      /* V */
bool ckpi_pickle_line(ckpi_pickle *p, const uint8_t **s, size_t *n);

/* build.c: a name applied to a tuple; a state given to an object. */
CKP_MUST_USE ckp_status ckpi_pickle_reduce(ckpi_pickle *p, const ckpi_pv *callee, const ckpi_pv *args, ckpi_pv **out);
CKP_MUST_USE ckp_status ckpi_pickle_build(ckpi_pickle *p, ckpi_pv *obj, ckpi_pv *state);
/* build_torch.c, build_numpy.c: their parts of it. */
CKP_MUST_USE ckp_status ckpi_pickle_reduce_torch(ckpi_pickle *p, const ckpi_pv *callee, const ckpi_pv *args, ckpi_pv **out);
CKP_MUST_USE ckp_status ckpi_pickle_persistent(ckpi_pickle *p, const ckpi_pv *id, ckpi_pv **out);
CKP_MUST_USE ckp_status ckpi_pickle_reduce_numpy(ckpi_pickle *p, const ckpi_pv *callee, const ckpi_pv *args, ckpi_pv **out);
CKP_MUST_USE ckp_status ckpi_pickle_build_numpy(ckpi_pickle *p, ckpi_pv *obj, const ckpi_pv *state);
/* A shape (tuple, list or torch.Size of non-negative ints), copied to the arena. */
CKP_MUST_USE ckp_status ckpi_pickle_shape(ckpi_pickle *p, const ckpi_pv *v, const uint64_t **shape, unsigned *ndim);
#endif
