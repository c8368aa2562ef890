/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "base/fail.h"
#include "base/limits.h"
#include "os/os.h"

static ckp_status
bad(ckp_error *err, const char *name, const char *why)
{
    return ckpi_fail(err, CKP_EPATH, "name '%.200s' %s", name, why);
}

/* "", "." and ".." are the components that could make a name mean another file. */
static bool
component_ok(const char *p, size_t n)
{
    return n > 0 && !(n == 1 && p[0] == '.') && !(n == 2 && p[0] == '.' && p[1] == '.');
}

ckp_status
ckpi_path_ok(const char *name, ckp_error *err)
{
    if (name == NULL)
        return ckpi_fail(err, CKP_EPATH, "name is missing");
    if (strlen(name) >= CKPI_PATH_MAX)
        return bad(err, name, "is too long");
    /* A backslash separates on other systems: what is a plain name here must be one everywhere. */
    if (strchr(name, '\\') != NULL)
        return bad(err, name, "contains a backslash");
    for (const char *p = name;;) {
        const size_t n = strcspn(p, "/");
        if (!component_ok(p, n))
            return bad(err, name, "would leave its directory");
        if (p[n] == '\0')
            return CKP_OK;
        p += n + 1;
    }
}
