/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for libFuzzer's main where there is none: runs the target on each seed file, each seed cut short, and nothing. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned runs;

static void
run(const uint8_t *data, size_t size)
{
    /* An exact copy, so that sanitizers see the true end. */
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL)
        abort();
    if (size != 0)
        memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    runs++;
}

static void
run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (f == NULL || fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
        if (f != NULL)
            fclose(f);
        return;
    }
    const size_t size = (size_t)st.st_size;
    uint8_t *data = malloc(size + 1);
    if (data == NULL || fread(data, 1, size, f) != size)
        abort();
    fclose(f);
    run(data, size);
    const size_t step = size / 64 + 1;
    for (size_t cut = 0; cut < size; cut += step)
        run(data, cut);
    free(data);
}

int
main(int argc, char **argv)
{
    run(NULL, 0);
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (dir == NULL) {
            run_file(argv[i]);
            continue;
        }
        for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
            char path[4096];
            const int n = snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (n > 0 && (size_t)n < sizeof path)
                run_file(path);
        }
        closedir(dir);
    }
    printf("%u inputs\n", runs);
    return 0;
}
