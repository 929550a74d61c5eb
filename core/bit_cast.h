// std::bit_cast, also where the standard library is older than the compiler: libc++ 13 lacks it.
#pragma once
#include <bit>
#include <version>

namespace halftape {

#if defined(__cpp_lib_bit_cast)
using std::bit_cast;
#else
template <class To, class From>
requires(sizeof(To) == sizeof(From)) constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}
#endif

}  // namespace halftape
