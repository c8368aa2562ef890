# SPDX-License-Identifier: Apache-2.0
# The command sees the public headers only.
file(GLOB_RECURSE cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.c)
if(cli_sources)
  add_executable(ckpress_cli ${cli_sources})
  set_target_properties(ckpress_cli PROPERTIES OUTPUT_NAME ckpress RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  target_include_directories(ckpress_cli PRIVATE ${PROJECT_SOURCE_DIR}/cli)
  target_link_libraries(ckpress_cli PRIVATE ckp_flags ckpress_static ckp_dep_jansson Threads::Threads m)
endif()
