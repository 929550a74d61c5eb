// The place in a model at which a thread is at work, which errors name.
#pragma once
#include <string>

namespace halftape::detail {

/// The place of a module in its model. A copy of the module has none yet.
struct Place {
  Place() = default;
  Place(const Place&) {}
  Place& operator=(const Place&) { return *this; }

  std::string path;  // "encoder.fc2", from the module on top; empty for that one
  std::string kind;  // "Linear"
  int depth = 0;     // modules above it, the most there ever were
};

/// Where this thread is at work; null outside of modules that have a place.
extern thread_local constinit const Place* place_at_work;

}  // namespace halftape::detail
