/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tmpdir.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int
tmpdir_setup(void **state)
{
    char *dir = malloc(64);
    if (dir == NULL)
        return -1;
    snprintf(dir, 64, "%s/ckp-os-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ".");
    *state = mkdtemp(dir);
    return *state == NULL ? -1 : 0;
}

static int
remove_one(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
    (void)sb, (void)type, (void)ftw;
    return remove(path);
}

int
tmpdir_teardown(void **state)
{
    const int r = nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return r;
}

ckpi_fs *
tmpdir_fs(void **state)
{
    ckpi_fs *fs = NULL;
    assert_ok(ckpi_fs_posix(&fs, *state, false, NULL));
    return fs;
}

const char *
tmpdir_path(void **state, const char *name)
{
    static char path[2][512];
    static unsigned turn;
    turn ^= 1;
    snprintf(path[turn], sizeof path[turn], "%s/%s", (const char *)*state, name);
    return path[turn];
}

void
tmpdir_write(void **state, const char *name, const void *p, size_t n)
{
    FILE *f = fopen(tmpdir_path(state, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}
