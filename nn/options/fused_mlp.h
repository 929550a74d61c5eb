// Options of FusedMLP (nn/modules/fused_mlp.h).
#pragma once
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/core/options.h"

namespace halftape::nn {

class FusedMLPOptions {
 public:
  /// layers: hidden ones, of hidden_features each.
  FusedMLPOptions(int64_t in_features, int64_t hidden_features, int64_t layers,
                  int64_t out_features)
      : in_features_(in_features),
        hidden_features_(hidden_features),
        layers_(layers),
        out_features_(out_features) {}
  HALFTAPE_ARG(int64_t, in_features);
  HALFTAPE_ARG(int64_t, hidden_features);
  HALFTAPE_ARG(int64_t, layers);
  HALFTAPE_ARG(int64_t, out_features);
  HALFTAPE_ARG(Activation, activation) = Activation::Relu;
  HALFTAPE_ARG(bool, bias) = true;
};

}  // namespace halftape::nn
