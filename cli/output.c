/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

int
cli_output_open(cli_output *o, const char *path, bool replace)
{
    *o = (cli_output){.path = path, .replace = replace};
    if (strcmp(path, "-") == 0) {
        o->f = stdout;
        return CLI_OK;
    }
    if (!replace && access(path, F_OK) == 0)
        return cli_fail(CLI_FILES, "%s: it exists already; -f replaces it.", path);
    o->tmp = temporary(path);
    const int fd = open(o->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        const int code = failed(o, "cannot create it");
        free(o->tmp);
        o->tmp = NULL;
        return code;
    }
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
    const char *slash = strrchr(path, '/');
    char *dir = cli_copy(slash != NULL ? path : ".");

    if (slash != NULL)
        dir[slash == path ? 1 : slash - path] = '\0';
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
    free(dir);
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
    /* link never replaces: whoever was first keeps the name */
    if (o->replace ? rename(o->tmp, o->path) != 0 : link(o->tmp, o->path) != 0)
        return failed(o, "cannot give the file its name");
    if (!o->replace)
        (void)unlink(o->tmp);
    free(o->tmp);
    o->tmp = NULL;
    sync_directory(o->path);
    return CLI_OK;
}

void
cli_output_free(cli_output *o)
{
    if (o->f != NULL && o->f != stdout)
        (void)fclose(o->f);
    if (o->tmp != NULL)
        (void)unlink(o->tmp);
    free(o->tmp);
    *o = (cli_output){0};
}
