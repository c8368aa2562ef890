/* SPDX-License-Identifier: Apache-2.0 */
/* Trees are flattened to leaves with their paths, which are sorted and merged. Leaves are compared as they are encoded. */
#include "run/diff_tree.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/float.h"
#include "base/hash.h"
#include "base/limits.h"
#include "io/io.h"
#include "io/nodes.h"

#define ORDERED_DICT "collections.OrderedDict"   /* NAMED over (items, attributes) */
#define TEXT_ROOM 160
#define SHOWN_TEXT 60            /* bytes of a text, and of other bytes, that are shown */
#define SHOWN_BYTES 8

typedef struct leaf {
    size_t path;                 /* in texts */
    const uint8_t *code;         /* its node in the tree; NULL: a text of safetensors' metadata */
    size_t len;
    size_t text;                 /* in texts */
    size_t order;
} leaf;

typedef struct leaves {
    leaf *v;
    size_t n, cap;
    ckpi_buf texts;
} leaves;

static const char *
text_at(const leaves *l, size_t at)
{
    return (const char *)l->texts.data + at;
}

/* ---- values as text -------------------------------------------------------------------------------------------------- */

/* The shortest digits that give the same number; never those of a whole one. */
static void
float_text(char *out, size_t cap, double v)
{
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(out, cap, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    const size_t n = strlen(out);
    if (strspn(out, "-0123456789") == n)
        (void)snprintf(out + n, cap - n, ".0");
}

/* "hex..." and, where that is not all, a number that stands for all of it: two long values that differ must not look alike. */
static void
bytes_text(char *out, size_t cap, const uint8_t *p, size_t n)
{
    size_t at = (size_t)snprintf(out, cap, "0x");

    for (size_t i = 0; i < n && i < SHOWN_BYTES; i++)
        at += (size_t)snprintf(out + at, cap - at, "%02x", p[i]);
    if (n > SHOWN_BYTES)
        (void)snprintf(out + at, cap - at, "... (%zu bytes, hash %016llx)", n, (unsigned long long)ckpi_hash64(p, n));
}

static void
string_text(char *out, size_t cap, const char *p, size_t n)
{
    size_t k = CKPI_MIN(n, (size_t)SHOWN_TEXT);

    while (k < n && k > 0 && ((unsigned char)p[k] & 0xC0) == 0x80)   /* between characters */
        k--;
    const size_t at = (size_t)snprintf(out, cap, "\"");
    for (size_t i = 0; i < k; i++)
        out[at + i] = p[i] != '\0' ? p[i] : '?';
    if (k < n)
        (void)snprintf(out + at + k, cap - at - k, "...\" (%zu bytes, hash %016llx)", n, (unsigned long long)ckpi_hash64(p, n));
    else
        (void)snprintf(out + at + k, cap - at - k, "\"");
}

/* The usual numbers; others as bytes. */
static void
numpy_text(char *out, size_t cap, const ckp_tree_node *n)
{
    static const struct { const char *name; size_t bytes; } known[] = {
        {"numpy.float64", 8}, {"numpy.float32", 4}, {"numpy.int64", 8}, {"numpy.int32", 4}, {"numpy.bool", 1}, {"numpy.bool_", 1}};
    size_t kind = 0;

    while (kind < 6 && (strlen(known[kind].name) != n->name_len || memcmp(known[kind].name, n->name, n->name_len) != 0 || known[kind].bytes != n->len))
        kind++;
    switch (kind) {
    case 0: float_text(out, cap, ckpi_f64_from_bits(ckpi_ld64(n->data))); break;
    case 1: float_text(out, cap, (double)ckpi_f32_from_bits(ckpi_ld32(n->data))); break;
    case 2: (void)snprintf(out, cap, "%lld", (long long)(int64_t)ckpi_ld64(n->data)); break;
    case 3: (void)snprintf(out, cap, "%ld", (long)(int32_t)ckpi_ld32(n->data)); break;
    case 4:
    case 5: (void)snprintf(out, cap, "%s", *(const uint8_t *)n->data != 0 ? "True" : "False"); break;
    default: bytes_text(out, cap, n->data, n->len); break;
    }
    const size_t at = strlen(out);
    if (at < cap)
        (void)snprintf(out + at, cap - at, " (%.*s)", (int)CKPI_MIN(n->name_len, (size_t)40), n->name);
}

/* A leaf, or a container without content. */
static void
node_text(char *out, size_t cap, const ckp_tree_node *n)
{
    size_t at;

    switch (n->type) {
    case CKP_TREE_NONE: (void)snprintf(out, cap, "None"); break;
    case CKP_TREE_FALSE: (void)snprintf(out, cap, "False"); break;
    case CKP_TREE_TRUE: (void)snprintf(out, cap, "True"); break;
    case CKP_TREE_INT: (void)snprintf(out, cap, "%lld", (long long)n->i); break;
    case CKP_TREE_FLOAT: float_text(out, cap, n->re); break;
    case CKP_TREE_COMPLEX:
        float_text(out, cap, n->re);
        at = strlen(out);
        (void)snprintf(out + at, cap - at, " + ");
        float_text(out + at + 3, cap - at - 3, n->im);
        at = strlen(out);
        (void)snprintf(out + at, cap - at, "i");
        break;
    case CKP_TREE_STR: string_text(out, cap, n->data, n->len); break;
    case CKP_TREE_DTYPE:
    case CKP_TREE_DEVICE: (void)snprintf(out, cap, "%.*s", (int)CKPI_MIN(n->len, (size_t)SHOWN_TEXT), (const char *)n->data); break;
    case CKP_TREE_NUMPY_SCALAR: numpy_text(out, cap, n); break;
    case CKP_TREE_TENSOR: (void)snprintf(out, cap, "a tensor"); break;
    case CKP_TREE_LIST: (void)snprintf(out, cap, "[]"); break;
    case CKP_TREE_TUPLE:
    case CKP_TREE_TORCH_SIZE: (void)snprintf(out, cap, "()"); break;
    case CKP_TREE_DICT:
    case CKP_TREE_ORDERED_DICT: (void)snprintf(out, cap, "{}"); break;
    case CKP_TREE_SET:
    case CKP_TREE_FROZENSET: (void)snprintf(out, cap, "set()"); break;
    case CKP_TREE_BIGINT:
    case CKP_TREE_BYTES:
    case CKP_TREE_BYTEARRAY:
    case CKP_TREE_NAMED: bytes_text(out, cap, n->data, n->len); break;
    }
}

static void
leaf_text(char *out, size_t cap, const leaves *l, const leaf *x)
{
    ckp_tree_reader r;
    ckp_tree_node n;

    if (x->code == NULL) {
        string_text(out, cap, text_at(l, x->text), x->len);
        return;
    }
    ckp_tree_reader_init(&r, x->code, x->len);
    if (ckp_tree_next(&r, &n, NULL) == CKP_OK)
        node_text(out, cap, &n);
    else
        (void)snprintf(out, cap, "?");
}

/* ---- leaves ---------------------------------------------------------------------------------------------------------- */

typedef enum level_kind { LEVEL_LIST, LEVEL_DICT, LEVEL_NAMED, LEVEL_ORDERED } level_kind;
typedef struct level { level_kind kind; bool key_next; uint64_t left, at; size_t path; } level;

typedef struct walk {
    leaves *l;
    ckpi_buf path;               /* of the node at hand, without its NUL */
    level level[CKPI_MAX_TREE_DEPTH + 1];
    unsigned depth;
    uint64_t skip;               /* nodes of a key that is a container */
} walk;

static size_t
put_text(leaves *l, const void *p, size_t n)
{
    const size_t at = l->texts.len;
    ckpi_buf_put(&l->texts, p, n);
    ckpi_buf_u8(&l->texts, 0);
    return at;
}

static bool
add_leaf(leaves *l, leaf x)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap != 0 ? 2 * l->cap : 64;
        leaf *v = ckpi_realloc(l->v, cap, sizeof *v);
        if (v == NULL)
            return false;
        l->v = v;
        l->cap = cap;
    }
    x.order = l->n;
    l->v[l->n++] = x;
    return true;
}

/* One step further from the path of the level above; escaped as names of tensors are. */
static void
step(walk *w, const char *p, size_t n)
{
    w->path.len = w->level[w->depth - 1].path;
    if (w->path.len != 0)
        ckpi_buf_u8(&w->path, '/');
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '~' || p[i] == '/' || p[i] == '\0') {
            ckpi_buf_u8(&w->path, '~');
            ckpi_buf_u8(&w->path, p[i] == '~' ? '0' : p[i] == '/' ? '1' : 'z');
        } else {
            ckpi_buf_u8(&w->path, (uint8_t)p[i]);
        }
    }
    if (n == 0)
        ckpi_buf_put(&w->path, "~e", 2);
}

static void
key_step(walk *w, const ckp_tree_node *n)
{
    char text[TEXT_ROOM];

    if (n->type == CKP_TREE_STR) {
        step(w, n->data, n->len);
        return;
    }
    if (ckpi_tree_children(n) != 0)
        (void)snprintf(text, sizeof text, "?%llu", (unsigned long long)w->level[w->depth - 1].at);
    else
        node_text(text, sizeof text, n);
    step(w, text, strlen(text));
    w->skip = ckpi_tree_children(n);
}

/* The node becomes the next value of the level above. True: it was a key. */
static bool
place_node(walk *w, const ckp_tree_node *n)
{
    char text[24];

    if (w->depth == 0)
        return false;
    level *up = &w->level[w->depth - 1];
    if (up->kind == LEVEL_DICT && up->key_next) {
        up->key_next = false;
        key_step(w, n);
        return true;
    }
    if (up->kind == LEVEL_LIST) {
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)up->at);
        step(w, text, strlen(text));
    } else if (up->kind == LEVEL_ORDERED && up->at != 0) {
        step(w, "(attributes)", 12);
    } else if (up->kind != LEVEL_DICT) {
        w->path.len = up->path;
    }
    up->key_next = true;
    up->at++;
    up->left--;
    return false;
}

static void
enter(walk *w, const ckp_tree_node *n)
{
    static const char ordered[] = ORDERED_DICT;
    const level *up = w->depth != 0 ? &w->level[w->depth - 1] : NULL;
    const bool is_dict = n->type == CKP_TREE_DICT || n->type == CKP_TREE_ORDERED_DICT;
    level x = {.kind = is_dict ? LEVEL_DICT : n->type == CKP_TREE_NAMED ? LEVEL_NAMED : LEVEL_LIST, .key_next = true, .path = w->path.len,
               .left = n->type == CKP_TREE_NAMED ? 1 : n->count};

    if (n->type == CKP_TREE_NAMED && n->len == sizeof ordered - 1 && memcmp(n->data, ordered, n->len) == 0)
        x.kind = LEVEL_ORDERED;
    /* the pair of an OrderedDict takes its parent's place, which has done its part */
    if (up != NULL && up->kind == LEVEL_ORDERED && up->left == 0 && up->at == 1 && n->type == CKP_TREE_TUPLE)
        x.kind = LEVEL_ORDERED;
    w->level[w->depth++] = x;
}

static ckp_status
walk_node(walk *w, const ckp_tree_node *n, const uint8_t *code, size_t len, ckp_error *err)
{
    static const uint8_t tensor[] = {CKP_TREE_TENSOR, 0, 0};     /* which one, its name says */

    if (w->skip != 0) {
        w->skip += ckpi_tree_children(n) - 1;
        return CKP_OK;
    }
    if (place_node(w, n))
        return ckpi_buf_status(&w->path, err, "a path");
    if (ckpi_tree_children(n) != 0) {
        enter(w, n);
    } else {
        const bool is_tensor = n->type == CKP_TREE_TENSOR;
        const leaf x = {.path = put_text(w->l, w->path.data, w->path.len), .code = is_tensor ? tensor : code, .len = is_tensor ? sizeof tensor : len};
        if (!add_leaf(w->l, x))
            return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu values", w->l->n);
    }
    while (w->depth != 0 && w->level[w->depth - 1].left == 0)
        w->depth--;
    const ckp_status st = ckpi_buf_status(&w->path, err, "a path");
    return st == CKP_OK ? ckpi_buf_status(&w->l->texts, err, "paths") : st;
}

static ckp_status
walk_tree(leaves *l, const void *tree, size_t len, ckp_error *err)
{
    walk w = {.l = l};
    ckp_tree_reader r;
    ckp_tree_node n;
    ckp_status st = CKP_OK;

    ckp_tree_reader_init(&r, tree, len);
    while (st == CKP_OK) {
        const size_t before = r.pos;
        st = ckp_tree_next(&r, &n, err);
        if (st == CKP_OK)
            st = walk_node(&w, &n, r.data + before, r.pos - before, err);
    }
    ckpi_buf_free(&w.path);
    return st == CKP_ENOTFOUND ? CKP_OK : st;        /* the end */
}

static bool
add_metadata(void *user, const char *key, const char *value)
{
    leaves *l = user;
    const size_t path = put_text(l, "__metadata__/", 13);

    l->texts.len--;              /* no NUL yet */
    (void)put_text(l, key, strlen(key));
    const leaf x = {.path = path, .text = put_text(l, value, strlen(value)), .len = strlen(value)};
    return l->texts.failed == CKP_OK && add_leaf(l, x);
}

/* qsort has no third argument for the texts: paths are pointed to while it runs. */
typedef struct sorted { const char *path; leaf x; } sorted;

static int
by_path(const void *x, const void *y)
{
    const sorted *a = x, *b = y;
    const int c = strcmp(a->path, b->path);
    return c != 0 ? c : a->x.order < b->x.order ? -1 : a->x.order > b->x.order;
}

static ckp_status
sort_leaves(leaves *l, ckp_error *err)
{
    sorted *v = ckpi_calloc(l->n + 1, sizeof *v);

    if (v == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "no memory for %zu values", l->n);
    for (size_t i = 0; i < l->n; i++)
        v[i] = (sorted){text_at(l, l->v[i].path), l->v[i]};
    qsort(v, l->n, sizeof *v, by_path);
    for (size_t i = 0; i < l->n; i++)
        l->v[i] = v[i].x;
    free(v);
    return CKP_OK;
}

static ckp_status
load(leaves *l, const void *tree, size_t len, ckp_error *err)
{
    *l = (leaves){0};
    if (len == 0)
        return CKP_OK;
    ckp_status st = ckpi_tree_st_metadata(tree, len, add_metadata, l, err);
    if (st == CKP_ENOTFOUND)
        st = walk_tree(l, tree, len, err);
    return st == CKP_OK ? sort_leaves(l, err) : st;
}

static void
leaves_free(leaves *l)
{
    free(l->v);
    ckpi_buf_free(&l->texts);
}

/* ---- merging --------------------------------------------------------------------------------------------------------- */

static bool
same_value(const leaves *l, const leaf *x, const leaves *m, const leaf *y)
{
    if ((x->code == NULL) != (y->code == NULL) || x->len != y->len)
        return false;
    return memcmp(x->code != NULL ? (const void *)x->code : text_at(l, x->text), y->code != NULL ? (const void *)y->code : text_at(m, y->text), x->len) == 0;
}

typedef struct teller { int (*fn)(void *user, const ckp_diff_value *v); void *user; } teller;

/* x or y may be NULL. */
static ckp_status
tell(const teller *t, const leaves *l, const leaf *x, const leaves *m, const leaf *y, ckp_error *err)
{
    char a[TEXT_ROOM], b[TEXT_ROOM];

    if (x != NULL)
        leaf_text(a, sizeof a, l, x);
    if (y != NULL)
        leaf_text(b, sizeof b, m, y);
    const ckp_diff_value v = {x != NULL ? text_at(l, x->path) : text_at(m, y->path), x != NULL ? a : NULL, y != NULL ? b : NULL};
    return t->fn(t->user, &v) == 0 ? CKP_OK : ckpi_fail(err, CKP_ECANCELLED, "stopped by the caller");
}

static ckp_status
merge(const leaves *l, const leaves *m, const teller *t, ckp_error *err)
{
    ckp_status st = CKP_OK;

    for (size_t i = 0, j = 0; st == CKP_OK && (i < l->n || j < m->n);) {
        const leaf *x = i < l->n ? &l->v[i] : NULL, *y = j < m->n ? &m->v[j] : NULL;
        const int c = x == NULL ? 1 : y == NULL ? -1 : strcmp(text_at(l, x->path), text_at(m, y->path));
        if (c != 0 || !same_value(l, x, m, y))
            st = tell(t, l, c <= 0 ? x : NULL, m, c >= 0 ? y : NULL, err);
        i += c <= 0;
        j += c >= 0;
    }
    return st;
}

ckp_status
ckpi_diff_trees(const void *a, size_t a_len, const void *b, size_t b_len, int (*fn)(void *user, const ckp_diff_value *v), void *user,
                ckp_error *err)
{
    const teller t = {fn, user};
    leaves l = {0}, m = {0};

    ckp_status st = load(&l, a, a_len, err);
    if (st == CKP_OK)
        st = load(&m, b, b_len, err);
    if (st == CKP_OK)
        st = merge(&l, &m, &t, err);
    leaves_free(&l);
    leaves_free(&m);
    return st;
}
