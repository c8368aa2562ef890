# SPDX-License-Identifier: Apache-2.0
# ckp_flags carries what every translation unit of ours is compiled with. No file has flags of its own:
# `cc -std=c11 -Iinclude -Isrc src/*/*.c src/*/*/*.c -lzstd -lxxhash -ljansson -lpthread -lm` must work too.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(ckp_flags INTERFACE)
target_compile_options(ckp_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  # Results must be the same bits on every machine: no contraction, no fast-math.
  -ffp-contract=off -fno-fast-math)
if(CKP_SANITIZE)
  # gcc's UBSan hides from -Wconversion that a value is small: the plain builds have checked that already.
  target_compile_options(ckp_flags INTERFACE -Wno-conversion -Wno-sign-conversion)
endif()
if(CKP_WERROR)
  target_compile_options(ckp_flags INTERFACE -Werror)
endif()
if(CKP_TEST_ENV)
  target_compile_definitions(ckp_flags INTERFACE CKPI_TEST_ENV=1)
endif()
if(CKP_SANITIZE)
  add_compile_options(-fsanitize=${CKP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CKP_SANITIZE} -fno-sanitize-recover=all)
endif()
if(CKP_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(CKP_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()
