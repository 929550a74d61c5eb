# The CPU's kernels, once for every level of instructions; cpu/runtime/level.cpp picks one when the program starts.
#
# Two levels must not share a function: the linker keeps one of two equal inline functions or templates, whoever asked
# for it, and an AVX-512 one would then run on every machine. So each level above the baseline is linked into one object
# whose functions are its own, but for the one that makes its backend. That takes GNU's tools; without them there is the
# baseline. So there is on Windows, whose GCC keeps no variable of 32 bytes aligned on the stack (GCC bug 54412): code for AVX
# would end there.
set(default baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
  find_program(HALFTAPE_GNU_LD NAMES ld.bfd ld)
  find_program(HALFTAPE_GNU_OBJCOPY NAMES objcopy)
  mark_as_advanced(HALFTAPE_GNU_LD HALFTAPE_GNU_OBJCOPY)
  if(HALFTAPE_GNU_LD AND HALFTAPE_GNU_OBJCOPY)
    execute_process(COMMAND ${HALFTAPE_GNU_LD} --help OUTPUT_VARIABLE help ERROR_QUIET)
    if(help MATCHES "force-group-allocation")
      set(default all)
    endif()
  endif()
endif()
set(HALFTAPE_CPU_LEVELS ${default} CACHE STRING
    "Levels of the CPU's kernels: all (one is chosen at run time), native (the best of this machine alone) or baseline")
set_property(CACHE HALFTAPE_CPU_LEVELS PROPERTY STRINGS all native baseline)

if(HALFTAPE_CPU_LEVELS MATCHES "^(all|ON)$")
  set(HALFTAPE_CPU_LEVELS ${default})
  if(default STREQUAL all)
    set(built baseline v3 v4 v4_bf16 v4_amx)
  else()
    set(built baseline)
    message(STATUS "halftape: the levels of CPU kernels are those of x86-64 and of GNU's tools; here there is the baseline")
  endif()
elseif(HALFTAPE_CPU_LEVELS MATCHES "^(native|baseline|OFF)$")
  set(built baseline)
else()
  message(FATAL_ERROR "HALFTAPE_CPU_LEVELS is \"${HALFTAPE_CPU_LEVELS}\"; expected all, native or baseline")
endif()
if(HALFTAPE_CPU_LEVELS STREQUAL native)
  if(default STREQUAL all AND NOT CMAKE_CROSSCOMPILING)
    try_run(failed compiled ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/cmake/native_level.cpp
            CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${HALFTAPE_INCLUDE} RUN_OUTPUT_VARIABLE native)
    if(compiled AND NOT failed)
      set(built ${native})
    endif()
  endif()
endif()
if(v4_amx IN_LIST built)
  include(CheckCXXSourceCompiles)  # which asks the assembler, too
  set(CMAKE_REQUIRED_FLAGS "-mamx-tile -mamx-bf16")
  check_cxx_source_compiles("#include <immintrin.h>\nint main() { _tile_dpbf16ps(0, 1, 2); }" HALFTAPE_HAS_AMX)
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT HALFTAPE_HAS_AMX)
    list(REMOVE_ITEM built v4_amx)
  endif()
endif()
if(HALFTAPE_CPU_LEVELS STREQUAL native)
  message(STATUS "halftape: CPU kernels of one level alone, ${built}")
endif()

# Vectorised, and without the two rules of IEEE that nobody here uses. Never -ffast-math, which would remove the inf and
# NaN checks. Integers wrap.
function(halftape_cpu_kernels target backend)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ${HALFTAPE_PIC})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PRIVATE ${HALFTAPE_INCLUDE})
  target_compile_options(${target} PRIVATE -fno-math-errno -fno-trapping-math -fwrapv
                                           $<$<NOT:$<BOOL:${HALFTAPE_SANITIZE}>>:-O3> ${ARGN})
  target_compile_definitions(${target} PRIVATE EIGEN_DONT_PARALLELIZE HALFTAPE_CPU_BACKEND=${backend})
  target_link_libraries(${target} PRIVATE halftape_eigen halftape_warnings halftape_sanitizers)
endfunction()

halftape_cpu_kernels(halftape_cpu halftape_cpu_baseline)

# Beside the others it is for old processors alone, and stays small: g++ unrolls loops over 32 lanes that it cannot vectorise.
if(v3 IN_LIST built)
  target_compile_options(halftape_cpu PRIVATE $<$<CXX_COMPILER_ID:GNU>:--param=max-completely-peeled-insns=60>)
endif()

# Scheduling that does not count registers lets sums of a tile leave theirs; for x86-64 g++ has it off.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/cpu/gemm/packed_gemm.cpp PROPERTIES
                              COMPILE_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
endif()

# What there is once: memory, threads, the choice.
get_target_property(kernels halftape_cpu SOURCES)
set(shared ${kernels})
list(FILTER kernels EXCLUDE REGEX "/cpu/runtime/")
list(FILTER shared INCLUDE REGEX "/cpu/runtime/")
foreach(level ${built})
  string(TOUPPER HALFTAPE_CPU_${level} defined)
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/cpu/runtime/level.cpp APPEND PROPERTY COMPILE_DEFINITIONS ${defined}=1)
endforeach()
if(NOT baseline IN_LIST built)
  set_property(TARGET halftape_cpu PROPERTY SOURCES ${shared})
endif()

function(halftape_cpu_level level kernels)
  if(NOT level IN_LIST built)
    return()
  endif()
  set(target halftape_cpu_${level})
  add_library(${target} OBJECT ${kernels})
  # g++ keeps unique symbols global, and takes what its own headers leave undefined for a mistake. GNU's tools make one object of
  # the level now, which link-time optimization would put off.
  halftape_cpu_kernels(${target} ${target} ${ARGN} -fno-lto
    "$<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique;-Wno-psabi;-Wno-uninitialized;-Wno-maybe-uninitialized>")
  set(object ${PROJECT_BINARY_DIR}/${target}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${HALFTAPE_GNU_LD} -r --force-group-allocation -o ${object} $<TARGET_OBJECTS:${target}>
    COMMAND ${HALFTAPE_GNU_OBJCOPY} --keep-global-symbol=${target} ${object}
    DEPENDS ${target} $<TARGET_OBJECTS:${target}>
    COMMAND_EXPAND_LISTS VERBATIM
    COMMENT "Linking the kernels of ${level} by themselves")
  target_sources(halftape PRIVATE ${object})
endfunction()
# g++ copies in pieces of 16 bytes otherwise, from which a load of 32 has to wait.
halftape_cpu_level(v3 "${kernels}" -march=x86-64-v3 "$<$<CXX_COMPILER_ID:GNU>:-mmove-max=256;-mstore-max=256>")
halftape_cpu_level(v4 "${kernels}" -march=x86-64-v4 -mprefer-vector-width=512)
# Products of bfloat16 are the one thing that differs.
set(products ${PROJECT_SOURCE_DIR}/cpu/gemm/packed_gemm.cpp -march=x86-64-v4 -mavx512bf16 -mprefer-vector-width=512)
halftape_cpu_level(v4_bf16 ${products} -DHALFTAPE_CPU_GEMM=halftape_cpu_v4_bf16)
halftape_cpu_level(v4_amx ${products} -mamx-tile -mamx-bf16 -DHALFTAPE_CPU_GEMM=halftape_cpu_v4_amx -DHALFTAPE_CPU_AMX=1)
