// The ways in which cuBLASLt may behave where its documentation leaves it open, as settings of the
// rig.
#pragma once
#include <string>
#include <vector>

#include "halftape/cuda/gemm/gemm.h"
#include "settings.h"

namespace halftape::testing {

/// A library with these settings, which nothing has been asked yet.
class Library {
 public:
  explicit Library(const simt::Settings& s) : with_(s) { cuda::ask_library_again(); }
  ~Library() { cuda::ask_library_again(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

 private:
  simt::With with_;
};

struct Behaviour {
  std::string name;
  simt::Settings settings;
};

/// The first one finishes everything as asked.
inline std::vector<Behaviour> behaviours() {
  simt::Settings right = simt::settings;
  right.nan_in_relu = simt::NanInRelu::Kept;
  std::vector<Behaviour> all{{"all right", right}};
  const auto add = [&](const char* name, auto change) {
    all.push_back({name, right});
    change(all.back().settings);
  };
  using S = simt::Settings&;
  add("ReLU swallows NaN", [](S s) { s.nan_in_relu = simt::NanInRelu::Swallowed; });
  add("NaN has no bit", [](S s) { s.nan_in_relu = simt::NanInRelu::KeptWithout; });
  add("an exact 0 has a bit", [](S s) { s.zeros_have_bits = true; });
  add("masks the other way round", [](S s) { s.turned_masks = true; });
  add("GELU by erf", [](S s) { s.gelu_by_erf = true; });
  add("GELU by the hardware's tanh", [](S s) { s.tanh_error = 0x1p-11; });
  add("GELU right to a dozen float32 ulps", [](S s) { s.tanh_error = 0x1p-20; });
  add("C and bias after the rounding", [](S s) { s.bias_after_rounding = true; });
  add("no wide gradients of biases", [](S s) { s.wide_bias_gradients = false; });
  add("more kernels than calls", [](S s) { s.more_kernels = true; });
  // CUBLAS_STATUS_NOT_SUPPORTED, _INVALID_VALUE, _INTERNAL_ERROR, _ARCH_MISMATCH
  for (const int status : {15, 7, 14, 8})
    for (const bool called : {false, true}) {
      const auto refuses = [&](simt::Refusals::Of what) {
        return [=](S s) { s.refuses = {what, status, called}; };
      };
      const std::string how = std::string(called ? " when called" : " when chosen") + ", status " +
                              std::to_string(status);
      add(("refuses epilogues" + how).c_str(), refuses(simt::Refusals::Epilogues));
      add(("refuses halves" + how).c_str(), refuses(simt::Refusals::Halves));
      if (status == 15) add(("refuses all" + how).c_str(), refuses(simt::Refusals::All));
    }
  return all;
}

}  // namespace halftape::testing
