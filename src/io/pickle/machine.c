/* SPDX-License-Identifier: Apache-2.0 */
/* The stack machine: opcodes, stack, marks and memo. What a call would have done is decided in build*.c. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "io/pickle/pickle.h"


ckp_status
ckpi_pickle_bad(ckpi_pickle *p, ckp_status st, const char *fmt, ...)
{
    char text[500];
    const uint64_t at = p->file_offset + p->pos;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->fault = st;
    return ckpi_fail_at(p->err, st, at, "pickle: %s", text);
}

/* ---- stack, marks, memo ---- */

/* Room for one more element of an array of pointers or sizes. */
static bool
with_room(void *array, size_t *cap, size_t n, size_t size)
{
    void *old;
    if (n < *cap)
        return true;
    memcpy(&old, array, sizeof old);
    void *more = ckpi_realloc(old, *cap == 0 ? 64 : *cap * 2, size);
    if (more == NULL)
        return false;
    memcpy(array, &more, sizeof more);
    *cap = *cap == 0 ? 64 : *cap * 2;
    return true;
}

/* NULL is what a constructor gives on failure: the error may be set already. */
static ckp_status
push(ckpi_pickle *p, ckpi_pv *v)
{
    if (v == NULL)
        return ckpi_pickle_no_memory(p);
    if (p->n_stack >= CKPI_MAX_PICKLE_STACK)
        return ckpi_pickle_bad(p, CKP_ELIMIT, "more than %u values on the stack", CKPI_MAX_PICKLE_STACK);
    if (!with_room(&p->stack, &p->cap_stack, p->n_stack, sizeof *p->stack))
        return ckpi_pickle_no_memory(p);
    p->stack[p->n_stack++] = v;
    return CKP_OK;
}

/* Values above the last mark (or above the bottom) */
static size_t
above_mark(const ckpi_pickle *p)
{
    return p->n_stack - (p->n_mark != 0 ? p->mark[p->n_mark - 1] : 0);
}

static ckp_status
need(ckpi_pickle *p, size_t n)
{
    return above_mark(p) >= n ? CKP_OK : ckpi_pickle_bad(p, CKP_ECORRUPT, "an operation on values that are not there");
}

static ckp_status
put_mark(ckpi_pickle *p)
{
    if (p->n_mark >= CKPI_MAX_PICKLE_STACK)
        return ckpi_pickle_bad(p, CKP_ELIMIT, "more than %u marks", CKPI_MAX_PICKLE_STACK);
    if (!with_room(&p->mark, &p->cap_mark, p->n_mark, sizeof *p->mark))
        return ckpi_pickle_no_memory(p);
    p->mark[p->n_mark++] = p->n_stack;
    return CKP_OK;
}

/* Takes everything above the mark off the stack; it stays readable until the next push. */
static ckp_status
pop_mark(ckpi_pickle *p, ckpi_pv ***items, size_t *n)
{
    *items = NULL;
    *n = 0;
    if (p->n_mark == 0)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a mark is missing");
    const size_t at = p->mark[--p->n_mark];
    *n = p->n_stack - at;
    *items = p->stack != NULL ? p->stack + at : NULL;
    p->n_stack = at;
    return CKP_OK;
}

static ckp_status
memo_put(ckpi_pickle *p, uint64_t i)
{
    const ckp_status st = need(p, 1);
    if (st != CKP_OK)
        return st;
    /* A writer numbers them in order: an index beyond the pickle's length is no index. */
    if (i >= p->len)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "memo index %llu", (unsigned long long)i);
    while (i >= p->cap_memo) {
        const size_t before = p->cap_memo;
        if (!with_room(&p->memo, &p->cap_memo, p->cap_memo, sizeof *p->memo))
            return ckpi_pickle_no_memory(p);
        memset(p->memo + before, 0, (p->cap_memo - before) * sizeof *p->memo);
    }
    p->memo[i] = p->stack[p->n_stack - 1];
    p->n_memo = CKPI_MAX(p->n_memo, (size_t)i + 1);
    return CKP_OK;
}

static ckp_status
memo_get(ckpi_pickle *p, uint64_t i)
{
    if (i >= p->n_memo || p->memo[i] == NULL)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "memo %llu was never set", (unsigned long long)i);
    return push(p, p->memo[i]);
}

/* ---- operands ---- */

static ckp_status
too_short(ckpi_pickle *p)
{
    p->short_of_data = true;
    return ckpi_pickle_bad(p, CKP_ETRUNCATED, "the pickle ends too early");
}

/* n bytes in place, or NULL. */
static const uint8_t *
take(ckpi_pickle *p, uint64_t n)
{
    if (n > p->len - p->pos)
        return NULL;
    const uint8_t *s = p->data + p->pos;
    p->pos += (size_t)n;
    return s;
}

/* A length of `bytes` bytes (1, 4 or 8) and what it counts. */
static ckp_status
take_counted(ckpi_pickle *p, unsigned bytes, const uint8_t **s, size_t *n)
{
    const uint8_t *h = take(p, bytes);
    *s = NULL;
    *n = 0;
    if (h == NULL)
        return too_short(p);
    const uint64_t len = bytes == 1 ? h[0] : bytes == 4 ? ckpi_ld32(h) : ckpi_ld64(h);
    *s = take(p, len);
    *n = (size_t)len;
    return *s != NULL ? CKP_OK : too_short(p);
}

static ckp_status
push_counted(ckpi_pickle *p, unsigned bytes, ckpi_pv_kind kind)
{
    const uint8_t *s;
    size_t n;
    const ckp_status st = take_counted(p, bytes, &s, &n);
    return st == CKP_OK ? push(p, ckpi_pickle_text(p, kind, s, n)) : st;
}

static ckp_status
push_uint(ckpi_pickle *p, unsigned bytes)
{
    const uint8_t *s = take(p, bytes);
    if (s == NULL)
        return too_short(p);
    return push(p, ckpi_pickle_int(p, bytes == 1 ? s[0] : bytes == 2 ? ckpi_ld16(s) : (int32_t)ckpi_ld32(s)));
}

static ckp_status
push_float(ckpi_pickle *p)
{
    const uint8_t *s = take(p, 8);
    if (s == NULL)
        return too_short(p);
    const uint64_t bits = (uint64_t)s[0] << 56 | (uint64_t)s[1] << 48 | (uint64_t)s[2] << 40 | (uint64_t)s[3] << 32 | (uint64_t)s[4] << 24 |
                          (uint64_t)s[5] << 16 | (uint64_t)s[6] << 8 | s[7];
    ckpi_pv *v = ckpi_pickle_new(p, PV_FLOAT);
    if (v != NULL)
        memcpy(&v->u.f, &bits, sizeof bits);
    return push(p, v);
}

static ckp_status
push_long(ckpi_pickle *p, unsigned bytes)
{
    const uint8_t *s;
    size_t n;
    const ckp_status st = take_counted(p, bytes, &s, &n);
    return st == CKP_OK ? push(p, ckpi_pickle_long(p, s, n)) : st;
}

/* A line-based literal sets its own error. */
static ckp_status
push_line(ckpi_pickle *p, ckpi_pv *v)
{
    if (v != NULL)
        return push(p, v);
    return p->fault != CKP_OK ? p->fault : ckpi_pickle_no_memory(p);
}

static ckp_status
memo_line(ckpi_pickle *p, bool put)
{
    const uint8_t *s;
    size_t n;
    uint64_t i = 0;
    if (!ckpi_pickle_line(p, &s, &n))
        return too_short(p);
    for (size_t k = 0; k < n; k++) {
        if (s[k] < '0' || s[k] > '9' || i > UINT32_MAX)
            return ckpi_pickle_bad(p, CKP_ECORRUPT, "a memo index that is no number");
        i = i * 10 + s[k] - '0';
    }
    return put ? memo_put(p, i) : memo_get(p, i);
}

/* ---- names ---- */

static ckp_status
push_global(ckpi_pickle *p, const uint8_t *module, size_t module_len, const uint8_t *name, size_t name_len)
{
    ckpi_pv *v = ckpi_pickle_new(p, PV_GLOBAL);
    if (v != NULL && !ckpi_global_find(v, module, module_len, name, name_len))
        return ckpi_pickle_bad(p, CKP_EUNSAFE, "it asks for %.*s.%.*s, which is not on the list of what a checkpoint may hold; nothing was run",
                               (int)CKPI_MIN(module_len, 150u), (const char *)module, (int)CKPI_MIN(name_len, 150u), (const char *)name);
    return push(p, v);
}

static ckp_status
op_global(ckpi_pickle *p)
{
    const uint8_t *module, *name;
    size_t module_len, name_len;
    if (!ckpi_pickle_line(p, &module, &module_len) || !ckpi_pickle_line(p, &name, &name_len))
        return too_short(p);
    return push_global(p, module, module_len, name, name_len);
}

static ckp_status
op_stack_global(ckpi_pickle *p)
{
    const ckp_status st = need(p, 2);
    if (st != CKP_OK)
        return st;
    const ckpi_pv *module = p->stack[p->n_stack - 2], *name = p->stack[p->n_stack - 1];
    if (module->kind != PV_STR || name->kind != PV_STR)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a name that is no text");
    p->n_stack -= 2;
    return push_global(p, module->u.s.p, module->u.s.n, name->u.s.p, name->u.s.n);
}

/* ---- containers ---- */

static ckp_status
push_from_mark(ckpi_pickle *p, ckpi_pv_kind kind)
{
    ckpi_pv **items;
    size_t n;
    const ckp_status st = pop_mark(p, &items, &n);
    if (st != CKP_OK)
        return st;
    if (kind == PV_DICT && n % 2 != 0)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a key without a value");
    ckpi_pv *v = ckpi_pickle_new(p, kind);
    return push(p, v != NULL && ckpi_pickle_add(p, v, items, n) ? v : NULL);
}

static ckp_status
push_tuple(ckpi_pickle *p, size_t n)
{
    const ckp_status st = need(p, n);
    if (st != CKP_OK)
        return st;
    p->n_stack -= n;
    return push(p, ckpi_pickle_tuple(p, p->stack + p->n_stack, n));
}

/* n items go into the container now on top of the stack. */
static ckp_status
fill(ckpi_pickle *p, ckpi_pv *const *items, size_t n, bool pairs, bool set)
{
    const ckp_status st = need(p, 1);
    if (st != CKP_OK)
        return st;
    ckpi_pv *c = p->stack[p->n_stack - 1];
    const bool fits = pairs ? ckpi_pv_is_dict(c) : set ? c->kind == PV_SET : c->kind == PV_LIST || c->kind == PV_DEQUE;
    if (!fits || (pairs && n % 2 != 0))
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "items for something that cannot hold them");
    return ckpi_pickle_add(p, c, items, n) ? CKP_OK : ckpi_pickle_no_memory(p);
}

static ckp_status
fill_from_mark(ckpi_pickle *p, bool pairs, bool set)
{
    ckpi_pv **items;
    size_t n;
    const ckp_status st = pop_mark(p, &items, &n);
    return st == CKP_OK ? fill(p, items, n, pairs, set) : st;
}

static ckp_status
fill_top(ckpi_pickle *p, size_t n, bool pairs)
{
    const ckp_status st = need(p, n + 1);
    if (st != CKP_OK)
        return st;
    p->n_stack -= n;
    return fill(p, p->stack + p->n_stack, n, pairs, false);
}

/* ---- what would be calls ---- */

static ckp_status
op_reduce(ckpi_pickle *p, size_t extra)
{
    ckpi_pv *out = NULL;
    ckp_status st = need(p, 2 + extra);
    if (st != CKP_OK)
        return st;
    p->n_stack -= 2 + extra;
    const ckpi_pv *callee = p->stack[p->n_stack], *args = p->stack[p->n_stack + 1];
    if (extra != 0) {       /* NEWOBJ_EX: keyword arguments */
        const ckpi_pv *kw = p->stack[p->n_stack + 2];
        if (kw->kind != PV_DICT || kw->u.c.n != 0)
            return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "an object made with keyword arguments");
    }
    if (callee->kind != PV_GLOBAL || args->kind != PV_TUPLE)
        return ckpi_pickle_bad(p, callee->kind == PV_GLOBAL ? CKP_ECORRUPT : CKP_EUNSAFE, "a call of something that is no name on the list");
    st = ckpi_pickle_reduce(p, callee, args, &out);
    return st == CKP_OK ? push(p, out) : st;
}

static ckp_status
op_build(ckpi_pickle *p)
{
    const ckp_status st = need(p, 2);
    if (st != CKP_OK)
        return st;
    ckpi_pv *state = p->stack[--p->n_stack];
    return ckpi_pickle_build(p, p->stack[p->n_stack - 1], state);
}

static ckp_status
op_persistent(ckpi_pickle *p)
{
    ckpi_pv *out = NULL;
    ckp_status st = need(p, 1);
    if (st != CKP_OK)
        return st;
    st = ckpi_pickle_persistent(p, p->stack[--p->n_stack], &out);
    return st == CKP_OK ? push(p, out) : st;
}

static ckp_status
op_pop(ckpi_pickle *p)
{
    if (above_mark(p) != 0)
        p->n_stack--;
    else if (p->n_mark != 0)
        p->n_mark--;
    else
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "a pop from an empty stack");
    return CKP_OK;
}

static ckp_status
op_indexed(ckpi_pickle *p, unsigned bytes, bool put)
{
    const uint8_t *s = take(p, bytes);
    if (s == NULL)
        return too_short(p);
    const uint64_t i = bytes == 1 ? s[0] : ckpi_ld32(s);
    return put ? memo_put(p, i) : memo_get(p, i);
}

static ckp_status
op_proto(ckpi_pickle *p)
{
    const uint8_t *s = take(p, 1);
    if (s == NULL)
        return too_short(p);
    return s[0] <= 5 ? CKP_OK : ckpi_pickle_bad(p, CKP_EVERSION, "pickle protocol %u", s[0]);
}

static ckp_status
op_pop_mark(ckpi_pickle *p)
{
    ckpi_pv **items;
    size_t n;
    return pop_mark(p, &items, &n);
}

/* One case an opcode; names as in Python's pickletools. */
static ckp_status
step(ckpi_pickle *p, uint8_t op)
{
    switch (op) {
    case 0x80: return op_proto(p);                                  /* PROTO */
    case 0x95: return take(p, 8) != NULL ? CKP_OK : too_short(p);   /* FRAME */
    case '(': return put_mark(p);
    case '0': return op_pop(p);
    case '1': return op_pop_mark(p);
    case '2': return need(p, 1) == CKP_OK ? push(p, p->stack[p->n_stack - 1]) : CKP_ECORRUPT;   /* DUP */
    case 'N': return push(p, ckpi_pickle_const(p, PV_NONE));
    case 0x88: return push(p, ckpi_pickle_const(p, PV_TRUE));
    case 0x89: return push(p, ckpi_pickle_const(p, PV_FALSE));
    case 'K': return push_uint(p, 1);
    case 'M': return push_uint(p, 2);
    case 'J': return push_uint(p, 4);
    case 0x8a: return push_long(p, 1);
    case 0x8b: return push_long(p, 4);
    case 'G': return push_float(p);
    case 'I':
    case 'L': return push_line(p, ckpi_pickle_int_line(p));
    case 'F': return push_line(p, ckpi_pickle_float_line(p));
    case 'S': return push_line(p, ckpi_pickle_string_line(p));
    case 'V': return push_line(p, ckpi_pickle_unicode_line(p));
    case 'X': return push_counted(p, 4, PV_STR);
    case 0x8c: return push_counted(p, 1, PV_STR);
    case 0x8d: return push_counted(p, 8, PV_STR);
    case 'T': return push_counted(p, 4, PV_STR2);
    case 'U': return push_counted(p, 1, PV_STR2);
    case 'B': return push_counted(p, 4, PV_BYTES);
    case 'C': return push_counted(p, 1, PV_BYTES);
    case 0x8e: return push_counted(p, 8, PV_BYTES);
    case 0x96: return push_counted(p, 8, PV_BYTEARRAY);
    case ']': return push(p, ckpi_pickle_new(p, PV_LIST));
    case '}': return push(p, ckpi_pickle_new(p, PV_DICT));
    case ')': return push(p, ckpi_pickle_new(p, PV_TUPLE));
    case 0x8f: return push(p, ckpi_pickle_new(p, PV_SET));
    case 'l': return push_from_mark(p, PV_LIST);
    case 'd': return push_from_mark(p, PV_DICT);
    case 't': return push_from_mark(p, PV_TUPLE);
    case 0x91: return push_from_mark(p, PV_FROZENSET);
    case 0x85: return push_tuple(p, 1);
    case 0x86: return push_tuple(p, 2);
    case 0x87: return push_tuple(p, 3);
    case 'a': return fill_top(p, 1, false);
    case 's': return fill_top(p, 2, true);
    case 'e': return fill_from_mark(p, false, false);
    case 'u': return fill_from_mark(p, true, false);
    case 0x90: return fill_from_mark(p, false, true);               /* ADDITEMS */
    case 'c': return op_global(p);
    case 0x93: return op_stack_global(p);
    case 'R':
    case 0x81: return op_reduce(p, 0);                              /* REDUCE, NEWOBJ: a listed name says itself what it makes */
    case 0x92: return op_reduce(p, 1);                              /* NEWOBJ_EX */
    case 'b': return op_build(p);
    case 'Q': return op_persistent(p);
    case 'p': return memo_line(p, true);
    case 'g': return memo_line(p, false);
    case 'q': return op_indexed(p, 1, true);
    case 'r': return op_indexed(p, 4, true);
    case 'h': return op_indexed(p, 1, false);
    case 'j': return op_indexed(p, 4, false);
    case 0x94: return memo_put(p, p->n_memo);                       /* MEMOIZE */
    case 'i':
    case 'o': return ckpi_pickle_bad(p, CKP_EUNSAFE, "it makes an instance of a class");
    case 0x82:
    case 0x83:
    case 0x84: return ckpi_pickle_bad(p, CKP_EUNSAFE, "it asks for an entry of the extension registry");
    case 'P': return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "a persistent id in text form");
    case 0x97:
    case 0x98: return ckpi_pickle_bad(p, CKP_EUNSUPPORTED, "a buffer outside the pickle");
    default: return ckpi_pickle_bad(p, CKP_ECORRUPT, "0x%02x is no opcode", op);
    }
}

ckp_status
ckpi_pickle_load(ckpi_pickle *p, ckpi_pv **out)
{
    *out = NULL;
    p->n_stack = p->n_mark = p->n_memo = 0;
    p->short_of_data = false;
    if (p->cap_memo != 0)
        memset(p->memo, 0, p->cap_memo * sizeof *p->memo);
    for (;;) {
        const uint8_t *op = take(p, 1);
        if (op == NULL)
            return too_short(p);
        if (*op == '.')
            break;
        const ckp_status st = step(p, *op);
        if (st != CKP_OK)
            return st;
    }
    if (p->n_stack != 1 || p->n_mark != 0)
        return ckpi_pickle_bad(p, CKP_ECORRUPT, "it ends with %zu values instead of one", p->n_stack);
    *out = p->stack[0];
    return CKP_OK;
}

ckp_status
ckpi_pickle_init(ckpi_pickle *p, ckpi_io_arena *a, const void *data, size_t len, uint64_t file_offset, ckp_error *err)
{
    *p = (ckpi_pickle){.arena = a, .data = data, .len = len, .file_offset = file_offset, .err = err};
    if (len > CKPI_MAX_PICKLE)
        return ckpi_fail(err, CKP_ELIMIT, "a pickle of %zu bytes: at most %u are read", len, CKPI_MAX_PICKLE);
    p->small = ckpi_io_arena_get(a, CKPI_PICKLE_SMALL + 3, sizeof *p->small);
    if (p->small == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "pickle: out of memory");
    memset(p->small, 0, (CKPI_PICKLE_SMALL + 3) * sizeof *p->small);
    for (unsigned i = 0; i < 3; i++)
        p->small[i].kind = (uint8_t)i;     /* NONE, FALSE, TRUE are the first kinds */
    for (unsigned i = 0; i < CKPI_PICKLE_SMALL; i++) {
        p->small[3 + i].kind = PV_INT;
        p->small[3 + i].u.i = i;
    }
    return CKP_OK;
}

void
ckpi_pickle_free(ckpi_pickle *p)
{
    free(p->stack);
    free(p->mark);
    free(p->memo);
    free(p->storage);
    ckpi_hindex_free(&p->by_key);
    *p = (ckpi_pickle){0};
}
