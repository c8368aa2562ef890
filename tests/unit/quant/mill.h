/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quantizers' registry of tests: inputs by name, settings by name, and one mill that sends every pair through every ISA.
 * A new quantizer or input is one more row.
 */
#ifndef CKP_TESTS_QUANT_MILL_H
#define CKP_TESTS_QUANT_MILL_H
#include "harness/check.h"
#include "harness/guard.h"
#include "harness/seed.h"
#include "base/cpu.h"
#include "base/float.h"
#include "quant/quant.h"

/* What fills w, m, v and the base of w. */
typedef struct mill_input {
    const char *name;
    void (*fill)(test_rng *r, size_t n, size_t cols, float *w, float *m, float *v, float *base);
} mill_input;
const mill_input *mill_input_at(size_t i);       /* NULL at the end */

/* A quantizer's settings; what is absent is coded without. */
typedef struct mill_setting {
    const char *name;
    bool w, m, v, key, cols;                     /* cols: column factors */
    int32_t vstep;
    ckpi_round round;
    ckpi_mkind mkind;
    float mt;
    ckp_dtype dtype;
    float q;                                     /* qmul; qlo = q/4, qhi = 1.5 q */
} mill_setting;
const mill_setting *mill_setting_at(size_t i);   /* NULL at the end */

/* n and cols worth trying: vectors, tails, short rows, runs of a long row, blocks. */
typedef struct mill_shape { size_t n, cols; } mill_shape;
const mill_shape *mill_shape_at(size_t i);       /* n = SIZE_MAX at the end */

/* Words to run each test with: scalar first, then every level this machine has. */
size_t mill_cpus(uint32_t *words, size_t cap);

/* One piece with everything that it needs; floats and codes end at unmapped pages. */
typedef struct mill_piece {
    size_t n, cols, rows;
    float *w, *m, *v, *base;
    int16_t *row, *col;
    int8_t *vbase;
    ckpi_enc_in in;
} mill_piece;
mill_piece mill_piece_new(test_rng *r, const mill_input *in, const mill_setting *s, size_t n, size_t cols);
void mill_piece_free(mill_piece *p);

/* What an encoder made of a piece. */
typedef struct mill_coded {
    float *wrec;
    ckpi_enc_out out;
    float mg;
} mill_coded;
mill_coded mill_encode(const mill_piece *p, ckpi_scratch *ws, uint32_t cpu);
void mill_coded_free(mill_coded *c);
/* Every byte and sum. */
void mill_assert_same(const mill_piece *p, const mill_coded *a, const mill_coded *b);

/* w^, m^, v^ from codes and base alone, escapes applied. Buffers of the caller, n floats each. */
void mill_decode(const mill_piece *p, const mill_coded *c, ckpi_scratch *ws, uint32_t cpu, float *w, float *m, float *v);

/* Calls fn for every input, setting and shape. */
void mill_each(const char *test, void (*fn)(test_rng *r, const mill_piece *p, const mill_setting *s, ckpi_scratch *ws));
#endif
