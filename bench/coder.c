/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_coder [output.json]: the rANS coder, and mask + values, beside libhtscodecs' 32-way 16-bit order-0 rANS on the same symbols
 * (issue 3, item 2). 2^20 symbols a stream, one thread, all buffers touched before, fastest of ROUNDS. Rounds of both coders
 * alternate in one process; the peer runs with each of its instruction sets and its fastest counts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <htscodecs/rANS_static4x16.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "codec/rans/rans.h"
#include "machine.h"

enum { N = 1 << 20, CAP = 2 * N + 65536, ROUNDS = 25, SEED = 3, STREAMS = 7 };

typedef enum way { RANS, CODES } way;

typedef struct stream {
    const char *name;
    double p0;      /* codes with this share of zeros, or: */
    unsigned below; /* uniform below this */
} stream;

static const stream streams[STREAMS] = {
    {"codes_p0.80", 0.80, 0}, {"codes_p0.90", 0.90, 0}, {"codes_p0.95", 0.95, 0}, {"codes_p0.99", 0.99, 0},
    {"flat_200", 0, 200},     {"flat_256", 0, 256},     {"geometric_256", 0, 0},
};

typedef struct figures {
    double encode_s, decode_s;
    size_t stored;
    bool verified;
} figures;

typedef struct bench {
    uint8_t *data, *coded, *out, *peer_out;
    ckpi_scratch *ws;
    FILE *json;
    bool any_row, all_ok;
} bench;

static double
now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double
uniform(uint32_t key, uint32_t i)
{
    return ((double)ckpi_rng32(key, i) + 0.5) * 0x1p-32;
}

/* Codes as a quantizer with rounding to nearest makes them of a two-sided exponential; p0 fixes its width. */
static void
fill(uint8_t *dst, const stream *s)
{
    const uint32_t key = ckpi_rng_key(SEED, (uint64_t)(s->p0 * 1000), s->below, 0);
    for (uint32_t i = 0; i < N; i++) {
        const double u = uniform(key, i);
        if (s->below != 0) {
            dst[i] = (uint8_t)(u * s->below);
            continue;
        }
        const double width = s->p0 > 0 ? 0.5 / -log(1 - s->p0) : 12;
        const double v = floor(-log(u) * width + 0.5);
        const int code = v > 127 ? 127 : (int)v;
        dst[i] = (uint8_t)((ckpi_mix32(i ^ ~key) & 1) != 0 ? code : -code);
    }
}

static double
entropy(const uint8_t *p)
{
    double count[256] = {0}, bits = 0;
    for (size_t i = 0; i < N; i++)
        count[p[i]]++;
    for (unsigned s = 0; s < 256; s++)
        if (count[s] > 0)
            bits -= count[s] * log2(count[s] / N);
    return bits / 8;
}

static void
least(double *best, double t)
{
    if (t < *best)
        *best = t;
}

static void
run_ours(bench *b, way w, uint32_t cpu, figures *f)
{
    size_t len = 0;
    uint8_t id = CKPI_CODEC_RANS;
    double t = now();
    ckp_status st = w == CODES ? ckpi_codec_codes((const int8_t *)b->data, N, b->coded, CAP, &len, &id, b->ws, cpu, NULL)
                               : ckpi_rans_encode(b->data, N, NULL, b->coded, CAP, &len, b->ws, cpu, NULL);
    least(&f->encode_s, now() - t);
    const ckpi_block block = {.n = N, .width = 1, .dtype = CKP_I8};
    t = now();
    const ckp_status st2 = ckpi_codec_decode(id, &block, b->coded, len, b->out, b->ws, cpu, NULL);
    least(&f->decode_s, now() - t);
    f->stored = len;
    f->verified = f->verified && st == CKP_OK && st2 == CKP_OK && memcmp(b->out, b->data, N) == 0;
}

static void
run_peer(bench *b, int isa, figures *f)
{
    unsigned len = CAP, back = N;
    rans_set_cpu(isa);
    double t = now();
    const bool coded = rans_compress_to_4x16(b->data, N, b->coded, &len, RANS_ORDER_X32) != NULL;
    least(&f->encode_s, now() - t);
    t = now();
    const bool decoded = rans_uncompress_to_4x16(b->coded, len, b->peer_out, &back) != NULL;
    least(&f->decode_s, now() - t);
    f->stored = len;
    f->verified = f->verified && coded && decoded && back == N && memcmp(b->peer_out, b->data, N) == 0;
}

static void
row(bench *b, const char *data, const char *peer, const figures *f)
{
    printf("  %-14s %-26s %9zu %9.0f %9.0f  %s\n", data, peer, f->stored, N / f->encode_s / 1e6, N / f->decode_s / 1e6,
           f->verified ? "ok" : "WRONG");
    fprintf(b->json,
            "%s\n  {\"data\": \"%s\", \"peer\": \"%s\", \"raw_bytes\": %d, \"stored_bytes\": %zu, \"encode_mb_s\": %.1f, \"decode_mb_s\": "
            "%.1f, \"verified\": %s}",
            b->any_row ? "," : "", data, peer, N, f->stored, N / f->encode_s / 1e6, N / f->decode_s / 1e6, f->verified ? "true" : "false");
    b->any_row = true;
    b->all_ok = b->all_ok && f->verified;
}

typedef struct result {
    figures rans, codes, peer;
    double entropy;
} result;

static result
run_stream(bench *b, const stream *s, uint32_t cpu)
{
    const figures none = {.encode_s = 1e9, .decode_s = 1e9, .verified = true};
    result r = {.rans = none, .codes = none, .peer = none};
    char name[64];
    fill(b->data, s);
    r.entropy = entropy(b->data);
    for (int i = 0; i < ROUNDS; i++) {
        run_ours(b, RANS, cpu, &r.rans);
        run_ours(b, CODES, cpu, &r.codes);
        run_peer(b, RANS_CPU_ENC_AVX2 | RANS_CPU_DEC_AVX2, &r.peer);
        if ((cpu & CKPI_CPU_AVX512) != 0)
            run_peer(b, RANS_CPU_ENC_AVX512 | RANS_CPU_DEC_AVX512, &r.peer);
        run_peer(b, RANS_CPU_ENC_SSE4 | RANS_CPU_DEC_SSE4, &r.peer);
    }
    snprintf(name, sizeof name, "ckpress rans %s", ckpi_cpu_name(cpu));
    row(b, s->name, name, &r.rans);
    if (s->p0 > 0) {
        snprintf(name, sizeof name, "ckpress codes %s", ckpi_cpu_name(cpu));
        row(b, s->name, name, &r.codes);
    }
    row(b, s->name, (cpu & CKPI_CPU_AVX512) != 0 ? "htscodecs 32x16" : "htscodecs 32x16 avx2", &r.peer);
    return r;
}

static void
must(const char *name, double value, double bar, bool at_least)
{
    const bool ok = at_least ? value >= bar : value <= bar;
    printf("MUST %s %.2f %.2f %s\n", name, value, bar, ok ? "ok" : "short");
}

static double
encode_ratio(const figures *ours, const figures *peer)
{
    return peer->encode_s / ours->encode_s;
}

static double
decode_ratio(const figures *ours, const figures *peer)
{
    return peer->decode_s / ours->decode_s;
}

/* Bytes beyond `factor` times entropy, of rANS for each stream. */
static void
must_sizes(const result *r)
{
    double skewed = 0, flat = 0, codes = 0;
    for (int i = 0; i < STREAMS; i++) {
        const double over = (double)r[i].rans.stored - 1.002 * r[i].entropy;
        if (streams[i].below != 0)
            flat = fmax(flat, over);
        else
            skewed = fmax(skewed, over);
        if (streams[i].p0 > 0)
            codes = fmax(codes, (double)r[i].codes.stored - 1.01 * r[i].entropy);
    }
    must("rans_bytes_over_entropy_x1.002_skewed", skewed, 192, false);
    must("rans_bytes_over_entropy_x1.002_flat", flat, 192, false);
    must("codes_bytes_over_entropy_x1.01", codes, 384, false);
}

/* flat_256 is left out: both coders store it. */
static void
must_rans(const result *r)
{
    double enc = 1e9, dec = 1e9;
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].below == 0) {
            enc = fmin(enc, encode_ratio(&r[i].rans, &r[i].peer));
            dec = fmin(dec, decode_ratio(&r[i].rans, &r[i].peer));
        }
    must("rans_encode_vs_htscodecs_skewed", enc, 1, true);
    must("rans_decode_vs_htscodecs_skewed", dec, 1, true);
    must("rans_encode_vs_htscodecs_flat", encode_ratio(&r[4].rans, &r[4].peer), 1, true);
    must("rans_decode_vs_htscodecs_flat", decode_ratio(&r[4].rans, &r[4].peer), 1, true);
}

static void
must_codes(const result *r)
{
    static const double enc[4] = {2.5, 3.5, 4.2, 4.9}, dec[4] = {2.0, 2.5, 2.9, 3.3};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "codes_encode_vs_htscodecs_p0_%.2f", streams[i].p0);
        must(name, encode_ratio(&r[i].codes, &r[i].peer), enc[i], true);
        snprintf(name, sizeof name, "codes_decode_vs_htscodecs_p0_%.2f", streams[i].p0);
        must(name, decode_ratio(&r[i].codes, &r[i].peer), dec[i], true);
    }
}

static uint8_t *
touched(size_t n)
{
    uint8_t *p = malloc(n);
    if (p == NULL) {
        fputs("bench_coder: no memory\n", stderr);
        exit(1);
    }
    memset(p, 1, n);
    return p;
}

static void
run_level(bench *b, uint32_t cpu, result *r)
{
    printf("\n%s, MB/s of raw bytes (10^6), best of %d\n  %-14s %-26s %9s %9s %9s\n", ckpi_cpu_name(cpu), ROUNDS, "data", "coder", "stored",
           "encode", "decode");
    for (int i = 0; i < STREAMS; i++)
        r[i] = run_stream(b, &streams[i], cpu);
}

int
main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "build/bench/coder.json";
    bench b = {.data = touched(N), .coded = touched(CAP), .out = touched(N), .peer_out = touched(N), .all_ok = true};
    if (argc < 2 && ((mkdir("build", 0777) != 0 && errno != EEXIST) || (mkdir("build/bench", 0777) != 0 && errno != EEXIST)))
        fputs("bench_coder: cannot make build/bench\n", stderr);
    b.ws = ckpi_scratch_new();
    b.json = fopen(path, "w");
    if (b.ws == NULL || b.json == NULL) {
        fprintf(stderr, "bench_coder: cannot write %s\n", path);
        return 1;
    }
    result best[STREAMS], avx2[STREAMS];
    ckpb_machine(stdout);
    printf("seed: %d\n", SEED);
    fputs("{\"machine\": \"", b.json);
    ckpb_machine_json(b.json);
    fprintf(b.json, "\", \"compiler\": \"%s\", \"seed\": %d, \"rows\": [", CKPB_COMPILER, SEED);
    run_level(&b, ckpi_cpu(), best);
    if ((ckpi_cpu() & CKPI_CPU_AVX512) != 0)
        run_level(&b, ckpi_cpu() & CKPI_CPU_AVX2, avx2);
    fputs("\n]}\n", b.json);
    const bool written = fclose(b.json) == 0;
    printf("\nBest instruction set beside the peer's best:\n");
    must_sizes(best);
    must_rans(best);
    must_codes(best);
    printf("%s %s\n", written ? "wrote" : "could not write", path);
    ckpi_scratch_free(b.ws);
    free(b.data);
    free(b.coded);
    free(b.out);
    free(b.peer_out);
    return b.all_ok && written ? 0 : 1;
}
