/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same names that the Python module gives: keys joined by "/", escaped as in JSON pointers ("~" is "~0", "/" is "~1"), an empty key is
 * "~e", NUL "~z", a lone surrogate "~uXXXX"; a name that is taken gets "~2", "~3" ...; one that is too long is cut and ends in its hash.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/hash.h"
#include "base/limits.h"
#include "io/torch/torch.h"
#include "state/utf8.h"

static void
put(ckpi_path *path, const char *s)
{
    ckpi_buf_put(&path->text, s, strlen(s));
}

static void
begin(ckpi_path *path, size_t *mark)
{
    *mark = path->text.len;
    if (path->text.len != 0)
        ckpi_buf_u8(&path->text, '/');
}

/* A surrogate is three bytes ED A0..BF xx, which no name may hold. */
static void
put_escaped(ckpi_path *path, const uint8_t *s, size_t n)
{
    char u[8];
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '~') {
            put(path, "~0");
        } else if (s[i] == '/') {
            put(path, "~1");
        } else if (s[i] == 0) {
            put(path, "~z");
        } else if (s[i] == 0xed && i + 2 < n && s[i + 1] >= 0xa0) {
            (void)snprintf(u, sizeof u, "~u%04x", 0xd000u | (s[i + 1] & 0x3fu) << 6 | (s[i + 2] & 0x3fu));
            put(path, u);
            i += 2;
        } else {
            ckpi_buf_u8(&path->text, s[i]);
        }
    }
    if (n == 0)
        put(path, "~e");
}

void
ckpi_path_push(ckpi_path *path, const ckpi_pv *key, uint64_t index, size_t *mark)
{
    char num[32];
    begin(path, mark);
    switch (key->kind) {
    case PV_STR: put_escaped(path, key->u.s.p, key->u.s.n); return;
    case PV_STR2:
        if (ckpi_utf8_ok(key->u.s.p, key->u.s.n, true)) {
            put_escaped(path, key->u.s.p, key->u.s.n);
            return;
        }
        (void)snprintf(num, sizeof num, "~k%" PRIu64, index);
        break;
    case PV_NONE: put(path, "None"); return;
    case PV_TRUE: put(path, "True"); return;
    case PV_FALSE: put(path, "False"); return;
    case PV_INT: (void)snprintf(num, sizeof num, "%" PRId64, key->u.i); break;
    default: (void)snprintf(num, sizeof num, "~k%" PRIu64, index); break;      /* bytes, tuples ...: by place */
    }
    put(path, num);
}

void
ckpi_path_push_index(ckpi_path *path, uint64_t index, size_t *mark)
{
    char num[32];
    begin(path, mark);
    (void)snprintf(num, sizeof num, "%" PRIu64, index);
    put(path, num);
}

void
ckpi_path_push_text(ckpi_path *path, const char *text, size_t *mark)
{
    begin(path, mark);
    put(path, text);
}

void
ckpi_path_pop(ckpi_path *path, size_t mark)
{
    path->text.len = mark;
}

/* Room for "~" and a number. A cut must not split a character. */
static size_t
cut(const uint8_t *s, size_t n, char *name)
{
    char hex[33];
    size_t keep = n;
    if (n > CKPI_MAX_NAME - 16) {
        keep = CKPI_MAX_NAME - 64;
        while (keep > 0 && (s[keep] & 0xc0) == 0x80)
            keep--;
    }
    memcpy(name, s, keep);
    if (keep == n)
        return n;
    ckpi_id_hex(ckpi_hash128(s, n), hex);
    return keep + (size_t)snprintf(name + keep, CKPI_MAX_NAME - keep, "~h%s", hex);
}

char *
ckpi_path_name(const ckpi_path *path, const ckp_state *s, ckpi_io_arena *a, unsigned *tried)
{
    char name[CKPI_MAX_NAME + 1];
    size_t n = 6;
    if (path->text.failed != CKP_OK)
        return NULL;
    if (path->text.len == 0)
        memcpy(name, "tensor", n);
    else
        n = cut(path->text.data, path->text.len, name);
    name[n] = 0;
    for (*tried = 0; ckpi_state_find(s, name) != CKPI_NO_TENSOR; ++*tried)
        (void)snprintf(name + n, sizeof name - n, "~%u", *tried + 2);
    return ckpi_io_arena_copy(a, name, strlen(name));
}
