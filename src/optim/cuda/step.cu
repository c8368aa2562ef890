/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library beside the Python module, ckpress/_cuda.so: kernels, launches, and four functions for ctypes. All arithmetic is in headers that are C as well
 * (phases.h, element.h): what is only here has to be right as it stands.
 */
#include <stdint.h>
#include <cuda_runtime.h>

#define CKPI_O_GPU_FN static __device__ __forceinline__
#define CKPI_O_SYNC() __syncthreads()
#define CKPI_O_MOST(at, x) most(at, x)
#define CKPI_O_ADD(at, x) atomicAdd(at, x)
#define CKPI_O_COUNT(at, x) atomicAdd(reinterpret_cast<unsigned long long *>(at), static_cast<unsigned long long>(x))

/* A warp's largest, then its first lane's: lanes are whole warps, and all of them are here. */
static __device__ __forceinline__ void
most(uint32_t *at, uint32_t x)
{
    const uint32_t all = __reduce_max_sync(0xffffffffu, x);
    if (threadIdx.x % 32 == 0)
        atomicMax(at, all);
}

#include "optim/cuda/block.h"
#include "optim/cuda/job.h"

/* M and V: widths that are constants; 0: any. */
template <unsigned M, unsigned V>
static __global__ void
__launch_bounds__(CKPI_O_GPU_LANES)
adamw(const __grid_constant__ ckpi_o_gpu j)
{
    extern __shared__ __align__(16) uint8_t codes[];
    __shared__ ckpi_o_gpu_shared s;
    uint8_t *const place = j.scratch != nullptr ? j.scratch + blockIdx.x * j.place : codes;
    ckpi_o_gpu_rows(&j, M != 0 ? M : j.m_bits, V != 0 ? V : j.v_bits, blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, &s, place);
}

static __global__ void
__launch_bounds__(CKPI_O_BLOCK)
momentum(const __grid_constant__ ckpi_o_gpu j)
{
    __shared__ ckpi_o_gpu_shared s;
    ckpi_o_gpu_momentum(&j, blockIdx.x, gridDim.x, threadIdx.x, blockDim.x, &s);
}

static const char *
launch(const ckpi_o_gpu *j, void *stream)
{
    const size_t bytes = j->scratch != nullptr ? 0 : j->place;
    const cudaStream_t on = static_cast<cudaStream_t>(stream);
    if (j->momentum)
        momentum<<<j->blocks, j->lanes, 0, on>>>(*j);
    else if (j->m_bits == 4 && j->v_bits == 4)
        adamw<4, 4><<<j->blocks, j->lanes, bytes, on>>>(*j);
    else
        adamw<0, 0><<<j->blocks, j->lanes, bytes, on>>>(*j);
    const cudaError_t e = cudaGetLastError();
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}

extern "C" {

/** Whether the device has code here and can run it; CKP_ESTATE: it has or can not, err says why. */
CKP_API int
ckpress_cuda_ready(int device, ckp_error *err)
{
    const void *const kernels[] = {(const void *)adamw<4, 4>, (const void *)adamw<0, 0>, (const void *)momentum};
    cudaError_t e = cudaSetDevice(device);
    for (const void *kernel : kernels) {
        cudaFuncAttributes a;
        if (e == cudaSuccess)
            e = cudaFuncGetAttributes(&a, kernel);
    }
    (void)cudaGetLastError();            /* it has been seen */
    return e == cudaSuccess ? CKP_OK : ckpi_o_gpu_refused(err, cudaGetErrorString(e));
}

/** Bytes of device memory that ckpress_cuda_step() wants for these. */
CKP_API uint64_t
ckpress_cuda_scratch(const ckp_optim_tensor *t, size_t n)
{
    return ckpi_o_gpu_scratch(t, n);
}

/** One step of each (job.h), on a stream of the device. It returns when they are started. */
CKP_API int
ckpress_cuda_step(ckp_optim_tensor *t, size_t n, int device, void *stream, uint64_t *counts, uint8_t *scratch, uint64_t scratch_bytes, ckp_error *err)
{
    const cudaError_t e = cudaSetDevice(device);
    if (e != cudaSuccess)
        return ckpi_o_gpu_refused(err, cudaGetErrorString(e));
    return ckpi_o_gpu_step(t, n, counts, scratch, scratch_bytes, launch, stream, err);
}

/** Sizes of the structs above as this library has them: what ctypes has must be the same. */
CKP_API void
ckpress_cuda_sizes(uint64_t sizes[4])
{
    sizes[0] = sizeof(ckp_optim_tensor);
    sizes[1] = sizeof(ckp_adamw);
    sizes[2] = sizeof(ckp_momentum);
    sizes[3] = sizeof(ckp_error);
}
}
