# SPDX-License-Identifier: Apache-2.0
# libckpress, shared and static, of the objects of all rooms.
set(ckp_objects "")
foreach(target IN LISTS ckp_room_objects)
  list(APPEND ckp_objects $<TARGET_OBJECTS:${target}>)
endforeach()
set(ckp_all_deps ckp_dep_zstd ckp_dep_jansson Threads::Threads m)

add_library(ckpress SHARED ${ckp_objects})
add_library(ckpress_static STATIC ${ckp_objects})
set_target_properties(ckpress PROPERTIES
  LINKER_LANGUAGE C VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} EXPORT_NAME ckpress)
set_target_properties(ckpress_static PROPERTIES LINKER_LANGUAGE C OUTPUT_NAME ckpress EXPORT_NAME ckpress_static)
foreach(target ckpress ckpress_static)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${ckp_all_deps}>)
endforeach()
# What users of the installed static library link besides.
target_link_libraries(ckpress_static PRIVATE $<INSTALL_INTERFACE:zstd$<SEMICOLON>jansson$<SEMICOLON>Threads::Threads$<SEMICOLON>m>)
# Symbols of a static libzstd stay inside.
target_link_options(ckpress PRIVATE -Wl,--exclude-libs,ALL)
if(NOT CKP_SANITIZE)
  target_link_options(ckpress PRIVATE -Wl,-z,defs)
endif()
add_library(ckpress::ckpress ALIAS ckpress)
add_library(ckpress::ckpress_static ALIAS ckpress_static)
