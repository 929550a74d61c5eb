// Shared by the recipes: a small task on real data, and a check of the numbers.
#pragma once
#include <halftape/halftape.h>

#include <cstdio>
#include <vector>

namespace recipe {

using namespace halftape;

/// images (N, 64) in 0..1, labels (N).
struct Set {
  Tensor images, labels;
  int64_t size() const { return labels.size(0); }
  /// The batch of this step; the set is read again and again.
  Set batch(int64_t step, int64_t size) const {
    const Tensor at = (arange(step * size, (step + 1) * size, kInt64)).remainder(this->size());
    return {images.index_select(0, at), labels.index_select(0, at)};
  }
};

inline Set as_set(const data::Images& from) {
  const Tensor pixels = tensor(std::vector<int64_t>(from.pixels.begin(), from.pixels.end()));
  return {pixels.to(kFloat32).view({from.count, from.rows * from.cols}) / from.max_value,
          tensor(std::vector<int64_t>(from.labels.begin(), from.labels.end()))};
}
/// The handwritten digits that come with the library: 8x8 pixels, ten classes.
inline Set train_set() { return as_set(data::digits().train); }
inline Set test_set() { return as_set(data::digits().test); }

/// 64 pixels in, 10 scores out; the same weights on every call. In braces the layers are made, and
/// draw their weights, in order, whatever the compiler.
inline nn::Sequential make_model(uint64_t seed = 1) {
  manual_seed(seed);
  return nn::Sequential{nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 10)};
}
/// The share of images whose highest score is the right one, in percent.
inline double accuracy(const nn::Sequential& model, const Set& set) {
  const NoGradGuard no_grad;
  return 100 *
         (model->forward(set.images).argmax(1) == set.labels).to(kFloat32).mean().item<double>();
}
/// All weights in one row, float32.
inline Tensor weights(const nn::Sequential& model) {
  const NoGradGuard no_grad;
  TensorList all;
  for (const Tensor& p : model->parameters()) all.push_back(p.flatten());
  return cat(all, 0);
}
/// All gradients in one row.
inline Tensor gradients(const nn::Sequential& model) {
  TensorList all;
  for (const Tensor& p : model->parameters()) all.push_back(p.grad().flatten());
  return cat(all, 0);
}
/// ‖a − b‖ / ‖b‖.
inline double distance(const Tensor& a, const Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

inline bool failed = false;
inline void expect(bool holds, const char* what) {
  if (!holds) std::printf("NOT SO: %s\n", what);
  failed |= !holds;
}
/// main()'s last line.
inline int verdict() {
  if (!failed) std::puts("all as it should be");
  return failed ? 1 : 0;
}

}  // namespace recipe
