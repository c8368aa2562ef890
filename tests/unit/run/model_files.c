/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "model.h"

int
model_setup(void **state)
{
    char *dir = malloc(64);
    if (dir == NULL)
        return -1;
    (void)snprintf(dir, 64, "%s/ckp-model-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ".");
    *state = mkdtemp(dir);
    return *state == NULL ? -1 : 0;
}

static int
remove_one(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
    (void)sb, (void)type, (void)ftw;
    return remove(path);
}

void
model_remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int
model_teardown(void **state)
{
    model_remove_tree(*state);
    free(*state);
    return 0;
}

/* Four in turn. */
static char *
slot(void)
{
    static char text[4][1024];
    static unsigned turn;
    return text[turn++ % 4];
}

const char *
model_path(void **state, const char *name)
{
    char *out = slot();
    (void)snprintf(out, 1024, "%s/%s", (const char *)*state, name);
    return out;
}

uint8_t *
model_load_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*n + 1);
    assert_non_null(p);
    assert_int_equal(fread(p, 1, *n, f), *n);
    (void)fclose(f);
    return p;
}

void
model_store_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void
model_copy_tree(const char *from, const char *to)
{
    DIR *d = opendir(from);
    assert_non_null(d);
    assert_int_equal(mkdir(to, 0777), 0);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        char a[1024], b[1024];
        struct stat sb;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        (void)snprintf(a, sizeof a, "%.500s/%.500s", from, e->d_name);
        (void)snprintf(b, sizeof b, "%.500s/%.500s", to, e->d_name);
        assert_int_equal(stat(a, &sb), 0);
        if (S_ISDIR(sb.st_mode)) {
            model_copy_tree(a, b);
        } else {
            size_t n = 0;
            uint8_t *p = model_load_file(a, &n);
            model_store_file(b, p, n);
            free(p);
        }
    }
    (void)closedir(d);
}

const char *
model_shard(const char *run, uint64_t step)
{
    char prefix[32], *out = NULL;
    (void)snprintf(prefix, sizeof prefix, "step-%08llu-", (unsigned long long)step);
    DIR *d = opendir(run);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (strncmp(e->d_name, prefix, strlen(prefix)) == 0) {
            out = slot();
            (void)snprintf(out, 1024, "%.500s/%.200s/shard-00000-of-00001.ckp", run, e->d_name);
        }
    (void)closedir(d);
    assert_non_null(out);
    return out;
}

/* nftw has no argument for its caller; cmocka's tests run on one thread. */
static size_t counted;

static int
count_one(const char *path, const struct stat *sb, int type, struct FTW *ftw)
{
    (void)path, (void)sb, (void)ftw;
    counted += type == FTW_F;
    return 0;
}

size_t
model_count_files(const char *dir)
{
    counted = 0;
    (void)nftw(dir, count_one, 16, FTW_PHYS);
    return counted;
}
