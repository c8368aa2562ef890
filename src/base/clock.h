/* SPDX-License-Identifier: Apache-2.0 */
/* Time for statistics, and what this process and machine have. */
#ifndef CKPI_BASE_CLOCK_H
#define CKPI_BASE_CLOCK_H
#include <stdint.h>

double ckpi_seconds(void);               /* monotonic */
double ckpi_thread_cpu_seconds(void);    /* CPU time of the calling thread */
uint64_t ckpi_ram_bytes(void);           /* physical memory; 0 when unknown */
/*
 * Nice value of background threads: the lowest. Beside two threads that calculate, two of nice 10 took 0.13 of their time, of nice 19 0.02: a training that leaves
 * no processor idle must not become slower by a tenth while a save is written. Not SCHED_IDLE, which takes as little and may wait for seconds: the
 * saving thread keeps the run's lock. A save() that has to wait for the last one leaves it the processors.
 */
#define CKPI_LOW_NICE 19
void ckpi_thread_low_priority(void);     /* the calling thread; best effort */
#endif
