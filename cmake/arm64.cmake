# SPDX-License-Identifier: Apache-2.0
# Cross build for arm64, tests under qemu-user; see scripts/test-arm64.sh. CKP_ARM64_ROOT holds unpacked arm64 packages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CKP_ARM64_ROOT)
set(CMAKE_FIND_ROOT_PATH ${CKP_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${CKP_ARM64_ROOT}/usr/lib/aarch64-linux-gnu")
set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-aarch64;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${CKP_ARM64_ROOT}/usr/lib/aarch64-linux-gnu)
