/* SPDX-License-Identifier: Apache-2.0 */
#include "format/prelude.h"
#include "base/fail.h"
#include "base/limits.h"
#include "format/header.h"

void
ckpi_prelude_free(ckpi_prelude *p)
{
    ckpi_table_free(p->table);
    ckpi_buf_free(&p->tree_stored);
    ckpi_buf_free(&p->tree);
    *p = (ckpi_prelude){0};
}

static ckp_status
read_header(ckpi_prelude *p, ckpi_reader *r, ckp_error *err)
{
    uint8_t header[CKPI_WIRE_HEADER];
    size_t got;
    ckp_status st = ckpi_reader_some(r, 0, header, sizeof header, &got, err);
    if (st != CKP_OK)
        return st;
    if (got < 8 || (got < sizeof header && memcmp(header, CKPI_WIRE_MAGIC, 8) != 0))
        return ckpi_fail_at(err, CKP_EFORMAT, 0, "not a .ckp file: it has %zu bytes", got);
    if (got < sizeof header)
        return ckpi_fail_at(err, CKP_ETRUNCATED, got, "the file ends inside its header of %u bytes", CKPI_WIRE_HEADER);
    p->end = CKPI_WIRE_HEADER;
    return ckpi_header_parse(&p->info, header, &p->front.header_hash, err);
}

/* The head of the section at p->end, which moves on to the stored bytes. */
static ckp_status
read_head(ckpi_prelude *p, ckpi_reader *r, const char magic[4], uint64_t max, ckpi_section *sec, ckp_error *err)
{
    uint8_t head[CKPI_WIRE_SECTION];
    const uint64_t at = p->end;
    const ckp_status st = ckpi_reader_read(r, at, head, sizeof head, err);
    if (st != CKP_OK)
        return st;
    p->end += sizeof head;
    return ckpi_section_parse(sec, head, magic, max, at, err);
}

static ckp_status
read_table(ckpi_prelude *p, ckpi_reader *r, ckp_error *err)
{
    ckpi_section sec;
    ckpi_buf stored = CKPI_BUF_INIT, raw = CKPI_BUF_INIT;
    ckp_status st = read_head(p, r, CKPI_WIRE_TABLE, CKPI_MAX_TABLE, &sec, err);
    if (st != CKP_OK)
        return st;
    const bool elsewhere = sec.coding == CKPI_CODING_REF;
    if (elsewhere == ckpi_id_is_zero(p->info.table_content) || sec.coding == CKPI_CODING_ZSTD_PREFIX)
        return ckpi_fail_at(err, CKP_ECORRUPT, p->end, "tensor table: header and section disagree where it is");
    if (elsewhere && (sec.stored_len | sec.raw_len) != 0)
        return ckpi_fail_at(err, CKP_ECORRUPT, p->end, "tensor table: lives elsewhere, yet has bytes here");
    st = ckpi_section_stored(&sec, r, p->end, &stored, err);
    p->end += sec.stored_len;
    p->front.table = sec.raw_id;
    if (st == CKP_OK && !elsewhere)
        st = ckpi_section_unpack(&sec, &stored, (ckpi_bytes){NULL, 0}, &raw, "tensor table", err);
    if (st == CKP_OK && !elsewhere)
        st = ckpi_table_decode(&p->table, raw.data, raw.len, err);
    ckpi_buf_free(&stored);
    ckpi_buf_free(&raw);
    return st;
}

/* As far as the table allows: without one, tensor numbers cannot be judged yet. */
static ckp_status
check_tree(ckpi_prelude *p, ckp_error *err)
{
    p->tree_ready = true;
    return ckpi_tree_check(p->tree.data, p->tree.len, p->table != NULL ? (uint32_t)p->table->n : CKPI_MAX_TENSORS, err);
}

static ckp_status
read_tree(ckpi_prelude *p, ckpi_reader *r, ckp_error *err)
{
    ckp_status st = ckpi_section_stored(&p->tree_sec, r, p->end, &p->tree_stored, err);
    const bool prefixed = p->tree_sec.coding == CKPI_CODING_ZSTD_PREFIX;
    p->end += p->tree_sec.stored_len;
    if (st != CKP_OK)
        return st;
    if (prefixed && p->table != NULL)
        return ckpi_fail_at(err, CKP_ECORRUPT, p->end, "state tree: packed against the tree of no other file");
    if (prefixed)
        return CKP_OK;
    st = ckpi_section_unpack(&p->tree_sec, &p->tree_stored, (ckpi_bytes){NULL, 0}, &p->tree, "state tree", err);
    ckpi_buf_free(&p->tree_stored);
    return st == CKP_OK ? check_tree(p, err) : st;
}

/* A pipe cannot be asked twice: the stored bytes of a damaged tree are behind us either way, so frames may follow. */
static bool
can_go_on(ckp_status st)
{
    return st == CKP_ECORRUPT || st == CKP_EUNSUPPORTED || st == CKP_ELIMIT;
}

ckp_status
ckpi_prelude_read(ckpi_prelude *p, ckpi_reader *r, ckp_status *tree_fault, ckp_error *err)
{
    ckp_status st = read_header(p, r, err);
    if (st == CKP_OK)
        st = read_table(p, r, err);
    if (st != CKP_OK)
        return st;
    st = read_head(p, r, CKPI_WIRE_TREE, CKPI_MAX_TREE, &p->tree_sec, err);
    if (st == CKP_OK && p->tree_sec.coding == CKPI_CODING_REF)
        st = ckpi_fail_at(err, CKP_EUNSUPPORTED, p->end, "state tree: coding 2, which is for tables");
    p->front.tree = p->tree_sec.raw_id;
    if (st == CKP_OK)
        st = read_tree(p, r, err);
    if (tree_fault != NULL) {
        *tree_fault = can_go_on(st) ? st : CKP_OK;
        if (*tree_fault != CKP_OK) {
            /* Nothing is left that a prefix could mend. */
            p->tree_sec.coding = CKPI_CODING_RAW;
            ckpi_buf_free(&p->tree_stored);
            return CKP_OK;
        }
    }
    return st;
}

ckp_status
ckpi_prelude_resolve(ckpi_prelude *p, const ckpi_fmt_file *ref, ckp_error *err)
{
    if (p->table != NULL)
        return CKP_OK;
    /* what is left of a damaged file cannot say what it is, but its table can */
    const bool named = ref->partial || ckpi_id_eq(ref->content, p->info.table_content);
    if (ref->table == NULL || !ckpi_id_is_zero(ref->info.table_content) || !named || !ckpi_id_eq(ref->table_id, p->front.table)) {
        char want[33], found[33];
        ckpi_id_hex(p->info.table_content, want);
        ckpi_id_hex(ref->content, found);
        return ckpi_fail(err, CKP_EBASE, "its tensor table is in the file with content id %s, not in that with %s", want, found);
    }
    p->table = ckpi_table_share(ref->table);
    if (p->tree_ready)
        return check_tree(p, err);
    if (p->tree_sec.coding != CKPI_CODING_ZSTD_PREFIX)
        return CKP_OK;           /* a damaged tree: reported already */
    const ckp_status st = ckpi_section_unpack(&p->tree_sec, &p->tree_stored, (ckpi_bytes){ref->tree, ref->tree_len}, &p->tree, "state tree", err);
    return st == CKP_OK ? check_tree(p, err) : st;
}
