/* SPDX-License-Identifier: Apache-2.0 */
/* ckpress/_cuda.so for tests without a GPU: the same functions, the same checks, and the kernel's own body (block.h) with one lane, on memory of the CPU. */
#include <stdlib.h>

#define CKPI_O_GPU_FN static inline
#define CKPI_O_SYNC() (void)0
#define CKPI_O_MOST(at, x) (*(at) = *(at) > (x) ? *(at) : (x))
#define CKPI_O_ADD(at, x) (*(at) += (x))
#define CKPI_O_COUNT(at, x) (*(at) += (x))
#include "optim/cuda/block.h"
#include "optim/cuda/job.h"

CKP_API void ckpress_cuda_sizes(uint64_t sizes[4]);
CKP_API int ckpress_cuda_ready(int device, ckp_error *err);
CKP_API uint64_t ckpress_cuda_scratch(const ckp_optim_tensor *t, size_t n);
CKP_API int ckpress_cuda_step(ckp_optim_tensor *t, size_t n, int device, void *stream, uint64_t *counts, uint8_t *scratch, uint64_t scratch_bytes, ckp_error *err);

/* stream: 0, or the number of the launch that is refused, counted from 1. */
static const char *
launch(const ckpi_o_gpu *j, void *user)
{
    uintptr_t *left = user;
    ckpi_o_gpu_shared s;
    if (*left != 0 && --*left == 0)
        return "no such device";
    uint8_t *own = malloc((size_t)j->place + 1);
    if (j->momentum)
        ckpi_o_gpu_momentum(j, 0, 1, 0, 1, &s);
    else
        ckpi_o_gpu_rows(j, j->m_bits, j->v_bits, 0, 1, 0, 1, &s, j->scratch != NULL ? j->scratch : own);
    free(own);
    return NULL;
}

void
ckpress_cuda_sizes(uint64_t sizes[4])
{
    sizes[0] = sizeof(ckp_optim_tensor);
    sizes[1] = sizeof(ckp_adamw);
    sizes[2] = sizeof(ckp_momentum);
    sizes[3] = sizeof(ckp_error);
}

int
ckpress_cuda_ready(int device, ckp_error *err)
{
    return device == 0 ? CKP_OK : ckpi_o_gpu_refused(err, "no such device");
}

uint64_t
ckpress_cuda_scratch(const ckp_optim_tensor *t, size_t n)
{
    return ckpi_o_gpu_scratch(t, n);
}

int
ckpress_cuda_step(ckp_optim_tensor *t, size_t n, int device, void *stream, uint64_t *counts, uint8_t *scratch, uint64_t scratch_bytes, ckp_error *err)
{
    uintptr_t refused = (uintptr_t)stream;
    (void)device;
    return ckpi_o_gpu_step(t, n, counts, scratch, scratch_bytes, launch, &refused, err);
}
