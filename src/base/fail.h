/* SPDX-License-Identifier: Apache-2.0 */
/* Filling a caller's ckp_error. Callers pass the callee's detail on and never overwrite it. */
#ifndef CKPI_BASE_FAIL_H
#define CKPI_BASE_FAIL_H
#include <ckpress/base.h>

#if defined(__GNUC__)
#define CKPI_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define CKPI_PRINTF(a, b)
#endif

/* Each of these fills *err (NULL is allowed) and returns st, so that `return ckpi_fail(...)` reads well. */
ckp_status ckpi_fail(ckp_error *err, ckp_status st, const char *fmt, ...) CKPI_PRINTF(3, 4);
/* The same with an offset in the file. */
ckp_status ckpi_fail_at(ckp_error *err, ckp_status st, uint64_t offset, const char *fmt, ...) CKPI_PRINTF(4, 5);
/* After a failed system call: maps errno to ENOSPC, EACCESS, ENOTFOUND, EEXIST, ENOMEM or EIO; "what: strerror". */
ckp_status ckpi_fail_errno(ckp_error *err, int sys_errno, const char *fmt, ...) CKPI_PRINTF(3, 4);
/* Adds the file or tensor to a filled error when it names none yet (and puts it in front of the text). */
void ckpi_fail_file(ckp_error *err, const char *file);
void ckpi_fail_tensor(ckp_error *err, const char *tensor);
void ckpi_error_clear(ckp_error *err);
#endif
