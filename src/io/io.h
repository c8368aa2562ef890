/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other people's files: safetensors, torch.save's zip and legacy formats. Everything in them is hostile until checked; nothing
 * in them is ever executed. Reading gives a ckp_state whose tensors are pull sources over the file, so memory does not grow with it.
 * Writing is a stream: data is fed tensor by tensor, as it is decoded.
 */
#ifndef CKPI_IO_H
#define CKPI_IO_H
#include <stdbool.h>
#include <ckpress/state.h>
#include "os/os.h"

/* One sentence that a user should see: what was left lossless and why. Never an error. */
typedef void (*ckpi_notice_fn)(void *user, const char *text);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef enum ckpi_foreign_kind {
    CKPI_FOREIGN_SAFETENSORS = 1,
    CKPI_FOREIGN_TORCH_ZIP = 2,
    CKPI_FOREIGN_TORCH_LEGACY = 3   /* before torch 1.6 */
} ckpi_foreign_kind;

typedef struct ckpi_foreign ckpi_foreign;

typedef struct ckpi_foreign_options {
    ckpi_notice_fn notice;       /* may be NULL */
    void *notice_user;
    bool check_crc;              /* torch zip: read every storage once and compare its CRC-32 before anything else is done */
    bool drop_optimizers;        /* torch: leave out what optimizers keep for each parameter; floats of state_dicts are weights then */
    bool no_match;               /* do not look for optimizer state: every tensor keeps its role OTHER or WEIGHT */
    uint64_t spool_max;          /* bytes of a torch file that may be held in memory when it comes from a pipe; 0: 1 GiB */
} ckpi_foreign_options;

/*
 * Reads the structure of a foreign file (never the tensors) and builds its state. The kind is found by content.
 *
 * safetensors: tensors in file order, role WEIGHT; the tree is NAMED "safetensors" over BYTES: the file's JSON header verbatim, so
 *   that the same file can be written again. From a pipe, tensors must be pulled in the state's order.
 * torch: names are the paths of the tensors in the saved object, joined by "/" ("model/wte.weight", "optimizer/state/0/exp_avg"; a
 *   state_dict's own keys stay as they are); tensors over the same bytes with the same view are aliases; the tree is the whole object
 *   (src/io/README.md has the NAMED types). Optimizer state is matched to weights where that is certain (ckpi_match_state).
 *
 * @param r     stays the caller's and must outlive *out.
 * @param opts  NULL: defaults.
 * @return CKP_OK; CKP_EFORMAT: no such file; CKP_ECORRUPT, CKP_ETRUNCATED: breaks its format (offset and tensor named);
 *         CKP_EUNSAFE: a pickle asks for something outside the allow-list (module.name and offset named);
 *         CKP_EUNSUPPORTED: a known but unsupported kind (named); CKP_ELIMIT, CKP_EIO, CKP_ENOMEM.
 */
CKP_MUST_USE ckp_status ckpi_foreign_open(ckpi_foreign **out, ckpi_reader *r, const ckpi_foreign_options *opts, ckp_error *err);
ckpi_foreign_kind ckpi_foreign_what(const ckpi_foreign *f);
/* What drop_optimizers left out. */
typedef struct ckpi_dropped { uint64_t tensors, bytes; } ckpi_dropped;
ckpi_dropped ckpi_foreign_dropped(const ckpi_foreign *f);
/* The state; owned by f, whose sources it pulls from. Not sealed. */
ckp_state *ckpi_foreign_state(ckpi_foreign *f);
/* After the last tensor was pulled: from a pipe, checks that nothing follows. A no-op for seekable files, which were checked at open. */
CKP_MUST_USE ckp_status ckpi_foreign_finish(ckpi_foreign *f, ckp_error *err);
void ckpi_foreign_close(ckpi_foreign *f);      /* frees the state too; accepts NULL */
/* "safetensors", "torch zip", "torch legacy". */
const char *ckpi_foreign_kind_name(ckpi_foreign_kind k);

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* What a writer must know of a tensor beforehand. Everything pointed to must outlive the export. */
typedef struct ckpi_out_tensor {
    const char *name;
    ckp_dtype dtype;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t bytes;              /* row-major, contiguous */
    uint32_t alias_of;           /* index, or UINT32_MAX: an alias gets no data of its own */
} ckpi_out_tensor;

typedef struct ckpi_export ckpi_export;

/*
 * The header that a safetensors file had, if the tree is one that ckpi_foreign_open made of it: *header points into tree.
 * @return CKP_OK; CKP_ENOTFOUND: another kind of tree; CKP_ECORRUPT.
 */
CKP_MUST_USE ckp_status ckpi_tree_st_header(const void *tree, size_t tree_len, const void **header, size_t *len, ckp_error *err);

/*
 * The pairs of __metadata__ in that header, by key; a fn that returns false (out of memory) ends it with CKP_ENOMEM.
 * @return as ckpi_tree_st_header.
 */
CKP_MUST_USE ckp_status ckpi_tree_st_metadata(const void *tree, size_t tree_len, bool (*fn)(void *user, const char *key, const char *value),
                                              void *user, ckp_error *err);
/*
 * The byte-identical safetensors file: `header` as it was read; t[] must be what it describes, in file order (CKP_EMISMATCH otherwise).
 * Data must be fed in the order of t[]. w stays the caller's (not finished or published).
 */
CKP_MUST_USE ckp_status ckpi_export_st_same(ckpi_export **out, ckpi_writer *w, const void *header, size_t len,
                                            const ckpi_out_tensor *t, size_t n, ckp_error *err);
/* Whether the format can hold these: CKP_EUNSUPPORTED names the first that it cannot. */
CKP_MUST_USE ckp_status ckpi_st_check(const ckpi_out_tensor *t, size_t n, ckp_error *err);
/*
 * A fresh safetensors file: sorted by falling dtype width, then name; header padded to 8 bytes. Aliases are written out again, each with
 * its own data (their data must be fed too). What the format cannot hold is refused before a byte is written, by the tensor's name.
 */
CKP_MUST_USE ckp_status ckpi_export_st_new(ckpi_export **out, ckpi_writer *w, const ckpi_out_tensor *t, size_t n, ckp_error *err);
/* The same with {"format": format} as its metadata, which readers of model weights ask for; NULL: none. */
CKP_MUST_USE ckp_status ckpi_export_st_format(ckpi_export **out, ckpi_writer *w, const char *format, const ckpi_out_tensor *t, size_t n, ckp_error *err);
/* A fresh one in the order of t, for data that come in that order and once each: aliases, and what would not be aligned to its
 * width, are refused (CKP_EUNSUPPORTED). */
CKP_MUST_USE ckp_status ckpi_export_st_as_given(ckpi_export **out, ckpi_writer *w, const ckpi_out_tensor *t, size_t n, ckp_error *err);
/* Appends the index of a model's weights in several safetensors files ("weight_map"): tensor i lies in file[i]. total: bytes of all tensors. */
CKP_MUST_USE ckp_status ckpi_st_index(ckpi_buf *out, const ckpi_out_tensor *t, const char *const *file, size_t n, uint64_t total, ckp_error *err);
/*
 * A zip .pt that torch.load(weights_only=True) reads (numpy values need its safe globals, as with torch.save): storages aligned to 64 bytes, aliases share one storage. tree NULL
 * or empty: an OrderedDict from names to tensors. A safetensors tree likewise. Data may be fed in any order of tensors.
 */
CKP_MUST_USE ckp_status ckpi_export_pt(ckpi_export **out, ckpi_writer *w, const char *archive_name, const ckpi_out_tensor *t, size_t n,
                                       const void *tree, size_t tree_len, ckp_error *err);

/* Tensor whose data is expected next (in the preferred order); UINT32_MAX when all data has been fed. */
uint32_t ckpi_export_next(const ckpi_export *e);
/* All tensors that have data of their own in this file, in the preferred order; valid while e lives. */
const uint32_t *ckpi_export_order(const ckpi_export *e, size_t *n);
/* Whether ckpi_export_begin would take tensor i now. */
bool ckpi_export_wants(const ckpi_export *e, uint32_t i);
/* Starts tensor i. CKP_ESTATE: the one before is not complete, i has no data of its own, was fed already, or is out of order. */
CKP_MUST_USE ckp_status ckpi_export_begin(ckpi_export *e, uint32_t i, ckp_error *err);
/* Begins (and so ends) all tensors without bytes that come next in the preferred order. */
CKP_MUST_USE ckp_status ckpi_export_skip_empty(ckpi_export *e, ckp_error *err);
/* The next n bytes of the tensor begun; CKP_EINVAL beyond its size. */
CKP_MUST_USE ckp_status ckpi_export_put(ckpi_export *e, const void *p, size_t n, ckp_error *err);
/* Whatever ends the file. CKP_ESTATE if data is missing. */
CKP_MUST_USE ckp_status ckpi_export_finish(ckpi_export *e, ckp_error *err);
void ckpi_export_free(ckpi_export *e);         /* accepts NULL */

/* ---- optimizer state in files ------------------------------------------------------------------------------------ */

/*
 * Looks through a state's tree for optimizer state dicts beside a model's, and gives moments their role, owner and Adam constants where the
 * match is certain: by param_names, else by the ids of param_groups against the model's entries in order, only if the shapes of all
 * moments fit and the assignment is unique. What is not certain stays lossless; a notice names the group. Call before sealing.
 * @return CKP_OK whether or not something matched; CKP_ENOMEM, or a failure to read a step counter.
 */
CKP_MUST_USE ckp_status ckpi_match_state(ckp_state *s, ckpi_notice_fn notice, void *user, ckp_error *err);
/*
 * Empties the "state" of every optimizer in the state's tree and drops the tensors that nothing else refers to. Call before ckpi_match_state;
 * on failure the state is good for nothing but freeing.
 */
CKP_MUST_USE ckp_status ckpi_drop_optimizers(ckp_state *s, ckpi_dropped *out, ckp_error *err);

/*
 * The plain values of a tree, which a file of tensors alone cannot hold: how many, and the first ones by their paths ("a/b, c, ..."). What
 * keeps a tensor (a safetensors header, Parameters, attributes of OrderedDicts) counts for none.
 */
CKP_MUST_USE ckp_status ckpi_tree_plain(const void *tree, size_t len, uint64_t *n, char *names, size_t cap, ckp_error *err);
#endif
