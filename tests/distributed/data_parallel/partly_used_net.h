// A model for ranks, of which one parameter has a gradient on rank 0 alone, and one nowhere.
#pragma once
#include <vector>

#include "halftape/distributed/distributed.h"
#include "halftape/halftape.h"
#include "halftape/tests/support/waves.h"

namespace halftape::testing {

using AdamW = optim::AdamW;
using Zero = distributed::ZeroRedundancyOptimizer<AdamW>;
using Numbers = std::vector<std::vector<double>>;

struct PartlyUsedNetImpl : nn::Module {
  explicit PartlyUsedNetImpl(Dtype dtype = kFloat32) {
    fill_with_waves(parameters());
    to(dtype);
  }
  Tensor forward(const Tensor& x) { return head(relu(norm(fc(x)))); }
  nn::Linear fc = register_module("fc", nn::Linear(6, 13));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(13));
  nn::Linear sometimes = register_module("sometimes", nn::Linear(3, 5));
  nn::Linear never = register_module("never", nn::Linear(2, 2));
  nn::Linear head = register_module("head", nn::Linear(13, 4));
};
HALFTAPE_MODULE(PartlyUsedNet);

inline Numbers numbers(const std::vector<Tensor>& tensors) {
  Numbers all;
  for (const Tensor& t : tensors) all.push_back(t.detach().to(kFloat64).to_vector<double>());
  return all;
}

inline Numbers state_numbers(const optim::Optimizer& optimizer) {
  Numbers all;
  for (const optim::ParamState& one : optimizer.state_dict().state)
    for (const auto& [name, value] : one)
      all.push_back(Tensor(value).to(kFloat64).flatten().to_vector<double>());
  return all;
}

inline Tensor loss_of(PartlyUsedNet& net, const distributed::ProcessGroup& group, int64_t step,
                      Dtype dtype = kFloat32) {
  const Tensor x = wave_rows(8, static_cast<double>(step * 8 + group.rank()));
  Tensor loss =
      nn::functional::cross_entropy(net->forward(x.to(dtype)), (arange(8) * 3 + step) % 4);
  if (group.rank() == 0) loss = loss + net->sometimes(ones({2, 3}, dtype)).square().mean();
  return loss;
}

}  // namespace halftape::testing
