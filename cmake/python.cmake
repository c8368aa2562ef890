# SPDX-License-Identifier: Apache-2.0
# ckpress._core: one abi3 module for CPython 3.11 and later, with the library inside.
file(GLOB py_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/_core*.c ${PROJECT_SOURCE_DIR}/python/_core/*.c)
if(py_sources)
  find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
  add_library(_core MODULE ${py_sources})
  target_compile_definitions(_core PRIVATE Py_LIMITED_API=0x030B0000)
  target_include_directories(_core PRIVATE ${PROJECT_SOURCE_DIR}/python)
  target_include_directories(_core SYSTEM PRIVATE ${Python3_INCLUDE_DIRS})
  target_link_libraries(_core PRIVATE ckp_flags ckpress_static)
  target_link_options(_core PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(_core PROPERTIES PREFIX "" SUFFIX ".abi3.so"
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/ckpress)
  # A development tree is importable from <build>/python: the module beside links to the sources.
  file(GLOB py_package CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/ckpress ${PROJECT_SOURCE_DIR}/python/ckpress/*)
  foreach(item IN LISTS py_package)
    if(NOT item MATCHES "__pycache__|^_core.*so$")
      file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/ckpress/${item} ${CMAKE_BINARY_DIR}/python/ckpress/${item} SYMBOLIC)
    endif()
  endforeach()
  if(SKBUILD)
    install(TARGETS _core LIBRARY DESTINATION ckpress COMPONENT python)
  endif()
endif()
