# SPDX-License-Identifier: Apache-2.0
# bench/<name>.c -> bench_<name> (or <name> where it already starts with bench_). Files bench/common*.c are linked into each.
file(GLOB benches CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.c)
set(common ${benches})
list(FILTER common INCLUDE REGEX "/common[^/]*$")
list(FILTER benches EXCLUDE REGEX "/common[^/]*$")
foreach(file IN LISTS benches)
  get_filename_component(name ${file} NAME_WE)
  string(REGEX REPLACE "^bench_" "" name ${name})
  add_executable(bench_${name} EXCLUDE_FROM_ALL ${file} ${common})
  target_link_libraries(bench_${name} PRIVATE ckp_flags ckp_run ckp_dep_htscodecs ckp_dep_jansson ckp_dep_zstd)
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endforeach()
