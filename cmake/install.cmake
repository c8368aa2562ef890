# SPDX-License-Identifier: Apache-2.0
# Everything of this file belongs to component "dev": a wheel installs component "python" only.
include(CMakePackageConfigHelpers)
install(TARGETS ckpress ckpress_static EXPORT ckpress-targets COMPONENT dev
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev NAMELINK_COMPONENT dev
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ckpress DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.h")
if(TARGET ckpress_cli)
  install(TARGETS ckpress_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT dev)
endif()
file(GLOB man_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.1)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT dev)
install(FILES ${PROJECT_SOURCE_DIR}/cli/ckpress.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ckpress COMPONENT dev)

# The file finds its prefix from its own place, so `cmake --install --prefix` and moved trees work.
file(RELATIVE_PATH CKP_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/ckpress.pc.in ckpress.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ckpress.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

set(ckp_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ckpress)
install(EXPORT ckpress-targets NAMESPACE ckpress:: DESTINATION ${ckp_cmake_dir} COMPONENT dev)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/ckpress-config.cmake.in ckpress-config.cmake
  INSTALL_DESTINATION ${ckp_cmake_dir})
write_basic_package_version_file(ckpress-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ckpress-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/ckpress-config-version.cmake
  DESTINATION ${ckp_cmake_dir} COMPONENT dev)
