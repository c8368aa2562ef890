/* SPDX-License-Identifier: Apache-2.0 */
/* A directory's names, read whole before anything is done with them: removing while listing is not defined everywhere. */
#include <stdlib.h>
#include "base/alloc.h"
#include "base/fail.h"
#include "store/internal.h"

static bool
grow(ckpi_names *names)
{
    if ((names->n & (names->n - 1)) != 0)
        return true;
    const size_t cap = names->n == 0 ? 1 : 2 * names->n;
    char **v = ckpi_realloc(names->v, cap, sizeof *v);
    if (v == NULL)
        return false;
    names->v = v;
    bool *d = ckpi_realloc(names->is_dir, cap, sizeof *d);
    if (d == NULL)
        return false;
    names->is_dir = d;
    return true;
}

static bool
add(void *user, const char *entry, bool is_dir)
{
    ckpi_names *names = user;
    char *copy = ckpi_strdup(entry);
    if (copy == NULL || !grow(names)) {
        free(copy);
        names->failed = CKP_ENOMEM;
        return false;
    }
    names->v[names->n] = copy;
    names->is_dir[names->n++] = is_dir;
    return true;
}

ckp_status
ckpi_names_read(ckpi_store *s, const char *dir, ckpi_names *out, ckp_error *err)
{
    *out = (ckpi_names){0};
    ckp_status st = s->fs->ops->list(s->fs, dir, add, out, err);
    if (st == CKP_OK && out->failed != CKP_OK)
        st = ckpi_fail(err, out->failed, "no memory to list '%.100s'", dir);
    if (st != CKP_OK)
        ckpi_names_free(out);
    return st;
}

void
ckpi_names_free(ckpi_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->v[i]);
    free(names->v);
    free(names->is_dir);
    *names = (ckpi_names){0};
}
