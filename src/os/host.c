/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "os/host.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/hash.h"
#include "os/fdio.h"

/* First bytes of a small system file as a string; "" when there is none. */
static void
slurp(const char *path, char *dst, size_t size)
{
    size_t got = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (ckpi_fd_read(fd, dst, size - 1, &got) != 0)
            got = 0;
        close(fd);
    }
    dst[got] = '\0';
}

/* Field 22 of /proc/PID/stat. The command's name (field 2, in parentheses) may hold spaces and parentheses itself. */
static uint64_t
start_time(int64_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    slurp(path, text, sizeof text);
    const char *p = strrchr(text, ')');
    for (int field = 2; p != NULL && field < 22; field++) {
        p = strchr(p, ' ');
        if (p != NULL)
            p++;
    }
    return p == NULL ? 0 : strtoull(p, NULL, 10);
}

void
ckpi_proc_self(ckpi_proc *out)
{
    struct stat sb;
    memset(out, 0, sizeof *out);
    if (gethostname(out->host, sizeof out->host - 1) != 0)
        out->host[0] = '\0';
    /* It goes into JSON: what is not ASCII need not be UTF-8. */
    for (char *p = out->host; *p != '\0'; p++)
        *p = *p < ' ' || *p > '~' ? '?' : *p;
    slurp("/proc/sys/kernel/random/boot_id", out->boot, sizeof out->boot);
    out->boot[strcspn(out->boot, "\n")] = '\0';
    if (stat("/proc/self/ns/pid", &sb) == 0)
        out->pid_ns = (uint64_t)sb.st_ino;
    out->pid = (int64_t)getpid();
    out->start = start_time(out->pid);
}

bool
ckpi_proc_same_place(const ckpi_proc *a, const ckpi_proc *b)
{
    return a->host[0] != '\0' && a->boot[0] != '\0' && a->pid_ns != 0 && a->pid_ns == b->pid_ns
        && strcmp(a->host, b->host) == 0 && strcmp(a->boot, b->boot) == 0;
}

ckpi_alive
ckpi_proc_alive(const ckpi_proc *self, const ckpi_proc *other)
{
    if (!ckpi_proc_same_place(self, other) || other->pid <= 0 || other->pid > INT32_MAX || other->start == 0)
        return CKPI_ALIVE_UNKNOWN;
    /* ESRCH alone proves death; EPERM is another user's process. */
    if (kill((pid_t)other->pid, 0) != 0 && errno == ESRCH)
        return CKPI_ALIVE_NO;
    const uint64_t start = start_time(other->pid);
    if (start == 0)
        return CKPI_ALIVE_UNKNOWN;     /* hidden (hidepid), or it died just now */
    return start == other->start ? CKPI_ALIVE_YES : CKPI_ALIVE_NO;
}

uint32_t
ckpi_proc_place(const ckpi_proc *p)
{
    char text[2 * CKPI_HOST_MAX + 32];
    const int n = snprintf(text, sizeof text, "%s\n%s\n%llu", p->host, p->boot, (unsigned long long)p->pid_ns);
    return (uint32_t)ckpi_hash64(text, (size_t)n);
}

int64_t
ckpi_now_unix(void)
{
    return (int64_t)time(NULL);
}

void
ckpi_sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000L};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

ckp_status
ckpi_random(void *dst, size_t n, ckp_error *err)
{
    char *p = dst;
    while (n > 0) {
        const ssize_t r = getrandom(p, n, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return ckpi_fail_errno(err, r < 0 ? errno : EIO, "cannot get random bytes");
        p += r;
        n -= (size_t)r;
    }
    return CKP_OK;
}

int64_t
ckpi_pid(void)
{
    return (int64_t)getpid();
}

ckp_status
ckpi_tmp_name(char out[CKPI_TMP_MAX], const char *name, ckp_error *err)
{
    ckpi_proc self;
    uint32_t nonce;
    const ckp_status st = ckpi_random(&nonce, sizeof nonce, err);
    if (st != CKP_OK)
        return st;
    ckpi_proc_self(&self);
    const int n = snprintf(out, CKPI_TMP_MAX, ".tmp-%lld-%08x%08x-%s", (long long)self.pid, ckpi_proc_place(&self), nonce, name);
    if (n < 0 || n >= CKPI_TMP_MAX)
        return ckpi_fail(err, CKP_EPATH, "name '%.200s' is too long", name);
    return CKP_OK;
}

static bool
hex8(const char *p, uint32_t *v)
{
    *v = 0;
    for (int i = 0; i < 8; i++) {
        const char *digit = p[i] == '\0' ? NULL : strchr("0123456789abcdef", p[i]);
        if (digit == NULL)
            return false;
        *v = *v << 4 | (uint32_t)(*digit <= '9' ? *digit - '0' : *digit - 'a' + 10);
    }
    return true;
}

bool
ckpi_tmp_parse(const char *name, int64_t *pid, uint32_t *place)
{
    uint32_t nonce;
    if (strncmp(name, ".tmp-", 5) != 0 || name[5] < '1' || name[5] > '9')
        return false;
    char *end = NULL;
    *pid = strtoll(name + 5, &end, 10);
    return *end == '-' && hex8(end + 1, place) && hex8(end + 9, &nonce) && end[17] == '-' && end[18] != '\0';
}

bool
ckpi_tmp_dead(const ckpi_proc *self, const char *name)
{
    int64_t pid;
    uint32_t place;
    if (!ckpi_tmp_parse(name, &pid, &place) || place != ckpi_proc_place(self) || pid > INT32_MAX)
        return false;
    /* A pid that lives again hides a dead temporary for a while; the other mistake would be worse. */
    return pid != self->pid && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}
