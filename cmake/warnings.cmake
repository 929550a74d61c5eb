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

# What makes a mistake of ours harder to use for an attacker, in optimized builds. FORTIFY and read-only relocations cost
# nothing and are everywhere. A protected stack and checked containers are where foreign files and messages are read;
# HALFTAPE_HARDEN=ALL has them and control-flow protection, which works only if no object lacks it, everywhere: 8 % of a small
# op's instructions.
add_library(halftape_hardening INTERFACE)
if(HALFTAPE_HARDEN AND NOT HALFTAPE_SANITIZE AND CMAKE_SYSTEM_NAME STREQUAL Linux)
  set(optimized $<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>)
  target_compile_options(halftape_warnings INTERFACE $<${optimized}:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>)
  target_link_options(halftape_warnings INTERFACE LINKER:-z,relro,-z,now,-z,noexecstack)
  target_compile_options(halftape_hardening INTERFACE
    $<${optimized}:-fstack-protector-strong -fstack-clash-protection -D_GLIBCXX_ASSERTIONS>)
  if(HALFTAPE_HARDEN STREQUAL ALL)
    include(CheckCXXCompilerFlag)
    check_cxx_compiler_flag(-fcf-protection HALFTAPE_HAS_CF_PROTECTION)  # x86 alone
    target_compile_options(halftape_hardening INTERFACE
      $<${optimized}:$<$<BOOL:${HALFTAPE_HAS_CF_PROTECTION}>:-fcf-protection>>)
    target_link_libraries(halftape_warnings INTERFACE halftape_hardening)
  endif()
endif()
