/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that need no decoding. What the bytes of a shard mean is checked by format and engine. */
#include <stdlib.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

#define PIECE ((size_t)1 << 20)

static ckp_status
tell(ckpi_tally *t, size_t n, ckp_error *err)
{
    t->done += n;
    if (t->keeps != NULL)
        ckpi_lock_keep(t->keeps);
    if (t->fn != NULL && t->fn(t->user, t->done, t->total) != 0)
        return ckpi_fail(err, CKP_ECANCELLED, "cancelled");
    return CKP_OK;
}

static ckp_status
hash_all(ckpi_reader *r, uint64_t length, uint8_t *buf, ckpi_hasher *h, ckpi_tally *t, ckp_error *err)
{
    for (uint64_t off = 0; off < length;) {
        const size_t n = length - off < PIECE ? (size_t)(length - off) : PIECE;
        ckp_status st = ckpi_reader_read(r, off, buf, n, err);
        if (st == CKP_OK) {
            ckpi_hasher_add(h, buf, n);
            st = tell(t, n, err);
        }
        if (st != CKP_OK)
            return st;
        off += n;
    }
    return CKP_OK;
}

static ckp_status
check_shard(ckpi_store *s, const char *dir, const ckpi_shard_ref *ref, ckpi_tally *t, ckp_error *err)
{
    char path[CKPI_STORE_PATH], want[33], have[33];
    ckpi_reader *r = NULL;
    ckpi_hasher *h = ckpi_hasher_new();
    uint8_t *buf = ckpi_malloc(PIECE, 1);
    ckp_status st = h == NULL || buf == NULL ? ckpi_fail(err, CKP_ENOMEM, "no memory to check a shard") : CKP_OK;
    ckpi_store_path(path, dir, ref->file);
    if (st == CKP_OK)
        st = ckpi_reader_file(&r, s->fs, path, err);
    if (st == CKP_OK)
        st = hash_all(r, ref->length, buf, h, t, err);
    if (st == CKP_OK && !ckpi_id_eq(ckpi_hasher_128(h), ref->hash)) {
        ckpi_id_hex(ref->hash, want);
        ckpi_id_hex(ckpi_hasher_128(h), have);
        st = ckpi_fail(err, CKP_ECORRUPT, "hash is %s, the manifest says %s", have, want);
        ckpi_fail_file(err, path);
    }
    ckpi_reader_free(r);
    ckpi_hasher_free(h);
    free(buf);
    return st;
}

ckp_status
ckpi_check_hashes(ckpi_store *s, const char *dir, const ckpi_manifest *m, ckpi_tally *t, ckp_error *err)
{
    ckp_status st = CKP_OK;
    for (size_t i = 0; i < m->n_shards && st == CKP_OK; i++)
        st = check_shard(s, dir, &m->shards[i], t, err);
    return st;
}

ckp_status
ckpi_store_check(ckpi_store *s, const char *dir, int level, ckp_progress_fn progress, void *user, ckp_error *err)
{
    ckpi_chain chain = CKPI_CHAIN_INIT;
    if (level != 1 && level != 2)
        return ckpi_fail(err, CKP_EINVAL, "check: level %d is neither 1 nor 2", level);
    ckp_status st = ckpi_store_chain(s, dir, &chain, err);
    if (st != CKP_OK)
        return st;
    const ckpi_manifest *m = chain.m[chain.n - 1];
    ckpi_tally t = {.fn = progress, .user = user, .total = ckpi_manifest_bytes(m)};
    if (level == 2)
        st = ckpi_check_hashes(s, dir, m, &t, err);
    ckpi_chain_free(&chain);
    return st;
}
