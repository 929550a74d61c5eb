// Small objects that come and go with every op: their memory stays with the thread, in lists by
// size, since a step frees hundreds of them at once, of which malloc keeps a handful at hand.
#pragma once
#include <cstddef>

namespace halftape {

/// Base of classes whose objects are made and deleted so. A class that is derived from needs a
/// virtual destructor.
struct FreeListed {
  static void* operator new(size_t size);
  static void operator delete(void* object, size_t size) noexcept;
};

}  // namespace halftape
