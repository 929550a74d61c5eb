// Values and gradients at kinks, ties, poles and bounds, and of inf and NaN, beside PyTorch's.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <halftape/halftape.h>

#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
using testing::kInf;

namespace {

using OfOne = Tensor (*)(const Tensor&);
using OfTwo = Tensor (*)(const Tensor&, const Tensor&);

#define OP(name) \
  { #name, name }
#define ONE(name, ...)                                \
  {                                                   \
    name, [](const Tensor& x) { return __VA_ARGS__; } \
  }
#define TWO(name, ...)                                                                            \
  {                                                                                               \
    name, [](const Tensor& x, [[maybe_unused]] const Tensor& y) -> Tensor { return __VA_ARGS__; } \
  }

const std::vector<std::pair<const char*, OfOne>> kOfOne = {
    OP(abs),
    OP(acos),
    OP(acosh),
    OP(asin),
    OP(asinh),
    OP(atan),
    OP(atanh),
    OP(ceil),
    OP(cos),
    OP(cosh),
    OP(erf),
    OP(erfc),
    OP(erfinv),
    OP(exp),
    OP(exp2),
    OP(expm1),
    OP(floor),
    OP(frac),
    OP(log),
    OP(log10),
    OP(log1p),
    OP(log2),
    OP(neg),
    OP(reciprocal),
    OP(relu),
    OP(round),
    OP(rsqrt),
    OP(sigmoid),
    OP(sign),
    OP(sin),
    OP(sinc),
    OP(sinh),
    OP(sqrt),
    OP(square),
    OP(tan),
    OP(tanh),
    OP(trunc),
    OP(relu6),
    OP(selu),
    OP(hardsigmoid),
    OP(hardswish),
    OP(silu),
    OP(mish),
    OP(softsign),
    OP(tanhshrink),
    ONE("logit", logit(x)),
    ONE("nan_to_num", nan_to_num(x)),
    ONE("leaky_relu", leaky_relu(x)),
    ONE("elu", elu(x)),
    ONE("celu", celu(x)),
    ONE("gelu", gelu(x)),
    ONE("softplus", softplus(x)),
    ONE("hardtanh", hardtanh(x)),
    ONE("softshrink", softshrink(x)),
    ONE("hardshrink", hardshrink(x)),
    ONE("logsigmoid", log_sigmoid(x)),
    ONE("gelu_tanh", gelu(x, "tanh")),
    ONE("clamp", clamp(x, -1, 2)),
    ONE("clamp_min", clamp_min(x, 0.5)),
    ONE("clamp_max", clamp_max(x, 0.5)),
    ONE("clamp_crossed", clamp(x, 2, -1)),
    ONE("threshold", threshold(x, 1, 7)),
    ONE("logit_eps", logit(x, 0.25)),
    ONE("elu_half", elu(x, 0.5)),
    ONE("softshrink_one", softshrink(x, 1)),
    ONE("two_over", 2 / x),
    ONE("pow_0", pow(x, 0)),
    ONE("pow_0.5", pow(x, 0.5)),
    ONE("pow_1", pow(x, 1)),
    ONE("pow_2", pow(x, 2)),
    ONE("pow_3", pow(x, 3)),
    ONE("pow_-0.5", pow(x, -0.5)),
    ONE("pow_-1", pow(x, -1)),
    ONE("pow_-2", pow(x, -2)),
    ONE("to_the_0", pow(0.0, x)),
    ONE("to_the_0.5", pow(0.5, x)),
    ONE("to_the_1", pow(1.0, x)),
    ONE("to_the_2", pow(2.0, x)),
    ONE("to_the_-2", pow(-2.0, x)),
    ONE("remainder_2.5", remainder(x, 2.5)),
    ONE("remainder_-2.5", remainder(x, -2.5)),
    ONE("remainder_0", remainder(x, 0.0)),
    ONE("fmod_2.5", fmod(x, 2.5)),
    ONE("fmod_-2.5", fmod(x, -2.5)),
    ONE("fmod_0", fmod(x, 0.0)),
};

const std::vector<std::pair<const char*, OfTwo>> kOfTwo = {
    TWO("add", x + y),
    TWO("sub", x - y),
    TWO("mul", x* y),
    TWO("div", x / y),
    TWO("pow", pow(x, y)),
    TWO("maximum", maximum(x, y)),
    TWO("minimum", minimum(x, y)),
    TWO("fmax", fmax(x, y)),
    TWO("fmin", fmin(x, y)),
    TWO("atan2", atan2(x, y)),
    TWO("hypot", hypot(x, y)),
    TWO("remainder", remainder(x, y)),
    TWO("fmod", fmod(x, y)),
    TWO("copysign", copysign(x, y)),
    TWO("xlogy", xlogy(x, y)),
    TWO("clamp_min", clamp_min(x, y)),
    TWO("clamp_max", clamp_max(x, y)),
    TWO("floor_divide", floor_divide(x.detach(), y.detach())),
    TWO("trunc_divide", div(x, y, "trunc")),
    TWO("lerp", lerp(x, y, 0.25)),
    TWO("huber_loss", huber_loss(x, y, kNone)),
    TWO("smooth_l1_loss", smooth_l1_loss(x, y, kNone)),
    TWO("l1_loss", l1_loss(x, y, kNone)),
};

Tensor scatter_places() { return tensor({{0, 0, 1, 3}, {2, 2, 2, 2}, {3, 1, 0, 0}}); }
Tensor picture_of(const Tensor& x) { return x.reshape({1, 1, 3, 4}); }

const std::vector<std::pair<const char*, OfTwo>> kOfRows = {
    TWO("amax", x.amax({1})),
    TWO("amin", x.amin({1})),
    TWO("cumsum", x.cumsum(1)),
    TWO("cumprod", x.cumprod(1)),
    TWO("logcumsumexp", x.logcumsumexp(1)),
    TWO("prod", x.prod(1)),
    TWO("softmax", x.softmax(1)),
    TWO("log_softmax", x.log_softmax(1)),
    TWO("logsumexp", x.logsumexp({1})),
    TWO("std", x.std({1})),
    TWO("var", x.var({1})),
    TWO("nansum", x.nansum({1})),
    TWO("nanmean", x.nanmean({1})),
    TWO("norm_0", x.norm(0, {1})),
    TWO("norm_0.5", x.norm(0.5, {1})),
    TWO("norm_1", x.norm(1, {1})),
    TWO("norm_2", x.norm(2, {1})),
    TWO("norm_3", x.norm(3, {1})),
    TWO("norm_inf", x.norm(kInf, {1})),
    TWO("norm_-inf", x.norm(-kInf, {1})),
    TWO("cdist_0", cdist(x, y, 0)),
    TWO("cdist_1", cdist(x, y, 1)),
    TWO("cdist_2", cdist(x, y, 2)),
    TWO("cdist_3", cdist(x, y, 3)),
    TWO("dist_1", dist(x, y, 1)),
    TWO("dist_2", dist(x, y, 2)),
    TWO("dist_3", dist(x, y, 3)),
    TWO("dist_inf", dist(x, y, kInf)),
    TWO("scatter_sum", scatter_reduce(x, 1, scatter_places(), y, "sum")),
    TWO("scatter_prod", scatter_reduce(x, 1, scatter_places(), y, "prod")),
    TWO("scatter_mean", scatter_reduce(x, 1, scatter_places(), y, "mean")),
    TWO("scatter_amin", scatter_reduce(x, 1, scatter_places(), y, "amin")),
    TWO("scatter_amax", scatter_reduce(x, 1, scatter_places(), y, "amax")),
    TWO("max", x.max()),
    TWO("min", x.min()),
    TWO("cummax", std::get<0>(x.cummax(1))),
    TWO("diff", x.diff(1, 1)),
    TWO("renorm", x.renorm(2, 0, 1.5)),
    TWO("cosine_similarity", cosine_similarity(x, y, 1)),
    TWO("normalize", normalize(x, 2, 1)),
    TWO("pairwise_distance", pairwise_distance(x, y)),
    TWO("index_fill", index_fill(x, 1, tensor({0, 0, 3}), y.sum())),
    TWO("index_add", index_add(x, 0, tensor({0, 0, 2}), y, 2)),
    TWO("max_pool2d", max_pool2d(picture_of(x), 2, 1)),
    TWO("avg_pool2d", avg_pool2d(picture_of(x), 2, 2, 1, true)),
    TWO("multi_margin_loss", multi_margin_loss(x, tensor({0, 2, 1}), 1, 1, {}, kNone)),
    TWO("histc", x.histc(4, -2, 2)),
    TWO("glu", glu(x, 1)),
};

#undef OP
#undef ONE
#undef TWO

/// How many numbers differ from PyTorch's.
const std::map<std::string, int> kOtherwise = {
    {"one/sign/value", 1},       // NaN of NaN; PyTorch: 0
    {"one/hardsigmoid/dx", 14},  // a sixth, which PyTorch rounds to float32
    {"one/hardswish/value", 1},  // the limits at ±∞, where PyTorch has NaN; so …
    {"one/silu/value", 1},      {"one/silu/dx", 1},      {"one/mish/value", 1},
    {"one/mish/dx", 1},         {"one/gelu/value", 1},   {"one/gelu/dx", 1},
    {"one/gelu_tanh/value", 1}, {"one/gelu_tanh/dx", 1}, {"one/softsign/value", 2},  // … to here
    {"one/pow_0.5/value", 1},  // of −∞, as IEEE 754 has it: ∞; PyTorch takes the root
    {"one/pow_-0.5/value", 1},  {"two/remainder/dy", 6},  // NaN where b = ∞ and a < 0; PyTorch: 1
    {"two/copysign/dx", 22},                              // ±1 of ±∞; PyTorch: NaN
};

/// Compares the value, and gradients for an incoming gradient of 1, 2, 3, …
class Comparison {
 public:
  Comparison(const testing::Vectors& torch, std::string name)
      : torch_(torch), name_(std::move(name)) {}
  void operator()(const Tensor& y, const Tensor& x1, const Tensor& x2 = {}) {
    const std::vector<double> value = compare("value", y);
    // The gradient of a NaN is nobody's concern.
    valid_.clear();
    for (const double v : value) valid_.push_back(!std::isnan(v));
    if (!y.requires_grad()) return;
    y.backward((arange(y.numel()).to(kFloat64) + 1).reshape(y.sizes()));
    if (torch_.has(name_ + "/dx")) compare("dx", x1.grad());
    if (torch_.has(name_ + "/dy")) compare("dy", x2.grad());
  }

 private:
  std::vector<double> compare(const char* what, const Tensor& found) {
    const std::string name = name_ + "/" + what;
    const std::vector<double>& expected = torch_[name];
    const std::vector<double> here =
        found.defined() ? found.to_vector() : std::vector<double>(expected.size(), 0);
    REQUIRE_MESSAGE(here.size() == expected.size(), name);
    int other = 0;
    std::string text;
    for (size_t i = 0; i < here.size(); ++i) {
      if (here.size() == valid_.size() && !valid_[i]) continue;
      const double a = here[i], b = expected[i];
      const bool same = a == b || (std::isnan(a) && std::isnan(b)) ||
                        std::abs(a - b) <= 1e-10 * std::max(1.0, std::abs(b));
      if (same) continue;
      ++other;
      text +=
          " [" + std::to_string(i) + "] " + std::to_string(a) + ", PyTorch " + std::to_string(b);
    }
    const auto wanted = kOtherwise.find(name);
    CHECK_MESSAGE(other == (wanted == kOtherwise.end() ? 0 : wanted->second), name, text);
    return expected;
  }

  const testing::Vectors& torch_;
  std::string name_;
  std::vector<bool> valid_;
};

}  // namespace

TEST_CASE("functions of one number are PyTorch's at kinks, bounds and poles, and of inf and NaN") {
  const testing::Vectors torch("special_points.txt");
  for (const auto& [name, call] : kOfOne) {
    const Tensor x = tensor(torch["points"], kFloat64).requires_grad_();
    Comparison(torch, std::string("one/") + name)(call(x), x);
  }
}

TEST_CASE("functions of two numbers are PyTorch's where they tie, and of 0, inf and NaN") {
  const testing::Vectors torch("special_points.txt");
  for (const auto& [name, call] : kOfTwo) {
    const Tensor x = tensor(torch["pairs/x"], kFloat64).requires_grad_(),
                 y = tensor(torch["pairs/y"], kFloat64).requires_grad_();
    Comparison(torch, std::string("two/") + name)(call(x, y), x, y);
  }
}

TEST_CASE("functions of rows are PyTorch's where numbers tie, and of zeros") {
  const testing::Vectors torch("special_points.txt");
  for (const std::string rows : {"rows0/", "rows1/", "rows2/"})
    for (const auto& [name, call] : kOfRows) {
      const Tensor x = torch.tensor(rows + "x", {3, 4}).requires_grad_(),
                   y = torch.tensor(rows + "y", {3, 4}).requires_grad_();
      Comparison(torch, rows + name)(call(x, y), x, y);
    }
}
