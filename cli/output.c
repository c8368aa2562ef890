/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE              /* O_TMPFILE */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "output.h"

static int
failed(const cli_output *o, const char *what)
{
    return cli_fail(CLI_FILES, "%s: %s: %s.", o->path, what, strerror(errno));
}

/* ".NAME.PID.tmp" beside the output. */
static char *
temporary(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t dir = slash != NULL ? (size_t)(slash - path) + 1 : 0, cap = strlen(path) + 32;
    char *tmp = cli_alloc(cap);

    (void)snprintf(tmp, cap, "%.*s.%s.%ld.tmp", (int)dir, path, path + dir, (long)getpid());
    return tmp;
}

/* "a/b" -> "a", "b" -> ".", "/b" -> "/" */
static char *
directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = cli_copy(slash != NULL ? path : ".");

    if (slash != NULL)
        dir[slash == path ? 1 : slash - path] = '\0';
    return dir;
}

/* A file without a name: nothing is left of it when this process is killed. -1 where the system has no such files. */
static int
open_nameless(const char *path)
{
#ifdef O_TMPFILE
    char *dir = directory_of(path);
    /* without /proc it could not be given a name later */
    const int fd = access("/proc/self/fd", X_OK) == 0 ? open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666) : -1;
    free(dir);
    return fd;
#else
    (void)path;
    return -1;
#endif
}

static int
check_target(const char *path, bool replace)
{
    struct stat sb;

    if (stat(path, &sb) != 0)
        return CLI_OK;
    if (!S_ISREG(sb.st_mode))
        return cli_fail(CLI_USAGE, "%s: a device, pipe or socket is not replaced by a file; write to - and redirect.", path);
    return replace ? CLI_OK : cli_fail(CLI_FILES, "%s: it exists already; -f replaces it.", path);
}

int
cli_output_open(cli_output *o, const char *path, bool replace)
{
    *o = (cli_output){.path = path, .replace = replace};
    if (strcmp(path, "-") == 0) {
        o->f = stdout;
        return CLI_OK;
    }
    const int code = check_target(path, replace);
    if (code != CLI_OK)
        return code;
    o->tmp = temporary(path);
    int fd = open_nameless(path);
    if (fd < 0) {
        fd = open(o->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        o->named = fd >= 0;
    }
    if (fd < 0)
        return failed(o, "cannot create it");
    o->f = fdopen(fd, "wb");
    if (o->f != NULL)
        return CLI_OK;
    (void)close(fd);
    return failed(o, "cannot open it");
}

int
cli_output_put(cli_output *o, const void *p, size_t n)
{
    return fwrite(p, 1, n, o->f) == n ? CLI_OK : failed(o, "cannot write");
}

/* A file is there for good when its directory is. A failure to sync that directory is not ours to repair: the name is given. */
static void
sync_directory(const char *path)
{
    char *dir = directory_of(path);

    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
    free(dir);
}

/* Gives the open file a name, which must be new. */
static int
link_as(const cli_output *o, const char *name)
{
    char proc[64];

    if (o->named)
        return link(o->tmp, name);
    (void)snprintf(proc, sizeof proc, "/proc/self/fd/%d", fileno(o->f));
    return linkat(AT_FDCWD, proc, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

/* A link never replaces: whoever was first keeps the name. To replace takes a rename, and so a name before it. */
static int
give_name(cli_output *o)
{
    if (!o->replace)
        return link_as(o, o->path);
    if (!o->named && link_as(o, o->tmp) != 0)
        return -1;
    o->named = true;
    if (rename(o->tmp, o->path) != 0)
        return -1;
    o->named = false;
    return 0;
}

int
cli_output_commit(cli_output *o)
{
    if (fflush(o->f) != 0)
        return failed(o, "cannot write");
    if (o->tmp == NULL)
        return CLI_OK;
    if (fsync(fileno(o->f)) != 0)
        return failed(o, "cannot write");
    if (give_name(o) != 0)
        return failed(o, "cannot give the file its name");
    sync_directory(o->path);
    return CLI_OK;
}

void
cli_output_free(cli_output *o)
{
    if (o->f != NULL && o->f != stdout)
        (void)fclose(o->f);
    if (o->named)
        (void)unlink(o->tmp);
    free(o->tmp);
    *o = (cli_output){0};
}
