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
// What is too large is to be the library's error under a sanitizer, too, not the sanitizer's.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }

// Inlined, they would show the compiler a free() of what came from operator new.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }  // NOLINT: likewise
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { operator delete(p); }

namespace halftape::testing {

int64_t fail_new(int64_t nth) { return std::exchange(left, nth); }
void fail_large_new(size_t bytes) { most = bytes; }
bool can_fail_new() {
  fail_new(1);
  try {
    operator delete(operator new(1));
  } catch (const std::bad_alloc&) {
  }
  return fail_new(0) == 0;
}

}  // namespace halftape::testing
