# What is installed, in components: runtime (the shared library), development, cuda, gloo, programs. Each has the licences.
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/halftape)
foreach(target halftape halftape_other)
  if(TARGET ${target})
    install(TARGETS ${target} EXPORT halftape
            LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
            ARCHIVE COMPONENT development
            RUNTIME COMPONENT runtime)
  endif()
endforeach()
install(EXPORT halftape NAMESPACE halftape:: DESTINATION ${package} FILE halftapeTargets.cmake COMPONENT development)
install(FILES halftape.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halftape COMPONENT development)
install(DIRECTORY core autograd nn optim amp io distributed DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halftape COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inc" PATTERN gloo EXCLUDE)
install(FILES cuda/cuda.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/halftape/cuda COMPONENT development)

# For find_package() in an install, and in this build folder (cmake/torch_compat.cmake).
set(HALFTAPE_PARTS ${CMAKE_INSTALL_LIBDIR})
configure_package_config_file(cmake/halftapeConfig.cmake.in ${PROJECT_BINARY_DIR}/installed/halftapeConfig.cmake
                              INSTALL_DESTINATION ${package} PATH_VARS HALFTAPE_PARTS)
set(HALFTAPE_PARTS ${HALFTAPE_LIBRARIES})
configure_package_config_file(cmake/halftapeConfig.cmake.in ${PROJECT_BINARY_DIR}/halftapeConfig.cmake
                              INSTALL_PREFIX ${PROJECT_BINARY_DIR} INSTALL_DESTINATION . PATH_VARS HALFTAPE_PARTS)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/halftapeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/installed/halftapeConfig.cmake ${PROJECT_BINARY_DIR}/halftapeConfigVersion.cmake
        DESTINATION ${package} COMPONENT development)

# For pkg-config. The folders are relative to the file, so that an installation may be moved.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HALFTAPE_PC_PREFIX "${up}")
set(needs "-pthread")
foreach(library ${CMAKE_DL_LIBS})
  string(APPEND needs " -l${library}")
endforeach()
set(HALFTAPE_PC_REQUIRES "")
if(ZLIB_FOUND)
  set(HALFTAPE_PC_REQUIRES zlib)
endif()
# What the static library needs is private where there is a shared one, which -lhalftape finds: `--static` asks for it.
if(kind STREQUAL SHARED OR HALFTAPE_BOTH_KINDS)
  set(HALFTAPE_PC_PRIVATE .private)
  set(HALFTAPE_PC_LIBS "\nLibs.private: ${needs}")
else()
  set(HALFTAPE_PC_PRIVATE "")
  set(HALFTAPE_PC_LIBS " ${needs}")
endif()
configure_file(cmake/halftape.pc.in ${PROJECT_BINARY_DIR}/halftape.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/halftape.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

if(HALFTAPE_PACKAGES)
  return()  # each has a folder of its own for them
endif()
foreach(component runtime development cuda gloo programs)
  install(FILES LICENSE THIRD_PARTY.txt io/data/sets/DIGITS_LICENSE.txt CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR}
          COMPONENT ${component})
endforeach()
