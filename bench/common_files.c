/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "common_files.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

void
ckpb_remove_tree(const char *dir)
{
    if (nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && access(dir, F_OK) == 0) {
        (void)fprintf(stderr, "cannot remove %s\n", dir);
        exit(1);
    }
}

bool
ckpb_same_bytes(const char *a, long a_off, const char *b, long b_off, uint64_t n)
{
    static char x[1 << 20], y[1 << 20];
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    bool same = f != NULL && g != NULL && fseek(f, a_off, SEEK_SET) == 0 && fseek(g, b_off, SEEK_SET) == 0;
    const bool to_end = n == 0;

    while (same && (to_end || n != 0)) {
        const size_t want = to_end || n > sizeof x ? sizeof x : (size_t)n, got = fread(x, 1, want, f);
        same = fread(y, 1, want, g) == got && memcmp(x, y, got) == 0 && (to_end || got == want);
        if (got < want)
            break;
        n -= to_end ? 0 : got;
    }
    if (f != NULL)
        (void)fclose(f);
    if (g != NULL)
        (void)fclose(g);
    return same;
}
