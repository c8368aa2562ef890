/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_lossless LIST DATA [BASE] [reps] [best|avx2|avx512|scalar] [effort] [probe]: the tensors of one file coded as the engine
 * chunks them, one thread, with the codec that ckpi_codec_pick finds. Prints one JSON object. bench/lossless.py makes LIST
 * (lines "dtype elements columns offset role"), DATA and BASE (raw bytes, same layout) and sets peers beside it.
 * probe: also codes every chunk with every codec, for the sum of the best (what picks are measured against).
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/bytes.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "codec/codec.h"

/* As in engine/layout.h: smaller tensors share chunks of one dtype and role. */
enum { OWN_CHUNK = 1 << 15, MAX_TENSORS = 1 << 16 };

typedef struct tensor {
    ckp_dtype dtype;
    size_t n, cols, offset;
    int role;
} tensor;

typedef struct chunk {
    ckpi_block block;
    size_t at, len;      /* coded bytes, in one buffer for all */
    uint8_t id;
    bool used_base;
} chunk;

typedef struct work {
    tensor *t;
    size_t tensors;
    uint8_t *data, *base; /* file bytes; base may be NULL */
    uint8_t *raw, *raw_base, *back, *coded;
    size_t raw_bytes;
    chunk *c;
    size_t chunks;
    uint32_t cpu;
    ckpi_effort effort;
    ckpi_scratch *ws;
} work;

/* CPU time: what a core does, however many others use the machine. */
static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void
die(const char *what)
{
    fprintf(stderr, "bench_lossless: %s\n", what);
    exit(1);
}

static void *
memory(size_t bytes)
{
    void *p = ckpi_aligned_alloc(bytes + 64);
    if (p == NULL)
        die("out of memory");
    memset(p, 0, bytes + 64);
    return p;
}

static uint8_t *
read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        die(path);
    fseek(f, 0, SEEK_END);
    const size_t n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = memory(n + 1);
    if (fread(p, 1, n, f) != n)
        die(path);
    fclose(f);
    return p;
}

static void
read_list(work *w, const char *path)
{
    FILE *f = fopen(path, "r");
    char name[16];
    tensor t;
    if (f == NULL)
        die(path);
    w->t = memory(MAX_TENSORS * sizeof *w->t);
    while (w->tensors < MAX_TENSORS && fscanf(f, "%15s %zu %zu %zu %d", name, &t.n, &t.cols, &t.offset, &t.role) == 5) {
        t.dtype = ckp_dtype_find(name);
        const ckpi_dtype_info *d = ckpi_dtype_get(t.dtype);
        if (d == NULL || d->part_bytes == 0)
            die(name);
        w->t[w->tensors++] = t;
        w->raw_bytes += t.n * d->part_bytes;
    }
    fclose(f);
}

/* Appends elements [from, from + n) of a tensor to a chunk's bytes; the base's go to the same place. */
static void
append(work *w, size_t *at, const tensor *t, size_t from, size_t n, unsigned width)
{
    memcpy(w->raw + *at, w->data + t->offset + from * width, n * width);
    if (w->base != NULL)
        memcpy(w->raw_base + *at, w->base + t->offset + from * width, n * width);
    *at += n * width;
}

static chunk *
new_chunk(work *w, size_t at, const tensor *t, size_t cols)
{
    chunk *c = &w->c[w->chunks++];
    c->block = (ckpi_block){.data = w->raw + at,
                            .base = w->base != NULL ? w->raw_base + at : NULL,
                            .width = ckpi_dtype_get(t->dtype)->part_bytes,
                            .dtype = t->dtype,
                            .cols = cols};
    return c;
}

static void
make_chunks(work *w)
{
    size_t at = 0;
    for (size_t i = 0; i < w->tensors; i++) {
        const tensor *t = &w->t[i];
        const size_t rows = t->cols != 0 && t->cols <= CKPI_MAX_CHUNK_ELEMS ? CKPI_MAX_CHUNK_ELEMS / t->cols * t->cols : CKPI_MAX_CHUNK_ELEMS;
        for (size_t from = 0; t->n >= OWN_CHUNK && from < t->n; from += rows) {
            chunk *c = new_chunk(w, at, t, t->cols);
            c->block.n = CKPI_MIN(rows, t->n - from);
            append(w, &at, t, from, c->block.n, c->block.width);
        }
    }
    for (size_t i = 0; i < w->tensors; i++) {
        chunk *c = NULL;
        /* t.n = 0 marks a tensor that is in a chunk already */
        for (size_t j = i; w->t[i].n != 0 && w->t[i].n < OWN_CHUNK && j < w->tensors; j++) {
            tensor *t = &w->t[j];
            if (t->n == 0 || t->n >= OWN_CHUNK || t->dtype != w->t[i].dtype || t->role != w->t[i].role)
                continue;
            if (c == NULL || c->block.n + t->n > CKPI_MAX_CHUNK_ELEMS)
                c = new_chunk(w, at, t, 0);
            append(w, &at, t, 0, t->n, c->block.width);
            c->block.n += t->n;
            if (j != i)
                t->n = 0;
        }
    }
    if (at != w->raw_bytes)
        die("chunks do not add up");
}

static size_t
encode_all(work *w)
{
    size_t at = 0;
    for (size_t i = 0; i < w->chunks; i++) {
        chunk *c = &w->c[i];
        ckp_error err = {0};
        c->at = at;
        if (ckpi_codec_pick(&c->block, w->effort, w->coded + at, ckpi_codec_pick_bound(&c->block), &c->len, &c->id, &c->used_base, w->ws,
                            w->cpu, &err) != CKP_OK)
            die(err.text);
        at += c->len;
    }
    return at;
}

static void
decode_all(work *w)
{
    for (size_t i = 0; i < w->chunks; i++) {
        const chunk *c = &w->c[i];
        ckp_error err = {0};
        ckpi_block b = c->block;
        b.data = NULL;
        if (!c->used_base)
            b.base = NULL;
        if (ckpi_codec_decode(c->id, &b, w->coded + c->at, c->len, w->back + ((const uint8_t *)c->block.data - w->raw), w->ws, w->cpu, &err) !=
            CKP_OK)
            die(err.text);
    }
}

/* The sum over chunks of the smallest that any codec makes of it, with the base and without. */
static size_t
best_of_all(work *w)
{
    size_t sum = 0;
    for (size_t i = 0; i < w->chunks; i++) {
        size_t least = SIZE_MAX;
        for (size_t k = 0; ckpi_codec_at(k) != NULL; k++) {
            const ckpi_codec *c = ckpi_codec_at(k);
            ckpi_block b = w->c[i].block;
            for (int with_base = b.base != NULL && c->takes_base; with_base >= 0; with_base--) {
                size_t len;
                b.base = with_base ? w->c[i].block.base : NULL;
                if ((c->needs_base && b.base == NULL) || !c->fits(&b))
                    continue;
                if (c->encode(&b, w->coded, c->bound(&b), &len, w->ws, w->cpu, NULL) == CKP_OK)
                    least = CKPI_MIN(least, len);
                ckpi_scratch_reset(w->ws);
            }
        }
        sum += least;
    }
    return sum;
}

static void
print_picks(const work *w)
{
    for (size_t k = 0; ckpi_codec_at(k) != NULL; k++) {
        size_t n = 0;
        for (size_t i = 0; i < w->chunks; i++)
            n += w->c[i].id == ckpi_codec_at(k)->id;
        printf("%s\"%s\": %zu", k != 0 ? ", " : "", ckpi_codec_at(k)->name, n);
    }
}

static uint32_t
cpu_of(const char *name)
{
    const uint32_t have = ckpi_cpu();
    if (strcmp(name, "scalar") == 0)
        return 0;
    if (strcmp(name, "avx2") == 0)
        return have & CKPI_CPU_AVX2;
    if (strcmp(name, "avx512") == 0)
        return have & (CKPI_CPU_AVX2 | CKPI_CPU_AVX512);
    return have;
}

int
main(int argc, char **argv)
{
    if (argc < 3)
        die("LIST DATA [BASE] [reps] [best|avx2|avx512|scalar] [effort] [probe]");
    work w = {.ws = ckpi_scratch_new()};
    const int reps = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 5;
    w.cpu = cpu_of(argc > 5 ? argv[5] : "best");
    w.effort = (ckpi_effort)(argc > 6 ? strtol(argv[6], NULL, 10) : CKPI_EFFORT_FAST);
    read_list(&w, argv[1]);
    w.data = read_file(argv[2]);
    if (argc > 3 && argv[3][0] != 0)
        w.base = read_file(argv[3]);
    w.raw = memory(w.raw_bytes);
    w.raw_base = memory(w.base != NULL ? w.raw_bytes : 0);
    w.back = memory(w.raw_bytes);
    w.coded = memory(w.raw_bytes + w.raw_bytes / 32 + ((size_t)8 << 20));
    w.c = memory((w.tensors + w.raw_bytes / CKPI_MAX_CHUNK_ELEMS + 16) * 2 * sizeof *w.c);
    make_chunks(&w);

    double enc = 1e30, dec = 1e30;
    size_t stored = 0;
    for (int r = 0; r < reps; r++) {
        double t = now();
        stored = encode_all(&w);
        enc = CKPI_MIN(enc, now() - t);
        memset(w.back, 0, w.raw_bytes);
        t = now();
        decode_all(&w);
        dec = CKPI_MIN(dec, now() - t);
    }
    const bool same = memcmp(w.raw, w.back, w.raw_bytes) == 0;
    printf("{\"raw_bytes\": %zu, \"stored_bytes\": %zu, \"ratio\": %.5f, \"encode_mb_s\": %.0f, \"decode_mb_s\": %.0f, \"verified\": %s, "
           "\"isa\": \"%s\", \"chunks\": %zu, \"picks\": {",
           w.raw_bytes, stored, (double)stored / (double)w.raw_bytes, (double)w.raw_bytes / enc / 1e6, (double)w.raw_bytes / dec / 1e6,
           same ? "true" : "false", ckpi_cpu_name(w.cpu), w.chunks);
    print_picks(&w);
    printf("}");
    if (argc > 7)
        printf(", \"best_bytes\": %zu", best_of_all(&w));
    printf("}\n");
    return same ? 0 : 1;
}
