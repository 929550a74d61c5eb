// What an update reads on the device, and what a check of gradients wrote there.
#pragma once
#include "halftape/core/array.h"

namespace halftape {

/// What an update reads on the device, so that the host need not wait for it. Undefined: not used.
struct StepControl {
  Array found_inf = {};  // one float32; non-zero: leave parameters and state as they are
  Array inv_scale = {};  // one float32; gradients are multiplied by it as they are read
  Array live_rule = {};  // the bytes of a rule, which replaces the given one
  Array clip = {};       // one float32; the gradients themselves are multiplied by it before all
                         // else, also in a step that is skipped
};
/// What a GradientCheck found in one list of gradients.
struct CheckResult {
  Array found_inf;   // one float32; non-zero: something is not finite
  Array first;       // one int64: the position of the first gradient that is not, or −1
  int64_t list = 0;  // the number of the list, for the counts
};

}  // namespace halftape
