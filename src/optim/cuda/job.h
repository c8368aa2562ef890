/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on a device, up to the launch: the checks and parameters of a step on a CPU (job.h), and the kernel's shape. */
#ifndef CKPI_OPTIM_CUDA_JOB_H
#define CKPI_OPTIM_CUDA_JOB_H
#include <ckpress/optim.h>
#include "optim/cuda/phases.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPI_O_GPU_SHARED 47104u         /* bytes of a row's codes in a block's own memory: every device gives 48 KiB */
#define CKPI_O_GPU_LANES 256u
#define CKPI_O_GPU_BLOCKS 512u           /* at most, where they need scratch memory */

/* Starts j; NULL, or why that failed. Tests have one that needs no GPU. */
typedef const char *(*ckpi_o_gpu_launch)(const ckpi_o_gpu *j, void *user);

/* Scratch memory that these steps need, one after the other; 0 too where a tensor is none. */
uint64_t ckpi_o_gpu_scratch(const ckp_optim_tensor *t, size_t n);

/*
 * One step of each tensor, by the rule of its settings; all their memory is the device's, and column factors are fitted already (m_corr and v_corr as before).
 * counts: two numbers a tensor, to which elements without use and factors raised are added; what t has of these is not touched.
 * CKP_EINVAL: nothing was started. CKP_ESTATE: the device refused; of the tensor that the error names, and those behind it, nothing was started.
 */
CKP_MUST_USE ckp_status ckpi_o_gpu_step(ckp_optim_tensor *t, size_t n, uint64_t *counts, uint8_t *scratch, uint64_t scratch_bytes,
                                        ckpi_o_gpu_launch launch, void *user, ckp_error *err);
ckp_status ckpi_o_gpu_refused(ckp_error *err, const char *why);

#ifdef __cplusplus
}
#endif
#endif
