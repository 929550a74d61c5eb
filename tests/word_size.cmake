# Does a part of the library compile where a size_t has 32 bits? Its folders are checked, not translated, by g++ -m32 with
# the headers of the 64-bit machine, which say by themselves how long a word is; no 32-bit library is needed. What this
# sees: constants and shifts that are too wide, narrowing, and calls that then fit no overload, or several. What it does not:
# a cast to size_t that wraps while the program runs, and what another standard library lacks (scripts/web_lab).
# Run as a test: cmake -D ROOT=<source folder> -D WORK=<folder> -D CXX=<g++> -D EIGEN=<folder> -D PART=core -P word_size.cmake
cmake_minimum_required(VERSION 3.25)

execute_process(COMMAND ${CXX} -E -x c++ -v /dev/null OUTPUT_QUIET ERROR_VARIABLE said)
string(REGEX MATCH "<\\.\\.\\.>[^\n]*\n(.*)\nEnd of search list" _ "${said}")
string(REGEX MATCHALL "[^ \n]+" folders "${CMAKE_MATCH_1}")
set(flags -m32 -msse2 -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wno-restrict -Wno-subobject-linkage -Werror
          -DNDEBUG -DHALFTAPE_LIB_FOLDER="lib" -DHALFTAPE_HAVE_ZLIB=0 -DHALFTAPE_CPU_BASELINE=1 -DHALFTAPE_CPU_BACKEND=halftape_cpu_baseline
          -I${ROOT}/include -isystem ${WORK} -isystem ${EIGEN})
foreach(folder ${folders})
  list(APPEND flags -idirafter ${folder})
endforeach()
file(MAKE_DIRECTORY ${WORK}/gnu)
file(TOUCH ${WORK}/gnu/stubs-32.h)  # which functions of the C library would be missing: asked for, and of no use here

set(failed "")
function(compiles source answer)
  execute_process(COMMAND ${CXX} ${flags} ${source} RESULT_VARIABLE code ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    string(APPEND failed "${text}\n")
  endif()
  set(${answer} ${code} PARENT_SCOPE)
  set(failed "${failed}" PARENT_SCOPE)
endfunction()

# It sees what it should.
file(WRITE ${WORK}/wide.cpp "#include <cstddef>\nstatic_assert(sizeof(std::size_t) == 4);\nstd::size_t wide = std::size_t{1} << 46;\n")
compiles(${WORK}/wide.cpp code)
if(code EQUAL 0 OR NOT failed MATCHES "shift" OR failed MATCHES "static assertion")
  message(FATAL_ERROR "a shift by 46 bits was not refused as it should:\n${failed}")
endif()
set(failed "")

file(GLOB_RECURSE sources ${ROOT}/${PART}/*.cpp)
set(all "")
foreach(source ${sources})
  cmake_path(GET source PARENT_PATH folder)
  file(RELATIVE_PATH name ${ROOT} ${folder})
  if(PART STREQUAL cpu AND name STREQUAL cpu OR source MATCHES "reduction/statistics\\.cpp$")
    file(RELATIVE_PATH name ${ROOT} ${source})  # names clash with those of its folder
  endif()
  string(MAKE_C_IDENTIFIER ${name} name)
  list(APPEND all ${name})
  string(APPEND text_${name} "#include \"${source}\"\n")
endforeach()
list(REMOVE_DUPLICATES all)
foreach(name ${all})
  file(WRITE ${WORK}/${PART}_${name}.cpp "${text_${name}}")
  compiles(${WORK}/${PART}_${name}.cpp code)
endforeach()
if(failed)
  message(FATAL_ERROR "with a size_t of 32 bits:\n${failed}")
endif()
list(LENGTH all count)
message(STATUS "${PART}: ${count} files of folders compile with a size_t of 32 bits")
