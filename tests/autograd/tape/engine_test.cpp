// The tape and its engine: what backward() and grad() do with a graph, whatever the ops.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/autograd/tape/node.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/machine/os.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/sanitizers.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using doctest::Contains;
using testing::leaf;

namespace {

double only(const Tensor& t) { return t.item(); }

/// y = x whose backward throws.
Tensor failing(const Tensor& x) {
  return record("failing", x.array(), {&x},
                [](Node&, const Tensor&) -> Grads { throw std::runtime_error("on purpose"); });
}

[[gnu::noinline]] Tensor broken_at_zero(const Tensor& x) { return sqrt(x) * 0.0; }

}  // namespace

TEST_CASE("backward accumulates into leaves, and zeroing or dropping the gradient starts afresh") {
  const Tensor x = leaf({3});
  (x * x).backward();
  CHECK(only(x.grad()) == 6);
  (x * x).backward();
  CHECK(only(x.grad()) == 12);
  x.mutable_grad().zero_();
  (2 * x).backward();
  CHECK(only(x.grad()) == 2);
  x.mutable_grad() = Tensor();
  (2 * x).backward();
  CHECK(only(x.grad()) == 2);
}

TEST_CASE("gradients accumulate in place: a handle on grad() sees the sum") {
  const Tensor x = leaf({3, 4});
  sum(x * x).backward();
  const Tensor held = x.grad(), w = leaf({1, 1}), y = w * held;
  sum(x).backward();
  CHECK(held.is_same(x.grad()));
  CHECK(held.to_vector() == std::vector<double>{7, 9});
  CHECK_THROWS_WITH_AS(sum(y).backward(), Contains("was changed in place"), Error);
}

TEST_CASE("a gradient that has a history keeps its value when another one is added") {
  const Tensor x = leaf({3});
  (x * x * x).sum().backward({}, {}, true);
  const Tensor recorded = x.grad();
  x.sum().backward();
  CHECK(x.grad().item() == 28);
  CHECK(recorded.item() == 27);
}

TEST_CASE("the gradient that a caller passes in is not written to") {
  const Tensor x = leaf({1, 2}), g = tensor({10.0, 20.0}, kFloat64);
  x.backward(g);
  x.backward(g);
  CHECK(g.to_vector() == std::vector<double>{10, 20});
  CHECK(x.grad().to_vector() == std::vector<double>{20, 40});
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  (a + b).backward(g);  // one tensor arrives at two leaves
  (a * 1).backward(g);
  CHECK(a.grad().to_vector() == std::vector<double>{20, 40});
  CHECK(b.grad().to_vector() == std::vector<double>{10, 20});
}

TEST_CASE("a diamond adds up the gradients of its branches before going on") {
  const Tensor x = leaf({2});
  const Tensor y = x * x, a = y * 3, b = y * y;
  (a + b).backward();  // 3x² + x⁴
  CHECK(only(x.grad()) == 6 * 2 + 4 * 8);
}

TEST_CASE("a node is visited once, however many ways lead to it") {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 60; ++i) y = y + y;
  y.backward();
  CHECK(x.grad().item() == 0x1p60);
}

TEST_CASE("a tensor used by many consumers receives all of their gradients") {
  const Tensor x = leaf({1});
  const Tensor y = x * 1;
  Tensor total = zeros({}, kFloat64);
  for (int i = 1; i <= 100; ++i) total = total + sum(y * i);
  total.backward();
  CHECK(only(x.grad()) == 5050);
}

TEST_CASE("gradients of several uses are added into the first, unless somebody else holds it") {
  const Tensor x = ones({64}, kFloat64).requires_grad_();
  const Tensor a = full({64}, 2.0, kFloat64), b = full({64}, 3.0, kFloat64),
               c = full({64}, 4.0, kFloat64);
  {
    const Tensor y = x * a + x * b + x * c;
    const Tensor g = ones({64}, kFloat64);
    testing::TracingBackend trace;
    y.backward(g);
    CHECK(trace.allocations.size() == 3);  // one for each product
    CHECK(x.grad().equal(full({64}, 9.0, kFloat64)));
    CHECK(g.equal(ones({64}, kFloat64)));
  }
  // A gradient that a rule gives twice, or that a hook keeps, is not written to.
  Tensor kept;
  const Tensor h = x * a;
  h.register_hook([&](const Tensor& g) { kept = g; });
  const Tensor g = full({64}, 5.0, kFloat64);
  (h + (h + h)).backward(g);
  CHECK(kept.equal(full({64}, 15.0, kFloat64)));
  CHECK(g.equal(full({64}, 5.0, kFloat64)));
  CHECK(x.grad().equal(full({64}, 39.0, kFloat64)));
}

TEST_CASE("derivatives of x⁵ are right down to the constant fifth") {
  const Tensor x = leaf({2});
  Tensor y = pow(x, 5);
  const double expected[] = {5 * 16, 20 * 8, 60 * 4, 120 * 2, 120};
  for (double e : expected) {
    y = autograd::grad({y}, {x}, {}, {}, true)[0];
    CHECK(only(y) == doctest::Approx(e));
  }
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a gradient penalty trains: backward through a gradient") {
  const Tensor w = leaf({0.5}), x = leaf({2});
  const Tensor y = tanh(w * x);
  const Tensor g = autograd::grad({y}, {x}, {}, {}, true)[0];  // w(1 − tanh²(wx))
  square(g).backward();
  const double t = std::tanh(1.0), s = 1 - t * t;
  CHECK(only(w.grad()) == doctest::Approx(2 * 0.5 * s * (s + 0.5 * -2 * t * s * 2)));
}

TEST_CASE("a graph can be used once, or as often as retain_graph says") {
  const Tensor x = leaf({3});
  const Tensor y = exp(x);
  y.backward({}, true);
  y.backward({}, true);
  CHECK(only(x.grad()) == doctest::Approx(2 * std::exp(3)));
  y.backward();
  CHECK_THROWS_WITH_AS(y.backward(), Contains("retain_graph=true"), Error);
  CHECK(only(x.grad()) == doctest::Approx(3 * std::exp(3)));
}

TEST_CASE("autograd::grad() returns gradients and leaves every grad() alone") {
  const Tensor x = leaf({3}), w = leaf({4});
  const Tensor h = x * w, y = h * h;
  const TensorList g = autograd::grad({y}, {w, h}, {}, true);
  CHECK(only(g[0]) == 2 * 12 * 3);
  CHECK(only(g[1]) == 24);
  CHECK_FALSE(x.grad().defined());
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("gradients that grad() returns share no bytes with those of other calls") {
  for (const Shape& shape : {Shape{}, Shape{1}}) {
    const auto scalar = [&] { return full(shape, 1.0, kFloat64).requires_grad_(); };
    const Tensor a = scalar(), b = scalar(), c = full(shape, 1.0, kFloat64);
    const Tensor first = autograd::grad({a + c}, {a})[0], second = autograd::grad({b + c}, {b})[0];
    first.mul_(10);
    second.mul_(10);
    CHECK(first.item() == 10);
    CHECK(second.item() == 10);
    a.mutable_grad() = autograd::grad({a + b}, {a})[0];
    (a + b).backward();
    CHECK(a.grad().item() == 2);
    CHECK(b.grad().item() == 1);
    const Tensor penalty = autograd::grad({a + c}, {a}, {}, {}, true)[0];
    penalty.mul_(10);
    CHECK(autograd::grad({b + c}, {b})[0].item() == 1);
  }
}

TEST_CASE("grad() with respect to an intermediate neither runs nor releases the nodes below it") {
  const Tensor x = leaf({3});
  const Tensor h = exp(x), y = h * h;
  CHECK(only(autograd::grad({y}, {h})[0]) == doctest::Approx(2 * std::exp(3)));
  h.backward();
  CHECK(only(x.grad()) == doctest::Approx(std::exp(3)));
  const Tensor k = failing(x);
  CHECK(only(autograd::grad({k * 2}, {k})[0]) == 2);
}

TEST_CASE("grad() of an input that plays no part throws, or is undefined with allow_unused") {
  const Tensor x = leaf({3}), other = leaf({4});
  CHECK_THROWS_WITH_AS(autograd::grad({x * 2}, {x, other}), Contains("allow_unused"), Error);
  const TensorList g = autograd::grad({x * 2}, {x, other}, {}, {}, false, true);
  CHECK(only(g[0]) == 2);
  CHECK_FALSE(g[1].defined());
}

TEST_CASE("several outputs pass their gradients down together") {
  const Tensor x = leaf({3});
  const Tensor a = x * 2, b = x * x;
  autograd::backward({a, b, a}, {tensor({10.0}, kFloat64), Tensor(), Tensor()});
  CHECK(only(x.grad()) == 20 + 6 + 2);
}

TEST_CASE("backward explains what it cannot do") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH_AS((x * 2).backward(), Contains("scalar outputs"), Error);
  CHECK_THROWS_WITH_AS(sum(x.detach()).backward(), Contains("does not require grad"), Error);
  CHECK_THROWS_WITH_AS((x * 2).backward(ones({3}, kFloat64)), Contains("[3]"), Error);
  CHECK_THROWS_AS(Tensor().backward(), Error);
  CHECK_THROWS_WITH_AS(tensor({1, 2}).requires_grad_(), Contains("int64"), Error);
  CHECK_THROWS_AS((x * 2).requires_grad_(false), Error);
  NoGradGuard guard;
  CHECK_THROWS_WITH_AS(sum(x).backward(), Contains("does not require grad"), Error);
}

TEST_CASE("NoGradGuard, AutoGradMode and detach cut the tape; constants record nothing") {
  const Tensor x = leaf({3});
  {
    const NoGradGuard guard;
    CHECK_FALSE((x * 2).requires_grad());
    const AutoGradMode on(true);
    CHECK((x * 2).requires_grad());
  }
  CHECK((x * 2).requires_grad());
  CHECK_FALSE(x.detach().requires_grad());
  CHECK_FALSE((x > 1.0).requires_grad());
  const int64_t nodes = Node::live_count();
  const Tensor y = x.detach() * 2 + 1;
  CHECK(Node::live_count() == nodes);
  (x * x.detach()).backward();
  CHECK(only(x.grad()) == 3);
}

TEST_CASE("a saved tensor that changes in place is an error with op, shape and versions") {
  const Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  const Tensor z = exp(y);  // exp keeps its output
  const Tensor w = y * y;   // mul keeps y
  y.add_(1);
  sum(z).backward({}, true);
  CHECK_THROWS_WITH_AS(sum(w).backward(), Contains("`mul`"), Error);
  CHECK_THROWS_WITH_AS(sum(w).backward(), Contains("[2]"), Error);
  CHECK_THROWS_WITH_AS(sum(w).backward(), Contains("version 1, saved at 0"), Error);
  Tensor t = tanh(x);
  t.mul_(2);
  CHECK_THROWS_WITH_AS(sum(t).backward(), Contains("`tanh`"), Error);
  const Tensor square = x * x;
  (void)x.data_ptr();  // the caller may write through it
  CHECK_THROWS_WITH_AS(sum(square).backward(), Contains("changed in place"), Error);
}

TEST_CASE("an in-place op continues the history") {
  const Tensor x = leaf({2});
  Tensor y = x * 3;
  y.mul_(x);
  y.add_(x);
  y.backward();  // 3x² + x
  CHECK(only(x.grad()) == 13);
  Tensor z = x * 5;
  z.fill_(1);
  CHECK(z.requires_grad());  // but x has no part in it any more
  CHECK(only(autograd::grad({z}, {x})[0]) == 0);
  Tensor c = zeros({1}, kFloat64);
  c.copy_(x * 4);
  c.backward();
  CHECK(only(x.grad()) == 17);
}

TEST_CASE("in-place writes are refused where they would lose or corrupt a gradient") {
  Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH_AS(x.add_(1), Contains("leaf Variable that requires grad"), Error);
  Tensor view = x.slice(0, 0, 1);
  CHECK_THROWS_WITH_AS(view.add_(1), Contains("a view of it"), Error);
  Tensor wide = tensor({1.0}, kFloat64).expand({3});
  CHECK_THROWS_WITH_AS(wide.add_(1), Contains("clone()"), Error);
  Tensor small = ones({2}), integer = ones({2}, kInt64);
  CHECK_THROWS_WITH_AS(small.add_(ones({3, 2})), Contains("[3, 2]"), Error);
  CHECK_THROWS_WITH_AS(integer.add_(0.5), Contains("int64"), Error);
  CHECK(x.to_vector() == std::vector<double>{1, 2});
  CHECK(small.to_vector() == std::vector<double>{1, 1});
  const NoGradGuard guard;
  x.add_(1);
  CHECK(x.to_vector() == std::vector<double>{2, 3});
  CHECK(x.is_leaf());
}

TEST_CASE("a view shares bytes and version with its base, and gradients with its elements") {
  const Tensor base = zeros({2, 3});
  Tensor row = base[1];
  row.fill_(5);
  CHECK(base.to_vector() == std::vector<double>{0, 0, 0, 5, 5, 5});
  CHECK(base.version() == row.version());
  const Tensor x = ones({2, 3}, kFloat64).requires_grad_();
  sum(x[1] * 2 + x.t()[0].slice(0, 1, 2)).backward();
  CHECK(x.grad().to_vector() == std::vector<double>{0, 0, 0, 5, 2, 2});
}

TEST_CASE("a leaf may go before its graph runs, and a graph before its leaf") {
  Tensor y;
  {
    const Tensor x = leaf({3});
    y = x * x;
  }
  y.backward();
  const Tensor x = leaf({3});
  { const Tensor dropped = exp(x); }
  (x * 2).backward();
  CHECK(only(x.grad()) == 2);
}

TEST_CASE("a leaf that wants no gradient any more gets none from a graph made before") {
  const Tensor x = leaf({3});
  const Tensor y = x * 2;
  x.requires_grad_(false);
  y.backward();
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("an exception in a rule leaves tensors, modes and other graphs usable") {
  const int64_t nodes = Node::live_count();
  {
    const Tensor x = leaf({3});
    const Tensor good = x * x, y = good + failing(x * 2);
    CHECK_THROWS_WITH(y.backward({}, true, true), "on purpose");
    CHECK(GradMode::is_enabled());
    good.backward();
    CHECK(only(x.grad()) == 6);
  }
  CHECK(Node::live_count() == nodes);
}

TEST_CASE("a million nodes are built, run and freed within a stack of 256 KiB") {
#if HALFTAPE_SANITIZED
  constexpr int kNodes = 100'000;  // a sanitizer keeps a kilobyte for each
#else
  constexpr int kNodes = 1'000'000;
#endif
  const int64_t nodes = Node::live_count();
  auto in_small_stack = [](auto f) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
    pthread_t thread;
    auto run = [](void* p) -> void* { return (*static_cast<decltype(f)*>(p))(), nullptr; };
    REQUIRE(pthread_create(&thread, &attributes, run, &f) == 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  };
  double gradient = 0;
  in_small_stack([&] {
    const Tensor x = leaf({1});
    Tensor y = x;
    for (int i = 0; i < kNodes; ++i) y = y + 1e-9;
    y.backward();
    gradient = only(x.grad());
  });
  CHECK(gradient == 1);
  in_small_stack([&] {  // each node keeps tensors with history
    const Tensor x = leaf({1});
    Tensor y = x;
    for (int i = 0; i < kNodes; ++i) y = y * x;
    y.backward();
    gradient = only(x.grad());
  });
  CHECK(gradient == kNodes + 1);
  in_small_stack([] {  // freed without a backward pass
    Tensor y = leaf({1});
    for (int i = 0; i < kNodes; ++i) y = tanh(y);
  });
  in_small_stack([] {  // a gradient that has a gradient, and so on
    Tensor y = leaf({1});
    for (int i = 0; i < kNodes; ++i) {
      Tensor x(y.array());
      x.mutable_grad() = std::exchange(y, x);
    }
  });
  CHECK(Node::live_count() == nodes);
}

// Unlike modes_test.cpp, this file is compiled without line numbers.
TEST_CASE("anomaly mode names the function that called an op where there are no line numbers") {
  const autograd::DetectAnomalyGuard guard;
  const Tensor y = broken_at_zero(leaf({0})).sum();
  CHECK_THROWS_WITH_AS(
      y.backward(),
      Contains(os::output_of("addr2line --version").empty() ? "+0x" : "broken_at_zero"), Error);
}

TEST_CASE("a rule that throws leaves its node as it was, also in the last pass") {
  const Tensor x = leaf({2});
  bool fails = true;
  const Tensor y = record("moody", x.array().clone(), {&x}, [&](Node&, const Tensor& g) -> Grads {
    if (fails) throw Error("not yet");
    return {g};
  });
  CHECK_THROWS_WITH_AS(y.backward(), "not yet", Error);
  fails = false;
  y.backward();
  CHECK(only(x.grad()) == 1);
  CHECK_THROWS_WITH_AS(y.backward(), Contains("`moody` was already released"), Error);
}

TEST_CASE(
    "gradients are added to an expanded gradient that the user assigned, element by element") {
  const Tensor x = leaf({1, 2, 3});
  x.mutable_grad() = tensor({10.0}, kFloat64).expand({3});
  (x * x).sum().backward();
  CHECK(x.grad().to_vector() == std::vector<double>{12, 14, 16});
}

TEST_CASE("gradients arrive in the leaf's dtype, whatever the dtypes on the way") {
  const Tensor w = ones({3}).requires_grad_(), h = ones({3}, kFloat16).requires_grad_();
  sum(w.to(kFloat16) * h).backward();
  CHECK(w.grad().dtype() == kFloat32);
  CHECK(h.grad().dtype() == kFloat16);
  sum(w * h * zeros({3}, kFloat64)).backward();
  CHECK(w.grad().dtype() == kFloat32);
  CHECK(h.grad().dtype() == kFloat16);
  const Tensor own = ones({3}, kFloat16).requires_grad_();
  (own * 2).backward(ones({3}));  // also if the caller's gradient has another dtype
  CHECK(own.grad().dtype() == kFloat16);
}

TEST_CASE("a gradient is added to none of another shape or kind") {
  const Tensor p = ones({4}).requires_grad_();
  (p * p).sum().backward();
  p.set_data(ones({40}));
  CHECK_THROWS_WITH_AS((p * p).sum().backward(), Contains("a gradient float32 [40] on "), Error);
  p.mutable_grad() = zeros({40}, kInt64);
  CHECK_THROWS_WITH_AS((p * p).sum().backward(), Contains("is there, int64 [40]"), Error);
  p.mutable_grad() = Tensor();
  (p * p).sum().backward();
  CHECK(p.grad().to_vector() == std::vector<double>(40, 2));
}
