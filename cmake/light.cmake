# Options of cases and samples, which leave the work to the library: g++ takes 55 to 65 % of the time of -O1 for them.
# Where it optimises little, GCC 12 may see a std::string's operator+ read and write beyond its buffer (GCC bug 105329).
set(halftape_light_options $<$<CONFIG:Release>:-Og> $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds> $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>)

# halftape_light(targets...): programs that leave the work to the library. A build with tests compiles seventy files of theirs
# and reads <halftape/halftape.h> once for all, which saves each up to two thirds of its time.
if(HALFTAPE_BUILD_TESTS AND NOT HALFTAPE_SANITIZE AND NOT CMAKE_POSITION_INDEPENDENT_CODE)  # which has two kinds of code
  # g++ wants the definitions that were there in each file that uses a precompiled header, and so its library has none.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/light_headers.cpp CONTENT "")
  add_library(halftape_light_headers OBJECT ${PROJECT_BINARY_DIR}/light_headers.cpp)
  set_target_properties(halftape_light_headers PROPERTIES CXX_EXTENSIONS OFF)
  target_link_libraries(halftape_light_headers PRIVATE halftape halftape_warnings halftape_sanitizers)
  target_compile_options(halftape_light_headers PRIVATE ${halftape_light_options})
  target_precompile_headers(halftape_light_headers PRIVATE <halftape/halftape.h>)
endif()
function(halftape_light)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE ${halftape_light_options})
    if(TARGET halftape_light_headers)
      target_precompile_headers(${target} REUSE_FROM halftape_light_headers)
    endif()
  endforeach()
endfunction()
