# Included by toolchain files: the libraries that are headers alone, of the host, which compile for any system. Each gets an
# include folder of its own in the build folder, because beside them, in /usr/include, lie the headers of the host's C library.
# fmt, which Debian has compiled for the host, is used by its headers alone, too.
get_property(inner GLOBAL PROPERTY IN_TRY_COMPILE)
if(inner)
  return()
endif()
set(host ${CMAKE_BINARY_DIR}/host_headers)
function(host_headers package name target folder)
  if(NOT EXISTS /usr/include/${folder})
    message(FATAL_ERROR "/usr/include/${folder} is missing: ${package}")
  endif()
  file(MAKE_DIRECTORY ${host}/${name}/include)
  file(CREATE_LINK /usr/include/${folder} ${host}/${name}/include/${folder} SYMBOLIC)
  file(WRITE ${host}/${name}/${name}Config.cmake
       "if(NOT TARGET ${target})\n  add_library(${target} INTERFACE IMPORTED)\nendif()\n"
       "target_include_directories(${target} SYSTEM INTERFACE ${host}/${name}/include)\n"
       "target_compile_definitions(${target} INTERFACE ${ARGN})\n")
  set(${name}_DIR ${host}/${name} CACHE PATH "of the host" FORCE)
endfunction()
host_headers(doctest-dev doctest doctest::doctest doctest)
host_headers(libfmt-dev fmt fmt::fmt fmt FMT_HEADER_ONLY=1)
host_headers(libcli11-dev CLI11 CLI11::CLI11 CLI)
set(Eigen3_DIR /usr/share/eigen3/cmake CACHE PATH "of the host" FORCE)  # in a folder of its own already
