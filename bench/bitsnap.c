/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_bitsnap DATA BASE: bf16 words and as many of the base's, in chunks of 2^20, by each way that BitSnap and ckpress have. Prints the share of equal words and,
 * in bytes: raw, planes, mask + values, planes of the XOR, ordered differences, and what the picker takes. bench/bitsnap.py sets them in a table.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "codec/codec.h"

static void
die(const char *what)
{
    fprintf(stderr, "bench_bitsnap: %s\n", what);
    exit(1);
}

static uint16_t *
load(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0)
        die(path);
    *n = (size_t)ftell(f) / 2;
    uint16_t *p = malloc(2 * *n + 2);
    rewind(f);
    if (p == NULL || fread(p, 2, *n, f) != *n)
        die(path);
    fclose(f);
    return p;
}

static size_t
cost(uint8_t codec, const ckpi_block *b, ckpi_scratch *ws)
{
    const ckpi_codec *c = ckpi_codec_find(codec);
    const size_t cap = c->bound(b);
    uint8_t *out = malloc(cap + 1);
    size_t len = 0;
    if (out == NULL || !c->fits(b) || c->encode(b, out, cap, &len, ws, ckpi_cpu(), NULL) != CKP_OK)
        die(c->name);
    free(out);
    ckpi_scratch_reset(ws);
    return len;
}

static size_t
picked(const ckpi_block *b, const char **name, ckpi_scratch *ws)
{
    const size_t cap = ckpi_codec_pick_bound(b);
    uint8_t *out = malloc(cap + 1), id = 0;
    size_t len = 0;
    bool base = false;
    if (out == NULL || ckpi_codec_pick(b, CKPI_EFFORT_FAST, out, cap, &len, &id, &base, ws, ckpi_cpu(), NULL) != CKP_OK)
        die("pick");
    *name = ckpi_codec_find(id)->name;
    free(out);
    ckpi_scratch_reset(ws);
    return len;
}

int
main(int argc, char **argv)
{
    size_t n = 0, m = 0, same = 0, sum[5] = {0};
    const char *name = "";

    if (argc != 3)
        die("DATA BASE");
    uint16_t *x = load(argv[1], &n), *y = load(argv[2], &m), *diff = malloc(2 * CKPI_MAX_CHUNK_ELEMS);
    ckpi_scratch *ws = ckpi_scratch_new();
    if (n != m || n == 0 || diff == NULL || ws == NULL)
        die("two files of equal length");
    for (size_t at = 0; at < n; at += CKPI_MAX_CHUNK_ELEMS) {
        const size_t k = CKPI_MIN(n - at, (size_t)CKPI_MAX_CHUNK_ELEMS);
        for (size_t i = 0; i < k; i++) {
            diff[i] = x[at + i] ^ y[at + i];
            same += diff[i] == 0;
        }
        const ckpi_block alone = {.data = x + at, .n = k, .width = 2, .dtype = CKP_BF16};
        const ckpi_block on_base = {.data = x + at, .base = y + at, .n = k, .width = 2, .dtype = CKP_BF16};
        const ckpi_block xored = {.data = diff, .n = k, .width = 2, .dtype = CKP_U16};
        sum[0] += cost(CKPI_CODEC_PLANES, &alone, ws);
        sum[1] += cost(CKPI_CODEC_MASK, &on_base, ws);
        sum[2] += cost(CKPI_CODEC_PLANES, &xored, ws);
        sum[3] += cost(CKPI_CODEC_DIFF, &on_base, ws);
        sum[4] += picked(&on_base, &name, ws);
    }
    printf("{\"unchanged\": %.6f, \"raw\": %zu, \"planes\": %zu, \"mask\": %zu, \"xor\": %zu, \"diff\": %zu, \"pick\": %zu, \"took\": \"%s\"}\n",
           (double)same / (double)n, 2 * n, sum[0], sum[1], sum[2], sum[3], sum[4], name);
    ckpi_scratch_free(ws);
    free(x);
    free(y);
    free(diff);
    return 0;
}
