/* SPDX-License-Identifier: Apache-2.0 */
/* Wire values of planes (README.md): written by *_enc.c, read by *_dec.c. */
#ifndef CKPI_CODEC_FLOAT_WIRE_H
#define CKPI_CODEC_FLOAT_WIRE_H

/* First byte of a planes payload. */
enum { CKPI_PLANES_BYTES = 0, CKPI_PLANES_FLOAT = 1 };

/* Second byte of a float payload; the low two bits are `keep`. */
enum {
    CKPI_FLOAT_KEEP = 3,
    CKPI_FLOAT_HAS_SIGN = 4,
    CKPI_FLOAT_SIGN = 8,
    CKPI_FLOAT_HAS_ROW = 16,
    CKPI_FLOAT_HAS_COL = 32,
    CKPI_FLOAT_HAS_CLASS = 64,
    CKPI_FLOAT_RESERVED = 128
};

/* How the low bytes, and the bits above them, of one class of rows are kept. */
enum { CKPI_REST_STORED = 0, CKPI_REST_STREAMS = 1 };
#endif
