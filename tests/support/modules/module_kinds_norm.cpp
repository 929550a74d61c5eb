// Normalisation.
#include "halftape/tests/support/modules/module_kinds.h"

namespace halftape::testing {

namespace F = nn::functional;
using namespace nn;

std::vector<Kind> norm_kinds() {
  return {
      module_kind<BatchNorm1d>("BatchNorm1d", {.wrong = {2, 3, 4, 4, 4, 4}}),
      module_kind<InstanceNorm1d>("InstanceNorm1d", {.wrong = {5}}),
      module_kind<BatchNorm2d>("BatchNorm2d", {.wrong = {2, 3, 4, 4, 4, 4}}),
      module_kind<InstanceNorm2d>("InstanceNorm2d", {.wrong = {5}}),
      module_kind<BatchNorm3d>("BatchNorm3d", {.wrong = {2, 3, 4, 4, 4, 4}}),
      module_kind<InstanceNorm3d>("InstanceNorm3d", {.wrong = {5}}),
      module_kind<LayerNorm>("LayerNorm", {.cast = Cast::Float32, .wrong = {2, 4, 3}}),
      module_kind<RMSNorm>("RMSNorm", {.cast = Cast::Float32, .wrong = {2, 4, 3}}),
      module_kind<GroupNorm>("GroupNorm", {.cast = Cast::Float32, .wrong = {1, 6, 5}}),
      module_kind<LocalResponseNorm>("LocalResponseNorm", {.cast = Cast::Float32, .wrong = {4}},
                                     HALFTAPE_SAME_AS(local_response_norm)),
      module_kind<CrossMapLRN2d>("CrossMapLRN2d", {.wrong = {4, 2, 2}}),
      function_kind<F::LayerNormFuncOptions>(
          "layer_norm", {.cast = Cast::Float32, .wrong = {2, 4, 3}}, HALFTAPE_FUNC(layer_norm)),
      function_kind<F::RMSNormFuncOptions>("rms_norm", {.cast = Cast::Float32, .wrong = {2, 4, 3}},
                                           HALFTAPE_FUNC(rms_norm)),
      function_kind<F::BatchNormFuncOptions>("batch_norm", {.wrong = {5}},
                                             HALFTAPE_FUNC(batch_norm)),
      // With the running statistics, which it changes.
      function_kind<F::InstanceNormFuncOptions>("instance_norm", {.wrong = {5}},
                                                [](const auto& o, const Tensor& x) {
                                                  const Tensor y = F::instance_norm(x, o);
                                                  return std::tuple(y, o.running_mean(),
                                                                    o.running_var());
                                                }),
      function_kind<F::GroupNormFuncOptions>(
          "group_norm", {.cast = Cast::Float32, .wrong = {1, 3, 5}}, HALFTAPE_FUNC(group_norm)),
      function_kind<F::NormalizeFuncOptions>("normalize", {.cast = Cast::Float32, .wrong = {5}},
                                             HALFTAPE_FUNC(normalize)),
  };
}

}  // namespace halftape::testing
