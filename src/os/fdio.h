/* SPDX-License-Identifier: Apache-2.0 */
/* Full loops over file descriptors: short counts and EINTR end here. Each returns 0 or an errno. */
#ifndef CKPI_OS_FDIO_H
#define CKPI_OS_FDIO_H
#include <stddef.h>
#include <stdint.h>

int ckpi_fd_write(int fd, const void *src, size_t n);
/* Reads until n bytes or the end; *got says how many. The first from the position, the second at off. */
int ckpi_fd_read(int fd, void *dst, size_t n, size_t *got);
int ckpi_fd_read_at(int fd, uint64_t off, void *dst, size_t n, size_t *got);
int ckpi_fd_sync(int fd);
#endif
