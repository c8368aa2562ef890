# SPDX-License-Identifier: Apache-2.0
# ckpress/_cuda.so: the step of resident optimizers for GPUs (src/optim/cuda), beside the Python module, which loads it where it is. nvcc is called
# as it is: CUDA as a language of the project would be looked for by every configure, and its absence be an error.
# A missing, old or broken nvcc means that there is no such library, and a message; with CKP_CUDA=ON an error.
set(CKP_CUDA AUTO CACHE STRING "Kernel for NVIDIA GPUs beside the Python module: AUTO (where nvcc works), ON or OFF")
set(CKP_CUDA_ARCHS "80;86;89;90;100" CACHE STRING "Its architectures, the last one as PTX too; those that nvcc does not know are left out")
set(ckp_cuda_so ${CMAKE_BINARY_DIR}/python/ckpress/_cuda.so)

function(ckp_no_cuda why)
  file(REMOVE ${ckp_cuda_so})
  if(CKP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CKP_CUDA is ON, and ${why}")
  endif()
  message(STATUS "No kernel for GPUs: ${why}")
endfunction()

function(ckp_add_cuda)
  if(CKP_CUDA STREQUAL "OFF")
    ckp_no_cuda("CKP_CUDA is OFF")
    return()
  elseif(CKP_SANITIZE OR CKP_COVERAGE OR CMAKE_CROSSCOMPILING)
    ckp_no_cuda("sanitizers, coverage and cross builds have none")
    return()
  endif()
  find_program(CKP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT CKP_NVCC)
    ckp_no_cuda("there is no nvcc")
    return()
  endif()

  # What this nvcc knows, and whether it makes a library of the least kernel; looked at once for one nvcc and one list.
  set(asked "${CKP_NVCC} ${CKP_CUDA_ARCHS}")
  if(NOT CKP_CUDA_PROBED STREQUAL asked)
    execute_process(COMMAND ${CKP_NVCC} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
    set(flags "")
    foreach(arch IN LISTS CKP_CUDA_ARCHS)
      if(known MATCHES "compute_${arch}(\n|$)")
        list(APPEND flags -gencode=arch=compute_${arch},code=sm_${arch})
        set(ptx -gencode=arch=compute_${arch},code=compute_${arch})
      endif()
    endforeach()
    list(APPEND flags ${ptx})
    set(probe ${CMAKE_BINARY_DIR}/cuda-probe)
    file(WRITE ${probe}/probe.cu "static __global__ void k(const __grid_constant__ int n) { __reduce_max_sync(~0u, n); }\n"
      "extern \"C\" int probe(void) { k<<<1, 32>>>(1); return cudaGetLastError(); }\n")
    execute_process(COMMAND ${CKP_NVCC} -shared -Xcompiler=-fPIC ${ptx} ${probe}/probe.cu -o ${probe}/probe.so
      RESULT_VARIABLE rc OUTPUT_VARIABLE said ERROR_VARIABLE said)
    file(WRITE ${probe}/said.txt "${said}")
    if(NOT rc EQUAL 0 OR NOT flags)
      set(flags "")
    endif()
    set(CKP_CUDA_FLAGS "${flags}" CACHE INTERNAL "")
    set(CKP_CUDA_PROBED "${asked}" CACHE INTERNAL "")
  endif()
  if(NOT CKP_CUDA_FLAGS)
    ckp_no_cuda("${CKP_NVCC} makes no library for ${CKP_CUDA_ARCHS} (${CMAKE_BINARY_DIR}/cuda-probe/said.txt)")
    return()
  endif()

  # IEEE arithmetic, and no fused operation but those that the source has: bits must be the CPU's.
  set(flags ${CKP_CUDA_FLAGS} -std=c++17 -O3 --fmad=false -ftz=false -prec-div=true -prec-sqrt=true
    -Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-Wall,-Wextra -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src)
  set(required FALSE)
  if(CKP_WERROR)
    list(APPEND flags -Xcompiler=-Werror -Werror=all-warnings -Xptxas=--warning-as-error,--warn-on-spills)
  endif()
  if(CKP_WERROR OR CKP_CUDA STREQUAL "ON")
    set(required TRUE)
  endif()
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/optim/*.h ${PROJECT_SOURCE_DIR}/src/optim/cuda/*.h)
  set(source ${PROJECT_SOURCE_DIR}/src/optim/cuda/step.cu)
  set(object ${CMAKE_BINARY_DIR}/cuda_step.o)
  set(run ${CMAKE_COMMAND} -DREQUIRED=${required} -P ${PROJECT_SOURCE_DIR}/cmake/nvcc.cmake --)
  set(rooms $<TARGET_FILE:ckp_optim> $<TARGET_FILE:ckp_quant> $<TARGET_FILE:ckp_base>)
  add_custom_command(OUTPUT ${object} DEPENDS ${source} ${headers} ${PROJECT_SOURCE_DIR}/include/ckpress/optim.h ${PROJECT_SOURCE_DIR}/src/base/float.h
    COMMAND ${run} ${object} ${CKP_NVCC} ${flags} -c ${source} -o ${object}
    COMMENT "Compiling the kernel for GPUs" VERBATIM)
  add_custom_command(OUTPUT ${ckp_cuda_so} DEPENDS ${object} ckp_optim ckp_quant ckp_base
    COMMAND ${run} ${ckp_cuda_so} ${CKP_NVCC} -shared -cudart=static ${CKP_CUDA_FLAGS} -Xlinker=--as-needed ${object} ${rooms} -Xlinker=--exclude-libs,ALL,-z,defs
      -lpthread -lm -o ${ckp_cuda_so}
    COMMENT "Linking ckpress/_cuda.so" VERBATIM)
  add_custom_target(ckp_cuda ALL DEPENDS ${ckp_cuda_so})
  add_dependencies(_core ckp_cuda)
  if(SKBUILD)
    install(FILES ${ckp_cuda_so} DESTINATION ckpress COMPONENT python OPTIONAL)
  endif()
endfunction()

ckp_add_cuda()
