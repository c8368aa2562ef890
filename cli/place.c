/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "place.h"

static bool
is_directory(const char *path)
{
    struct stat sb;
    return stat(path, &sb) == 0 && S_ISDIR(sb.st_mode);
}

static bool
exists(const char *path)
{
    struct stat sb;
    return lstat(path, &sb) == 0;
}

/* RUN@STEP, unless a file of just that name is there. */
static bool
split_step(cli_place *p, const char *arg)
{
    const char *at = strrchr(arg, '@');
    char *end = NULL;

    if (at == NULL || at == arg || at[1] < '0' || at[1] > '9' || exists(arg))
        return false;
    errno = 0;
    const unsigned long long step = strtoull(at + 1, &end, 10);
    if (*end != '\0' || errno != 0 || step > INT64_MAX)
        return false;
    p->path = cli_copy(arg);
    p->path[at - arg] = '\0';
    if (!is_directory(p->path)) {
        free(p->path);
        p->path = NULL;
        return false;
    }
    p->is_run = p->has_step = true;
    p->step = (int64_t)step;
    return true;
}

int
cli_place_parse(cli_place *p, const char *arg)
{
    *p = (cli_place){.step = CKP_STEP_NEWEST};
    if (split_step(p, arg))
        return CLI_OK;
    if (strcmp(arg, "-") == 0)
        return cli_fail(CLI_USAGE, "this command reads a file from more than one place: it cannot come from a pipe.");
    if (strstr(arg, "://") != NULL && !exists(arg))
        return cli_fail(CLI_USAGE, "%s: this command reads directories and files; runs behind URLs are looked after in Python (ckpress.list_run, verify, prune, copy_run ...).",
                        arg);
    p->path = cli_copy(arg);
    p->is_run = is_directory(arg);
    return CLI_OK;
}

void
cli_place_free(cli_place *p)
{
    free(p->path);
    p->path = NULL;
}

const char *
cli_base_model(const cli_args *a)
{
    return a->n_base != 0 ? a->base[0] : NULL;
}

int
cli_place_open(ckp_checkpoint **out, const cli_place *p, const cli_args *a)
{
    ckp_error e = {0};
    ckp_status st;

    if (p->is_run)
        st = ckp_checkpoint_open_run_on(out, p->path, cli_base_model(a), p->step, false, &e);
    else
        st = ckp_checkpoint_open_file(out, p->path, a->base, a->n_base, &e);
    if (st != CKP_OK)
        return cli_told(st, &e);
    for (const char *s = ckp_checkpoint_notes(*out); *s != '\0';) {
        const size_t n = strcspn(s, "\n");
        cli_note("passed over %.*s", (int)n, s);
        s += n + (s[n] == '\n');
    }
    if (ckp_checkpoint_dropped(*out) != NULL && !a->quiet)
        cli_note("%s", ckp_checkpoint_dropped(*out));
    return CLI_OK;
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

static char *
with_ending(const char *in, size_t keep, const char *ending)
{
    char *out = cli_alloc(keep + strlen(ending) + 1);
    (void)memcpy(out, in, keep);
    (void)memcpy(out + keep, ending, strlen(ending) + 1);
    return out;
}

/* Length without the first ending that fits. */
static size_t
stem(const char *in, const char *const *ending)
{
    const char *slash = strrchr(in, '/');
    const char *name = slash != NULL ? slash + 1 : in;

    for (; *ending != NULL; ending++)
        if (cli_ends_with(name, *ending) && strlen(name) > strlen(*ending))
            return strlen(in) - strlen(*ending);
    return strlen(in);
}

char *
cli_name_packed(const char *in)
{
    static const char *const ending[] = {".safetensors", ".pth", ".ckpt", ".pt", ".bin", NULL};
    return with_ending(in, stem(in, ending), ".ckp");
}

/* A tree that is NAMED "safetensors" says that the file was one. */
static bool
was_safetensors(const ckp_checkpoint *ck)
{
    static const char name[] = "safetensors";
    ckp_tree_reader r;
    ckp_tree_node node;
    size_t len = 0;

    const void *tree = ckp_checkpoint_tree(ck, &len);
    if (len == 0)
        return false;
    ckp_tree_reader_init(&r, tree, len);
    return ckp_tree_next(&r, &node, NULL) == CKP_OK && node.type == CKP_TREE_NAMED && node.len == sizeof name - 1 &&
           memcmp(node.data, name, node.len) == 0;
}

char *
cli_name_unpacked(const char *in, const ckp_checkpoint *ck)
{
    static const char *const ending[] = {".ckp", NULL};
    return with_ending(in, stem(in, ending), was_safetensors(ck) ? ".safetensors" : ".pt");
}

char *
cli_name_of_step(const char *run, uint64_t step)
{
    char text[32];
    size_t n = strlen(run);

    while (n > 1 && run[n - 1] == '/')
        n--;
    (void)snprintf(text, sizeof text, "@%llu.pt", (unsigned long long)step);
    return with_ending(run, n, text);
}

/* ---- outputs ------------------------------------------------------------------------------------------------------- */

bool
cli_output_is_dir(const cli_args *a)
{
    return a->output != NULL && strcmp(a->output, "-") != 0 && (cli_ends_with(a->output, "/") || is_directory(a->output));
}

static const char *
last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

char *
cli_output_path(const cli_args *a, const char *made)
{
    if (a->output == NULL)
        return cli_copy(made);
    if (!cli_output_is_dir(a))
        return cli_copy(a->output);
    if (!is_directory(a->output)) {
        (void)cli_fail(CLI_FILES, "%s: there is no such directory.", a->output);
        return NULL;
    }
    const size_t cap = strlen(a->output) + strlen(made) + 2;
    char *out = cli_alloc(cap);
    (void)snprintf(out, cap, "%s%s%s", a->output, cli_ends_with(a->output, "/") ? "" : "/", last_part(made));
    return out;
}

static char *
directory_of(const char *path)
{
    const char *name = last_part(path);
    return name == path ? cli_copy(".") : with_ending(path, (size_t)(name - path), "");
}

bool
cli_same_target(const char *a, const char *b)
{
    if (strcmp(a, "-") == 0 || strcmp(b, "-") == 0 || strcmp(last_part(a), last_part(b)) != 0)
        return false;
    char *x = directory_of(a), *y = directory_of(b);
    const bool same = strcmp(x, y) == 0 || cli_same_file(x, y);
    free(x);
    free(y);
    return same;
}

bool
cli_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
