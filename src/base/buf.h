/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growable bytes with a cap, and the sticky writer over them: after the first failure nothing is written any more,
 * so a sequence of puts needs one check at its end.
 */
#ifndef CKPI_BASE_BUF_H
#define CKPI_BASE_BUF_H
#include <stdbool.h>
#include <ckpress/base.h>

typedef struct ckpi_buf {
    uint8_t *data;
    size_t len;
    size_t cap;
    size_t max;          /* never grows beyond; 0: no cap */
    ckp_status failed;   /* CKP_OK, CKP_ENOMEM or CKP_ELIMIT; sticky */
} ckpi_buf;

#define CKPI_BUF_INIT {0}
#define CKPI_BUF_INIT_MAX(m) {.max = (m)}

void ckpi_buf_free(ckpi_buf *b);                       /* leaves an empty, reusable buffer */
void ckpi_buf_clear(ckpi_buf *b);                      /* length 0, memory kept, failure forgotten */
void ckpi_buf_fit(ckpi_buf *b);                        /* gives back what is not used, where that works */
bool ckpi_buf_reserve(ckpi_buf *b, size_t extra);      /* room for extra more bytes */
uint8_t *ckpi_buf_extend(ckpi_buf *b, size_t n);       /* grows by n, returns the place; NULL on failure */
void ckpi_buf_put(ckpi_buf *b, const void *p, size_t n);
void ckpi_buf_u8(ckpi_buf *b, uint8_t v);
void ckpi_buf_u16(ckpi_buf *b, uint16_t v);
void ckpi_buf_u32(ckpi_buf *b, uint32_t v);
void ckpi_buf_u64(ckpi_buf *b, uint64_t v);
void ckpi_buf_varint(ckpi_buf *b, uint64_t v);         /* LEB128, at most 10 bytes */
void ckpi_buf_f32(ckpi_buf *b, float v);
void ckpi_buf_f64(ckpi_buf *b, double v);
/* varint length, then the bytes */
void ckpi_buf_str(ckpi_buf *b, const void *p, size_t n);
ckp_status ckpi_buf_status(const ckpi_buf *b, ckp_error *err, const char *what);
#endif
