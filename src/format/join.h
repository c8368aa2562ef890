/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several shards of one checkpoint as one file: what several writers have divided is read like what one has written. A joined file has the chunks of
 * all its parts, with their tensors' numbers in one table; frames are read from the parts.
 *
 * The table begins with the rows of the leading part, so that its tree means what it says. A row without elements is where another part has the tensor:
 * it becomes that one's row. What two parts hold whole stays twice: the leading part's (or else the first one's) by its name, others as "shard-RRRRR/NAME".
 */
#ifndef CKPI_FORMAT_JOIN_H
#define CKPI_FORMAT_JOIN_H
#include "format/format.h"

typedef struct ckpi_join {
    ckpi_table *table;
    uint32_t **row;              /* of each part, by its own rows */
    size_t n_parts;
} ckpi_join;                     /* zero-initialised is empty */

/*
 * How n resolved parts, in the order of their shards' numbers, go together. CKP_EUNSUPPORTED: a tensor that no part holds whole; CKP_ELIMIT: too many
 * tensors, or a name that becomes too long.
 */
CKP_MUST_USE ckp_status ckpi_join_new(ckpi_join *j, ckpi_fmt_file *const *part, size_t n, size_t lead, ckp_error *err);
void ckpi_join_free(ckpi_join *j);

/*
 * One file of parts whose tables are those that j was made of; part[i] may be NULL where the shard has no such file. Takes the parts, also on failure.
 * info: what the file says of itself; its tree is the leading part's (none where that is NULL). name: for errors.
 */
CKP_MUST_USE ckp_status ckpi_fmt_join(ckpi_fmt_file **out, const ckpi_join *j, ckpi_fmt_file **part, size_t lead, const ckpi_file_info *info,
                                      const char *name, ckp_error *err);
/* Content id of a checkpoint whose n shards have these: for one its own hash, as ever. */
ckpi_id ckpi_join_content(const ckpi_id *shard, size_t n);
#endif
