/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of any bytes: opened with all chunks read, streamed, salvaged. To get past the hashes, which no fuzzer guesses, the input's first byte
 * may ask for the known records' hashes to be made right first.
 */
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "format/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
open_and_read(const uint8_t *p, size_t n)
{
    ckpi_reader *r;
    ckpi_fmt_file *f;
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk c;
    if (ckpi_reader_mem(&r, p, n, "fuzz", NULL) != CKP_OK || ckpi_fmt_open(&f, r, NULL) != CKP_OK)
        return;
    for (size_t i = 0; i < f->n_chunks; i++)
        if (ckpi_fmt_read_chunk(f, i, &buf, &c, NULL) != CKP_OK)
            break;
    ckpi_buf_free(&buf);
    ckpi_fmt_close(f);
}

static void
stream(const uint8_t *p, size_t n, bool salvage)
{
    ckpi_reader *r;
    ckpi_fmt_stream *s = NULL;
    ckpi_buf buf = CKPI_BUF_INIT;
    ckpi_chunk c;
    bool done = false;
    uint64_t skipped = 0;
    if (ckpi_reader_mem(&r, p, n, "fuzz", NULL) != CKP_OK)
        return;
    if (ckpi_fmt_stream_open(&s, r, NULL) == CKP_OK)
        while (!done && ckpi_fmt_stream_next(s, salvage, &buf, &c, &done, &skipped, NULL) == CKP_OK)
            ;
    ckpi_buf_free(&buf);
    ckpi_fmt_stream_free(s);
    ckpi_reader_free(r);
}

static void
seal(uint8_t *p, size_t n, size_t covered)
{
    if (n >= covered + 8)
        ckpi_st64(p + covered, ckpi_hash64(p, covered));
}

/* Own hashes of everything that looks like a record. */
static void
seal_all(uint8_t *p, size_t n)
{
    seal(p, n, CKPI_WIRE_HEADER - 8);
    for (size_t i = CKPI_WIRE_HEADER; i + 8 <= n; i++) {
        if (memcmp(p + i, CKPI_WIRE_FRAME, 4) == 0 && ckpi_ld32(p + i + 4) < n)
            seal(p + i, n - i, CKPI_WIRE_FRAME_PREFIX + ckpi_ld32(p + i + 4));
        else if (p[i] == 0xf5 && i + CKPI_WIRE_SECTION <= n) {
            const uint64_t stored = ckpi_ld64(p + i + 8);
            const uint8_t *bytes = p + i + CKPI_WIRE_SECTION;
            if (stored <= n - i - CKPI_WIRE_SECTION) {
                ckpi_st64(p + i + 24, ckpi_hash64(bytes, (size_t)stored));
                if (p[i + 4] == CKPI_CODING_RAW) {
                    const ckpi_id id = ckpi_hash128(bytes, (size_t)stored);
                    ckpi_st64(p + i + 32, id.lo);
                    ckpi_st64(p + i + 40, id.hi);
                }
            }
            seal(p + i, n - i, 48);
        }
    }
    if (n >= CKPI_WIRE_HEADER + CKPI_WIRE_TRAILER)
        seal(p + n - CKPI_WIRE_TRAILER, CKPI_WIRE_TRAILER, 64);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *p = malloc(size);
    if (p == NULL)
        return 0;
    memcpy(p, data + 1, size - 1);
    if ((data[0] & 1) != 0)
        seal_all(p, size - 1);
    open_and_read(p, size - 1);
    stream(p, size - 1, false);
    stream(p, size - 1, true);
    free(p);
    return 0;
}
