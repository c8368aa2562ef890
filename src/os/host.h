/* SPDX-License-Identifier: Apache-2.0 */
/* Who we are among processes, what time it is, and randomness: what locks and unique names are made of. */
#ifndef CKPI_OS_HOST_H
#define CKPI_OS_HOST_H
#include <stdbool.h>
#include <ckpress/base.h>

#define CKPI_HOST_MAX 65

/* One process, told apart from every other one of all machines and times as far as the system allows. */
typedef struct ckpi_proc {
    char host[CKPI_HOST_MAX];    /* "" when unknown */
    char boot[CKPI_HOST_MAX];    /* boot id; "" when the system has none */
    uint64_t pid_ns;             /* inode of the pid namespace; 0 when unknown */
    uint64_t start;              /* start time in clock ticks after boot; 0 when unknown */
    int64_t pid;
} ckpi_proc;

void ckpi_proc_self(ckpi_proc *out);

typedef enum ckpi_alive {
    CKPI_ALIVE_YES,
    CKPI_ALIVE_NO,          /* same host, boot and pid namespace, and the process of that pid is gone or another one */
    CKPI_ALIVE_UNKNOWN      /* nobody here can tell */
} ckpi_alive;
/* Seen from `self`, which ckpi_proc_self filled. */
ckpi_alive ckpi_proc_alive(const ckpi_proc *self, const ckpi_proc *other);
/* Same host, boot and pid namespace, all known: the other's pid means something here. */
bool ckpi_proc_same_place(const ckpi_proc *a, const ckpi_proc *b);
/* 32 bits that stand for host, boot and pid namespace in names of temporaries. */
uint32_t ckpi_proc_place(const ckpi_proc *p);

int64_t ckpi_now_unix(void);            /* seconds, wall clock: only compared among writers of one run */
void ckpi_sleep_ms(unsigned ms);
/* From the system's generator. CKP_EIO when it gives none. */
CKP_MUST_USE ckp_status ckpi_random(void *dst, size_t n, ckp_error *err);
/* For CKP_EFORK checks where unistd.h is not wanted. */
int64_t ckpi_pid(void);

/*
 * Names of temporaries: ".tmp-PID-PLACENNN-name" with PID in decimal, PLACE and NNN eight hex digits each (place of the
 * process, random), so that a later process can tell its own dead from everybody else's.
 */
#define CKPI_TMP_MAX 192
CKP_MUST_USE ckp_status ckpi_tmp_name(char out[CKPI_TMP_MAX], const char *name, ckp_error *err);
/* Reads such a name; false for others. */
bool ckpi_tmp_parse(const char *name, int64_t *pid, uint32_t *place);
/* True when that temporary was left by a process of this place that is gone. */
bool ckpi_tmp_dead(const ckpi_proc *self, const char *name);
#endif
