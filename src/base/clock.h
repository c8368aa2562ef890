/* SPDX-License-Identifier: Apache-2.0 */
/* Time for statistics, and what this process and machine have. */
#ifndef CKPI_BASE_CLOCK_H
#define CKPI_BASE_CLOCK_H
#include <stdint.h>

double ckpi_seconds(void);               /* monotonic */
double ckpi_thread_cpu_seconds(void);    /* CPU time of the calling thread */
uint64_t ckpi_ram_bytes(void);           /* physical memory; 0 when unknown */
void ckpi_thread_low_priority(void);     /* the calling thread: SCHED_IDLE, else nice 19; best effort */
#endif
