// What this build is watched by.
#pragma once

namespace halftape {

/// Under AddressSanitizer every block of memory is its own, so that misuse is seen: nothing is kept
/// for reuse.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace halftape
