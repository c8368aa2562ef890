# SPDX-License-Identifier: Apache-2.0
# Outside libraries, each as an interface target ckp_dep_<name>.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Only its header is used, inlined into base/hash.c.
find_path(CKP_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(ckp_dep_xxhash INTERFACE)
target_include_directories(ckp_dep_xxhash SYSTEM INTERFACE ${CKP_XXHASH_INCLUDE})

if(CKP_ROOMS_ONLY)
  find_path(CKP_ZSTD_INCLUDE zstd.h)
  find_path(CKP_JANSSON_INCLUDE jansson.h)
  find_library(CKP_ZSTD_LIBRARY NAMES libzstd.a zstd)
  find_library(CKP_JANSSON_LIBRARY NAMES libjansson.a jansson)
else()
  find_path(CKP_ZSTD_INCLUDE zstd.h REQUIRED)
  find_path(CKP_JANSSON_INCLUDE jansson.h REQUIRED)
  find_library(CKP_ZSTD_LIBRARY NAMES libzstd.a zstd REQUIRED)
  find_library(CKP_JANSSON_LIBRARY NAMES jansson REQUIRED)
endif()

# A static libzstd serves only if it was compiled so that a shared library may hold it.
if(CKP_ZSTD_LIBRARY MATCHES "\\.a$" AND NOT DEFINED CKP_ZSTD_STATIC_IS_PIC)
  set(probe ${CMAKE_BINARY_DIR}/zstd-probe)
  file(WRITE ${probe}/probe.c
    "#include <zstd.h>\nvoid *ckp_probe(void);\nvoid *ckp_probe(void) { ZSTD_compressCCtx(0,0,0,0,0,1); return ZSTD_createDCtx(); }\n")
  execute_process(
    COMMAND ${CMAKE_C_COMPILER} -shared -fPIC -I${CKP_ZSTD_INCLUDE} ${probe}/probe.c ${CKP_ZSTD_LIBRARY} -o ${probe}/probe.so
    RESULT_VARIABLE probe_rc OUTPUT_QUIET ERROR_QUIET)
  if(probe_rc EQUAL 0)
    set(CKP_ZSTD_STATIC_IS_PIC ON CACHE INTERNAL "")
  else()
    set(CKP_ZSTD_STATIC_IS_PIC OFF CACHE INTERNAL "")
  endif()
endif()
if(CKP_ZSTD_LIBRARY MATCHES "\\.a$" AND NOT CKP_ZSTD_STATIC_IS_PIC)
  find_library(CKP_ZSTD_SHARED zstd REQUIRED)
  set(CKP_ZSTD_LIBRARY ${CKP_ZSTD_SHARED} CACHE FILEPATH "" FORCE)
endif()

foreach(name zstd jansson)
  string(TOUPPER ${name} NAME)
  add_library(ckp_dep_${name} INTERFACE)
  if(CKP_${NAME}_INCLUDE)
    target_include_directories(ckp_dep_${name} SYSTEM INTERFACE ${CKP_${NAME}_INCLUDE})
  endif()
  if(CKP_${NAME}_LIBRARY)
    target_link_libraries(ckp_dep_${name} INTERFACE ${CKP_${NAME}_LIBRARY})
  endif()
endforeach()

# The rival of the coder, for tests and benches only.
find_library(CKP_HTSCODECS_LIBRARY htscodecs)
find_path(CKP_HTSCODECS_INCLUDE htscodecs/rANS_static4x16.h)
if(CKP_HTSCODECS_LIBRARY AND CKP_HTSCODECS_INCLUDE)
  add_library(ckp_dep_htscodecs INTERFACE)
  target_link_libraries(ckp_dep_htscodecs INTERFACE ${CKP_HTSCODECS_LIBRARY})
  target_include_directories(ckp_dep_htscodecs SYSTEM INTERFACE ${CKP_HTSCODECS_INCLUDE})
  target_compile_definitions(ckp_dep_htscodecs INTERFACE CKP_HAVE_HTSCODECS=1)
else()
  add_library(ckp_dep_htscodecs INTERFACE)
endif()
