/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a .ckp file (docs/format.md). This room writes and reads records and proves that they are well-formed and whole;
 * it decodes no tensor. Order in a file: header, table, tree, chunk frames, index, trailer. Append-only.
 */
#ifndef CKPI_FORMAT_H
#define CKPI_FORMAT_H
#include "base/hash.h"
#include "os/os.h"
#include "state/state.h"

#define CKPI_FORMAT_MAJOR 1
#define CKPI_FORMAT_MINOR 0

/* Feature bits a reader must know; docs/format.md names each. An unknown required bit is CKP_EUNSUPPORTED naming it. */
#define CKPI_FEAT_DELTA (UINT64_C(1) << 0)     /* chunks may use a base */
#define CKPI_FEAT_LOSSY (UINT64_C(1) << 1)     /* quantized chunks */
#define CKPI_FEAT_COPIES (UINT64_C(1) << 2)    /* tensors that are derived from their masters */
#define CKPI_FEAT_CLUSTERS (UINT64_C(1) << 3)  /* moments in clusters */
#define CKPI_FEAT_KNOWN (CKPI_FEAT_DELTA | CKPI_FEAT_LOSSY | CKPI_FEAT_COPIES | CKPI_FEAT_CLUSTERS)

#define CKPI_MAX_FRAME_HEAD (1u << 21)         /* FORMAT bytes of a frame's head: 65536 pieces fit */
#define CKPI_MAX_FRAME_PART (1u << 27)         /* FORMAT bytes of params, of escapes and of payload, each */

/* One row of the table: static facts of a tensor. */
typedef struct ckpi_rec {
    const char *name;            /* owned by the table */
    ckp_role role;
    ckp_dtype dtype;
    uint32_t owner;              /* index or CKPI_NO_TENSOR */
    uint32_t alias_of;           /* same payload as that tensor */
    uint32_t copy_of;            /* role COPY: element-wise rounding of that master, not stored */
    unsigned ndim;
    const uint64_t *shape;       /* global */
    const uint64_t *box_first;   /* NULL when this shard holds the whole, or a flat range */
    const uint64_t *box_shape;   /* NULL likewise */
    bool flat;
    uint64_t flat_first;
    uint64_t numel;              /* elements that this shard holds (box, range or whole) */
    uint64_t bytes;
} ckpi_rec;

typedef struct ckpi_table {
    ckpi_rec *rec;
    size_t n;
    ckpi_id id;                  /* XXH3-128 of the encoded, unpacked table */
    void *arena;                 /* names and shapes */
} ckpi_table;

CKP_MUST_USE ckp_status ckpi_table_from_state(ckpi_table **out, const ckp_state *s, ckp_error *err);
void ckpi_table_free(ckpi_table *t);                                /* accepts NULL; the last owner's call frees */
ckpi_table *ckpi_table_share(ckpi_table *t);                        /* one more owner; a shared table is not changed any more */
/*
 * master, by row: the master of which this row is the element-wise rounding, or CKPI_NO_TENSOR. Such a row becomes a copy, whose elements are derived and not
 * stored; a master of no other role gets the role MASTER. Gives the table its new id.
 */
CKP_MUST_USE ckp_status ckpi_table_link_copies(ckpi_table *t, const uint32_t *master, ckp_error *err);
bool ckpi_table_has_copies(const ckpi_table *t);
/* Whether this shard holds all of a tensor. Of a checked table. */
bool ckpi_rec_whole(const ckpi_rec *r);
/* Whether the saver knew what the tensors are: some row has a role that copies and their masters do not get by themselves. */
bool ckpi_table_has_roles(const ckpi_table *t);
/* The row in whose chunks the elements of row i lie: its own, that of which it is an alias, or the master of that. They are converted where its dtype is another. */
uint32_t ckpi_table_holder(const ckpi_table *t, uint32_t i);
/* Which dtypes a master and its copies may have. */
bool ckpi_copy_dtypes(ckp_dtype master, ckp_dtype copy);
/* After the engine changed roles or copy_of (before writing): checks the rows again and gives the table its new id. */
CKP_MUST_USE ckp_status ckpi_table_rehash(ckpi_table *t, ckp_error *err);
uint32_t ckpi_table_find(const ckpi_table *t, const char *name);   /* linear or indexed; CKPI_NO_TENSOR */

/* A run of elements of one tensor inside a chunk. Flat indices within what the shard holds. */
typedef struct ckpi_piece { uint32_t tensor; uint64_t first, count; } ckpi_piece;

#define CKPI_CHUNK_USES_BASE 1u

/* One frame. params: the quantizer's parameters (layout by quantizer id, docs/format.md); escapes: exact values. */
typedef struct ckpi_chunk {
    uint8_t role;                /* ckp_role of its tensors */
    uint8_t quant;               /* ckpi_quant_id */
    uint8_t codec;               /* ckpi_codec_id */
    uint8_t flags;
    uint8_t dtype;               /* ckp_dtype of its tensors: one dtype a chunk */
    ckpi_piece *piece;
    size_t n_pieces;
    uint64_t n;                  /* sum of counts: at most CKPI_MAX_CHUNK_ELEMS */
    const uint8_t *params; size_t params_len;
    const uint8_t *escapes; size_t escapes_len;
    const uint8_t *payload; size_t payload_len;
    uint64_t stored_hash;        /* XXH3-64 of params, escapes, payload in that order */
    uint64_t decoded_hash;       /* XXH3-64 of the decoded elements, pieces in order, in the output dtype */
    /* where it lies (reader) */
    uint64_t offset; uint64_t frame_len;
    uint64_t body_offset;        /* of params */
} ckpi_chunk;

/* What a lossy tensor lost, in the output dtype, relative to the tensor's RMS (w, m, v alike). Both errors come back from a file rounded
   up to 8 significant bits. */
typedef struct ckpi_errrec { uint32_t tensor; float max_rel, rms_rel; uint64_t n_nan, n_inf; } ckpi_errrec;

typedef struct ckpi_file_info {
    uint8_t is_delta;
    uint8_t profile;             /* by which it was coded: information only; 0: not recorded, else 1 + ckp_profile, or one of a later version */
    uint16_t chain;              /* 0 for a key: number of deltas behind the key, this one included */
    ckpi_id base_content;        /* content id of the base shard; zero for a key */
    ckpi_id table_content;       /* content id of the shard that stores the table and tree this one refers to; zero: stored here */
    uint64_t features, optional;
} ckpi_file_info;

/* ---- writing ---- */
typedef struct ckpi_fmt_writer ckpi_fmt_writer;

/*
 * Starts a file: header, table and tree. When `ref_table` (the shard named by info->table_content) has the same id as `table`, only the id is
 * stored, and the tree is packed with ref_tree as dictionary.
 */
CKP_MUST_USE ckp_status ckpi_fmt_writer_new(ckpi_fmt_writer **out, ckpi_writer *w, const ckpi_file_info *info, const ckpi_table *table,
                                            const void *tree, size_t tree_len, const ckpi_table *ref_table, const void *ref_tree,
                                            size_t ref_tree_len, ckp_error *err);
/* Appends a frame; fills n, stored_hash, offset, frame_len and body_offset in *c. Nothing of *c is kept. CKP_EINVAL: the chunk breaks a rule of
   docs/format.md ("Frames"). table must live until the writer is freed. */
CKP_MUST_USE ckp_status ckpi_fmt_writer_chunk(ckpi_fmt_writer *fw, ckpi_chunk *c, ckp_error *err);
typedef struct ckpi_fmt_sum {
    uint64_t length;             /* of the file */
    ckpi_id content;             /* XXH3-128 over (name, first, count, decoded hash) in table order */
    ckpi_id index_hash;
    uint64_t overhead;           /* bytes that are neither payload, escapes nor params */
    bool table_is_ref;           /* table and tree lie in the shard info->table_content; false: here, and later deltas may name this shard */
    uint64_t stored_by_role[CKP_ROLE_COUNT_];   /* frames' bytes (whole frames) by role */
} ckpi_fmt_sum;
/* Index and trailer. CKP_EINTERNAL when the chunks do not cover every stored tensor once. The writer w is not finished or published: that is the caller's. */
CKP_MUST_USE ckp_status ckpi_fmt_writer_finish(ckpi_fmt_writer *fw, const ckpi_errrec *errs, size_t n_errs, ckpi_fmt_sum *sum, ckp_error *err);
void ckpi_fmt_writer_free(ckpi_fmt_writer *fw);

/* ---- reading ---- */
typedef struct ckpi_fmt_file {
    ckpi_reader *r;              /* owned */
    ckpi_file_info info;
    ckpi_table *table;           /* NULL until resolved, when table_content is not zero */
    ckpi_id table_id;            /* from the file: the resolved table must have it */
    uint8_t *tree; size_t tree_len;          /* likewise */
    ckpi_chunk *chunk; size_t n_chunks;      /* in file order; payload pointers NULL: read with ckpi_fmt_read_chunk */
    ckpi_errrec *errs; size_t n_errs;
    ckpi_id content, index_hash;
    uint64_t length;
    bool partial;                /* salvaged: chunks may be missing, and content is not known */
    void *priv;
} ckpi_fmt_file;

/* Opens from the trailer: checks header, table (when stored here), tree, index, trailer, and that the chunks cover each stored tensor
   exactly once without gap or overlap. Takes r, also on failure. */
CKP_MUST_USE ckp_status ckpi_fmt_open(ckpi_fmt_file **out, ckpi_reader *r, ckp_error *err);
/* Gives a file whose table lives elsewhere its table and tree; checks ids and the cover. `ref` must be the file that stores them. */
CKP_MUST_USE ckp_status ckpi_fmt_resolve(ckpi_fmt_file *f, const ckpi_fmt_file *ref, ckp_error *err);
void ckpi_fmt_close(ckpi_fmt_file *f);
/* Whether it, or a part of a joined one, is read from the file that a path names (ckpi_reader_is). */
bool ckpi_fmt_reads(const ckpi_fmt_file *f, const char *path);
/* Keeps its bytes in memory (ckpi_reader_hold), those of all parts of a joined file. */
CKP_MUST_USE ckp_status ckpi_fmt_hold(const ckpi_fmt_file *f, ckp_error *err);
/* Reads the body (params, escapes, payload in one read) of chunk i into buf, sets the pointers of *c (a copy of f->chunk[i]) and
   checks stored_hash and that the frame head in the file equals the index's. Thread-safe for different buf. */
CKP_MUST_USE ckp_status ckpi_fmt_read_chunk(const ckpi_fmt_file *f, size_t i, ckpi_buf *buf, ckpi_chunk *c, ckp_error *err);

/* Sequential reading, for pipes and salvage: header, table and tree first, then frames one after another, without index. */
typedef struct ckpi_fmt_stream ckpi_fmt_stream;
CKP_MUST_USE ckp_status ckpi_fmt_stream_open(ckpi_fmt_stream **out, ckpi_reader *r /* not taken */, ckp_error *err);
const ckpi_file_info *ckpi_fmt_stream_info(const ckpi_fmt_stream *s);
const ckpi_table *ckpi_fmt_stream_table(const ckpi_fmt_stream *s);     /* NULL when it lives elsewhere */
const void *ckpi_fmt_stream_tree(const ckpi_fmt_stream *s, size_t *len);
/* As ckpi_fmt_resolve; without it the frames of a file whose table lives elsewhere give CKP_ESTATE. */
CKP_MUST_USE ckp_status ckpi_fmt_stream_resolve(ckpi_fmt_stream *s, const ckpi_fmt_file *ref, ckp_error *err);
/* CKP_OK with *done true at the index, after checking index and trailer against the frames seen. salvage: on a damaged frame, look for the next
   whole one instead of failing (seekable readers), and end quietly at a truncation; *skipped (set to 0 by the first call's caller) grows by
   the damaged places. c's pieces are the stream's until the next call; its params, escapes and payload point into buf. A damaged tree
   is reported by the first call too, so that salvage gets past it. */
CKP_MUST_USE ckp_status ckpi_fmt_stream_next(ckpi_fmt_stream *s, bool salvage, ckpi_buf *buf, ckpi_chunk *c, bool *done, uint64_t *skipped,
                                             ckp_error *err);
void ckpi_fmt_stream_free(ckpi_fmt_stream *s);

/*
 * What is left of a damaged file, to be read with ckpi_fmt_read_chunk: the chunks that are whole, however many; no cover, no index, no error
 * records. Its front must be whole, or `ref` must store its table; without ref, chunks that use a base are left out. Takes r, also on failure. *skipped: damaged places.
 */
CKP_MUST_USE ckp_status ckpi_fmt_salvage(ckpi_fmt_file **out, ckpi_reader *r, const ckpi_fmt_file *ref, uint64_t *skipped, ckp_error *err);
/* Leaves out the chunks that are not to be kept: those whose base is lost. The file is partial then. */
void ckpi_fmt_keep_chunks(ckpi_fmt_file *f, const bool *keep);
#endif
