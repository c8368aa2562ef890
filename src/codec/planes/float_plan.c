/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deciding how to split a chunk of floats. One pass over all words finds constant signs and rows with zero bits below; a
 * second one the factors; then every choice of factors and mantissa bits is priced on one small sample. Integer arithmetic
 * only: the same plan on every machine.
 */
#include <string.h>
#include "base/bytes.h"
#include "base/fail.h"
#include "codec/planes/float.h"
#include "codec/rans/rans.h"
#include "codec/stream/stream.h"

enum {
    SAMPLE = 4096,        /* elements that choices are priced on, at most */
    SAMPLE_LEAST = 1024,
    SAMPLE_SHARE = 64,    /* one element in so many, so that small chunks do not pay for large samples */
    SAMPLE_RUN = 16,      /* taken in runs of neighbours */
    SEGMENT = 256,        /* a row's length where the data has none */
    SHORT_ROW = 64,       /* rows shorter than this are joined: a factor must be worth its byte */
    NARROW = 63,          /* esc of a small alphabet */
    WIDE = 255,
    ESCAPE_BITS = 16
};

typedef struct sample {
    size_t n;
    int32_t x[SAMPLE];    /* magnitude in quarters of an octave */
    uint8_t row[SAMPLE];  /* factors of its row and column */
    uint8_t col[SAMPLE];
    uint32_t row_at[SAMPLE], col_at[SAMPLE];
} sample;

/* One way to split, and what it would cost. */
typedef struct choice {
    bool row, col;
    unsigned keep, esc;
    int32_t start;
    uint64_t bits;
} choice;

bool
ckpi_float_type_of(const ckpi_block *b, ckpi_float_type *type)
{
    static const struct {
        ckp_dtype dtype;
        ckpi_float_type type;
    } types[] = {{CKP_BF16, {2, 7, 8}}, {CKP_F16, {2, 10, 5}}, {CKP_F32, {4, 23, 8}}, {CKP_F64, {8, 52, 11}}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].dtype == b->dtype && types[i].type.width == b->width) {
            *type = types[i].type;
            return true;
        }
    }
    return false;
}

ckpi_float_row
ckpi_float_row_of(const ckpi_float_plan *p, size_t i)
{
    const ckpi_row_class c = ckpi_float_row_class(p, i);
    const unsigned fine = p->type.mant - CKPI_FLOAT_FINE;
    const uint64_t factor = p->row != NULL ? (uint64_t)p->row[i] << fine : 0;
    return (ckpi_float_row){
        .add = ((uint64_t)(int64_t)p->start << ckpi_float_low_bits(p)) - factor,
        .col = p->col != NULL ? p->col : p->zeros,
        .col_shift = fine,
        .low_bits = ckpi_float_low_bits(p),
        .esc = p->esc,
        .cut = c == CKPI_ROW_CUT ? p->cut : 0,
        .has_sign = p->has_sign,
        .sign = p->sign,
        .low_bytes = ckpi_float_rest_bits(p, c) / 8,
    };
}

bool
ckpi_float_count(ckpi_float_plan *p)
{
    memset(p->count, 0, sizeof p->count);
    for (size_t i = 0; i < p->rows; i++) {
        const ckpi_row_class c = ckpi_float_row_class(p, i);
        if ((unsigned)c >= CKPI_ROW_CLASSES)
            return false;
        p->count[c] += ckpi_float_row_size(p, i);
    }
    return true;
}

static unsigned
trailing_zeros(uint64_t x, unsigned most)
{
    unsigned n = 0;
    while (n < most && (x >> n & 1) == 0)
        n++;
    return n;
}

static void
choose_rows(ckpi_float_plan *p, const ckpi_block *b)
{
    p->row_len = SEGMENT;
    if (b->cols != 0)
        p->row_len = b->cols >= SHORT_ROW ? b->cols : b->cols * ((SHORT_ROW + b->cols - 1) / b->cols);
    if (p->row_len > p->n)
        p->row_len = p->n;
    p->rows = (p->n + p->row_len - 1) / p->row_len;
}

/* Which number of zero bits saves most: bits[t] counts rows with exactly t. */
static unsigned
best_cut(const size_t *with, unsigned most, size_t rows)
{
    size_t at_least = 0, best = 0;
    unsigned cut = 0;
    for (unsigned t = most; t > 0; t--) {
        at_least += with[t];
        if (at_least * t > best) {
            best = at_least * t;
            cut = t;
        }
    }
    /* An eighth of a bit an element, at least, for what the classes cost. */
    return best * 8 >= rows ? cut : 0;
}

/* Finds signs, row classes and peaks; classes and peak have p->rows elements. */
static void
scan_rows(ckpi_float_plan *p, const void *data, uint8_t *classes, uint32_t *peak, const ckpi_float_kern *kern)
{
    const unsigned most = p->type.mant - CKPI_FLOAT_FINE;
    size_t with[64] = {0}, zero_rows = 0;
    uint64_t any = 0, all = UINT64_MAX;
    for (size_t i = 0; i < p->rows; i++) {
        ckpi_float_scan s;
        kern->scan(&s, (const uint8_t *)data + i * p->row_len * p->type.width, ckpi_float_row_size(p, i));
        any |= s.any;
        all &= s.any == 0 ? all : s.all;
        const unsigned t = trailing_zeros(s.any, most);
        classes[i] = s.any == 0 ? UINT8_MAX : (uint8_t)t;
        peak[i] = (uint32_t)(s.peak >> (p->type.mant - CKPI_FLOAT_FINE));
        with[t] += s.any != 0;
        zero_rows += s.any == 0;
    }
    const unsigned sign = 8 * p->type.width - 1;
    p->has_sign = any != 0 && (any >> sign & 1) != (all >> sign & 1);
    p->sign = !p->has_sign && any != 0 && (any >> sign & 1) != 0;
    p->cut = best_cut(with, most, p->rows);
    if (p->cut == 0 && zero_rows == 0)
        return;
    for (size_t i = 0; i < p->rows; i++) {
        const uint8_t t = classes[i];
        classes[i] = t == UINT8_MAX ? CKPI_ROW_ZERO : p->cut != 0 && t >= p->cut ? CKPI_ROW_CUT : CKPI_ROW_FULL;
    }
    p->klass = classes;
}

static void
take_run(sample *s, const ckpi_float_plan *p, const uint8_t *data, size_t first, size_t n)
{
    const unsigned fine = p->type.mant - CKPI_FLOAT_FINE;
    const uint64_t magnitude = (UINT64_C(1) << (8 * p->type.width - 1)) - 1;
    size_t row = first / p->row_len, col = first % p->row_len;
    for (size_t i = first; i < first + n; i++, col++) {
        if (col == p->row_len) {
            col = 0;
            row++;
        }
        if (ckpi_float_row_class(p, row) == CKPI_ROW_ZERO)
            continue;
        s->x[s->n] = (int32_t)((ckpi_float_word(&p->type, data, i) & magnitude) >> fine);
        s->row_at[s->n] = (uint32_t)row;
        s->col_at[s->n++] = (uint32_t)col;
    }
}

static void
take_sample(sample *s, const ckpi_float_plan *p, const void *data)
{
    const size_t want = CKPI_MIN(CKPI_MAX(p->n / SAMPLE_SHARE, (size_t)SAMPLE_LEAST), (size_t)SAMPLE);
    s->n = 0;
    if (p->n <= want) {
        take_run(s, p, data, 0, p->n);
        return;
    }
    const size_t runs = want / SAMPLE_RUN, step = p->n / runs;
    for (size_t k = 0; k < runs; k++)
        take_run(s, p, data, k * step, SAMPLE_RUN);
}

static uint64_t
factor_bits(const uint8_t *f, size_t n)
{
    uint32_t hist[256];
    ckpi_rans_hist(f, n, hist);
    return 8 * ckpi_stream_cost(hist, n);
}

/* A sample's values under a choice: quarters of an octave above the prediction, cut to what the symbol keeps. */
static int32_t
value(const choice *c, const sample *s, size_t i)
{
    enum { BIAS = 1 << 20 }; /* keeps the shifted number positive */
    const int32_t x = s->x[i] - (c->row ? s->row[i] : 0) - (c->col ? s->col[i] : 0);
    return ((x + BIAS) >> (CKPI_FLOAT_FINE - c->keep)) - (BIAS >> (CKPI_FLOAT_FINE - c->keep));
}

/* Prices a choice and sets its start. */
static void
price(choice *c, const sample *s, uint64_t n)
{
    int32_t values[SAMPLE], top = INT32_MIN;
    for (size_t i = 0; i < s->n; i++) {
        values[i] = value(c, s, i);
        top = CKPI_MAX(top, values[i]);
    }
    /* Room above the largest of the sample: values beyond it are rare but there. */
    c->start = c->esc == WIDE ? 0 : (int32_t)c->esc - 1 - (2 << c->keep) - top;
    uint32_t hist[256] = {0};
    uint64_t symbols = 0;
    for (size_t i = 0; i < s->n; i++) {
        const uint32_t v = (uint32_t)(values[i] + c->start);
        hist[CKPI_MIN(v, c->esc)]++;
    }
    for (unsigned k = 0; k < 256; k++)
        symbols += hist[k] != 0;
    const uint64_t sampled = 8 * ckpi_rans_entropy_bytes(hist) + hist[c->esc] * (uint64_t)ESCAPE_BITS;
    c->bits += sampled * n / s->n + symbols * 8;
    c->bits -= CKPI_MIN(c->bits, n * c->keep);
}

static void
take_better(choice *best, choice c, const sample *s, uint64_t n, uint64_t side_bits)
{
    /* Every choice starts FINE bits an element up, so that what `keep` saves never takes it below zero. */
    c.bits = n * CKPI_FLOAT_FINE + side_bits;
    price(&c, s, n);
    if (c.bits < best->bits)
        *best = c;
}

/* Which factors, with one mantissa bit in the symbol; then how many bits. */
static void
choose(ckpi_float_plan *p, const sample *s, uint64_t row_bits, uint64_t col_bits)
{
    const uint64_t n = p->count[CKPI_ROW_FULL] + p->count[CKPI_ROW_CUT];
    choice best = {.bits = UINT64_MAX};
    take_better(&best, (choice){.keep = 0, .esc = WIDE}, s, n, 0);
    take_better(&best, (choice){.keep = 1, .esc = NARROW}, s, n, 0);
    if (p->row != NULL)
        take_better(&best, (choice){.row = true, .keep = 1, .esc = NARROW}, s, n, row_bits);
    if (p->col != NULL)
        take_better(&best, (choice){.row = true, .col = true, .keep = 1, .esc = NARROW}, s, n, row_bits + col_bits);
    const choice mode = best;
    for (unsigned keep = 0; mode.esc == NARROW && keep <= CKPI_FLOAT_FINE; keep += 2)
        take_better(&best, (choice){.row = mode.row, .col = mode.col, .keep = keep, .esc = NARROW}, s, n,
                    (mode.row ? row_bits : 0) + (mode.col ? col_bits : 0));
    p->keep = best.keep;
    p->esc = best.esc;
    p->start = best.start;
    p->row = best.row ? p->row : NULL;
    p->col = best.col ? p->col : NULL;
}

static ckp_status
plan_factors(ckpi_float_plan *p, const ckpi_block *b, sample *s, const uint32_t *peak, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    uint64_t row_bits = 0, col_bits = 0;
    if (p->rows >= 2) {
        uint8_t *row = ckpi_scratch_get(ws, p->rows), *col = ckpi_scratch_get(ws, p->row_len);
        if (row == NULL || col == NULL)
            return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for factors");
        const ckp_status st = ckpi_float_factors(p, b->data, row, col, peak, ws, cpu, err);
        if (st != CKP_OK)
            return st;
        for (size_t i = 0; i < s->n; i++) {
            s->row[i] = row[s->row_at[i]];
            s->col[i] = col[s->col_at[i]];
        }
        p->row = row;
        row_bits = factor_bits(row, p->rows);
        if (b->cols != 0) {
            p->col = col;
            col_bits = factor_bits(col, p->row_len);
        }
    }
    choose(p, s, row_bits, col_bits);
    return CKP_OK;
}

ckp_status
ckpi_float_plan_make(ckpi_float_plan *p, const ckpi_block *b, ckpi_scratch *ws, uint32_t cpu, ckp_error *err)
{
    *p = (ckpi_float_plan){.n = b->n, .esc = WIDE};
    ckpi_float_type_of(b, &p->type);
    choose_rows(p, b);
    uint8_t *classes = ckpi_scratch_get(ws, p->rows), *zeros = ckpi_scratch_get(ws, p->row_len);
    uint32_t *peak = ckpi_scratch_get(ws, p->rows * sizeof *peak);
    sample *s = ckpi_scratch_get(ws, sizeof *s);
    if (classes == NULL || zeros == NULL || peak == NULL || s == NULL)
        return ckpi_fail(err, CKP_ENOMEM, "planes: no memory for %zu rows", p->rows);
    memset(zeros, 0, p->row_len);
    p->zeros = zeros;
    scan_rows(p, b->data, classes, peak, ckpi_float_kern_pick(b->width, cpu));
    ckpi_float_count(p);
    take_sample(s, p, b->data);
    if (s->n == 0)
        return CKP_OK;
    return plan_factors(p, b, s, peak, ws, cpu, err);
}
