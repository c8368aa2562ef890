/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes codecs-0.ckp and its delta codecs-1.ckp, once for a format version: every codec on every kind of data that it takes, as one tensor each, whatever a
 * save would pick. Uses the library's inside:
 *     cc -std=c11 -Iinclude -Isrc tests/golden/generate_codecs.c src/(base|os|state|codec|format)/... -lzstd -ljansson -lpthread -lm
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "codec/codec.h"
#include "format/format.h"

#define MOST 8192

static uint64_t rng = 88172645463325252u;

static uint64_t
draw(void)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng;
}

static void
must(ckp_status st, const ckp_error *err)
{
    if (st == CKP_OK)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

typedef enum pattern { ZERO, ONE_VALUE, SPARSE, RARE, SMALL, MATRIX, ROWS, NOISE, PATTERNS } pattern;
static const char *const pattern_name[PATTERNS] = {"zero", "one", "sparse", "rare", "small", "matrix", "rows", "noise"};

/* A float's word from sign, exponent distance to one, and mantissa bits. */
static uint64_t
word(unsigned exp, unsigned mant, bool sign, int e, uint64_t m)
{
    const uint64_t bias = (UINT64_C(1) << (exp - 1)) - 1;
    return (uint64_t)sign << (exp + mant) | (bias + (uint64_t)(int64_t)e) << mant | (m & ((UINT64_C(1) << mant) - 1));
}

static uint64_t
element(pattern p, size_t i, size_t cols, const ckpi_dtype_info *d)
{
    const bool f = d->kind == CKPI_KIND_FLOAT;
    const uint64_t r = draw();
    const int octave = -(int)(unsigned)__builtin_ctzll(r | 1u << 6);
    const bool low = p == ROWS && i / cols % 3 == 1;      /* rows whose low mantissa bits are zero */
    switch (p) {
    case ZERO: return 0;
    case ONE_VALUE: return 0x4141414141414141u;
    case SPARSE: return r % 40 == 0 ? 1 + draw() % 5 : 0;
    case RARE: return i % 997 == 500 ? draw() : 0;
    case SMALL: return f ? word(d->exp_bits, d->mant_bits, r >> 60 & 1, octave, 0) : (r & draw() & draw()) % 100;
    case ROWS:
        if (i / cols % 3 == 0)
            return 0;
        return f ? word(d->exp_bits, d->mant_bits, r >> 60 & 1, octave, low ? draw() & ~UINT64_C(0x7f) : draw()) : r % 1000;
    case MATRIX:
        return f ? word(d->exp_bits, d->mant_bits, r >> 60 & 1, octave - (int)(i / cols % 5) + (int)(i % cols % 4), draw()) : r % (1 + i % cols * 20);
    default: return r;
    }
}

static void
fill(uint8_t *dst, pattern p, size_t n, size_t cols, const ckpi_dtype_info *d)
{
    const size_t width = d->bits / 8u;
    for (size_t i = 0; i < n; i++) {
        const uint64_t w = element(p, i, cols, d);
        memcpy(dst + i * width, &w, width);
    }
}

/* The next save's data: most elements move a little, some stay, a few are new. */
static void
move(uint8_t *dst, const uint8_t *src, size_t n, size_t width)
{
    memcpy(dst, src, n * width);
    for (size_t i = 0; i < n; i++)
        if (draw() % 3 == 0)
            dst[i * width] = (uint8_t)(dst[i * width] + draw() % 7 - 3);
        else if (draw() % 200 == 0)
            dst[i * width + width - 1] ^= 0x85;
}

typedef struct item { char name[64]; const ckpi_codec *codec; const ckpi_dtype_info *d; uint64_t shape[2]; size_t n; uint8_t *now, *next; } item;
static item items[4096];
static size_t n_items;

static void
add(pattern p, const ckpi_dtype_info *d, size_t rows, size_t cols, const ckpi_codec *codec)
{
    item *it = &items[n_items];
    *it = (item){.codec = codec, .d = d, .shape = {rows, cols}, .n = rows * cols};
    it->now = malloc(it->n * 8);
    it->next = malloc(it->n * 8);
    fill(it->now, p, it->n, cols, d);
    move(it->next, it->now, it->n, d->bits / 8u);
    if (p == ZERO)
        memcpy(it->next, it->now, it->n * d->bits / 8u);
    const ckpi_block b = {.data = it->next, .base = it->now, .n = it->n, .width = d->bits / 8u, .dtype = d->id, .cols = cols};
    const ckpi_block key = {.data = it->now, .n = it->n, .width = d->bits / 8u, .dtype = d->id, .cols = cols};
    if (!codec->fits(&b) || (!codec->needs_base && !codec->fits(&key)) || (codec->id == CKPI_CODEC_ZERO && p != ZERO))
        return;
    (void)snprintf(it->name, sizeof it->name, "%s/%s/%s/%zux%zu", codec->name, d->name, pattern_name[p], rows, cols);
    n_items++;
}

static void
choose(void)
{
    static const ckp_dtype dtypes[] = {CKP_U8, CKP_I16, CKP_F16, CKP_BF16, CKP_F32, CKP_F64, CKP_I64, CKP_F8E4M3FN};
    for (size_t c = 0; ckpi_codec_at(c) != NULL; c++)
        for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
            for (int p = 0; p < PATTERNS; p++) {
                const ckpi_dtype_info *d = ckpi_dtype_get(dtypes[t]);
                add((pattern)p, d, 1, 1, ckpi_codec_at(c));
                add((pattern)p, d, 12, 16, ckpi_codec_at(c));
                if ((d->id == CKP_BF16 || d->id == CKP_F32 || d->id == CKP_U8) && (p == MATRIX || p == ROWS || p == RARE))
                    add((pattern)p, d, 64, MOST / 64, ckpi_codec_at(c));
            }
}

static void
put_chunk(ckpi_fmt_writer *fw, uint32_t i, bool delta, ckpi_scratch *ws)
{
    static uint8_t payload[MOST * 16];
    const item *it = &items[i];
    ckp_error err;
    const unsigned width = it->d->bits / 8u;
    const bool with_base = delta && it->codec->takes_base;
    const ckpi_codec *codec = !delta && it->codec->needs_base ? ckpi_codec_find(CKPI_CODEC_RAW) : it->codec;
    const ckpi_block b = {.data = delta ? it->next : it->now, .base = with_base ? it->now : NULL, .n = it->n, .width = width, .dtype = it->d->id,
                          .cols = it->shape[0] > 1 && it->shape[1] >= 16 ? it->shape[1] : 0};
    ckpi_piece p = {i, 0, it->n};
    ckpi_chunk c = {.codec = codec->id, .flags = with_base ? CKPI_CHUNK_USES_BASE : 0, .dtype = (uint8_t)it->d->id, .piece = &p, .n_pieces = 1};
    must(codec->encode(&b, payload, sizeof payload, &c.payload_len, ws, 0, &err), &err);
    c.payload = payload;
    c.decoded_hash = ckpi_hash64(b.data, it->n * width);
    must(ckpi_fmt_writer_chunk(fw, &c, &err), &err);
}

static void
write_file(const char *dir, const ckpi_table *t, const ckpi_file_info *info, ckpi_fmt_sum *sum)
{
    const bool delta = info->is_delta;
    char path[1024];
    ckp_error err;
    ckpi_buf out = CKPI_BUF_INIT;
    ckpi_writer *w;
    ckpi_fmt_writer *fw;
    ckpi_scratch *ws = ckpi_scratch_new();
    must(ckpi_writer_mem(&w, &out, &err), &err);
    must(ckpi_fmt_writer_new(&fw, w, info, t, NULL, 0, delta ? t : NULL, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < n_items; i++)
        put_chunk(fw, i, delta, ws);
    must(ckpi_fmt_writer_finish(fw, NULL, 0, sum, &err), &err);
    must(ckpi_writer_finish(w, &err), &err);
    (void)snprintf(path, sizeof path, "%s/codecs-%d.ckp", dir, delta);
    FILE *f = fopen(path, "wb");
    fwrite(out.data, 1, out.len, f);
    fclose(f);
    (void)snprintf(path, sizeof path, "%s/codecs-%d.txt", dir, delta);
    f = fopen(path, "w");
    if (delta)
        fprintf(f, "base codecs-0.ckp\n");
    for (size_t i = 0; i < n_items; i++)
        fprintf(f, "%016llx %s\n", (unsigned long long)ckpi_hash64(delta ? items[i].next : items[i].now, items[i].n * items[i].d->bits / 8u),
                items[i].name);
    fclose(f);
    ckpi_fmt_writer_free(fw);
    ckpi_writer_free(w);
    ckpi_scratch_free(ws);
    ckpi_buf_free(&out);
}

int
main(int argc, char **argv)
{
    ckp_state *s;
    ckp_error err;
    ckpi_table *t;
    ckpi_fmt_sum sum;
    if (argc != 2)
        return 2;
    choose();
    must(ckp_state_new(&s, &err), &err);
    for (size_t i = 0; i < n_items; i++) {
        ckp_tensor v = CKP_TENSOR_INIT;
        v.dtype = items[i].d->id;
        v.ndim = 2;
        v.shape = items[i].shape;
        v.data = items[i].now;
        must(ckp_state_add_tensor(s, items[i].name, CKP_ROLE_OTHER, NULL, &v, NULL, &err), &err);
    }
    must(ckpi_table_from_state(&t, s, &err), &err);
    write_file(argv[1], t, &(ckpi_file_info){0}, &sum);
    const ckpi_file_info delta = {.is_delta = 1, .chain = 1, .base_content = sum.content, .table_content = sum.content};
    write_file(argv[1], t, &delta, &sum);
    printf("%zu tensors\n", n_items);
    return 0;
}
