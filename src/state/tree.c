/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of plain values as bytes (docs/format.md, "State tree"): nodes in depth-first order, each a tag and what belongs to it.
 * Writer and reader keep the same small stack: values still expected at each depth. There is no recursion, so depth costs nothing.
 */
#include "base/bytes.h"
#include "base/cursor.h"
#include "base/fail.h"
#include "base/limits.h"
#include "state/state.h"
#include "state/utf8.h"

#define MAX_TYPE_NAME 255      /* of dtypes, devices, named types */

/* What follows a tag. */
typedef enum payload { P_BAD, P_NOTHING, P_INT, P_FLOAT, P_COMPLEX, P_BYTES, P_COUNT, P_NAME, P_NAME_BYTES, P_NAME_VALUE, P_TENSOR } payload;

static payload
payload_of(unsigned tag)
{
    static const uint8_t of[] = {
        [CKP_TREE_NONE] = P_NOTHING,        [CKP_TREE_FALSE] = P_NOTHING,     [CKP_TREE_TRUE] = P_NOTHING,
        [CKP_TREE_INT] = P_INT,             [CKP_TREE_BIGINT] = P_BYTES,      [CKP_TREE_FLOAT] = P_FLOAT,
        [CKP_TREE_COMPLEX] = P_COMPLEX,     [CKP_TREE_STR] = P_BYTES,         [CKP_TREE_BYTES] = P_BYTES,
        [CKP_TREE_LIST] = P_COUNT,          [CKP_TREE_TUPLE] = P_COUNT,       [CKP_TREE_DICT] = P_COUNT,
        [CKP_TREE_ORDERED_DICT] = P_COUNT,  [CKP_TREE_SET] = P_COUNT,         [CKP_TREE_FROZENSET] = P_COUNT,
        [CKP_TREE_TORCH_SIZE] = P_COUNT,    [CKP_TREE_DTYPE] = P_NAME,        [CKP_TREE_DEVICE] = P_NAME,
        [CKP_TREE_NUMPY_SCALAR] = P_NAME_BYTES, [CKP_TREE_TENSOR] = P_TENSOR, [CKP_TREE_NAMED] = P_NAME_VALUE,
        [CKP_TREE_BYTEARRAY] = P_BYTES,
    };
    return tag < sizeof of ? (payload)of[tag] : P_BAD;
}

static uint64_t
children_of(const ckp_tree_node *node)
{
    switch (node->type) {
    case CKP_TREE_NAMED: return 1;
    case CKP_TREE_DICT:
    case CKP_TREE_ORDERED_DICT: return 2 * node->count;
    default: return payload_of(node->type) == P_COUNT ? node->count : 0;
    }
}

static bool
complete(const uint64_t *left, unsigned depth)
{
    return depth == 0 && left[0] == 0;
}

/* Counts one node; false when its children would lie too deep. */
static bool
step(uint64_t *left, unsigned *depth, uint64_t children)
{
    if (children != 0 && *depth + 1 >= CKPI_MAX_TREE_DEPTH)
        return false;
    left[*depth]--;
    if (children != 0)
        left[++*depth] = children;
    while (*depth > 0 && left[*depth] == 0)
        --*depth;
    return true;
}

static uint64_t
zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0);
}

static int64_t
unzigzag(uint64_t z)
{
    const uint64_t v = z >> 1 ^ (0 - (z & 1));
    int64_t out;
    memcpy(&out, &v, sizeof out);
    return out;
}

/* What a node must obey whoever made it. NULL when it does. */
static const char *
node_fault(const ckp_tree_node *node)
{
    const payload p = payload_of(node->type);
    if (p == P_BAD)
        return "a node type that does not exist";
    if (p == P_COUNT && node->count > CKPI_MAX_TREE / 2)
        return "a count beyond the limit of a tree";
    if ((p == P_BYTES || p == P_NAME || p == P_NAME_BYTES || p == P_NAME_VALUE) && node->data == NULL && node->len != 0)
        return "bytes at a null pointer";
    if (node->type == CKP_TREE_BIGINT && node->len == 0)
        return "an integer of no bytes";
    if (node->type == CKP_TREE_STR && !ckpi_utf8_ok(node->data, node->len, true))
        return "a string that is not UTF-8";
    if ((p == P_NAME || p == P_NAME_VALUE) && (node->len == 0 || node->len > MAX_TYPE_NAME || !ckpi_utf8_ok(node->data, node->len, false)))
        return "a type name that is empty, too long or not UTF-8";
    if (p == P_NAME_BYTES && (node->name == NULL || node->name_len == 0 || node->name_len > MAX_TYPE_NAME ||
                              !ckpi_utf8_ok(node->name, node->name_len, false)))
        return "a type name that is empty, too long or not UTF-8";
    if (p == P_TENSOR && (unsigned)node->as > CKP_AS_SPARSE_PART)
        return "an unknown way to rebuild a tensor";
    return NULL;
}

/* ---- writing ---- */

static void
encode(ckpi_buf *b, const ckp_tree_node *node)
{
    ckpi_buf_u8(b, (uint8_t)node->type);
    switch (payload_of(node->type)) {
    case P_INT: ckpi_buf_varint(b, zigzag(node->i)); break;
    case P_COMPLEX:
        ckpi_buf_f64(b, node->re);
        ckpi_buf_f64(b, node->im);
        break;
    case P_FLOAT: ckpi_buf_f64(b, node->re); break;
    case P_COUNT: ckpi_buf_varint(b, node->count); break;
    case P_NAME_BYTES:
        ckpi_buf_str(b, node->name, node->name_len);
        ckpi_buf_str(b, node->data, node->len);
        break;
    case P_BYTES:
    case P_NAME:
    case P_NAME_VALUE: ckpi_buf_str(b, node->data, node->len); break;
    case P_TENSOR:
        ckpi_buf_varint(b, node->tensor);
        ckpi_buf_u8(b, (uint8_t)node->as);
        break;
    default: break;
    }
}

ckp_status
ckp_state_tree_put(ckp_state *s, const ckp_tree_node *node, ckp_error *err)
{
    if (s == NULL || node == NULL)
        return ckpi_fail(err, CKP_EINVAL, "tree_put: NULL argument");
    const char *fault = node_fault(node);
    if (fault != NULL)
        return ckpi_fail(err, CKP_EINVAL, "state tree: %s", fault);
    if (!s->tree_started)
        s->tree_left[0] = 1;
    else if (complete(s->tree_left, s->tree_depth))
        return ckpi_fail(err, CKP_EINVAL, "state tree: a node after its end");
    const uint64_t children = children_of(node);
    if (children != 0 && s->tree_depth + 1 >= CKPI_MAX_TREE_DEPTH)
        return ckpi_fail(err, CKP_ELIMIT, "state tree: nested deeper than %d", CKPI_MAX_TREE_DEPTH);

    const size_t before = s->tree.len;
    s->tree.max = CKPI_MAX_TREE;
    encode(&s->tree, node);
    const ckp_status st = ckpi_buf_status(&s->tree, err, "state tree");
    if (st != CKP_OK) {
        /* As if never called: half a node must not stay behind. */
        s->tree.len = before;
        s->tree.failed = CKP_OK;
        return st;
    }
    s->tree_started = true;
    (void)step(s->tree_left, &s->tree_depth, children);
    return CKP_OK;
}

void
ckp_state_tree_clear(ckp_state *s)
{
    if (s == NULL)
        return;
    ckpi_buf_free(&s->tree);
    s->tree_depth = 0;
    s->tree_started = false;
}

/* ---- reading ---- */

void
ckp_tree_reader_init(ckp_tree_reader *r, const void *data, size_t len)
{
    *r = (ckp_tree_reader){.data = data, .len = len};
    r->left[0] = 1;
}

static void
decode(ckpi_rd *rd, ckp_tree_node *node)
{
    *node = (ckp_tree_node){.type = (ckp_tree_type)ckpi_rd_u8(rd)};
    switch (payload_of(node->type)) {
    case P_BAD: ckpi_rd_fail(rd, "a known tag"); break;
    case P_NOTHING: break;
    case P_INT: node->i = unzigzag(ckpi_rd_varint(rd, UINT64_MAX)); break;
    case P_COMPLEX:
        node->re = ckpi_rd_f64(rd);
        node->im = ckpi_rd_f64(rd);
        break;
    case P_FLOAT: node->re = ckpi_rd_f64(rd); break;
    case P_COUNT:
        node->count = ckpi_rd_varint(rd, CKPI_MAX_TREE / 2);
        /* Each child takes a byte at least: a count that the bytes have not paid for never gets out. */
        if (children_of(node) > ckpi_rd_left(rd))
            ckpi_rd_fail(rd, "as many values as the count says");
        break;
    case P_NAME_BYTES:
        node->name = (const char *)ckpi_rd_str(rd, MAX_TYPE_NAME, &node->name_len);
        node->data = ckpi_rd_str(rd, CKPI_MAX_TREE, &node->len);
        break;
    case P_BYTES: node->data = ckpi_rd_str(rd, CKPI_MAX_TREE, &node->len); break;
    case P_NAME:
    case P_NAME_VALUE: node->data = ckpi_rd_str(rd, MAX_TYPE_NAME, &node->len); break;
    case P_TENSOR:
        node->tensor = (uint32_t)ckpi_rd_varint(rd, CKPI_MAX_TENSORS - 1);
        node->as = (ckp_tensor_as)ckpi_rd_u8(rd);
        break;
    }
}

ckp_status
ckp_tree_next(ckp_tree_reader *r, ckp_tree_node *node, ckp_error *err)
{
    if (r == NULL || node == NULL)
        return ckpi_fail(err, CKP_EINVAL, "tree_next: NULL argument");
    if (complete(r->left, r->depth) || (!r->started && r->len == 0)) {
        if (r->pos != r->len)
            return ckpi_fail_at(err, CKP_ECORRUPT, r->pos, "state tree: %zu bytes after its end", r->len - r->pos);
        return CKP_ENOTFOUND;
    }
    ckpi_rd rd = ckpi_rd_init(r->data + r->pos, r->len - r->pos, r->pos);
    decode(&rd, node);
    const char *fault = ckpi_rd_ok(&rd) ? node_fault(node) : NULL;
    if (fault != NULL)
        return ckpi_fail_at(err, CKP_ECORRUPT, r->pos, "state tree: %s", fault);
    if (!ckpi_rd_ok(&rd))
        return ckpi_rd_error(&rd, err, "state tree");
    if (!step(r->left, &r->depth, children_of(node)))
        return ckpi_fail_at(err, CKP_ELIMIT, r->pos, "state tree: nested deeper than %d", CKPI_MAX_TREE_DEPTH);
    r->started = true;
    r->pos += rd.pos;
    return CKP_OK;
}

ckp_status
ckpi_tree_check(const void *data, size_t len, uint32_t n_tensors, ckp_error *err)
{
    ckp_tree_reader r;
    ckp_tree_node node;
    ckp_status st;
    uint64_t sizes = 0;      /* children of a torch.Size that must follow as plain ints */
    ckp_tree_reader_init(&r, data, len);
    while ((st = ckp_tree_next(&r, &node, err)) == CKP_OK) {
        if (node.type == CKP_TREE_TENSOR && node.tensor >= n_tensors)
            return ckpi_fail_at(err, CKP_ECORRUPT, r.pos, "state tree: tensor %u of a table of %u", node.tensor, n_tensors);
        if (sizes != 0 && node.type != CKP_TREE_INT)
            return ckpi_fail_at(err, CKP_ECORRUPT, r.pos, "state tree: a torch.Size holds something that is no integer");
        sizes = node.type == CKP_TREE_TORCH_SIZE ? node.count : sizes - (sizes != 0);
    }
    return st == CKP_ENOTFOUND ? CKP_OK : st;
}
