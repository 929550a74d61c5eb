// What an optimizer's step is told beside its parameters, and what was found in its gradients.
#pragma once
#include "halftape/core/array.h"

namespace halftape {

/// What an update is told on the device: by a GradScaler, and by a Graph. Undefined: not used.
struct StepControl {
  Array found_inf = {};  // one float32; non-zero: leave parameters and state as they are
  Array inv_scale = {};  // one float32; gradients are multiplied by it as they are read
  Array live_rule = {};  // the bytes of a rule, which counts instead of the one that is given
  Array clip = {};       // one float32; the gradients themselves are multiplied by it before all
                         // else, also in a step that is skipped, as unscale() would
};
/// What one optimizer's gradients held, as unscale() left it.
struct ScalerFinding {
  Array found_inf;        // one float32; non-zero: something is not finite
  Array first;            // one int64: the position of the first gradient that is not, or −1
  int64_t optimizer = 0;  // its number, for the counts
};

}  // namespace halftape
