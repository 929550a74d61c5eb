// The rig's settings and state in one test.
#pragma once
#include "runtime/device.h"
#include "settings.h"

namespace halftape::testing {

template <class F>
simt::Settings now_with(const F& change) {
  simt::Settings s = simt::settings;
  change(s);
  return s;
}

/// Resets the rig at the end of a test.
struct Clean {
  Clean() { simt::reset(); }
  ~Clean() { simt::reset(); }
  Clean(const Clean&) = delete;
  Clean& operator=(const Clean&) = delete;
};

}  // namespace halftape::testing
