// Convolutions, and windows as columns.
#include "halftape/tests/support/modules/module_kinds.h"

namespace halftape::testing {

namespace F = nn::functional;
using namespace nn;

std::vector<Kind> convolution_kinds() {
  return {
      module_kind<Conv1d>("Conv1d", {.cast = Cast::Lower, .wrong = {2, 3, 5}}),
      module_kind<ConvTranspose1d>("ConvTranspose1d", {.cast = Cast::Lower, .wrong = {2, 3, 5}}),
      function_kind<F::Conv1dFuncOptions>("conv1d", {.cast = Cast::Lower, .wrong = {2, 3, 5}},
                                          HALFTAPE_FUNC(conv1d)),
      function_kind<F::ConvTranspose1dFuncOptions>("conv_transpose1d",
                                                   {.cast = Cast::Lower, .wrong = {2, 3, 5}},
                                                   HALFTAPE_FUNC(conv_transpose1d)),
      module_kind<Conv2d>("Conv2d", {.cast = Cast::Lower, .wrong = {1, 3, 5, 5}}),
      module_kind<ConvTranspose2d>("ConvTranspose2d", {.cast = Cast::Lower, .wrong = {1, 3, 5, 5}}),
      function_kind<F::Conv2dFuncOptions>("conv2d", {.cast = Cast::Lower, .wrong = {1, 3, 5, 5}},
                                          HALFTAPE_FUNC(conv2d)),
      function_kind<F::ConvTranspose2dFuncOptions>("conv_transpose2d",
                                                   {.cast = Cast::Lower, .wrong = {1, 3, 5, 5}},
                                                   HALFTAPE_FUNC(conv_transpose2d)),
      module_kind<Conv3d>("Conv3d", {.cast = Cast::Lower, .wrong = {1, 3, 3, 4, 3}}),
      module_kind<ConvTranspose3d>("ConvTranspose3d",
                                   {.cast = Cast::Lower, .wrong = {1, 3, 3, 4, 3}}),
      function_kind<F::Conv3dFuncOptions>("conv3d", {.cast = Cast::Lower, .wrong = {1, 3, 3, 4, 3}},
                                          HALFTAPE_FUNC(conv3d)),
      function_kind<F::ConvTranspose3dFuncOptions>("conv_transpose3d",
                                                   {.cast = Cast::Lower, .wrong = {1, 3, 3, 4, 3}},
                                                   HALFTAPE_FUNC(conv_transpose3d)),
      module_kind<Fold>("Fold", {.wrong = {1, 7, 6}}, HALFTAPE_SAME_AS(fold)),
      module_kind<Unfold>("Unfold", {.wrong = {5, 5}}, HALFTAPE_SAME_AS(unfold)),
  };
}

}  // namespace halftape::testing
