/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness/guard.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* unmapped page | whole pages | unmapped page; where the user's pointer lies in it is found in this list. */
typedef struct region {
    struct region *next;
    uint8_t *map;
    size_t map_len;
    uint8_t *user;
} region;

static region *regions;

static uint8_t *
make(size_t n, int at_end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t inner = (n + page - 1) / page * page + (n == 0 ? page : 0);
    region *r = malloc(sizeof *r);
    uint8_t *map = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r == NULL || map == MAP_FAILED || mprotect(map + page, inner, PROT_READ | PROT_WRITE) != 0) {
        perror("guard_alloc");
        abort();
    }
    memset(map + page, 0xa5, inner);
    *r = (region){regions, map, inner + 2 * page, at_end ? map + page + inner - n : map + page};
    regions = r;
    return r->user;
}

uint8_t *
guard_alloc(size_t n)
{
    return make(n, 1);
}

uint8_t *
guard_alloc_front(size_t n)
{
    return make(n, 0);
}

uint8_t *
guard_copy(const void *src, size_t n)
{
    uint8_t *p = guard_alloc(n);
    if (n != 0)
        memcpy(p, src, n);
    return p;
}

static region **
find(void *p)
{
    region **r = &regions;
    while (*r != NULL && (*r)->user != p)
        r = &(*r)->next;
    if (*r == NULL) {
        fputs("guard: not a guarded buffer\n", stderr);
        abort();
    }
    return r;
}

void
guard_readonly(void *p)
{
    const region *r = *find(p);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (mprotect(r->map + page, r->map_len - 2 * page, PROT_READ) != 0)
        abort();
}

void
guard_free(void *p)
{
    if (p == NULL)
        return;
    region **at = find(p);
    region *r = *at;
    *at = r->next;
    munmap(r->map, r->map_len);
    free(r);
}
