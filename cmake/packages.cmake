# Debian packages, one for each component: cmake --preset packages, build, cpack (scripts/packages does it all).
set(package_runtime libhalftape${HALFTAPE_SOVERSION})
set(package_development libhalftape-dev)
set(package_cuda libhalftape-cuda)
set(package_gloo libhalftape-gloo)
set(package_programs halftape-samples)
set(components runtime development programs)
foreach(part cuda gloo)
  if(TARGET halftape_${part})
    list(APPEND components ${part})
  endif()
endforeach()

# Each has its copyright, and Debian's form of a changelog, the date of which is that of the last commit.
file(READ LICENSE text)
file(READ io/data/sets/DIGITS_LICENSE.txt digits)
file(READ THIRD_PARTY.txt others)
file(WRITE ${PROJECT_BINARY_DIR}/copyright "Halftape\n\n${text}\nThe library contains a data set of digits, with a licence of its own:\n\n${digits}\n${others}")
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} log -1 --format=%cD RESULT_VARIABLE failed OUTPUT_VARIABLE date ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
endif()
set(contact "The Halftape authors <halftape@example.org>")
file(WRITE ${PROJECT_BINARY_DIR}/changelog
     "halftape (${PROJECT_VERSION}) unstable; urgency=medium\n\n  * Release ${PROJECT_VERSION}.\n\n -- ${contact}  ${date}\n")
execute_process(COMMAND gzip -9nf ${PROJECT_BINARY_DIR}/changelog COMMAND_ERROR_IS_FATAL ANY)
foreach(component ${components})
  install(FILES ${PROJECT_BINARY_DIR}/copyright ${PROJECT_BINARY_DIR}/changelog.gz
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package_${component}} COMPONENT ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package_${component}})
  set(CPACK_DEBIAN_${upper}_FILE_NAME DEB-DEFAULT)
endforeach()
install(DIRECTORY samples DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/halftape-samples/examples COMPONENT programs
        PATTERN test.sh EXCLUDE)
# What samples/mini includes of the library's sources.
install(FILES io/data/sets/digits_data.inc io/data/sets/DIGITS_LICENSE.txt
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/halftape-samples/examples/io/data/sets COMPONENT programs)

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME halftape)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT ${contact})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(about "Halftape trains small networks in float16 and bfloat16: tensors with
automatic differentiation of any order, modules, optimizers, autocast and
GradScaler.")
string(CONCAT CPACK_DEBIAN_RUNTIME_DESCRIPTION "${about}\n\n"
       "This is the shared library.")
string(CONCAT CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "${about}\n\n"
       "These are the headers, the static library, the names of LibTorch, and\nwhat CMake, pkg-config and gdb need.")
string(CONCAT CPACK_DEBIAN_PROGRAMS_DESCRIPTION "${about}\n\n"
       "These are halftape-lab, which shows what float16 loses in a training,\nhalftape-convert, which converts files of weights, and the sources of\nsamples.")
string(CONCAT CPACK_DEBIAN_CUDA_DESCRIPTION "${about}\n\n"
       "This is the backend for NVIDIA GPUs. It needs cuBLASLt ${CUDAToolkit_VERSION_MAJOR}.")
string(CONCAT CPACK_DEBIAN_GLOO_DESCRIPTION "${about}\n\n"
       "This is what moves bytes between processes that train one network\ntogether on CPUs.")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_GLOO_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION contrib/libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

# What is linked is asked of dpkg-shlibdeps; what belongs together has one version.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${HALFTAPE_LIBRARIES})
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF)  # no package of Debian has cuBLASLt
file(WRITE ${PROJECT_BINARY_DIR}/shlibs "libhalftape ${HALFTAPE_SOVERSION} ${package_runtime} (>= ${PROJECT_VERSION})\n")
file(WRITE ${PROJECT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/shlibs;${PROJECT_BINARY_DIR}/triggers")
foreach(part CUDA GLOO)
  set(CPACK_DEBIAN_${part}_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/triggers")
endforeach()
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(same "${package_runtime} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${same}, zlib1g-dev")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_DEPENDS "${same}")
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "${same}, libc6, libstdc++6")
set(CPACK_DEBIAN_GLOO_PACKAGE_DEPENDS "${same}")
set(CPACK_DEBIAN_CUDA_PACKAGE_SUGGESTS "libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libhalftape-cuda, libhalftape-gloo")
include(CPack)

# What they hold.
add_custom_target(packages)
foreach(target halftape halftape_other halftape_cuda halftape_gloo halftape-lab halftape-convert)
  if(TARGET ${target})
    add_dependencies(packages ${target})
  endif()
endforeach()
