/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of files with one array. */
#ifndef CLI_ARRAY_H
#define CLI_ARRAY_H
#include "ui.h"

typedef enum cli_format { CLI_FORMAT_BIN, CLI_FORMAT_NPY, CLI_FORMAT_SAFETENSORS } cli_format;

typedef struct cli_array {
    const char *name;
    ckp_dtype dtype;
    unsigned ndim;
    const uint64_t *shape;
    uint64_t bytes;
} cli_array;

/* Whether a format has the dtype. */
bool cli_format_holds(cli_format f, ckp_dtype dt);
/* Types whose every value f32 has: f16, bf16, f32 itself. */
bool cli_widens(ckp_dtype dt);
/* n elements of such a type to f32, exactly, NaN payloads too; dst and src do not overlap. */
void cli_widen(ckp_dtype dt, uint8_t *dst, const uint8_t *src, size_t n);
/* What comes before the elements: owned by the caller, *len 0 for bin. */
char *cli_array_head(cli_format f, const cli_array *a, size_t *len);
#endif
