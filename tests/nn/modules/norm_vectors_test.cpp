// Normalisation against PyTorch's: scripts/torch_vectors/norms.py states the same problems.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
using testing::differ;

namespace {

const testing::Vectors& vectors() {
  static const testing::Vectors all("norms.txt");
  return all;
}

/// 1e-10 of the largest in float64, 1e-5 in float32.
std::string wrong(const Tensor& got, const std::string& name) {
  const bool wide = got.dtype() == kFloat64;
  return differ(got, vectors()[name],
                {.eps = (wide ? 1e-10 : 1e-5) / epsilon(wide ? kFloat64 : kFloat32)});
}

struct Problem {
  std::string name;
  Dtype dtype;
  Tensor x, w, b;
  Problem(const std::string& n, const Shape& shape, const Shape& weights, Dtype d)
      : name(n), dtype(d) {
    const auto leaf = [&](const char* what, const Shape& s) {
      return vectors().tensor(name + what, s).to(dtype).requires_grad_();
    };
    x = leaf("/x", shape), w = leaf("/w", weights), b = leaf("/b", weights);
  }
  /// Value and gradients of a use of this problem's inputs.
  void check(const std::string& use, const Tensor& y, const TensorList& inputs) const {
    INFO(name << '/' << use << ' ' << dtype);
    CHECK(y.dtype() == dtype);
    CHECK(y.sizes() == x.sizes());
    CHECK(wrong(y, name + '/' + use + "/value") == "");
    const Tensor g = arange(1, y.numel() + 1).to(dtype).reshape(y.sizes());
    const TensorList grads = autograd::grad({y}, inputs, {g});
    for (size_t i = 0; i < grads.size(); ++i)
      CHECK(wrong(grads[i], name + '/' + use + "/grad" + std::to_string(i)) == "");
  }
};

}  // namespace

TEST_CASE("layer_norm and rms_norm give PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    for (const auto& [name, shape, length] : {std::tuple{"rows", Shape{3, 5}, Shape{5}},
                                              std::tuple{"blocks", Shape{2, 2, 3}, Shape{2, 3}}}) {
      const Problem p(name, shape, length, dtype);
      p.check("layer_norm", layer_norm(p.x, length), {p.x});
      p.check("layer_norm_weight", layer_norm(p.x, length, p.w), {p.x, p.w});
      p.check("layer_norm_both", layer_norm(p.x, length, p.w, p.b, 0.1), {p.x, p.w, p.b});
      if (dtype == kFloat64)
        p.check("rms_norm", rms_norm(p.x, length), {p.x});  // eps is the dtype's
      p.check("rms_norm_weight", rms_norm(p.x, length, p.w, 0.1), {p.x, p.w});
    }
  }
}

TEST_CASE("norms of channels give PyTorch's values, gradients and running statistics") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    for (const auto& [name, shape] :
         {std::pair{"2d", Shape{5, 3}}, {"3d", Shape{3, 2, 4}}, {"4d", Shape{2, 4, 2, 2}}}) {
      const int64_t C = shape[1];
      const Problem p(name, shape, {C}, dtype);
      const TensorOptions options(dtype);
      const auto mean = [&] { return linspace(-1, 1, C, options); };
      const auto var = [&] { return linspace(0.5, 2, C, options); };
      const std::string at = std::string(name) + '/';
      Tensor m = mean(), v = var();
      p.check("batch_norm", batch_norm(p.x, m, v, p.w, p.b, true, 0.3, 0.01), {p.x, p.w, p.b});
      CHECK(wrong(m, at + "batch_norm/mean") == "");
      CHECK(wrong(v, at + "batch_norm/var") == "");
      p.check("batch_norm_eval", batch_norm(p.x, mean(), var(), p.w, p.b), {p.x, p.w, p.b});
      p.check("batch_norm_plain", batch_norm(p.x, {}, {}, {}, {}, true), {p.x});
      if (shape.size() == 2) continue;
      m = mean(), v = var();
      p.check("instance_norm", instance_norm(p.x, m, v, p.w, p.b, true, 0.3, 0.01),
              {p.x, p.w, p.b});
      CHECK(wrong(m, at + "instance_norm/mean") == "");
      CHECK(wrong(v, at + "instance_norm/var") == "");
      p.check("instance_norm_eval", instance_norm(p.x, mean(), var(), p.w, p.b, false),
              {p.x, p.w, p.b});
      for (const int64_t groups : {1, 2})
        p.check("group_norm" + std::to_string(groups), group_norm(p.x, groups, p.w, p.b, 0.01),
                {p.x, p.w, p.b});
      p.check("group_norm_plain", group_norm(p.x, 2), {p.x});
      p.check("local_response_norm", local_response_norm(p.x, 2, 0.5, 0.6, 1.5), {p.x});
      p.check("normalize", normalize(p.x), {p.x});
      p.check("normalize_last", normalize(p.x, 3, -1), {p.x});
    }
  }
}

TEST_CASE(
    "BatchNorm keeps PyTorch's running statistics over several batches and evaluates by them") {
  using Momentum = std::optional<double>;
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    for (const auto& [called, momentum] :
         {std::pair{"tenth", Momentum(0.1)}, {"half", Momentum(0.5)}, {"cumulative", Momentum()}}) {
      const auto& name = called;  // Clang 14 captures no structured binding
      INFO(name << ' ' << dtype);
      nn::BatchNorm1d layer(nn::BatchNorm1dOptions(3).momentum(momentum));
      layer->to(dtype);
      const auto batch = [&](int64_t i) {
        return vectors().tensor("layer/batch" + std::to_string(i), {2 + i, 3}).to(dtype);
      };
      for (int64_t i = 0; i < 3; ++i) layer(batch(i));
      const std::string at = std::string("layer/") + name;
      CHECK(wrong(layer->running_mean, at + "/mean") == "");
      CHECK(wrong(layer->running_var, at + "/var") == "");
      CHECK(layer->num_batches_tracked.item<int64_t>() == 3);
      layer->eval();
      CHECK(wrong(layer(batch(3)), at + "/y") == "");
      CHECK(layer->num_batches_tracked.item<int64_t>() == 3);
    }
  }
}
