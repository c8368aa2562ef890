/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of ctx: distribute bytes to one place for each context, and collect them again. at[c] moves on with each byte. */
#ifndef CKPI_CODEC_CTX_KERN_H
#define CKPI_CODEC_CTX_KERN_H
#include <stddef.h>
#include <stdint.h>

typedef struct ckpi_ctx_kern {
    uint32_t needs;
    /* Both do a leading part of the n symbols and return its length: the caller's plain loop does the rest. 64 bytes from at[c]
       on are stored or loaded, whatever belongs there. */
    size_t (*split)(uint8_t **at, const uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts);
    size_t (*merge)(const uint8_t **at, uint8_t *sym, const uint8_t *ctx, size_t n, unsigned contexts);
} ckpi_ctx_kern;

/* NULL: none for this feature word. */
const ckpi_ctx_kern *ckpi_ctx_kern_pick(uint32_t cpu);
#endif
