/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that kernels for GPUs share with the reference: C11, and C++ as nvcc takes it. */
#ifndef CKPI_OPTIM_FN_H
#define CKPI_OPTIM_FN_H

#ifdef __CUDACC__
#define CKPI_O_FN static __host__ __device__ inline
#else
#define CKPI_O_FN static inline
#endif
#endif
