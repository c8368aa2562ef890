/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How to keep a state as it is while training goes on: copying it, forking, or protecting its pages (userfaultfd) and copying those that are written
 * to. Evidence of docs/decisions/0022; no part of the library.
 *
 *   bench_staging [MB]
 *
 * Of each: how long the training stands still, how long its next pass that writes every byte then takes, and both over a plain such pass.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRIES 5

static double
now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct result { double stall, pass; bool ok; } result;
typedef struct memory { float *live, *staged; size_t bytes; } memory;

static float *
map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(1);
    memset(p, 1, bytes);
    return p;
}

/* What an optimizer does to it. */
static double
write_pass(const memory *m)
{
    const double t0 = now();
    for (size_t i = 0; i < m->bytes / sizeof *m->live; i++)
        m->live[i] = m->live[i] * 0.999F + 1e-6F;
    return now() - t0;
}

static result
nothing(const memory *m)
{
    return (result){0.0, write_pass(m), true};
}

static result
copying(const memory *m)
{
    const double t0 = now();
    memcpy(m->staged, m->live, m->bytes);
    const double stall = now() - t0;
    return (result){stall, write_pass(m), true};
}

/* Half of it, in blocks of 1 MB, is what it was: compared, not copied. */
static result
half_unchanged(const memory *m)
{
    const size_t block = 1 << 20;
    char *live = (char *)m->live, *staged = (char *)m->staged;

    for (size_t at = 0; at + block <= m->bytes; at += block) {
        memcpy(staged + at, live + at, block);
        if (at / block % 2 == 0)
            staged[at + 8] ^= 1;
    }
    const double t0 = now();
    for (size_t at = 0; at + block <= m->bytes; at += block)
        if (memcmp(staged + at, live + at, block) != 0)
            memcpy(staged + at, live + at, block);
    const double stall = now() - t0;
    return (result){stall, write_pass(m), true};
}

/* The child would code what it sees; here it waits. */
static result
forking(const memory *m)
{
    int p[2];
    char c;

    if (pipe(p) != 0)
        exit(1);
    const double t0 = now();
    const pid_t child = fork();
    if (child == 0) {
        (void)close(p[1]);
        _exit(read(p[0], &c, 1) == 0 ? 0 : 1);
    }
    result r = {now() - t0, 0.0, child > 0};
    (void)close(p[0]);
    r.pass = write_pass(m);
    (void)close(p[1]);
    (void)waitpid(child, NULL, 0);
    return r;
}

/* ---- userfaultfd -------------------------------------------------------------------------------------------------- */

typedef struct watcher { const memory *m; int fd; size_t block; atomic_bool over; } watcher;

static bool
protect(int fd, const void *at, size_t bytes, bool on)
{
    struct uffdio_writeprotect w = {.range = {(uintptr_t)at, bytes}, .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
    return ioctl(fd, UFFDIO_WRITEPROTECT, &w) == 0;
}

/* Copies the block in which something is about to be written, and lets it be. */
static void *
watch(void *user)
{
    watcher *w = user;
    struct uffd_msg msg;

    while (!atomic_load(&w->over)) {
        struct pollfd p = {w->fd, POLLIN, 0};
        if (poll(&p, 1, 20) != 1 || read(w->fd, &msg, sizeof msg) != (ssize_t)sizeof msg)
            continue;
        const size_t at = (msg.arg.pagefault.address - (uintptr_t)w->m->live) / w->block * w->block;
        const size_t n = w->m->bytes - at < w->block ? w->m->bytes - at : w->block;
        memcpy((char *)w->m->staged + at, (char *)w->m->live + at, n);
        (void)protect(w->fd, (char *)w->m->live + at, n, false);
    }
    return NULL;
}

static result
protecting(const memory *m, size_t block)
{
    result r = {0.0, 0.0, false};
    watcher w = {.m = m, .fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK), .block = block};
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    struct uffdio_register reg = {.range = {(uintptr_t)m->live, m->bytes}, .mode = UFFDIO_REGISTER_MODE_WP};
    pthread_t th;

    if (w.fd < 0 || ioctl(w.fd, UFFDIO_API, &api) != 0 || ioctl(w.fd, UFFDIO_REGISTER, &reg) != 0 || pthread_create(&th, NULL, watch, &w) != 0) {
        if (w.fd >= 0)
            (void)close(w.fd);
        return r;
    }
    const double t0 = now();
    r.ok = protect(w.fd, m->live, m->bytes, true);
    r.stall = now() - t0;
    r.pass = write_pass(m);
    atomic_store(&w.over, true);
    (void)pthread_join(th, NULL);
    (void)close(w.fd);
    return r;
}

static result
protecting_pages(const memory *m)
{
    return protecting(m, 4096);
}

static result
protecting_blocks(const memory *m)
{
    return protecting(m, 1 << 20);
}

static result
best_of(result (*fn)(const memory *m), const memory *m)
{
    result best = fn(m);
    for (int i = 1; best.ok && i < TRIES; i++) {
        const result r = fn(m);
        best = r.stall + r.pass < best.stall + best.pass ? r : best;
    }
    return best;
}

int
main(int argc, char **argv)
{
    const size_t bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 500) << 20;
    const memory m = {map(bytes), map(bytes), bytes};
    static const struct { const char *name; result (*fn)(const memory *m); } ways[] = {
        {"nothing", nothing},
        {"copy", copying},
        {"copy, half unchanged", half_unchanged},
        {"fork", forking},
        {"userfaultfd, 4 KB", protecting_pages},
        {"userfaultfd, 1 MB", protecting_blocks},
    };
    double plain = 0.0;

    (void)printf("%zu MB; ms\n%-24s%8s%8s%16s\n", bytes >> 20, "", "stall", "pass", "more than plain");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const result r = best_of(ways[i].fn, &m);
        plain = i == 0 ? r.pass : plain;
        if (r.ok)
            (void)printf("%-24s%8.1f%8.1f%16.1f\n", ways[i].name, 1e3 * r.stall, 1e3 * r.pass, 1e3 * (r.stall + r.pass - plain));
        else
            (void)printf("%-24s not allowed here\n", ways[i].name);
    }
    return 0;
}
