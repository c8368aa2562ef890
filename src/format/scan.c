/* SPDX-License-Identifier: Apache-2.0 */
#include "format/scan.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "base/fail.h"

#define WINDOW ((size_t)1 << 18)
#define LOOK 13u               /* magic, length, and the five bytes that a head begins with */

static ckp_status
index_here(ckpi_reader *r, uint64_t at, bool *yes, ckp_error *err)
{
    uint8_t head[CKPI_WIRE_SECTION];
    size_t got;
    const ckp_status st = ckpi_reader_some(r, at, head, sizeof head, &got, err);
    *yes = st == CKP_OK && got == sizeof head && ckpi_ld64(head + 48) == ckpi_hash64(head, 48);
    return st;
}

/* Cheap tests first: bytes that only look like a frame must not cost a read of 2 MiB each. */
static bool
plausible(const uint8_t look[LOOK])
{
    const uint32_t len = ckpi_ld32(look + 4);
    return len >= CKPI_WIRE_FRAME_MIN_HEAD && len <= CKPI_MAX_FRAME_HEAD && look[8] < CKP_ROLE_COUNT_ && look[11] <= CKPI_CHUNK_USES_BASE &&
           ckpi_dtype_get((ckp_dtype)look[12]) != NULL;
}

/* *yes is false, too, where *left does not suffice. */
static ckp_status
frame_here(ckpi_reader *r, uint64_t at, uint32_t len, uint64_t *left, bool *yes, ckp_error *err)
{
    const size_t n = CKPI_WIRE_FRAME_PREFIX + (size_t)len;
    size_t got;
    if (n + 8 > *left)
        return CKP_OK;
    uint8_t *head = ckpi_malloc(n + 8, 1);
    if (head == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "salvage: out of memory");
    const ckp_status st = ckpi_reader_some(r, at, head, n + 8, &got, err);
    *yes = st == CKP_OK && got == n + 8 && ckpi_ld64(head + n) == ckpi_hash64(head, n);
    free(head);
    *left -= got;
    return st;
}

/* Looks at every magic in a window; the last LOOK - 1 bytes are the next window's. */
static ckp_status
scan_window(ckpi_reader *r, const uint8_t *w, size_t n, uint64_t base, uint64_t *left, uint64_t *place, bool *found, ckp_error *err)
{
    const uint8_t *p = w;
    while ((size_t)(p - w) + LOOK <= n && (p = memchr(p, (uint8_t)CKPI_WIRE_FRAME[0], n - (size_t)(p - w) - (LOOK - 1))) != NULL) {
        ckp_status st = CKP_OK;
        *place = base + (uint64_t)(p - w);
        if (memcmp(p, CKPI_WIRE_FRAME, 4) == 0 && plausible(p))
            st = frame_here(r, *place, ckpi_ld32(p + 4), left, found, err);
        else if (memcmp(p, CKPI_WIRE_INDEX, 4) == 0)
            st = index_here(r, *place, found, err);
        if (st != CKP_OK || *found)
            return st;
        p++;
    }
    return CKP_OK;
}

ckp_status
ckpi_scan(ckpi_reader *r, uint64_t from, uint64_t *left, uint64_t *place, bool *found, ckp_error *err)
{
    ckp_status st;
    size_t got;
    *found = false;
    uint8_t *w = ckpi_malloc(WINDOW, 1);
    if (w == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "salvage: out of memory");
    do {
        st = ckpi_reader_some(r, from, w, WINDOW, &got, err);
        *left -= CKPI_MIN(*left, got);
        if (st == CKP_OK)
            st = scan_window(r, w, got, from, left, place, found, err);
        from += WINDOW - (LOOK - 1);
    } while (st == CKP_OK && !*found && got == WINDOW && *left != 0);
    free(w);
    return st;
}
