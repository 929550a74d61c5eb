// Gradient clipping against closed forms and PyTorch's results.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/poke.h"
#include "halftape/tests/support/tracing_backend.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
using nn::utils::clip_grad_norm_;
using nn::utils::clip_grad_value_;
using testing::differ;
using testing::kInf, testing::kNaN;

namespace {

/// A parameter whose gradient has these values.
Tensor with_gradient(const std::vector<double>& gradient, Dtype d = kFloat64) {
  const Tensor g = tensor(gradient, d);
  const Tensor p = zeros(g.sizes(), TensorOptions(d).requires_grad(true));
  p.mutable_grad() = g;
  return p;
}

/// The parameters of the vectors: three with gradients, one without between them.
std::vector<Tensor> parameters(const testing::Vectors& torch, Dtype d) {
  std::vector<Tensor> params;
  const Shape shapes[] = {{2, 3}, {4}, {}};
  for (int i = 0; i < 3; ++i) {
    params.push_back(zeros(shapes[i], TensorOptions(d).requires_grad(true)));
    params.back().mutable_grad() = torch.tensor("grad" + std::to_string(i), shapes[i]).to(d);
    if (i == 0) params.push_back(zeros({7}, TensorOptions(d).requires_grad(true)));
  }
  return params;
}

void check_gradients(const std::vector<Tensor>& params, const testing::Vectors& torch,
                     const std::string& name) {
  int i = 0;
  for (const Tensor& p : params)
    if (p.grad().defined())
      CHECK(differ(p.grad(), torch[name + "/grad" + std::to_string(i++)], {.ulps = 4}) == "");
  CHECK(i == 3);
}

}  // namespace

TEST_CASE("clip_grad_norm_ gives PyTorch's norms and gradients, for every kind of norm") {
  const testing::Vectors torch("clip_grad.txt");
  for (const Dtype d : {kFloat64, kFloat32}) {
    for (const char* norm : {"1", "2", "3", "0.5", "inf"}) {
      for (const char* word : {"clipped", "within"}) {
        const std::string name =
            std::string("norm/") + norm + "/" + word + (d == kFloat64 ? "/float64" : "/float32");
        CAPTURE(name);
        const auto params = parameters(torch, d);
        const double limit = word == std::string("clipped") ? 0.75 : 1e4;
        const Tensor total = clip_grad_norm_(params, limit, std::strtod(norm, nullptr));
        CHECK(total.dtype() == d);
        CHECK(total.dim() == 0);
        CHECK(differ(total, torch[name + "/total"], {.ulps = 8}) == "");
        check_gradients(params, torch, name);
      }
    }
  }
}

TEST_CASE("clip_grad_value_ gives PyTorch's gradients") {
  const testing::Vectors torch("clip_grad.txt");
  const auto params = parameters(torch, kFloat64);
  clip_grad_value_(params, 0.5);
  check_gradients(params, torch, "value");
}

TEST_CASE("gradients 3 and 4 have norm 5, 7 or 4, and are scaled to the limit") {
  for (const auto& [p, norm] : {std::pair{2.0, 5.0}, {1.0, 7.0}, {kInf, 4.0}}) {
    const double order = p;
    CAPTURE(order);
    const Tensor a = with_gradient({3}), b = with_gradient({-4, 0});
    CHECK(differ(clip_grad_norm_({a, b}, 1, order), {norm}, {.ulps = 4}) == "");
    // torch's guard against a norm of 0: the divisor is norm + 1e-6.
    const double f = 1 / (norm + 1e-6);
    CHECK(differ(a.grad(), {3 * f}, {.ulps = 4}) == "");
    CHECK(differ(b.grad(), {-4 * f, 0}, {.ulps = 4}) == "");
  }
}

TEST_CASE("gradients within the limit keep their bits") {
  const Tensor a = with_gradient({0.3, -0.1}, kFloat32);
  const Tensor before = a.grad().clone();
  clip_grad_norm_({a}, 1);
  CHECK(testing::same_bits(a.grad(), before));
  clip_grad_value_({a}, 0.5);
  CHECK(testing::same_bits(a.grad(), before));
}

TEST_CASE("clipping changes the gradients where they are") {
  const Tensor a = with_gradient({3, 4});
  const Tensor seen = a.grad();
  clip_grad_norm_({a}, 1);
  CHECK(a.grad().is_same(seen));
  CHECK(seen.to_vector()[0] < 1);
  clip_grad_value_({a}, 0.25);
  CHECK(a.grad().is_same(seen));
  CHECK(seen.equal(full({2}, 0.25, kFloat64)));
}

TEST_CASE("the norm of gradients whose squares leave float32's range is still right") {
  for (const double size : {1e30, 1e-30}) {
    const Tensor a = with_gradient({3 * size, 4 * size}, kFloat32);
    CHECK(differ(clip_grad_norm_({a}, 1e35), {5 * size}, {.ulps = 8}) == "");
  }
}

TEST_CASE("float16 gradients have a float32 norm, and are scaled without leaving float16") {
  // 300² is beyond float16's largest number.
  const Tensor a = with_gradient({300, -400}, kFloat16), b = with_gradient({0.0}, kFloat32);
  const Tensor total = clip_grad_norm_({a, b}, 50);
  CHECK(total.dtype() == kFloat32);
  CHECK(differ(total, {500}, {.ulps = 4}) == "");
  CHECK(a.grad().dtype() == kFloat16);
  CHECK(differ(a.grad(), {30, -40}, {.ulps = 1}) == "");
}

TEST_CASE("a 0-dimensional float16 gradient is clipped too") {
  const Tensor p = zeros({}, TensorOptions(kFloat16).requires_grad(true));
  p.mutable_grad() = full({}, 8.0, kFloat16);
  clip_grad_norm_({p}, 2);
  CHECK(p.grad().dtype() == kFloat16);
  CHECK(differ(p.grad(), {2}, {.ulps = 1}) == "");
}

TEST_CASE("gradients of 0, of no elements, or none at all have norm 0") {
  const Tensor a = with_gradient({0, 0}), none = zeros({0}, requires_grad());
  CHECK(clip_grad_norm_({a}, 1).item() == 0);
  CHECK(a.grad().equal(zeros({2}, kFloat64)));
  CHECK(clip_grad_norm_({none, zeros({2}, requires_grad())}, 1).item() == 0);
  CHECK(clip_grad_norm_({}, 1).item() == 0);
  none.mutable_grad() = zeros({0});
  CHECK(clip_grad_norm_({none}, 1).item() == 0);
  CHECK_NOTHROW(clip_grad_value_({none, zeros({2}, requires_grad())}, 1));
}

TEST_CASE(
    "the norm of gradients with an infinity is infinite, and of gradients with a NaN is NaN") {
  const testing::Vectors torch("clip_grad.txt");
  for (const auto& [bad, word] : {std::pair{kInf, "inf"}, {-kInf, "minus_inf"}, {kNaN, "nan"}}) {
    for (const char* order : {"1", "2", "inf"}) {
      const std::string name = std::string("nonfinite/") + word + "/" + order;
      CAPTURE(name);
      const auto params = parameters(torch, kFloat64);
      testing::poke(params[0].grad(), 5, bad);
      const Tensor total = clip_grad_norm_(params, 1, std::strtod(order, nullptr));
      CHECK(differ(total, torch[name + "/total"], {}) == "");
    }
  }
}

TEST_CASE("a norm that is not finite leaves all gradients as they are, or throws if asked to") {
  for (const double bad : {kInf, -kInf, kNaN}) {
    for (const double order : {1.0, 2.0, kInf}) {
      CAPTURE(bad);
      CAPTURE(order);
      const Tensor a = with_gradient({30, bad}), b = with_gradient({40});
      const Tensor before = a.grad().clone();
      clip_grad_norm_({a, b}, 1, order);
      CHECK(testing::same_bits(a.grad(), before));
      CHECK(b.grad().item() == 40);
      CHECK_THROWS_WITH_AS(clip_grad_norm_({a, b}, 1, order, true), doctest::Contains("not finite"),
                           Error);
      CHECK(testing::same_bits(a.grad(), before));
      CHECK(b.grad().item() == 40);
    }
  }
  const Tensor fine = with_gradient({3, 4});
  CHECK_NOTHROW(clip_grad_norm_({fine}, 1, 2, true));
  CHECK(fine.grad().to_vector()[0] < 1);
}

TEST_CASE("clip_grad_value_ bounds infinities and lets NaN through") {
  const Tensor a = with_gradient({kInf, -kInf, kNaN, 0.25, -3});
  clip_grad_value_({a}, 2);
  CHECK(differ(a.grad(), {2, -2, kNaN, 0.25, -2}, {}) == "");
  clip_grad_value_({a}, 0);
  CHECK(differ(a.grad(), {0, 0, kNaN, 0, 0}, {}) == "");
}

TEST_CASE("limits that make no sense are refused before any gradient changes") {
  const Tensor a = with_gradient({3, 4});
  CHECK_THROWS_WITH_AS(clip_grad_norm_({a}, 0), doctest::Contains("max_norm 0"), Error);
  CHECK_THROWS_WITH_AS(clip_grad_norm_({a}, -1), doctest::Contains("max_norm -1"), Error);
  CHECK_THROWS_WITH_AS(clip_grad_norm_({a}, kNaN), doctest::Contains("max_norm"), Error);
  CHECK_THROWS_WITH_AS(clip_grad_norm_({a}, 1, 0), doctest::Contains("norm_type 0"), Error);
  CHECK_THROWS_WITH_AS(clip_grad_norm_({a}, 1, -2), doctest::Contains("norm_type -2"), Error);
  CHECK_THROWS_WITH_AS(clip_grad_norm_({a}, 1, kNaN), doctest::Contains("norm_type"), Error);
  CHECK_THROWS_WITH_AS(clip_grad_value_({a}, -1), doctest::Contains("clip_value -1"), Error);
  CHECK_THROWS_WITH_AS(clip_grad_value_({a}, kNaN), doctest::Contains("clip_value"), Error);
  CHECK(a.grad().equal(tensor({3.0, 4.0}, kFloat64)));
}

TEST_CASE("clip_grad_norm_ reads nothing back, and is not recorded") {
  const Tensor a = with_gradient({3, 4}), b = with_gradient({1});
  {
    testing::TracingBackend trace;
    const Tensor total = clip_grad_norm_({a, b}, 1);
    CHECK(trace.count("read") == 0);
    CHECK(trace.count("synchronize") == 0);
    CHECK_FALSE(total.requires_grad());
  }
  CHECK_FALSE(a.grad().requires_grad());
}

TEST_CASE("clipping inside an autocast region works in the gradients' own dtypes") {
  const Tensor a = with_gradient({3, 4}, kFloat32);
  const amp::autocast region(kCPU, kFloat16);
  const Tensor total = clip_grad_norm_({a}, 1);
  CHECK(total.dtype() == kFloat32);
  CHECK(differ(a.grad(), {3 / 5.000001, 4 / 5.000001}, {.ulps = 4}) == "");
}

TEST_CASE("two parameters whose gradients come from one sum are clipped once each") {
  for (const bool create_graph : {false, true}) {
    CAPTURE(create_graph);
    const Tensor a = zeros({4}, requires_grad()), b = zeros({4}, requires_grad());
    ((a + b) * 3).sum().backward({}, {}, create_graph);
    clip_grad_norm_({a, b}, 1);  // norm √(8·9)
    const double expected = 3 / (std::sqrt(72.0) + 1e-6);
    CHECK(differ(a.grad(), std::vector(4, expected), {.ulps = 4}) == "");
    CHECK(differ(b.grad(), std::vector(4, expected), {.ulps = 4}) == "");
  }
}

TEST_CASE("the gradient of a plain sum can be clipped, recorded or not") {
  for (const bool create_graph : {false, true}) {
    CAPTURE(create_graph);
    const Tensor a = zeros({4}, requires_grad());
    a.sum().backward({}, {}, create_graph);
    clip_grad_norm_({a}, 1);
    CHECK(differ(a.grad(), std::vector(4, 1 / (2 + 1e-6)), {.ulps = 4}) == "");
  }
}

TEST_CASE("no region's policy casts what is clipped") {
  const Tensor w = ones({1}, requires_grad());
  const amp::autocast region(kCPU, kFloat16, amp::Policy().set_all(Cast::Lower));
  for (const bool by_norm : {false, true}) {
    w.mutable_grad() = full({1}, 1e6);
    if (by_norm)
      nn::utils::clip_grad_norm_({w}, 1e5);
    else
      nn::utils::clip_grad_value_({w}, 1e5);
    CHECK(w.grad().allclose(full({1}, 1e5), 1e-6));
  }
}

TEST_CASE("a parameter that is listed twice is clipped once") {
  const Tensor p = zeros({2}).requires_grad_(), q = zeros({1}).requires_grad_();
  const auto set = [&] {
    p.mutable_grad() = tensor({3.f, 4.f});
    q.mutable_grad() = tensor({12.f});
  };
  set();
  CHECK(nn::utils::clip_grad_norm_({p, q, p}, 6.5) == 13);
  CHECK(p.grad().allclose(tensor({1.5f, 2.f})));
  CHECK(q.grad().allclose(tensor({6.f})));
  set();
  const Tensor held = p.grad();
  CHECK(nn::utils::clip_grad_norm_({p, p}, 10, kInf) == 4);
  nn::utils::clip_grad_value_({p, p}, 3.5);
  CHECK(p.grad().equal(tensor({3.f, 3.5f})));
}
