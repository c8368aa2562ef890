/* SPDX-License-Identifier: Apache-2.0 */
/* What a chunk's parameters say of how a piece was quantized. For people: decoding does not come by here. */
#ifndef CKPI_ENGINE_SETTINGS_H
#define CKPI_ENGINE_SETTINGS_H
#include "format/format.h"

typedef struct ckpi_piece_settings {
    const char *quantizer;       /* "none", "w", "m", "v", "index", "cluster", "codebook", "?": static */
    bool follows;                /* w: steps follow a scale field */
    float step, lo, hi;          /* w */
    float magnitude;             /* m */
    int32_t vstep;               /* v, 1/256 octave; 0: the base's */
    uint32_t levels;             /* index: of the codebook; 0: the base's, or none. cluster, codebook: clusters */
    double mse, mre;             /* cluster, codebook: as the writer measured */
} ckpi_piece_settings;

/* c as ckpi_fmt_read_chunk gives it; piece below c->n_pieces. CKP_ECORRUPT: parameters end early. */
CKP_MUST_USE ckp_status ckpi_piece_settings_get(const ckpi_chunk *c, size_t piece, ckpi_piece_settings *out, ckp_error *err);
#endif
