#include "halftape/tests/support/failing.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace {
constinit thread_local int64_t left = 0;
constinit thread_local size_t most = 0;
}  // namespace

// The program's own operator new, which libstdc++'s other forms call.
void* operator new(size_t bytes) {
  if (left > 0 && --left == 0) throw std::bad_alloc();
  if (most > 0 && bytes > most) throw std::bad_alloc();
  if (void* p = std::malloc(bytes > 0 ? bytes : 1)) return p;  // NOLINT: this is operator new
  throw std::bad_alloc();
}
// A sanitizer has other forms of its own; what this one gives belongs to the delete below.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { std::free(p); }          // NOLINT: likewise
void operator delete(void* p, size_t) noexcept { std::free(p); }  // NOLINT: likewise

namespace halftape::testing {

int64_t fail_new(int64_t nth) { return std::exchange(left, nth); }
void fail_large_new(size_t bytes) { most = bytes; }

}  // namespace halftape::testing
