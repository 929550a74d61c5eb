// What the tests of flat storage share: a training with and without it, and where its tensors lie.
#pragma once
#include <halftape/halftape.h>

#include <cmath>
#include <memory>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

namespace halftape::testing {

inline const OptimizerKind& adam_kind() { return optimizer_kind("Adam"); }
inline const OptimizerKind& amsgrad_kind() { return optimizer_kind("AdamW with amsgrad"); }
inline std::unique_ptr<optim::Optimizer> adam(const TensorList& p) { return adam_kind().make(p); }

/// A classifier of words: an embedding, two layers as one chain, a norm, a layer.
struct WordNet : nn::Module {
  nn::Embedding words{nullptr};
  nn::Sequential chain{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear last{nullptr};
  WordNet() {
    words = register_module("words", nn::Embedding(11, 7));
    chain =
        register_module("chain", nn::Sequential(nn::Linear(7, 33), nn::ReLU(), nn::Linear(33, 19)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({19})));
    last = register_module("last", nn::Linear(19, 5));
  }
  Tensor forward(const Tensor& index) { return last(norm(chain->forward(words(index)))); }
};

struct FlatTraining {
  std::shared_ptr<WordNet> net;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<amp::GradScaler> scaler;  // with it, under autocast
  Tensor x = arange(24) % 11, y = arange(24) * 3 % 5;

  explicit FlatTraining(const OptimizerKind& kind = adam_kind(), bool flat = true,
                        Dtype d = kFloat32, optim::Weights weights = optim::Weights::Plain,
                        bool mixed = false) {
    manual_seed(17);
    net = std::make_shared<WordNet>();
    if (d != kFloat32) net->to(d);
    optimizer = kind.make(net->parameters(), weights);
    if (flat) optimizer->flatten();
    if (mixed)
      scaler = std::make_unique<amp::GradScaler>(
          amp::GradScalerOptions{.init_scale = 1024, .growth_interval = 3});
  }
  void backward(int t = 0) {
    Tensor loss;
    {
      const amp::autocast region(get_default_device().type(), kFloat16, scaler != nullptr);
      loss = nn::functional::cross_entropy(net->forward((x + t) % 11), y);
    }
    if (scaler)
      scaler->scale(t == 3 ? loss * 1e6 : loss).backward();  // more than gradients in float16 hold
    else
      loss.backward();
  }
  void step(int from, int to) {
    for (int t = from; t < to; ++t) {
      optimizer->zero_grad();
      backward(t);
      if (scaler)
        scaler->step(*optimizer), scaler->update();
      else
        optimizer->step();
    }
  }
  optim::FlatRegion& region() { return optimizer->flat_regions().at(0); }
  TensorList params() const { return net->parameters(); }
};

/// True if parameters, gradients and optimizer state are the same bits under the same keys.
inline bool same(const FlatTraining& a, const FlatTraining& b) {
  const TensorList p = a.params(), q = b.params();
  bool all = p.size() == q.size();
  for (size_t i = 0; all && i < p.size(); ++i) {
    all = same_bits(p[i].detach(), q[i].detach()) &&
          p[i].grad().defined() == q[i].grad().defined() &&
          (!p[i].grad().defined() || same_bits(p[i].grad(), q[i].grad()));
    const auto &s = a.optimizer->state_of(p[i]), &t = b.optimizer->state_of(q[i]);
    all = all && s.size() == t.size();
    for (const auto& [key, value] : s)
      all = all && t.count(key) && same_bits(Tensor(value), Tensor(t.find(key)->second));
  }
  return all;
}

inline const char* address(const Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); }

/// True if each of these tensors, of which some may be undefined, lies in its slot of `all`.
inline bool in_slots(const optim::FlatRegion& region, const Tensor& all, const TensorList& parts) {
  bool yes = parts.size() == region.offsets().size();
  for (size_t i = 0; yes && i < parts.size(); ++i)
    yes = !parts[i].defined() ||
          address(parts[i]) ==
              address(all) + region.offsets()[i] * static_cast<int64_t>(all.element_size());
  return yes;
}
inline bool grads_in_slots(const optim::FlatRegion& region, const Tensor& all) {
  TensorList grads;
  for (const Tensor& p : region.params()) grads.push_back(p.grad());
  return in_slots(region, all, grads);
}
inline TensorList state_of(const optim::Optimizer& optimizer, const TensorList& params,
                           const char* key) {
  TensorList state;
  for (const Tensor& p : params) {
    const auto& all = optimizer.state_of(p);
    state.push_back(all.count(key) ? Tensor(all.find(key)->second) : Tensor());
  }
  return state;
}
/// The sum of the absolute elements between the slots.
inline double padding(const optim::FlatRegion& region, const Tensor& all) {
  double sum = 0;
  const std::vector<double> values = all.to_vector();
  for (size_t i = 0; i < region.params().size(); ++i) {
    const auto from = region.offsets()[i] + region.params()[i].numel(),
               to = i + 1 < region.params().size() ? region.offsets()[i + 1] : region.numel();
    for (int64_t k = from; k < to; ++k) sum += std::abs(values[static_cast<size_t>(k)]);
  }
  return sum;
}

}  // namespace halftape::testing
