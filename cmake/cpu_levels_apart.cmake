# No function or variable of a level's kernels is seen by others, but the one that makes its backend.
# Run as a test: cmake -D NM=<nm> -D FOLDER=<build folder> -P cpu_levels_apart.cmake
cmake_minimum_required(VERSION 3.25)
foreach(level v3 v4 v4_bf16 v4_amx)
  if(level STREQUAL v4_amx AND NOT EXISTS ${FOLDER}/halftape_cpu_v4_amx.o)
    continue()  # an older compiler
  endif()
  execute_process(COMMAND ${NM} --defined-only --extern-only ${FOLDER}/halftape_cpu_${level}.o
                  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\n$" "" symbols "${symbols}")
  if(NOT symbols MATCHES "^[0-9a-f]+ T halftape_cpu_${level}$")
    message(FATAL_ERROR "halftape_cpu_${level}.o: others see of it\n${symbols}")
  endif()
endforeach()
