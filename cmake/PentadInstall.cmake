# Installs the headers and the package that find_package(pentad) loads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(PENTAD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/pentad)
set(PENTAD_COMPONENTS pentad_layout pentad_tensor pentad)
if(PENTAD_COMPILED)
    list(APPEND PENTAD_COMPONENTS pentad_compiled_tensor pentad_compiled_kernels pentad_compiled pentad_decoder_layers)
endif()
foreach(COMPONENT IN LISTS PENTAD_COMPONENTS)
    install(TARGETS ${COMPONENT} EXPORT ${COMPONENT} FILE_SET HEADERS)
    install(EXPORT ${COMPONENT} NAMESPACE pentad:: FILE ${COMPONENT}_targets.cmake DESTINATION ${PENTAD_PACKAGE_DIR})
endforeach()
list(JOIN PENTAD_SEAMS " " PENTAD_SEAMS)
configure_package_config_file(cmake/pentadConfig.cmake.in pentadConfig.cmake INSTALL_DESTINATION ${PENTAD_PACKAGE_DIR}
    NO_CHECK_REQUIRED_COMPONENTS_MACRO)
if(NOT PENTAD_COMPILED)
    set(PENTAD_ARCHITECTURE ARCH_INDEPENDENT)
endif()
write_basic_package_version_file(pentadConfigVersion.cmake COMPATIBILITY SameMinorVersion ${PENTAD_ARCHITECTURE})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pentadConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/pentadConfigVersion.cmake
    cmake/PentadDependencies.cmake DESTINATION ${PENTAD_PACKAGE_DIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/pentad)
