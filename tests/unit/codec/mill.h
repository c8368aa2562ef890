/* SPDX-License-Identifier: Apache-2.0 */
/* What every codec's test does with a block: round trip on every ISA, truncation, bit flips, guard pages on both sides. */
#ifndef CKP_TESTS_CODEC_MILL_H
#define CKP_TESTS_CODEC_MILL_H
#include "codec/codec.h"

/* Feature words of this machine, best first, ending with 0 (scalar). */
size_t mill_words(uint32_t words[8]);

/* Encode on every ISA into a buffer flush against a guard page, require equal bytes, decode on every ISA between guard pages.
   Returns the encoded size; enc (capacity bound) receives the bytes when not NULL. */
size_t mill_round_trip(const ckpi_codec *c, const ckpi_block *b, uint8_t *enc);

/* Every truncation must fail with CKP_ECORRUPT or CKP_ETRUNCATED; every bit flip must not crash. On every ISA. */
void mill_corrupt(const ckpi_codec *c, const ckpi_block *b, const uint8_t *enc, size_t len);
#endif
