/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers of the io tests: files in memory, states read back, exports driven. */
#ifndef CKP_TESTS_IO_HELP_H
#define CKP_TESTS_IO_HELP_H
#include "io/io.h"
#include "state/state.h"

/* Opens bytes as a foreign file. The reader must be freed after *f. */
ckp_status help_open(ckpi_foreign **f, ckpi_reader **r, const void *p, size_t n, ckp_error *err);
/* Opens, pulls every tensor, closes. */
ckp_status help_read_all(const void *p, size_t n, ckp_error *err);
/* A safetensors file of that JSON and data. */
void help_safetensors(ckpi_buf *b, const char *json, const void *data, size_t n);
/* Rows of a state as an export wants them; freed by free(). */
ckpi_out_tensor *help_rows(const ckp_state *s);
/* Feeds every tensor that e asks for from the state, `step` elements at a time, and finishes. */
ckp_status help_feed(ckpi_export *e, const ckp_state *s, uint64_t step, ckp_error *err);
#endif
