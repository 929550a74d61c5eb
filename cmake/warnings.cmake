# Flags that are ours and not our users': linked privately.
add_library(halftape_warnings INTERFACE)
# -Wno-restrict: GCC 12 sees overlaps in std::string's operator+ (GCC bug 105651).
target_compile_options(halftape_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    $<$<BOOL:${HALFTAPE_WERROR}>:-Werror>>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra -Xptxas=--warn-on-spills
    $<$<BOOL:${HALFTAPE_WERROR}>:-Werror=all-warnings>>)

add_library(halftape_sanitizers INTERFACE)
if(HALFTAPE_SANITIZE STREQUAL address)
  set(flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(HALFTAPE_SANITIZE STREQUAL thread)
  set(flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(HALFTAPE_SANITIZE)
  message(FATAL_ERROR "HALFTAPE_SANITIZE is \"${HALFTAPE_SANITIZE}\"; expected address, thread or nothing")
endif()
target_compile_options(halftape_sanitizers INTERFACE ${flags})
target_link_options(halftape_sanitizers INTERFACE ${flags})
