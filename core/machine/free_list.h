// Memory of small objects that every op makes and deletes. The thread keeps it in lists by size: a
// step frees hundreds of objects at once, and malloc would keep only a few of them at hand.
#pragma once
#include <cstddef>

#include "halftape/core/machine/shared.h"

namespace halftape {

/// Base of classes with such objects. A class with derived classes needs a virtual destructor.
struct FreeListed {
  static void* operator new(size_t size);
  static void operator delete(void* object, size_t size) noexcept;
  /// Throws in place of std::bad_alloc, once set: core/buffer.cpp knows what memory is in use.
  using OutOfMemory = void (*)(size_t bytes);
  HALFTAPE_SHARED static inline constinit OutOfMemory out_of_memory = nullptr;
};

}  // namespace halftape
