/* SPDX-License-Identifier: Apache-2.0 */
/* torch.save since 1.6: NAME/data.pkl, NAME/byteorder, NAME/data/KEY and a few more in one zip archive. */
#include <string.h>
#include "base/fail.h"
#include "base/limits.h"
#include "io/torch/torch.h"
#include "io/zip/zip.h"

typedef struct archive {
    ckpi_foreign *f;
    ckpi_zip z;
    char prefix[CKPI_PATH_MAX + 1];      /* "NAME/" */
    ckp_error *err;
} archive;

/* prefix + name; false when too long for any entry's name. */
static bool
inside(const archive *a, const uint8_t *name, size_t n, const char *folder, char out[CKPI_PATH_MAX + 1])
{
    const size_t p = strlen(a->prefix), d = strlen(folder);
    if (n > CKPI_PATH_MAX - p - d || memchr(name, 0, n) != NULL)
        return false;
    memcpy(out, a->prefix, p);
    memcpy(out + p, folder, d);
    memcpy(out + p + d, name, n);
    out[p + d + n] = 0;
    return true;
}

static const ckpi_zip_entry *
find(const archive *a, const char *name)
{
    char path[CKPI_PATH_MAX + 1];
    return inside(a, (const uint8_t *)name, strlen(name), "", path) ? ckpi_zip_find(&a->z, path) : NULL;
}

static bool
ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* What else a zip may be. */
static ckp_status
no_pickle(const archive *a)
{
    for (size_t i = 0; i < a->z.n; i++)
        if (ends_with(a->z.entry[i].name, ".npy"))
            return ckpi_fail(a->err, CKP_EUNSUPPORTED, "a zip archive of numpy arrays (.npz), not a file of torch.save");
    return ckpi_fail(a->err, CKP_EFORMAT, "a zip archive without data.pkl: not a file of torch.save");
}

static ckp_status
find_prefix(archive *a)
{
    for (size_t i = 0; i < a->z.n; i++) {
        const char *name = a->z.entry[i].name;
        const char *slash = strchr(name, '/');
        if (slash == NULL || strcmp(slash, "/data.pkl") != 0)
            continue;
        const size_t n = (size_t)(slash - name) + 1;
        memcpy(a->prefix, name, n);
        a->prefix[n] = 0;
        break;
    }
    if (a->prefix[0] == 0)
        return no_pickle(a);
    if (find(a, "constants.pkl") != NULL)
        return ckpi_fail(a->err, CKP_EUNSUPPORTED, "a TorchScript program (torch.jit.save), not a file of torch.save");
    return CKP_OK;
}

static ckp_status
check_byteorder(const archive *a)
{
    char text[6];
    const ckpi_zip_entry *e = find(a, "byteorder");
    if (e == NULL)
        return CKP_OK;      /* before torch 2.1: little-endian, as torch itself takes it */
    if (e->size == sizeof text) {
        const ckp_status st = ckpi_reader_read(a->f->file.r, e->data, text, sizeof text, a->err);
        if (st != CKP_OK)
            return st;
        if (memcmp(text, "little", sizeof text) == 0)
            return CKP_OK;
    }
    return ckpi_fail_at(a->err, CKP_EUNSUPPORTED, e->data, "its byte order is not little-endian");
}

static ckp_status
read_pickle(archive *a, uint8_t **data, const ckpi_zip_entry *e)
{
    if (e->size > CKPI_MAX_PICKLE)
        return ckpi_fail_at(a->err, CKP_ELIMIT, e->data, "a pickle of %llu bytes: at most %u are read", (unsigned long long)e->size,
                            CKPI_MAX_PICKLE);
    const ckp_status st = ckpi_zip_check(a->f->file.r, e, a->err);
    if (st != CKP_OK)
        return st;
    *data = ckpi_io_arena_get(&a->f->arena, (size_t)e->size + 1, 1);
    if (*data == NULL)
        return ckpi_fail(a->err, CKP_ENOMEM, "no memory for a pickle of %llu bytes", (unsigned long long)e->size);
    return ckpi_reader_read(a->f->file.r, e->data, *data, (size_t)e->size, a->err);
}

/* Every storage that the pickle names has an entry of just its size. */
static ckp_status
place_storage(archive *a, ckpi_pstorage *s)
{
    char path[CKPI_PATH_MAX + 1];
    const ckpi_zip_entry *e = inside(a, s->key, s->key_len, "data/", path) ? ckpi_zip_find(&a->z, path) : NULL;
    if (e == NULL)
        return ckpi_fail(a->err, CKP_ECORRUPT, "storage '%.*s' is not in the archive", (int)(s->key_len < 64 ? s->key_len : 64), (const char *)s->key);
    if (e->size != s->bytes)
        return ckpi_fail_at(a->err, CKP_ECORRUPT, e->data, "storage '%.200s' has %llu bytes, the pickle says %llu", e->name,
                            (unsigned long long)e->size, (unsigned long long)s->bytes);
    s->offset = e->data;
    s->placed = true;
    return a->f->opts.check_crc ? ckpi_zip_check(a->f->file.r, e, a->err) : CKP_OK;
}

static ckp_status
load(archive *a)
{
    uint8_t *data = NULL;
    ckpi_pv *root = NULL;
    ckpi_pickle p = {0};
    const ckpi_zip_entry *e = find(a, "data.pkl");
    ckp_status st = read_pickle(a, &data, e);
    if (st == CKP_OK)
        st = ckpi_pickle_init(&p, &a->f->arena, data, (size_t)e->size, e->data, a->err);
    if (st == CKP_OK)
        st = ckpi_pickle_load(&p, &root);
    if (st == CKP_OK && p.pos != p.len)
        st = ckpi_fail_at(a->err, CKP_ECORRUPT, e->data + p.pos, "%zu bytes follow the pickle's end", p.len - p.pos);
    for (size_t i = 0; i < p.n_storage && st == CKP_OK; i++)
        st = place_storage(a, p.storage[i]);
    if (st == CKP_OK)
        st = ckpi_pt_emit(a->f, &p, root, a->err);
    ckpi_pickle_free(&p);
    return st;
}

ckp_status
ckpi_pt_open_zip(ckpi_foreign *f, ckp_error *err)
{
    archive a = {.f = f, .err = err};
    ckp_status st = ckpi_zip_open(&a.z, f->file.r, err);
    if (st == CKP_OK)
        st = find_prefix(&a);
    if (st == CKP_OK)
        st = check_byteorder(&a);
    if (st == CKP_OK)
        st = load(&a);
    ckpi_zip_free(&a.z);
    return st;
}
