/* SPDX-License-Identifier: Apache-2.0 */
/* Time for statistics, and what this process and machine have. */
#ifndef CKPI_BASE_CLOCK_H
#define CKPI_BASE_CLOCK_H
#include <stdint.h>

double ckpi_seconds(void);               /* monotonic */
double ckpi_thread_cpu_seconds(void);    /* CPU time of the calling thread */
uint64_t ckpi_ram_bytes(void);           /* physical memory; 0 when unknown */
/*
 * Nice value of background threads. Not the lowest: on a machine whose every processor trains, SCHED_IDLE gave 5 ms of encoding 1.5 s, and the
 * next save had to wait for it. Nice 10 gets a tenth of a busy processor.
 */
#define CKPI_LOW_NICE 10
void ckpi_thread_low_priority(void);     /* the calling thread; best effort */
#endif
