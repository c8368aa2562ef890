/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a save and a restore cost (issue-sized state, 500 MB or more): stall against memcpy, CPU seconds, restore from a key and from a
 * chain, scaling, memory. `make bench-save` runs it; the last lines are MUST lines, build/bench/save.json has the same figures.
 *
 *   bench_save [MB]            everything
 *   bench_save MB LEVEL        stall, encoding and restore on the instructions that CKPRESS_CPU=LEVEL leaves
 */
#define _GNU_SOURCE
#include <ckpress/ckpress.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "common_files.h"
#include "machine.h"

#define TRIES 7

static ckp_error err;

static void
ok(ckp_status st, const char *what)
{
    if (st == CKP_OK)
        return;
    (void)fprintf(stderr, "%s: %s: %s\n", what, ckp_status_name(st), err.text);
    exit(1);
}

static double
now(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- a state that looks like training ----------------------------------------------------------------------------- */

#define ROWS 2048u
#define COLS 2048u

typedef struct model {
    size_t n;                    /* matrices of ROWS x COLS */
    float *w, *m, *v;            /* n * ROWS * COLS each */
    uint64_t rng;
} model;

static uint32_t
draw(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return (uint32_t)(*s >> 32);
}

/* About normal, unit variance: the sum of the four bytes of a draw. */
static float
normal(uint64_t *s)
{
    const uint32_t x = draw(s);
    return ((float)((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24)) - 510.0F) / 147.8F;
}

static void
make_model(model *x, size_t megabytes)
{
    const size_t per = (size_t)ROWS * COLS;

    x->n = megabytes * 1000000 / (12 * per) + 1;
    x->w = malloc(x->n * per * 4);
    x->m = malloc(x->n * per * 4);
    x->v = malloc(x->n * per * 4);
    x->rng = UINT64_C(0x9e3779b97f4a7c15);
    if (x->w == NULL || x->m == NULL || x->v == NULL)
        exit(1);
    for (size_t i = 0; i < x->n * per; i++) {
        const float col = 1.0F + (float)(i % COLS) / COLS, g = normal(&x->rng);
        x->w[i] = 0.02F * normal(&x->rng);
        x->v[i] = 1e-8F * col * (g * g + 0.1F);
        x->m[i] = 0.25F * normal(&x->rng) * sqrtf(x->v[i]);
    }
}

/* 25 steps of training, roughly: weights move by a hundredth of their RMS, moments turn over. One matrix in eight a call is enough to
   keep the figures honest and the bench short: the codes of the others are those of unmoved weights and old moments. */
static void
train(model *x, unsigned round)
{
    const size_t per = (size_t)ROWS * COLS;

    for (size_t k = round % 4; k < x->n; k += 4)
        for (size_t i = k * per; i < (k + 1) * per; i++) {
            const float g = normal(&x->rng);
            x->w[i] += 4e-4F * g;
            x->m[i] = 0.25F * g * sqrtf(x->v[i]);
            x->v[i] *= 1.0F + 0.1F * g * 0.3F;
        }
}

static void
add(ckp_state *s, const char *name, ckp_role role, const char *owner, const float *data)
{
    static const uint64_t shape[2] = {ROWS, COLS};
    ckp_tensor t = CKP_TENSOR_INIT;
    t.dtype = CKP_F32;
    t.ndim = 2;
    t.shape = shape;
    t.data = data;
    ok(ckp_state_add_tensor(s, name, role, owner, &t, NULL, &err), "add");
}

static ckp_state *
view(const model *x, uint64_t step)
{
    ckp_state *s = NULL;
    char w[32], m[32], v[32];
    const size_t per = (size_t)ROWS * COLS;

    ok(ckp_state_new(&s, &err), "state");
    for (size_t k = 0; k < x->n; k++) {
        (void)snprintf(w, sizeof w, "h.%zu.w", k);
        (void)snprintf(m, sizeof m, "h.%zu.w/m", k);
        (void)snprintf(v, sizeof v, "h.%zu.w/v", k);
        add(s, w, CKP_ROLE_WEIGHT, NULL, x->w + k * per);
        add(s, m, CKP_ROLE_M, w, x->m + k * per);
        add(s, v, CKP_ROLE_V, w, x->v + k * per);
        ok(ckp_state_set_adam(s, w, 0.9, 0.95, step, &err), "adam");
    }
    return s;
}

/* ---- measuring ----------------------------------------------------------------------------------------------------- */

typedef struct copy_job { char *dst; const char *src; size_t n; } copy_job;

static void *
copy_part(void *user)
{
    const copy_job *j = user;
    memcpy(j->dst, j->src, j->n);
    return NULL;
}

/* One memcpy of the whole state, by `threads` threads, best of TRIES. */
static double
time_memcpy(const model *x, unsigned threads)
{
    const size_t bytes = x->n * ROWS * COLS * 4;
    char *dst = malloc(3 * bytes);
    const float *src[3] = {x->w, x->m, x->v};
    double best = 1e9;

    if (dst == NULL)
        exit(1);
    memset(dst, 1, 3 * bytes);
    for (int i = 0; i < TRIES; i++) {
        pthread_t th[8];
        copy_job j[8];
        const double t0 = now(CLOCK_MONOTONIC);
        for (int a = 0; a < 3; a++) {
            for (unsigned t = 0; t < threads; t++) {
                const size_t part = bytes / threads;
                j[t] = (copy_job){dst + (size_t)a * bytes + t * part, (const char *)src[a] + t * part, part};
                if (t + 1 < threads && pthread_create(&th[t], NULL, copy_part, &j[t]) != 0)
                    exit(1);
            }
            (void)copy_part(&j[threads - 1]);
            for (unsigned t = 0; t + 1 < threads; t++)
                (void)pthread_join(th[t], NULL);
        }
        best = fmin(best, now(CLOCK_MONOTONIC) - t0);
    }
    free(dst);
    return best;
}

static void *
arithmetic(void *user)
{
    double x = 1.0;
    for (int i = 0; i < 200000000; i++)
        x = x * 1.0000001 + 1e-9;
    *(double *)user = x;
    return NULL;
}

static double
time_arithmetic(unsigned threads)
{
    double best = 1e9, sink[8];
    for (int i = 0; i < 3; i++) {
        pthread_t th[8];
        const double t0 = now(CLOCK_MONOTONIC);
        for (unsigned t = 0; t + 1 < threads; t++)
            if (pthread_create(&th[t], NULL, arithmetic, &sink[t]) != 0)
                exit(1);
        (void)arithmetic(&sink[threads - 1]);
        for (unsigned t = 0; t + 1 < threads; t++)
            (void)pthread_join(th[t], NULL);
        best = fmin(best, now(CLOCK_MONOTONIC) - t0);
    }
    return best;
}

typedef struct save_times { double stall, cpu, encode; uint64_t stored, raw, memory; } save_times;

/* Saves of a run: one key, then deltas; best delta. */
static save_times
time_saves(model *x, const char *dir, unsigned threads, int saves)
{
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;
    save_times best = {1e9, 1e9, 1e9, 0, 0, 0};

    ckpb_remove_tree(dir);
    o.coding.profile = CKP_PROFILE_RESUME;
    o.coding.threads = threads;
    ok(ckp_run_open(&run, dir, &o, &err), "open");
    for (int i = 0; i < saves; i++) {
        ckp_save_options so = CKP_SAVE_OPTIONS_INIT;
        ckp_save_stats st = {.size = sizeof st};
        ckp_state *s = view(x, (uint64_t)(100 + i));
        so.wait = true;
        ok(ckp_run_save(run, (uint64_t)i, s, &so, NULL, &err), "save");
        ckp_state_free(s);
        ckp_run_stats(run, &st);
        if (i > 0) {
            best.stall = fmin(best.stall, st.stall);
            best.cpu = fmin(best.cpu, st.cpu);
            best.encode = fmin(best.encode, st.encode);
            best.stored = st.stored_bytes;
        }
        best.raw = st.raw_bytes;
        best.memory = st.memory_bytes > best.memory ? st.memory_bytes : best.memory;
        train(x, (unsigned)i);
    }
    ok(ckp_run_close(run, &err), "close");
    return best;
}

/* CPU seconds of reading one step of the run into touched memory, best of TRIES. */
static double
time_restore(const model *x, const char *dir, int64_t step, int tries)
{
    const size_t per = (size_t)ROWS * COLS;
    float *mem = malloc(3 * x->n * per * 4);
    ckp_target *t = calloc(3 * x->n, sizeof *t);
    static const uint64_t shape[2] = {ROWS, COLS};
    double best = 1e9;

    if (mem == NULL || t == NULL)
        exit(1);
    memset(mem, 1, 3 * x->n * per * 4);
    for (int i = 0; i < tries; i++) {
        ckp_checkpoint *ck = NULL;
        const double c0 = now(CLOCK_PROCESS_CPUTIME_ID);
        ok(ckp_checkpoint_open_run(&ck, dir, step, true, &err), "open checkpoint");
        for (uint32_t k = 0; k < 3 * x->n; k++)
            t[k] = (ckp_target){k, CKP_F32, 2, shape, NULL, mem + k * per};
        ok(ckp_checkpoint_read(ck, t, 3 * x->n, 1, &err), "read");
        ckp_checkpoint_close(ck);
        best = fmin(best, now(CLOCK_PROCESS_CPUTIME_ID) - c0);
    }
    free(mem);
    free(t);
    return best;
}

/* ---- many saves: memory and open files stay flat ------------------------------------------------------------------- */

static long
resident_kb(void)
{
    long pages = 0, rss = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%ld %ld", &pages, &rss) != 2)
        exit(1);
    (void)fclose(f);
    return rss * (sysconf(_SC_PAGESIZE) / 1024);
}

static int
open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) != -1;
    return n;
}

static void
many_saves(const char *dir, long *rss_growth_kb, int *files_growth)
{
    model x;
    ckp_run_options o = CKP_RUN_OPTIONS_INIT;
    ckp_run *run = NULL;
    long rss = 0;
    int files = 0;

    make_model(&x, 50);
    ckpb_remove_tree(dir);
    o.coding.profile = CKP_PROFILE_RESUME;
    o.keep_last = 3;
    ok(ckp_run_open(&run, dir, &o, &err), "open");
    for (int i = 1; i <= 200; i++) {
        ckp_state *s = view(&x, (uint64_t)(100 + i));
        ok(ckp_run_save(run, (uint64_t)i, s, NULL, NULL, &err), "save");
        ckp_state_free(s);
        if (i != 20 && i != 200)
            continue;
        ok(ckp_run_wait(run, &err), "wait");
        *rss_growth_kb = resident_kb() - rss;
        *files_growth = open_files() - files;
        rss = resident_kb();
        files = open_files();
    }
    ok(ckp_run_close(run, &err), "close");
    free(x.w);
    free(x.m);
    free(x.v);
}

/* ---- big files: bounded memory ------------------------------------------------------------------------------------- */

/* A safetensors file of about `bytes` of bf16 that compresses like weights. */
static void
make_big_file(const char *path, uint64_t bytes)
{
    const uint64_t rows = bytes / (2 * 8192);
    char header[300];
    uint16_t *row = malloc(8192 * 2);
    uint64_t rng = 88172645463325252U;
    FILE *f = fopen(path, "wb");

    if (f == NULL || row == NULL)
        exit(1);
    int n = snprintf(header, sizeof header, "{\"big.weight\":{\"dtype\":\"BF16\",\"shape\":[%llu,8192],\"data_offsets\":[0,%llu]}",
                     (unsigned long long)rows, (unsigned long long)(rows * 16384));
    header[n++] = '}';
    while (n % 8 != 0)
        header[n++] = ' ';
    const uint64_t len = (uint64_t)n;
    (void)fwrite(&len, 8, 1, f);
    (void)fwrite(header, 1, (size_t)n, f);
    for (uint64_t r = 0; r < rows; r++) {
        for (int i = 0; i < 8192; i++) {
            const float x = 0.02F * normal(&rng);
            uint32_t b;
            memcpy(&b, &x, 4);
            row[i] = (uint16_t)(b >> 16);
        }
        if (fwrite(row, 2, 8192, f) != 8192)
            exit(1);
    }
    free(row);
    if (fclose(f) != 0)
        exit(1);
}

/* Peak resident megabytes of a child that runs one conversion; from a pipe with pipe_in. */
static double
child_peak_mb(bool compress, const char *in, const char *out, bool pipe_in)
{
    int fd[2] = {-1, -1};
    struct rusage ru;
    int status = 0;

    if (pipe_in && pipe(fd) != 0)
        exit(1);
    const pid_t child = fork();
    if (child == 0) {
        ckp_convert_options o = CKP_CONVERT_OPTIONS_INIT;
        o.replace = true;
        if (pipe_in) {
            (void)dup2(fd[0], 0);
            (void)close(fd[0]);
            (void)close(fd[1]);
        }
        const ckp_status st = compress ? ckp_compress(in, out, &o, NULL, &err) : ckp_decompress(pipe_in ? "-" : in, out, &o, NULL, &err);
        if (st != CKP_OK)
            (void)fprintf(stderr, "conversion: %s\n", err.text);
        _exit(st == CKP_OK ? 0 : 1);
    }
    if (pipe_in) {
        static char buf[1 << 20];
        FILE *f = fopen(in, "rb");
        size_t n = 0;
        (void)close(fd[0]);
        while (f != NULL && (n = fread(buf, 1, sizeof buf, f)) > 0)
            for (size_t at = 0; at < n;) {
                const ssize_t k = write(fd[1], buf + at, n - at);
                if (k <= 0)
                    exit(1);
                at += (size_t)k;
            }
        (void)close(fd[1]);
        if (f != NULL)
            (void)fclose(f);
    }
    if (wait4(child, &status, 0, &ru) != child || status != 0)
        exit(1);
    return (double)ru.ru_maxrss / 1000.0 * 1.024;
}

/* ---- a cut file ------------------------------------------------------------------------------------------------------ */

static void
count_elements(void *user, const char *tensor, uint64_t have, uint64_t of)
{
    double *share = user;
    (void)tensor;
    *share = (double)have / (double)of;
}

/* Share of the elements that salvage gets from the first `part` of the file, all of them compared with the original; -1: wrong. */
static double
salvage_cut(const char *ckp, const char *original, const char *dir, double part)
{
    char cut[600], out[600], parts[700];
    struct stat sb;
    double share = -1.0;
    uint64_t header[2];
    FILE *f = NULL, *g = NULL;
    static char buf[1 << 20];

    (void)snprintf(cut, sizeof cut, "%s/cut.ckp", dir);
    (void)snprintf(out, sizeof out, "%s/salvaged", dir);
    (void)snprintf(parts, sizeof parts, "%s/salvaged-parts.safetensors", out);
    if (stat(ckp, &sb) != 0 || (f = fopen(ckp, "rb")) == NULL || (g = fopen(cut, "wb")) == NULL)
        exit(1);
    for (uint64_t left = (uint64_t)(part * (double)sb.st_size); left != 0;) {
        const size_t n = fread(buf, 1, left < sizeof buf ? (size_t)left : sizeof buf, f);
        if (n == 0 || fwrite(buf, 1, n, g) != n)
            exit(1);
        left -= n;
    }
    if (fclose(f) != 0 || fclose(g) != 0)
        exit(1);
    ok(ckp_salvage(cut, NULL, 0, out, true, count_elements, &share, &err), "salvage");
    /* one tensor, one range from its start: the data of both files, behind their headers, must agree */
    if ((f = fopen(parts, "rb")) == NULL || (g = fopen(original, "rb")) == NULL || fread(&header[0], 8, 1, f) != 1 ||
        fread(&header[1], 8, 1, g) != 1 || fclose(f) != 0 || fclose(g) != 0 || stat(parts, &sb) != 0)
        exit(1);
    const long at = (long)(8 + header[0]);
    if (!ckpb_same_bytes(parts, at, original, (long)(8 + header[1]), (uint64_t)(sb.st_size - at)))
        share = -1.0;
    (void)remove(cut);
    return share;
}

static void
big_files(const char *dir, double mb[3], bool *same, double salvaged[2])
{
    char in[600], ckp[600], out[600];

    ckpb_remove_tree(dir);
    (void)mkdir(dir, 0777);
    (void)snprintf(in, sizeof in, "%s/big.safetensors", dir);
    (void)snprintf(ckp, sizeof ckp, "%s/big.ckp", dir);
    (void)snprintf(out, sizeof out, "%s/out.safetensors", dir);
    make_big_file(in, UINT64_C(2000000000));
    mb[0] = child_peak_mb(true, in, ckp, false);
    mb[1] = child_peak_mb(false, ckp, out, false);
    *same = ckpb_same_bytes(in, 0, out, 0, 0);
    mb[2] = child_peak_mb(false, ckp, out, true);
    *same = *same && ckpb_same_bytes(in, 0, out, 0, 0);
    (void)remove(out);
    salvaged[0] = salvage_cut(ckp, in, dir, 0.5);
    salvaged[1] = salvage_cut(ckp, in, dir, 0.99);
    ckpb_remove_tree(dir);
}

/* ---- report ---------------------------------------------------------------------------------------------------------- */

static FILE *json;
static bool first_figure = true;

static void
figure(const char *name, double value, double bar, bool more_is_better)
{
    const bool fine = bar < 0.0 || (more_is_better ? value >= bar : value <= bar);
    if (bar >= 0.0)
        (void)printf("MUST %s %.4g %.4g %s\n", name, value, bar, fine ? "ok" : "short");
    else
        (void)printf("     %s %.4g\n", name, value);
    (void)fprintf(json, "%s\n  \"%s\": %.6g", first_figure ? "" : ",", name, value);
    first_figure = false;
}

/* Stall, encoding and restore alone, on whatever instruction set the environment leaves (test builds of the library look there). */
static int
quick(const char *level, size_t megabytes)
{
    const char *dir = "build/bench/save-quick";
    model x;

    make_model(&x, megabytes);
    const double copy = time_memcpy(&x, 1);
    const save_times t = time_saves(&x, dir, 1, TRIES + 1);
    const double raw = (double)t.raw, key = time_restore(&x, dir, 0, 3);
    (void)printf("     %s: stall_over_memcpy %.4g, encode_gb_s_core %.4g, restore_gb_s_core %.4g\n", level, t.stall / copy, raw / t.cpu / 1e9,
                 raw / key / 1e9);
    ckpb_remove_tree(dir);
    return 0;
}

/* The same figures with fewer instructions, by a process of its own. */
static void
with_level(const char *self, const char *level, const char *megabytes)
{
    int status = 0;

    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (setenv("CKPRESS_CPU", level, 1) != 0)
            _exit(1);
        (void)execl(self, self, megabytes, level, (char *)NULL);
        _exit(1);
    }
    if (waitpid(child, &status, 0) != child || status != 0)
        (void)fprintf(stderr, "no figures for %s\n", level);
}

int
main(int argc, char **argv)
{
    const size_t megabytes = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 600;
    const char *dir = "build/bench/save-run";
    model x;
    long rss_kb = 0;
    int files = 0;
    double peak[3];
    bool same = false;
    double salvaged[2];

    if (argc > 2)
        return quick(argv[2], megabytes);
    with_level(argv[0], "avx2", "300");
    json = fopen("build/bench/save.json", "w");
    if (json == NULL)
        return 1;
    /* children first: fork before the state is there, so that they measure themselves alone */
    big_files("build/bench/big", peak, &same, salvaged);
    many_saves(dir, &rss_kb, &files);

    make_model(&x, megabytes);
    const double params = (double)x.n * ROWS * COLS;
    const double copy1 = time_memcpy(&x, 1), copy2 = time_memcpy(&x, 2);
    const double sum1 = time_arithmetic(1), sum2 = time_arithmetic(2);
    const save_times two = time_saves(&x, dir, 2, TRIES + 1);
    const save_times one = time_saves(&x, dir, 1, 32);
    const double key = time_restore(&x, dir, 0, TRIES), chain = time_restore(&x, dir, 31, 3);
    const double raw = (double)one.raw;
    const double machine = fmin(2.0 * sum1 / sum2, copy1 / copy2);
    const double scaling = (one.stall + one.encode) / (two.stall + two.encode);

    (void)printf("%.0f MB of state, %.1f M parameters, profile resume\n", raw / 1e6, params / 1e6);
    ckpb_machine(stdout);
    (void)fprintf(json, "{\"state_mb\": %.1f, \"machine\": \"", raw / 1e6);
    ckpb_machine_json(json);
    (void)fprintf(json, "\"");
    first_figure = false;
    figure("memcpy_gb_s_1_thread", raw / copy1 / 1e9, -1, true);
    figure("stall_gb_s_1_thread", raw / one.stall / 1e9, -1, true);
    figure("bits_per_param_delta", 8.0 * (double)one.stored / params, -1, false);
    figure("stall_over_memcpy", one.stall / copy1, 1.5, false);
    figure("stall_over_memcpy_2_threads", two.stall / copy2, 1.5, false);
    figure("encode_gb_s_core", raw / one.cpu / 1e9, 2.0, true);
    figure("restore_gb_s_core", raw / key / 1e9, 2.0, true);
    figure("restore_chain32_gb_s_core", raw / chain / 1e9, 0.25, true);
    figure("machine_scaling_arithmetic", 2.0 * sum1 / sum2, -1, true);
    figure("machine_scaling_memcpy", copy1 / copy2, -1, true);
    figure("machine_scaling", machine, -1, true);
    figure("scaling_2_threads", scaling, -1, true);
    figure("scaling_2_threads_share_of_machine", scaling / machine, 0.9, true);
    figure("extra_bytes_per_param", (double)one.memory / params, 8.0, false);
    figure("rss_growth_mb_save_20_to_200", fabs((double)rss_kb / 1024.0), 2.0, false);
    figure("open_files_growth_save_20_to_200", files, 0.0, false);
    figure("compress_2gb_peak_mb", peak[0], 256.0, false);
    figure("decompress_2gb_peak_mb", peak[1], 256.0, false);
    figure("decompress_2gb_pipe_peak_mb", peak[2], 256.0, false);
    figure("decompress_2gb_identical", same, 1.0, true);
    /* whole chunks only: a chunk of 2^20 elements is 0.1 % of the file */
    figure("salvage_cut_at_50_percent", salvaged[0], 0.497, true);
    figure("salvage_cut_at_99_percent", salvaged[1], 0.987, true);
    (void)fprintf(json, "\n}\n");
    ckpb_remove_tree(dir);
    return fclose(json) == 0 ? 0 : 1;
}
