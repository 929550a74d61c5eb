// Weights and data that all ranks make alike: samples of sine waves.
#pragma once
#include <vector>

#include "halftape/halftape.h"

namespace halftape::testing {

/// Element i of the n-th parameter becomes 0.4·sin(0.37·i + before + n).
inline void fill_with_waves(const std::vector<Tensor>& parameters, int64_t before = 0) {
  const NoGradGuard no_grad;
  for (const Tensor& p : parameters)
    p.copy_(((arange(p.numel()).to(kFloat32) * 0.37 + static_cast<double>(++before)).sin() * 0.4)
                .reshape(p.sizes()));
}
/// sin(0.713·i + phase), in rows of six.
inline Tensor wave_rows(int64_t rows, double phase) {
  return (arange(rows * 6).to(kFloat32) * 0.713 + phase).sin().reshape({rows, 6});
}

}  // namespace halftape::testing
