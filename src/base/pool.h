/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small thread pool. One job at a time: fn(user, index, worker) for index in [0, count), spread dynamically; run() returns
 * when all are done. worker is in [0, ckpi_pool_threads). With 1 thread everything runs on the caller and no thread exists.
 * The caller takes part. After fork() a pool is unusable in the child: ckpi_pool_run there returns CKP_EFORK.
 */
#ifndef CKPI_BASE_POOL_H
#define CKPI_BASE_POOL_H
#include <stdbool.h>
#include <ckpress/base.h>

typedef struct ckpi_pool ckpi_pool;
typedef void (*ckpi_job_fn)(void *user, size_t index, unsigned worker);

/* threads 0: one a processor that this process may use (sched_getaffinity). low_priority: see ckpi_thread_low_priority. */
CKP_MUST_USE ckp_status ckpi_pool_new(ckpi_pool **out, unsigned threads, bool low_priority, ckp_error *err);
void ckpi_pool_free(ckpi_pool *p);
unsigned ckpi_pool_threads(const ckpi_pool *p);
CKP_MUST_USE ckp_status ckpi_pool_run(ckpi_pool *p, size_t count, ckpi_job_fn fn, void *user, ckp_error *err);
unsigned ckpi_cpu_count(void);
/* CPU seconds used by the pool's own threads (not the caller's) since it was made. */
double ckpi_pool_cpu_seconds(const ckpi_pool *p);
#endif
