/* SPDX-License-Identifier: Apache-2.0 */
/* Files of every format version, as the first library that had it wrote them, must decode to the hashes noted then (tests/golden/README.md). */
#include <ckpress/run.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "harness/check.h"

#define MAX_BASES 64

static char root[1024];

typedef struct golden { char bases[MAX_BASES][2048]; const char *base[MAX_BASES]; size_t n_bases; ckp_checkpoint *ck; size_t tensors; } golden;

static uint64_t
decoded_hash(ckp_checkpoint *ck, uint32_t index, const char *file)
{
    ckp_error err;
    ckp_tensor_info info = {.size = sizeof info};
    assert_ok(ckp_checkpoint_tensor(ck, index, &info, &err));
    uint64_t whole = 1;
    for (unsigned i = 0; i < info.ndim; i++)
        whole *= info.shape[i];
    void *p = malloc((size_t)info.raw_bytes + 1);
    assert_non_null(p);
    const ckp_target t = {.index = index, .dtype = info.dtype, .ndim = info.ndim, .shape = info.shape, .data = p};
    /* A shard that holds a part of a tensor is read by range. */
    const ckp_status st = whole == info.numel ? ckp_checkpoint_read(ck, &t, 1, 1, &err)
                                              : ckp_checkpoint_read_range(ck, index, 0, info.numel, p, &err);
    if (st != CKP_OK)
        fail_msg("%s: %s: %s", file, info.name, err.text);
    const uint64_t h = ckpi_hash64(p, (size_t)info.raw_bytes);
    free(p);
    return h;
}

/* A line is "base FILE" (all of them first) or "HASH NAME". */
static void
check_line(golden *g, const char *dir, const char *file, char *line)
{
    ckp_error err;
    char *name = strchr(line, ' ');
    assert_non_null(name);
    *name++ = 0;
    if (strcmp(line, "base") == 0) {
        assert_true(g->n_bases < MAX_BASES && g->ck == NULL);
        (void)snprintf(g->bases[g->n_bases], sizeof g->bases[0], "%s/%s", dir, name);
        g->base[g->n_bases] = g->bases[g->n_bases];
        g->n_bases++;
        return;
    }
    if (g->ck == NULL && ckp_checkpoint_open_file(&g->ck, file, g->base, g->n_bases, &err) != CKP_OK)
        fail_msg("%s: %s", file, err.text);
    const uint32_t index = ckp_checkpoint_find(g->ck, name);
    if (index == UINT32_MAX)
        fail_msg("%s: no tensor '%s'", file, name);
    const uint64_t want = strtoull(line, NULL, 16), found = decoded_hash(g->ck, index, file);
    if (want != found)
        fail_msg("%s: %s: expected %016llx, found %016llx", file, name, (unsigned long long)want, (unsigned long long)found);
    g->tensors++;
}

static void
check_file(const char *dir, const char *txt)
{
    char path[2048], line[4200];
    static golden g;
    g = (golden){0};
    (void)snprintf(path, sizeof path, "%s/%s", dir, txt);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    (void)snprintf(path + strlen(path) - 4, 5, ".ckp");
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = 0;
        check_line(&g, dir, path, line);
    }
    (void)fclose(f);
    assert_int_equal(g.tensors, ckp_checkpoint_count(g.ck));
    ckp_checkpoint_close(g.ck);
}

static size_t
check_version(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        const size_t len = strlen(e->d_name);
        if (len > 4 && strcmp(e->d_name + len - 4, ".txt") == 0) {
            check_file(dir, e->d_name);
            n++;
        }
    }
    (void)closedir(d);
    return n;
}

static void
test_every_version(void **state)
{
    (void)state;
    char dir[1100];
    size_t n = 0;
    for (unsigned v = 1; v <= 1; v++) {
        (void)snprintf(dir, sizeof dir, "%s/tests/golden/v%u", root, v);
        n += check_version(dir);
    }
    assert_true(n >= 14);
}

/* A delta without its base says which it needs. */
static void
test_missing_base(void **state)
{
    (void)state;
    char path[1100];
    ckp_checkpoint *ck;
    ckp_error err;
    (void)snprintf(path, sizeof path, "%s/tests/golden/v1/resume-1.ckp", root);
    assert_status(ckp_checkpoint_open_file(&ck, path, NULL, 0, &err), CKP_EBASE);
    const char *wrong[1] = {path};
    assert_status(ckp_checkpoint_open_file(&ck, path, wrong, 1, &err), CKP_EBASE);
}

int
main(void)
{
    const char *dir = getenv("CKP_SOURCE_DIR");
    (void)snprintf(root, sizeof root, "%s", dir != NULL ? dir : ".");
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_version), cmocka_unit_test(test_missing_base)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
