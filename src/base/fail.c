/* SPDX-License-Identifier: Apache-2.0 */
/* ckp_error.text is built as "file: tensor: what (at byte N)": the parts are put in front as callers learn them. */
#define _GNU_SOURCE
#include "base/fail.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void
ckpi_error_clear(ckp_error *err)
{
    if (err == NULL)
        return;
    memset(err, 0, sizeof *err);
    err->offset = CKP_NO_OFFSET;
}

/* Appends; what does not fit is cut and ends in "...". */
static void append(char *dst, size_t size, const char *fmt, ...) CKPI_PRINTF(3, 4);

static void
vappend(char *dst, size_t size, const char *fmt, va_list args)
{
    const size_t len = strlen(dst);
    const int n = vsnprintf(dst + len, size - len, fmt, args);
    if (n >= 0 && (size_t)n >= size - len)
        memcpy(dst + size - 4, "...", 4);
}

static void
append(char *dst, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vappend(dst, size, fmt, args);
    va_end(args);
}

ckp_status
ckpi_fail(ckp_error *err, ckp_status st, const char *fmt, ...)
{
    if (err != NULL) {
        ckpi_error_clear(err);
        err->code = st;
        va_list args;
        va_start(args, fmt);
        vappend(err->text, sizeof err->text, fmt, args);
        va_end(args);
    }
    return st;
}

ckp_status
ckpi_fail_at(ckp_error *err, ckp_status st, uint64_t offset, const char *fmt, ...)
{
    if (err != NULL) {
        ckpi_error_clear(err);
        err->code = st;
        err->offset = offset;
        va_list args;
        va_start(args, fmt);
        vappend(err->text, sizeof err->text, fmt, args);
        va_end(args);
        if (offset != CKP_NO_OFFSET)
            append(err->text, sizeof err->text, " (at byte %llu)", (unsigned long long)offset);
    }
    return st;
}

static ckp_status
status_of_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT: return CKP_ENOSPC;
    case EACCES:
    case EPERM:
    case EROFS: return CKP_EACCESS;
    case ENOENT:
    case ENOTDIR: return CKP_ENOTFOUND;
    case EEXIST:
    case ENOTEMPTY: return CKP_EEXIST;
    /* A want of this process or machine, now: it says nothing about the file, and must not pass for damage. */
    case EMFILE:
    case ENFILE:
    case ENOMEM: return CKP_ENOMEM;
    default: return CKP_EIO;
    }
}

ckp_status
ckpi_fail_errno(ckp_error *err, int sys_errno, const char *fmt, ...)
{
    const ckp_status st = status_of_errno(sys_errno);
    if (err != NULL) {
        ckpi_error_clear(err);
        err->code = st;
        err->sys_errno = sys_errno;
        va_list args;
        va_start(args, fmt);
        vappend(err->text, sizeof err->text, fmt, args);
        va_end(args);
        char reason[128];
        /* GNU's strerror_r (because of _GNU_SOURCE): it returns the text and is safe among threads. */
        append(err->text, sizeof err->text, ": %s", strerror_r(sys_errno, reason, sizeof reason));
    }
    return st;
}

/* Sets a name field that is still empty and puts it in front of the text. */
static void
name_it(ckp_error *err, char *field, size_t size, const char *name)
{
    if (field[0] != 0 || name == NULL || name[0] == 0)
        return;
    append(field, size, "%s", name);
    /* A callee may have named it in its sentence already. */
    if (strstr(err->text, field) != NULL)
        return;
    char text[sizeof err->text];
    memcpy(text, err->text, sizeof text);
    err->text[0] = 0;
    append(err->text, sizeof err->text, "%s: %s", field, text);
}

void
ckpi_fail_file(ckp_error *err, const char *file)
{
    if (err != NULL)
        name_it(err, err->file, sizeof err->file, file);
}

void
ckpi_fail_tensor(ckp_error *err, const char *tensor)
{
    if (err != NULL)
        name_it(err, err->tensor, sizeof err->tensor, tensor);
}
