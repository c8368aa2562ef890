/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress bench: what this machine does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "json.h"
#include "table.h"

enum { COLS = 4096, WARM = 2, STEPS = 15, DEFAULT_PARAMS = 1 << 24 };

/* A parameter as an optimizer has it: weights, a gradient, and state in `bits`. */
typedef struct subject {
    ckp_optim_tensor t;
    ckp_adamw how;
    uint64_t rows, state_bytes;
} subject;

static void
drop(subject *x)
{
    free(x->t.p);
    free((void *)(uintptr_t)x->t.g);
    free(x->t.m);
    free(x->t.v);
    free(x->t.row);
    free(x->t.col);
}

static void *
zeros(uint64_t n)
{
    void *p = cli_alloc((size_t)n);
    memset(p, 0, (size_t)n);
    return p;
}

/* Gradients of one size and all signs: what a step does hardly depends on them. */
static void
fill(float *x, uint64_t n, float size)
{
    uint32_t z = 1;

    for (uint64_t i = 0; i < n; i++) {
        z = z * 1664525u + 1013904223u;
        x[i] = size * ((float)(z >> 8) / 8388608.0f - 1.0f);
    }
}

static subject
make(uint64_t n, unsigned bits)
{
    subject x = {.how = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01}, .rows = (n + COLS - 1) / COLS};
    const uint64_t moment = ckp_optim_state_bytes(n, COLS, bits);
    float *p = cli_alloc((size_t)n * sizeof *p), *g = cli_alloc((size_t)n * sizeof *g);

    fill(p, n, 0.02f);
    fill(g, n, 1e-3f);
    x.t = (ckp_optim_tensor){.numel = n, .cols = COLS, .p_dtype = CKP_F32, .g_dtype = CKP_F32, .p = p, .g = g, .m_bits = bits, .v_bits = bits,
                             .m = zeros(moment), .v = zeros(moment), .row = zeros(x.rows), .col = zeros(COLS)};
    x.state_bytes = 2 * moment + x.rows + COLS;
    return x;
}

static int
ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of a step; below 0: it failed, which was told. */
static double
time_steps(ckp_optim *o, subject *x, int *code)
{
    double each[STEPS];
    ckp_error err;

    x->t.how = &x->how;
    for (int i = -WARM; i < STEPS; i++) {
        x->t.step++;
        const double start = cli_seconds();
        *code = cli_told(ckp_optim_adamw(o, &x->t, 1, &err), &err);
        if (*code != CLI_OK)
            return -1.0;
        if (i >= 0)
            each[i] = cli_seconds() - start;
    }
    qsort(each, STEPS, sizeof *each, ascending);
    return each[STEPS / 2];
}

/* The same of copying the weights, on one thread. */
static double
time_copies(uint64_t n)
{
    double each[STEPS];
    float *from = cli_alloc((size_t)n * sizeof *from), *to = cli_alloc((size_t)n * sizeof *to);

    fill(from, n, 1.0f);
    for (int i = -WARM; i < STEPS; i++) {
        from[0] = (float)i;              /* so that no copy is like the last one */
        const double start = cli_seconds();
        memcpy(to, from, (size_t)n * sizeof *to);
        if (i >= 0)
            each[i] = cli_seconds() - start + 0.0 * (double)to[n / 2];     /* or the copy might be left out */
    }
    qsort(each, STEPS, sizeof *each, ascending);
    free(from);
    free(to);
    return each[STEPS / 2];
}

typedef struct result { unsigned bits; double seconds; uint64_t state_bytes; } result;

/* p twice, g once, codes twice. */
static double
moved(uint64_t n, const result *r)
{
    return 12.0 * (double)n + 2.0 * (double)r->state_bytes;
}

static void
cell(cli_table *t, const char *format, double value)
{
    char s[32];

    (void)snprintf(s, sizeof s, format, value);
    cli_table_add(t, s);
}

static void
print_text(uint64_t n, double copy, const result *r, size_t count)
{
    cli_table t;
    cli_text size;
    static const char *const head[] = {"BITS", "NS/PARAM", "GB/S", "MEMCPYS", "STATE", "BYTES/PARAM", "OF F32"};

    printf("%s parameters in f32, one thread copies them at %.1f GB/s\n\n", cli_count(&size, n), 8.0 * (double)n / copy / 1e9);
    cli_table_init(&t, "rrrrrrr");
    for (size_t k = 0; k < sizeof head / sizeof *head; k++)
        cli_table_add(&t, head[k]);
    for (size_t i = 0; i < count; i++) {
        cell(&t, "%.0f", r[i].bits);
        cell(&t, "%.2f", r[i].seconds / (double)n * 1e9);
        cell(&t, "%.1f", moved(n, &r[i]) / r[i].seconds / 1e9);
        cell(&t, "%.2f", r[i].seconds / copy);
        cli_table_add(&t, cli_size(&size, r[i].state_bytes));
        cell(&t, "%.3f", (double)r[i].state_bytes / (double)n);
        cell(&t, "%.1f %%", 100.0 * (double)r[i].state_bytes / (8.0 * (double)n));
    }
    cli_table_print(&t, 2);
}

static void
print_json(uint64_t n, unsigned threads, double copy, const result *r, size_t count)
{
    cli_json j = {0};

    cli_json_open(&j, NULL, '{');
    cli_json_u64(&j, "parameters", n);
    cli_json_u64(&j, "threads", threads);
    cli_json_num(&j, "memcpy_seconds", copy);
    cli_json_open(&j, "steps", '[');
    for (size_t i = 0; i < count; i++) {
        cli_json_open(&j, NULL, '{');
        cli_json_u64(&j, "bits", r[i].bits);
        cli_json_num(&j, "seconds", r[i].seconds);
        cli_json_u64(&j, "state_bytes", r[i].state_bytes);
        cli_json_close(&j, '}');
    }
    cli_json_close(&j, ']');
    cli_json_close(&j, '}');
}

static int
bench_optim(const cli_args *a, uint64_t n)
{
    static const unsigned widths[] = {8, 6, 5, 4, 3, 2};
    result r[sizeof widths / sizeof *widths];
    ckp_optim *o = NULL;
    ckp_error err;
    const size_t count = sizeof widths / sizeof *widths;
    const double copy = time_copies(n);
    int code = cli_told(ckp_optim_new(&o, a->threads, &err), &err);

    for (size_t i = 0; code == CLI_OK && i < count; i++) {
        subject x = make(n, widths[i]);
        r[i] = (result){widths[i], time_steps(o, &x, &code), x.state_bytes};
        drop(&x);
    }
    ckp_optim_free(o);
    if (code == CLI_OK && a->json)
        print_json(n, a->threads, copy, r, count);
    else if (code == CLI_OK)
        print_text(n, copy, r, count);
    return code;
}

static int
bench(const cli_args *a)
{
    uint64_t n = DEFAULT_PARAMS;
    char *end = NULL;

    if (strcmp(a->arg[0], "optim") != 0)
        return cli_fail(CLI_USAGE, "no bench '%s': there is optim.", a->arg[0]);
    if (a->n_arg > 1) {
        n = strtoull(a->arg[1], &end, 10);
        if (a->arg[1][0] < '0' || a->arg[1][0] > '9' || *end != '\0' || n < COLS || n > UINT64_C(1) << 34)
            return cli_fail(CLI_USAGE, "'%s' is not a number of parameters from %d to 2^34.", a->arg[1], COLS);
    }
    return bench_optim(a, n);
}

const cli_command cli_cmd_bench = {
    .name = "bench",
    .args = "optim [PARAMETERS]",
    .summary = "Measure a step of the optimizers of few bits on this machine",
    .text = "A step of AdamW over PARAMETERS weights in f32 (2^24 unless given), rows of 4096, with both moments in 8 to 2 bits: nanoseconds a parameter (median of\n"
            "15 steps), bytes that it moves by second, its time over that of one thread copying the weights, and what stays in memory, factors included, beside\n"
            "the 8 bytes a parameter of f32. Gradients come from memory where they do not fit the caches, as in a training. --threads: of a step.\n"
            "\n"
            "  ckpress bench optim\n"
            "  ckpress bench optim 4194304 --threads 1",
    .options = CLI_COMMON | CLI_HAS(CLI_OPT_THREADS) | CLI_HAS(CLI_OPT_JSON),
    .min_args = 1,
    .max_args = 2,
    .run = bench,
};
