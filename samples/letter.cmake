# Sees that a letter includes the library itself, runs it twice (the second run of 06 resumes), and compares its last line with
# the one that its head promises.
# cmake -D PROGRAM=<file> -D SOURCE=<file> -P letter.cmake
cmake_minimum_required(VERSION 3.25)
file(STRINGS ${SOURCE} header REGEX "^#include <halftape/halftape.h>$")
if(NOT header)  # its build may have read it before the letter
  message(FATAL_ERROR "${SOURCE} does not include <halftape/halftape.h>")
endif()
file(STRINGS ${SOURCE} promise REGEX "^// .*Last line: ")
string(REGEX REPLACE "^// .*Last line: " "" promise "${promise}")
set(folder ${PROGRAM}.folder)
file(REMOVE_RECURSE ${folder})
file(MAKE_DIRECTORY ${folder})
foreach(run 1 2)
  execute_process(COMMAND ${PROGRAM} WORKING_DIRECTORY ${folder} OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "[^\n]+\n$" last "${output}")
  if(NOT last STREQUAL "${promise}\n")
    message(FATAL_ERROR "run ${run}: ${SOURCE} promises \"${promise}\", but the last line is \"${last}\"")
  endif()
endforeach()
file(REMOVE_RECURSE ${folder})
