# Do programs have their relocations read-only, and the code that reads files a protected stack and calls with bounds? Does
# what is installed find libraries in no folder that depends on where a program is started? Run as a test:
# cmake -D READELF=<readelf> -D PROGRAM=<file> -D IO=<object files of io/> -D FORTIFIED=<a call with bounds>
#       -D INSTALLED=<programs and libraries> -P hardening.cmake
cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${READELF} -dlW ${PROGRAM} OUTPUT_VARIABLE program COMMAND_ERROR_IS_FATAL ANY)
foreach(wanted GNU_RELRO "BIND_NOW|FLAGS.* NOW" "GNU_STACK.* RW ")
  if(NOT program MATCHES "${wanted}")
    message(FATAL_ERROR "${PROGRAM} lacks ${wanted}")
  endif()
endforeach()
execute_process(COMMAND ${READELF} -sW ${IO} OUTPUT_VARIABLE io COMMAND_ERROR_IS_FATAL ANY)
foreach(wanted __stack_chk_fail __glibcxx_assert_fail ${FORTIFIED})
  if(NOT io MATCHES "${wanted}")
    message(FATAL_ERROR "no file of io/ calls ${wanted}")
  endif()
endforeach()
foreach(file ${INSTALLED})
  execute_process(COMMAND ${READELF} -dW ${file} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  # An empty entry and a relative one are seen from the current folder.
  if(dynamic MATCHES "(RUNPATH|RPATH)[^[]*\\[([^]]*)\\]" AND NOT CMAKE_MATCH_2 MATCHES "^([/$][^:]*:)*[/$][^:]*$")
    message(FATAL_ERROR "${file} searches for libraries in \"${CMAKE_MATCH_2}\"")
  endif()
endforeach()
