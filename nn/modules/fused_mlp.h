// FusedMLP: a small network whose whole training step is a few kernels.
#pragma once
#include <vector>

#include "halftape/autograd/ops/product/linear.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"
#include "halftape/nn/modules/linear.h"

namespace halftape::nn {

struct FusedMLPOptions {
  /// layers: how many hidden layers there are, of hidden_features each.
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

/// Linear layers with an activation between them: in_features → hidden_features, `layers` times in
/// all, → out_features. It computes what Sequential(Linear, activation, …, Linear) does, and has
/// the same parameters under the same names ("0.weight", "0.bias", "2.weight", …), so that one can
/// load the state of the other. It runs as mlp() and mlp_loss().
///
///     nn::FusedMLP model(nn::FusedMLPOptions(2, 64, 4, 3).activation(Activation::Gelu));
///     Tensor loss = model->loss(x, target, scaler.factor());
class FusedMLPImpl : public Cloneable<FusedMLPImpl> {
 public:
  FusedMLPImpl(int64_t in_features, int64_t hidden_features, int64_t layers, int64_t out_features)
      : FusedMLPImpl(FusedMLPOptions(in_features, hidden_features, layers, out_features)) {}
  explicit FusedMLPImpl(const FusedMLPOptions& o) : options(o) { FusedMLPImpl::reset(); }
  void reset() override;
  void reset_parameters();
  /// x: (…, in) → (…, out).
  Tensor forward(const Tensor& x) const;
  /// The mean cross-entropy with int64 classes (…), or the mean squared distance to a
  /// floating-point target (…, out). scale: as mlp_loss() takes it, from a GradScaler's factor().
  Tensor loss(const Tensor& x, const Tensor& target, const Tensor& scale = {}) const;
  void pretty_print(std::ostream& out) const override;

  FusedMLPOptions options;
  std::vector<Linear> linears;  // one more than there are hidden layers

 private:
  TensorList each(Tensor LinearImpl::*parameter) const;
};
HALFTAPE_MODULE(FusedMLP);

}  // namespace halftape::nn
