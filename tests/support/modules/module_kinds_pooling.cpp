// Pooling.
#include "halftape/tests/support/modules/module_kinds.h"

namespace halftape::testing {

namespace F = nn::functional;
using namespace nn;

namespace {

/// A function whose options another takes, too.
template <class O, class Function>
Kind with_indices(const char* name, Function f) {
  Kind kind = function_kind<O>(name, {.wrong = {5}}, f);
  kind.options.clear();
  return kind;
}

}  // namespace

std::vector<Kind> pooling_kinds() {
  return {
      module_kind<MaxPool1d>("MaxPool1d", {.wrong = {5}}, HALFTAPE_SAME_AS(max_pool1d)),
      module_kind<AvgPool1d>("AvgPool1d", {.wrong = {5}}, HALFTAPE_SAME_AS(avg_pool1d)),
      module_kind<LPPool1d>("LPPool1d", {.cast = Cast::Float32, .wrong = {5}},
                            HALFTAPE_SAME_AS(lp_pool1d)),
      module_kind<AdaptiveMaxPool1d>("AdaptiveMaxPool1d", {.wrong = {5}},
                                     HALFTAPE_SAME_AS(adaptive_max_pool1d)),
      module_kind<AdaptiveAvgPool1d>("AdaptiveAvgPool1d", {.wrong = {5}},
                                     HALFTAPE_SAME_AS(adaptive_avg_pool1d)),
      module_kind<MaxUnpool1d>("MaxUnpool1d", {.wrong = {5}}),
      function_kind<F::MaxUnpool1dFuncOptions>("max_unpool1d", {.wrong = {5}},
                                               HALFTAPE_FUNC(max_unpool1d)),
      module_kind<MaxPool2d>("MaxPool2d", {.wrong = {5}}, HALFTAPE_SAME_AS(max_pool2d)),
      module_kind<AvgPool2d>("AvgPool2d", {.wrong = {5}}, HALFTAPE_SAME_AS(avg_pool2d)),
      module_kind<LPPool2d>("LPPool2d", {.cast = Cast::Float32, .wrong = {5}},
                            HALFTAPE_SAME_AS(lp_pool2d)),
      module_kind<AdaptiveMaxPool2d>("AdaptiveMaxPool2d", {.wrong = {5}},
                                     HALFTAPE_SAME_AS(adaptive_max_pool2d)),
      module_kind<AdaptiveAvgPool2d>("AdaptiveAvgPool2d", {.wrong = {5}},
                                     HALFTAPE_SAME_AS(adaptive_avg_pool2d)),
      module_kind<MaxUnpool2d>("MaxUnpool2d", {.wrong = {5}}),
      function_kind<F::MaxUnpool2dFuncOptions>("max_unpool2d", {.wrong = {5}},
                                               HALFTAPE_FUNC(max_unpool2d)),
      module_kind<FractionalMaxPool2d>("FractionalMaxPool2d", {.wrong = {5}},
                                       HALFTAPE_SAME_AS(fractional_max_pool2d)),
      module_kind<MaxPool3d>("MaxPool3d", {.wrong = {5}}, HALFTAPE_SAME_AS(max_pool3d)),
      module_kind<AvgPool3d>("AvgPool3d", {.wrong = {5}}, HALFTAPE_SAME_AS(avg_pool3d)),
      module_kind<LPPool3d>("LPPool3d", {.cast = Cast::Float32, .wrong = {5}},
                            HALFTAPE_SAME_AS(lp_pool3d)),
      module_kind<AdaptiveMaxPool3d>("AdaptiveMaxPool3d", {.wrong = {5}},
                                     HALFTAPE_SAME_AS(adaptive_max_pool3d)),
      module_kind<AdaptiveAvgPool3d>("AdaptiveAvgPool3d", {.wrong = {5}},
                                     HALFTAPE_SAME_AS(adaptive_avg_pool3d)),
      module_kind<MaxUnpool3d>("MaxUnpool3d", {.wrong = {5}}),
      function_kind<F::MaxUnpool3dFuncOptions>("max_unpool3d", {.wrong = {5}},
                                               HALFTAPE_FUNC(max_unpool3d)),
      module_kind<FractionalMaxPool3d>("FractionalMaxPool3d", {.wrong = {5}},
                                       HALFTAPE_SAME_AS(fractional_max_pool3d)),
      with_indices<F::MaxPool1dFuncOptions>("max_pool1d_with_indices",
                                            HALFTAPE_FUNC(max_pool1d_with_indices)),
      with_indices<F::AdaptiveMaxPool1dFuncOptions>(
          "adaptive_max_pool1d_with_indices", HALFTAPE_FUNC(adaptive_max_pool1d_with_indices)),
      with_indices<F::MaxPool2dFuncOptions>("max_pool2d_with_indices",
                                            HALFTAPE_FUNC(max_pool2d_with_indices)),
      with_indices<F::AdaptiveMaxPool2dFuncOptions>(
          "adaptive_max_pool2d_with_indices", HALFTAPE_FUNC(adaptive_max_pool2d_with_indices)),
      with_indices<F::FractionalMaxPool2dFuncOptions>(
          "fractional_max_pool2d_with_indices", HALFTAPE_FUNC(fractional_max_pool2d_with_indices)),
      with_indices<F::MaxPool3dFuncOptions>("max_pool3d_with_indices",
                                            HALFTAPE_FUNC(max_pool3d_with_indices)),
      with_indices<F::AdaptiveMaxPool3dFuncOptions>(
          "adaptive_max_pool3d_with_indices", HALFTAPE_FUNC(adaptive_max_pool3d_with_indices)),
      with_indices<F::FractionalMaxPool3dFuncOptions>(
          "fractional_max_pool3d_with_indices", HALFTAPE_FUNC(fractional_max_pool3d_with_indices)),
  };
}

}  // namespace halftape::testing
