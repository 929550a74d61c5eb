// Steps of training whose cost has a budget.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "settings.h"

namespace halftape::testing {

struct Workload {
  std::string name, title;
  int64_t goal_nodes = 0;  // where cuBLASLt finishes all epilogues; 0: none
  double goal_megabytes = 0;
  int64_t goal_elsewhere = 0;  // nodes under every other setting; 0: these are not counted
  /// Makes the model on the rig, and gives its step. AMP in float16 with a GradScaler; x is float32
  /// and cast in the step.
  std::function<std::function<void()>()> make;
};
std::vector<Workload> workloads();

/// What cuBLASLt may do that its documentation leaves open.
struct Library {
  const char* name;
  simt::Settings settings;
};
/// `like`: one that finishes all epilogues as this library needs it. The others are other
/// libraries, each as bad as one of the rig's settings says.
std::vector<Library> other_libraries(const simt::Settings& like);

}  // namespace halftape::testing
