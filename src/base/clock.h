/* SPDX-License-Identifier: Apache-2.0 */
/* Time for statistics, threads, and what this process and machine have. */
#ifndef CKPI_BASE_CLOCK_H
#define CKPI_BASE_CLOCK_H
#include <pthread.h>
#include <stdint.h>

double ckpi_seconds(void);               /* monotonic */
double ckpi_thread_cpu_seconds(void);    /* CPU time of the calling thread */
/* What the calling thread has used until now. waits: how many times it gave the processor away, to wait for a device or another thread. */
typedef struct ckpi_usage { double wall, cpu; long waits; } ckpi_usage;
ckpi_usage ckpi_thread_usage(void);
uint64_t ckpi_ram_bytes(void);           /* physical memory; 0 when unknown */
/* Waits that a machine's clock, set anew while somebody waits, makes neither longer nor shorter. ckpi_cond_init as pthread_cond_init. */
int ckpi_cond_init(pthread_cond_t *cond);
void ckpi_cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t ms);   /* until woken, or so long */
/*
 * Nice value of background threads: the lowest. Beside two threads that calculate, two of nice 10 took 0.13 of their time, of nice 19 0.02: a training that leaves
 * no processor idle must not become slower by a tenth while a save is written. Not SCHED_IDLE, which takes as little and may wait for seconds: whoever
 * encodes keeps the run's lock. A save() that has to wait for the last one leaves it the processors.
 */
#define CKPI_LOW_NICE 19
void ckpi_thread_low_priority(void);     /* the calling thread; best effort, and for good: raising it again takes privileges */
/* Runs fn on a thread of that priority and meanwhile on this one, until both have returned; only fn, on this one, where there is no other to be had. */
void ckpi_run_low(void (*fn)(void *arg), void (*meanwhile)(void *arg), void *arg);
/* As pthread_create, of a thread that takes no signals: they are the application's, and its handlers must not run on our threads. */
int ckpi_thread_start(pthread_t *thread, void *(*fn)(void *arg), void *arg);
#endif
