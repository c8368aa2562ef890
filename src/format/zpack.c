/* SPDX-License-Identifier: Apache-2.0 */
#include "format/zpack.h"
#include <zstd.h>
#include <zstd_errors.h>
#include "base/bytes.h"
#include "base/fail.h"

/* Tables and trees of up to a MiB are packed hard, larger ones fast: a save must not wait for its names. */
#define LEVEL_SMALL 12
#define LEVEL_LARGE 3
#define SMALL ((size_t)1 << 20)

uint64_t
ckpi_zpack_most(uint64_t stored, uint64_t dict)
{
    return 1024 * stored + 4 * dict + 65536;
}

static ckp_status
zstd_error(size_t rc, ckp_status otherwise, ckp_error *err)
{
    if (ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation)
        return ckpi_fail(err, CKP_ENOMEM, "zstd: out of memory");
    return ckpi_fail(err, otherwise, "zstd: %s", ZSTD_getErrorName(rc));
}

/* The window must reach over prefix and content, else the far part of the prefix is of no use. */
static int
window_log(size_t bytes)
{
    int log = 10;
    while (log < 27 && ((size_t)1 << log) < bytes)
        log++;
    return log;
}

static size_t
setup(ZSTD_CCtx *cctx, size_t n, const void *dict, size_t dict_len)
{
    const bool small = n + dict_len <= SMALL;
    size_t rc = ZSTD_CCtx_setParameter(cctx, ZSTD_c_compressionLevel, small ? LEVEL_SMALL : LEVEL_LARGE);
    if (!ZSTD_isError(rc) && dict_len != 0)
        rc = ZSTD_CCtx_setParameter(cctx, ZSTD_c_windowLog, window_log(n + dict_len));
    if (!ZSTD_isError(rc) && dict_len != 0 && !small)
        rc = ZSTD_CCtx_setParameter(cctx, ZSTD_c_enableLongDistanceMatching, 1);
    if (!ZSTD_isError(rc) && dict_len != 0)
        rc = ZSTD_CCtx_refPrefix(cctx, dict, dict_len);
    return rc;
}

ckp_status
ckpi_zpack(ckpi_buf *out, const void *src, size_t n, const void *dict, size_t dict_len, ckp_error *err)
{
    ckp_status st = CKP_OK;
    const size_t cap = ZSTD_compressBound(n);
    ZSTD_CCtx *cctx = ZSTD_createCCtx();
    const size_t before = out->len;
    uint8_t *dst = ckpi_buf_extend(out, cap);
    if (cctx == NULL || dst == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "zstd: out of memory");
        goto done;
    }
    size_t rc = setup(cctx, n, dict, dict_len);
    if (!ZSTD_isError(rc))
        rc = ZSTD_compress2(cctx, dst, cap, src, n);
    if (ZSTD_isError(rc))
        st = zstd_error(rc, CKP_EINTERNAL, err);
    else
        out->len = before + rc;
done:
    ZSTD_freeCCtx(cctx);
    return st;
}

ckp_status
ckpi_zunpack(ckpi_buf *out, size_t raw_len, const void *src, size_t n, const void *dict, size_t dict_len, ckp_error *err)
{
    ckp_status st = CKP_OK;
    ZSTD_DCtx *dctx = ZSTD_createDCtx();
    ckpi_buf_clear(out);
    uint8_t *dst = ckpi_buf_extend(out, raw_len);
    if (dctx == NULL || dst == NULL) {
        st = ckpi_fail(err, CKP_ENOMEM, "zstd: out of memory for %zu bytes", raw_len);
        goto done;
    }
    size_t rc = dict_len != 0 ? ZSTD_DCtx_refPrefix(dctx, dict, dict_len) : 0;
    if (!ZSTD_isError(rc))
        rc = ZSTD_decompressDCtx(dctx, dst, raw_len, src, n);
    if (ZSTD_isError(rc))
        st = zstd_error(rc, CKP_ECORRUPT, err);
    else if (rc != raw_len)
        st = ckpi_fail(err, CKP_ECORRUPT, "zstd: %zu bytes came out, %zu were announced", rc, raw_len);
done:
    ZSTD_freeDCtx(dctx);
    return st;
}
