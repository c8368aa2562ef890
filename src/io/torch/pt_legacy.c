/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch.save before 1.6: five pickles one after another (magic number, protocol version, system, the object, storage keys), then each
 * storage as u64 count of elements and its bytes, in the order of the keys.
 */
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/limits.h"
#include "io/torch/torch.h"

#define PROTOCOL 1001

static ckp_status
get(ckpi_pv *const *pair, const char *key, uint32_t n, const ckpi_pv **out)
{
    for (uint32_t i = 0; i + 1 < n; i += 2)
        if (ckpi_pv_is_text(pair[i], key)) {
            *out = pair[i + 1];
            return CKP_OK;
        }
    return CKP_ENOTFOUND;
}

static ckp_status
check_heads(const ckpi_pv *version, const ckpi_pv *sys, ckp_error *err)
{
    const ckpi_pv *little = NULL;
    if (version->kind != PV_INT || version->u.i != PROTOCOL)
        return ckpi_fail(err, CKP_EVERSION, "a legacy file of torch of another protocol version than %d", PROTOCOL);
    if (sys->kind != PV_DICT || get(sys->u.c.v, "little_endian", sys->u.c.n, &little) != CKP_OK)
        return ckpi_fail(err, CKP_ECORRUPT, "a legacy file of torch that does not tell its byte order");
    return little->kind == PV_TRUE ? CKP_OK : ckpi_fail(err, CKP_EUNSUPPORTED, "its byte order is not little-endian");
}

typedef struct parts { ckpi_pv *root, *keys; } parts;

/* All five pickles from the data at hand. */
static ckp_status
load_pickles(ckpi_pickle *p, parts *out)
{
    ckpi_pv *v[5] = {0};
    for (int i = 0; i < 5; i++) {
        ckp_status st = ckpi_pickle_load(p, &v[i]);
        if (st == CKP_OK && i == 2)
            st = check_heads(v[1], v[2], p->err);
        if (st != CKP_OK)
            return st;
    }
    out->root = v[3];
    out->keys = v[4];
    return v[4]->kind == PV_LIST ? CKP_OK : ckpi_fail(p->err, CKP_ECORRUPT, "a legacy file of torch without its list of storages");
}

/*
 * How long the pickles are is known only when they were read: read some, and if they end too early twice as much. Each try starts over,
 * in an arena of its own.
 */
static ckp_status
load(ckpi_foreign *f, uint64_t size, ckpi_pickle *p, parts *out, ckp_error *err)
{
    for (uint64_t want = (uint64_t)1 << 20;; want *= 2) {
        const size_t n = (size_t)CKPI_MIN(CKPI_MIN(want, size), (uint64_t)CKPI_MAX_PICKLE);
        uint8_t *data = ckpi_io_arena_get(&f->arena, n + 1, 1);
        if (data == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "no memory for a pickle of %zu bytes", n);
        ckp_status st = ckpi_reader_read(f->file.r, 0, data, n, err);
        if (st == CKP_OK)
            st = ckpi_pickle_init(p, &f->arena, data, n, 0, err);
        if (st == CKP_OK)
            st = load_pickles(p, out);
        if (st == CKP_OK || !p->short_of_data || n == size || n == CKPI_MAX_PICKLE)
            return st;
        ckpi_pickle_free(p);
        ckpi_io_arena_free(&f->arena);
        if (err != NULL)
            ckpi_error_clear(err);
    }
}

static ckp_status
place(ckpi_foreign *f, const ckpi_pickle *p, const ckpi_pv *keys, uint64_t size, ckp_error *err)
{
    uint64_t at = p->pos;
    for (uint32_t i = 0; i < keys->u.c.n; i++) {
        uint8_t count[8];
        const ckpi_pv *k = keys->u.c.v[i];
        ckpi_pstorage *s = k->kind == PV_STR || k->kind == PV_STR2 ? ckpi_pickle_storage(p, k->u.s.p, k->u.s.n) : NULL;
        if (s == NULL || s->placed)
            return ckpi_fail_at(err, CKP_ECORRUPT, at, "a storage that no tensor uses, or twice");
        const ckp_status st = ckpi_reader_read(f->file.r, at, count, sizeof count, err);
        if (st != CKP_OK)
            return st;
        if (ckpi_ld64(count) != s->numel)
            return ckpi_fail_at(err, CKP_ECORRUPT, at, "a storage of %llu elements, the pickle says %llu", (unsigned long long)ckpi_ld64(count),
                                (unsigned long long)s->numel);
        s->offset = at + sizeof count;
        s->placed = true;
        if (s->bytes > size - s->offset)
            return ckpi_fail_at(err, CKP_ETRUNCATED, size, "a storage of %llu bytes at %llu in a file of %llu", (unsigned long long)s->bytes,
                                (unsigned long long)s->offset, (unsigned long long)size);
        at = s->offset + s->bytes;
    }
    if (at != size)
        return ckpi_fail_at(err, CKP_ECORRUPT, at, "%llu bytes follow the last storage", (unsigned long long)(size - at));
    for (size_t i = 0; i < p->n_storage; i++)
        if (!p->storage[i]->placed)
            return ckpi_fail(err, CKP_ECORRUPT, "storage '%.*s' is not in the file", (int)CKPI_MIN(p->storage[i]->key_len, 64u),
                             (const char *)p->storage[i]->key);
    return CKP_OK;
}

ckp_status
ckpi_pt_open_legacy(ckpi_foreign *f, ckp_error *err)
{
    uint64_t size = 0;
    ckpi_pickle p = {0};
    parts v = {0};
    ckp_status st = ckpi_reader_size(f->file.r, &size, err);
    if (st == CKP_OK)
        st = load(f, size, &p, &v, err);
    if (st == CKP_OK)
        st = place(f, &p, v.keys, size, err);
    if (st == CKP_OK)
        st = ckpi_pt_emit(f, &p, v.root, err);
    ckpi_pickle_free(&p);
    return st;
}
