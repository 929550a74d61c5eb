// Methods and in-place forms of the element-wise functions: the same bits and gradients as the
// functions, and what in-place forms refuse.
#include <doctest/doctest.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/ops.h"

using namespace halftape;
using testing::has;
using testing::ints, testing::points;
using testing::message;
using testing::same_bits;

namespace {

using Ints = std::vector<int64_t>;

Tensor others() { return tensor({0.7, 0.3, 1.2, 0.45}, kFloat64); }

/// The function, the method and the in-place method agree in value and gradients.
void check_forms(const std::string& name, const std::function<Tensor(const TensorList&)>& function,
                 const std::function<Tensor(const TensorList&)>& method,
                 const std::function<Tensor(Tensor&, const TensorList&)>& in_place,
                 const TensorList& inputs) {
  CAPTURE(name);
  TensorList x;
  for (const Tensor& i : inputs) x.push_back(i.detach().requires_grad_(i.is_floating_point()));
  const Tensor y = function(x);
  CHECK(same_bits(method(x), y));
  const Tensor base = x[0].clone();
  Tensor z = base.clone();
  const uint64_t version = z.version();
  const Tensor returned = in_place(z, x);
  CHECK(returned.is_same(z));
  CHECK(z.version() > version);
  CHECK(same_bits(z, y.to(z.dtype())));
  if (!y.requires_grad()) return;
  auto gradient = [](const Tensor& i) { return i.grad().defined() ? i.grad() : zeros_like(i); };
  y.sum().backward();
  TensorList plain;
  for (const Tensor& i : x) plain.push_back(gradient(i)), i.mutable_grad() = Tensor();
  z.sum().backward();
  for (size_t i = 0; i < x.size(); ++i) CHECK(same_bits(gradient(x[i]), plain[i]));
}

}  // namespace

TEST_CASE("every unary method equals its function; in place, bits and gradients are the same") {
  auto input = [](const std::string& name) {
    return name == "bitwise_not" ? ints({5, -3, 0, 7}) : name == "acosh" ? points() + 1 : points();
  };
#define HALFTAPE_FORMS(name)                                           \
  check_forms(                                                         \
      #name, [](const TensorList& x) { return halftape::name(x[0]); }, \
      [](const TensorList& x) { return x[0].name(); },                 \
      [](Tensor& y, const TensorList&) { return y.name##_(); }, {input(#name)});
  HALFTAPE_UNARY_METHODS(HALFTAPE_FORMS)
#undef HALFTAPE_FORMS
#define HALFTAPE_FORMS(name) CHECK(same_bits(points().name(), halftape::name(points())));
  HALFTAPE_PURE_UNARY_METHODS(HALFTAPE_FORMS)
#undef HALFTAPE_FORMS
}

TEST_CASE("every binary method equals its function; in place, bits and gradients are the same") {
  auto inputs = [](const std::string& name) -> TensorList {
    if (has(name, "bitwise")) return {ints({5, -3, 0, 7}), ints({1, 2, 3, 4})};
    return {points(), others()};
  };
  auto second = [](const std::string& name) {
    return name == "prelu" ? tensor({0.25}, kFloat64) : others();
  };
#define HALFTAPE_FORMS(name)                                                 \
  check_forms(                                                               \
      #name, [](const TensorList& x) { return halftape::name(x[0], x[1]); }, \
      [](const TensorList& x) { return x[0].name(x[1]); },                   \
      [](Tensor& y, const TensorList& x) { return y.name##_(x[1]); }, inputs(#name));
  HALFTAPE_TENSOR_METHODS(HALFTAPE_FORMS)
  HALFTAPE_BINARY_METHODS(HALFTAPE_FORMS)
  HALFTAPE_FORMS(add)
  HALFTAPE_FORMS(sub)
  HALFTAPE_FORMS(mul)
  HALFTAPE_FORMS(div)
#undef HALFTAPE_FORMS
#define HALFTAPE_FORMS(name)                                                   \
  check_forms(                                                                 \
      #name " 3", [](const TensorList& x) { return halftape::name(x[0], 3); }, \
      [](const TensorList& x) { return x[0].name(3); },                        \
      [](Tensor& y, const TensorList&) { return y.name##_(3); }, {inputs(#name)[0]});
  HALFTAPE_BINARY_METHODS(HALFTAPE_FORMS)
  HALFTAPE_FORMS(add)
  HALFTAPE_FORMS(sub)
  HALFTAPE_FORMS(mul)
  HALFTAPE_FORMS(div)
#undef HALFTAPE_FORMS
#define HALFTAPE_FORMS(name) \
  CHECK(same_bits(points().name(second(#name)), halftape::name(points(), second(#name))));
  HALFTAPE_PURE_BINARY_METHODS(HALFTAPE_FORMS)
#undef HALFTAPE_FORMS
}

TEST_CASE("methods with more arguments equal their functions, in place too") {
  using List = const TensorList&;
  const TensorList three{points(), others(), points() + 0.25};
#define HALFTAPE_FORMS(name, inputs, ...)                                       \
  check_forms(                                                                  \
      #name, [](List x) { return (void)x, halftape::name(x[0], __VA_ARGS__); }, \
      [](List x) { return (void)x, x[0].name(__VA_ARGS__); },                   \
      [](Tensor& y, List x) { return (void)x, y.name##_(__VA_ARGS__); }, inputs);
  HALFTAPE_FORMS(addcmul, three, x[1], x[2], 1.5)
  HALFTAPE_FORMS(addcdiv, three, x[1], x[2], 1.5)
  HALFTAPE_FORMS(lerp, three, x[1], x[2])
  HALFTAPE_FORMS(lerp, (TensorList{three[0], three[1]}), x[1], 0.3)
  HALFTAPE_FORMS(clamp, (TensorList{three[0]}), 0.2, 0.7)
  HALFTAPE_FORMS(clamp, (TensorList{three[0], three[1]}), std::nullopt, x[1])
  HALFTAPE_FORMS(add, (TensorList{three[0], three[1]}), x[1], 2.5)
  HALFTAPE_FORMS(sub, (TensorList{three[0], three[1]}), x[1], 2.5)
  HALFTAPE_FORMS(div, (TensorList{three[0], three[1]}), x[1], "floor")
  HALFTAPE_FORMS(div, (TensorList{three[0]}), 0.3, "trunc")
  HALFTAPE_FORMS(logit, (TensorList{three[0]}), 0.2)
  HALFTAPE_FORMS(nan_to_num, (TensorList{three[0]}), 0.5)
#undef HALFTAPE_FORMS
  CHECK(same_bits(points().hardshrink(0.4), hardshrink(points(), 0.4)));
  CHECK(same_bits(points().where(points() > 0.4, others()),
                  where(points() > 0.4, points(), others())));
}

TEST_CASE("activations in place equal the functions") {
#define HALFTAPE_FORMS(name)                                           \
  check_forms(                                                         \
      #name, [](const TensorList& x) { return halftape::name(x[0]); }, \
      [](const TensorList& x) { return halftape::name(x[0]); },        \
      [](Tensor& y, const TensorList&) { return halftape::name##_(y); }, {points() - 0.5});
  HALFTAPE_FORMS(relu)
  HALFTAPE_FORMS(relu6)
  HALFTAPE_FORMS(leaky_relu)
  HALFTAPE_FORMS(elu)
  HALFTAPE_FORMS(selu)
  HALFTAPE_FORMS(celu)
  HALFTAPE_FORMS(gelu)
  HALFTAPE_FORMS(silu)
  HALFTAPE_FORMS(mish)
  HALFTAPE_FORMS(hardtanh)
  HALFTAPE_FORMS(hardsigmoid)
  HALFTAPE_FORMS(hardswish)
#undef HALFTAPE_FORMS
  Tensor x = points();
  CHECK(same_bits(threshold_(x, 0.5, -1), threshold(points(), 0.5, -1)));
}

TEST_CASE("in-place forms refuse a leaf that requires grad and a result that does not fit") {
  Tensor leaf = points().requires_grad_();
  CHECK(has(message([&] { leaf.exp_(); }), "exp_: a leaf Variable that requires grad"));
  CHECK(has(message([&] { relu_(leaf); }), "relu_: a leaf Variable that requires grad"));
  Tensor small = ones({1});
  CHECK(has(message([&] { small.atan2_(ones({3})); }), "atan2_: the result has shape [3]"));
  CHECK(small.item() == 1);
  Tensor x = points().requires_grad_() * 1;
  const Tensor y = x.sin();
  x.cos_();
  CHECK(has(message([&] { y.sum().backward(); }), "`sin` needs was changed in place"));
}
