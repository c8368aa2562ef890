/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

/* Under AddressSanitizer what is not handed out is poisoned, and each piece is followed by a red zone. */
#if defined(__SANITIZE_ADDRESS__)
#define CKPI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CKPI_ASAN 1
#endif
#endif
#ifdef CKPI_ASAN
#include <sanitizer/asan_interface.h>
enum { RED_ZONE = 64 };
#define POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
enum { RED_ZONE = 0 };
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

/* malloc(0) may be NULL, which callers would take for lack of memory. */
static bool
total_bytes(size_t n, size_t size, size_t *total)
{
    if (!ckpi_mul_size(n, size, total))
        return false;
    if (*total == 0)
        *total = 1;
    return true;
}

void *
ckpi_malloc(size_t n, size_t size)
{
    size_t total;
    return total_bytes(n, size, &total) ? malloc(total) : NULL;
}

void *
ckpi_calloc(size_t n, size_t size)
{
    size_t total;
    return total_bytes(n, size, &total) ? calloc(1, total) : NULL;
}

void *
ckpi_realloc(void *p, size_t n, size_t size)
{
    size_t total;
    return total_bytes(n, size, &total) ? realloc(p, total) : NULL;
}

char *
ckpi_strndup(const char *s, size_t n)
{
    const char *end = memchr(s, 0, n);
    const size_t len = end != NULL ? (size_t)(end - s) : n;
    size_t total;
    if (!ckpi_add_size(len, 1, &total))
        return NULL;
    char *copy = ckpi_malloc(total, 1);
    if (copy != NULL) {
        memcpy(copy, s, len);
        copy[len] = 0;
    }
    return copy;
}

char *
ckpi_strdup(const char *s)
{
    return ckpi_strndup(s, strlen(s));
}

void *
ckpi_aligned_alloc(size_t bytes)
{
    void *p = NULL;
    /* No object is larger; asking the C library for more is undefined in some and a report in valgrind. */
    if (bytes > PTRDIFF_MAX)
        return NULL;
    /* posix_memalign, unlike aligned_alloc, takes any size. */
    return posix_memalign(&p, ALIGN, bytes != 0 ? bytes : 1) == 0 ? p : NULL;
}

void
ckpi_aligned_free(void *p)
{
    free(p);
}

/*
 * Scratch is a list of blocks. Every piece lies whole in one block and no block ever moves, so pieces stay valid.
 *
 *     blocks:  [ 64 KiB ][ 128 KiB ][ 4 MiB ]...      each starts at a logical offset: the sum of the sizes before it
 *     mark:    logical offset = start of the current block + what is used of it
 *
 * A piece that does not fit into the current block skips the rest of it. Blocks behind the current one are empty
 * and kept for later; one that is too small for a piece is replaced by a larger one.
 */
typedef struct block {
    uint8_t *data;
    size_t size;
    size_t start;  /* logical offset of data[0] */
} block;

struct ckpi_scratch {
    block *blocks;
    size_t count;
    size_t room;   /* of the blocks array */
    size_t cur;    /* index of the block in use */
    size_t used;   /* bytes used of it */
};

enum { FIRST_BLOCK = 64 * 1024 };

ckpi_scratch *
ckpi_scratch_new(void)
{
    return ckpi_calloc(1, sizeof(ckpi_scratch));
}

static void
free_block(block *b)
{
    UNPOISON(b->data, b->size);
    ckpi_aligned_free(b->data);
}

void
ckpi_scratch_free(ckpi_scratch *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->count; i++)
        free_block(&s->blocks[i]);
    free(s->blocks);
    free(s);
}

/* Block sizes double, so that a scratch of any size has few blocks. */
static size_t
new_block_size(const ckpi_scratch *s, size_t index, size_t need)
{
    size_t size = FIRST_BLOCK;
    if (index > 0) {
        const size_t before = s->blocks[index - 1].size;
        size = before <= SIZE_MAX / 4 ? before * 2 : before;
    }
    return CKPI_MAX(size, need);
}

/* Makes blocks[index] an empty block of at least need bytes; index is count (append) or the place of an unused block. */
static bool
put_block(ckpi_scratch *s, size_t index, size_t need)
{
    if (index == s->room) {
        const size_t room = s->room != 0 ? s->room * 2 : 8;
        block *blocks = ckpi_realloc(s->blocks, room, sizeof *blocks);
        if (blocks == NULL)
            return false;
        s->blocks = blocks;
        s->room = room;
    }
    const size_t size = new_block_size(s, index, need);
    size_t start = 0, end;
    if (index > 0)
        start = s->blocks[index - 1].start + s->blocks[index - 1].size;
    if (!ckpi_add_size(start, size, &end))
        return false;
    uint8_t *data = ckpi_aligned_alloc(size);
    if (data == NULL)
        return false;
    /* Blocks from index on are unused; their starts depend on this one's size. */
    for (size_t i = index; i < s->count; i++)
        free_block(&s->blocks[i]);
    POISON(data, size);
    s->blocks[index] = (block){data, size, start};
    s->count = index + 1;
    return true;
}

void *
ckpi_scratch_get(ckpi_scratch *s, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGN - RED_ZONE)
        return NULL;
    const size_t need = CKPI_MAX((bytes + ALIGN - 1) / ALIGN * ALIGN, (size_t)ALIGN) + RED_ZONE;
    if (s->count == 0 && !put_block(s, 0, need))
        return NULL;
    size_t cur = s->cur, used = s->used;
    if (need > s->blocks[cur].size - used) {
        if (used != 0)
            cur++;
        used = 0;
        if ((cur == s->count || s->blocks[cur].size < need) && !put_block(s, cur, need))
            return NULL;
    }
    s->cur = cur;
    s->used = used + need;
    uint8_t *piece = s->blocks[cur].data + used;
    UNPOISON(piece, bytes);
    return piece;
}

size_t
ckpi_scratch_mark(const ckpi_scratch *s)
{
    return s->count != 0 ? s->blocks[s->cur].start + s->used : 0;
}

/* Everything behind the current place is nobody's. */
static void
poison_unused(ckpi_scratch *s)
{
    for (size_t i = s->cur; i < s->count; i++) {
        const size_t used = i == s->cur ? s->used : 0;
        POISON(s->blocks[i].data + used, s->blocks[i].size - used);
    }
}

void
ckpi_scratch_release(ckpi_scratch *s, size_t mark)
{
    if (s->count == 0)
        return;
    while (s->cur > 0 && s->blocks[s->cur].start >= mark)
        s->cur--;
    s->used = mark - s->blocks[s->cur].start;
    poison_unused(s);
}

void
ckpi_scratch_reset(ckpi_scratch *s)
{
    s->cur = 0;
    s->used = 0;
    poison_unused(s);
}

size_t
ckpi_scratch_bytes(const ckpi_scratch *s)
{
    return s->count != 0 ? s->blocks[s->count - 1].start + s->blocks[s->count - 1].size : 0;
}
