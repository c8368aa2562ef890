/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD: raises a CPython audit event for each change of a file that C code makes, so that a crash injector that listens to audit
 * events (ckpt-chaos) also sees the library's own. Events that Python itself raises come twice; that does no harm.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int (*audit_fn)(const char *event, const char *format, ...);

/* The path below its directory handle, as a text. */
static void
full_path(char out[8192], int dir, const char *name)
{
    char link[64], base[4096] = ".";
    if (name[0] == '/' || dir == AT_FDCWD) {
        (void)snprintf(out, 8192, "%s", name);
        return;
    }
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    const ssize_t n = readlink(link, base, sizeof base - 1);
    base[n > 0 ? n : 1] = 0;
    (void)snprintf(out, 8192, "%s/%s", base, name);
}

/* The events of CPython's own functions, with their argument lists. */
enum event { OPEN, RENAME, REMOVE, RMDIR, MKDIR };

static void
tell(enum event event, const char *a, const char *b)
{
    int (*is_up)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    audit_fn audit = (audit_fn)dlsym(RTLD_DEFAULT, "PySys_Audit");
    if (is_up == NULL || ensure == NULL || release == NULL || audit == NULL || !is_up())
        return;
    const int gil = ensure();
    switch (event) {
    case OPEN: (void)audit("open", "szi", a, (char *)NULL, O_WRONLY); break;
    case RENAME: (void)audit("os.rename", "ssii", a, b, -1, -1); break;
    case REMOVE: (void)audit("os.remove", "si", a, -1); break;
    case RMDIR: (void)audit("os.rmdir", "si", a, -1); break;
    case MKDIR: (void)audit("os.mkdir", "sii", a, 0777, -1); break;
    }
    release(gil);
}

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

int
openat(int dir, const char *name, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    char path[8192];
    full_path(path, dir, name);
    if ((flags & O_ACCMODE) != O_RDONLY)
        tell(OPEN, path, NULL);
    return REAL("openat", int (*)(int, const char *, int, ...))(dir, name, flags, mode);
}

int
renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    char a[8192], b[8192];
    full_path(a, from_dir, from);
    full_path(b, to_dir, to);
    tell(RENAME, a, b);
    return REAL("renameat2", int (*)(int, const char *, int, const char *, unsigned))(from_dir, from, to_dir, to, flags);
}

int
renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    char a[8192], b[8192];
    full_path(a, from_dir, from);
    full_path(b, to_dir, to);
    tell(RENAME, a, b);
    return REAL("renameat", int (*)(int, const char *, int, const char *))(from_dir, from, to_dir, to);
}

int
linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    char a[8192], b[8192];
    full_path(a, from_dir, from);
    full_path(b, to_dir, to);
    tell(RENAME, a, b);
    return REAL("linkat", int (*)(int, const char *, int, const char *, int))(from_dir, from, to_dir, to, flags);
}

int
unlinkat(int dir, const char *name, int flags)
{
    char path[8192];
    full_path(path, dir, name);
    tell(flags & AT_REMOVEDIR ? RMDIR : REMOVE, path, NULL);
    return REAL("unlinkat", int (*)(int, const char *, int))(dir, name, flags);
}

int
mkdirat(int dir, const char *name, mode_t mode)
{
    char path[8192];
    full_path(path, dir, name);
    tell(MKDIR, path, NULL);
    return REAL("mkdirat", int (*)(int, const char *, mode_t))(dir, name, mode);
}

/* A write that ended: the file is there, its data may not be on the disk. */
int
fsync(int fd)
{
    char link[64], path[4096] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0)
        tell(OPEN, path, NULL);
    return REAL("fsync", int (*)(int))(fd);
}
