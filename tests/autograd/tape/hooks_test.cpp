// Hooks, and backward into chosen inputs.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <thread>

#include "halftape/autograd/tape/node.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/twice_in_place.h"

using namespace halftape;
using testing::leaf;

namespace {

using Values = std::vector<double>;

}  // namespace

TEST_CASE("a hook sees the whole gradient once, and may change it") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  int calls = 0;
  y.register_hook([&](const Tensor& g) {
    ++calls;
    CHECK(g.to_vector() == Values{4, 4});  // the sum of both uses of y
  });
  y.register_hook([](const Tensor& g) { return g * 10; });
  (y + 3 * y).sum().backward();
  CHECK(calls == 1);
  CHECK(x.grad().to_vector() == Values{80, 80});
}

TEST_CASE("what a hook returns is converted to the tensor's dtype") {
  const Tensor x = leaf({1, 2});
  x.register_hook([](const Tensor& g) { return g.to(kFloat32); });
  x.sum().backward();
  CHECK(x.grad().dtype() == kFloat64);
}

TEST_CASE("hooks of a leaf run before its gradient is added, and for grad() too") {
  const Tensor x = leaf({1, 2});
  const unsigned number = x.register_hook([](const Tensor& g) { return g * 5; });
  (x * x).sum().backward();
  CHECK(x.grad().to_vector() == Values{10, 20});
  CHECK(autograd::grad({x.sum()}, {x})[0].to_vector() == Values{5, 5});
  x.remove_hook(number);
  CHECK(autograd::grad({x.sum()}, {x})[0].to_vector() == Values{1, 1});
  CHECK_THROWS_WITH_AS(x.remove_hook(number), doctest::Contains("Invalid index"), Error);
}

TEST_CASE("a hook registered before an in-place change belongs to the value before it") {
  const Tensor x = leaf({3});
  Tensor y = x * 2;
  Values seen;
  y.register_hook([&](const Tensor& g) { seen = g.to_vector(); });
  y.mul_(10);
  y.sum().backward();
  CHECK(seen == Values{10});
}

TEST_CASE("after a hook has failed, tensors and graph are usable") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2;
  const unsigned bad = y.register_hook([](const Tensor& g) { return g.sum(); });
  CHECK_THROWS_WITH_AS(y.sum().backward({}, true),
                       doctest::Contains("of shape [] for one of shape [2]"), Error);
  y.remove_hook(bad);
  const unsigned worse = y.register_hook([](const Tensor&) { throw Error("mine"); });
  CHECK_THROWS_WITH_AS(y.sum().backward({}, true), "mine", Error);
  CHECK_FALSE(x.grad().defined());
  y.remove_hook(worse);
  y.sum().backward();
  CHECK(x.grad().to_vector() == Values{2, 2});
  CHECK_THROWS_WITH_AS(x.detach().register_hook([](const Tensor&) {}),
                       doctest::Contains("does not require grad"), Error);
}

TEST_CASE("a post-accumulate hook sees the leaf after every addition") {
  const Tensor x = leaf({1});
  Values seen;
  x.register_post_accumulate_grad_hook([&](Tensor t) {
    CHECK(t.is_same(x));
    seen.push_back(t.grad().item());
  });
  (x * 2).sum().backward();
  (x * 3).sum().backward();
  CHECK(seen == Values{2, 5});
  // An optimizer in the backward pass: the gradient is used and dropped at once.
  x.register_post_accumulate_grad_hook([](Tensor t) { t.mutable_grad() = Tensor(); });
  (x * 7).sum().backward();
  CHECK(seen == Values{2, 5, 12});
  CHECK_FALSE(x.grad().defined());
  CHECK_THROWS_WITH_AS((x * 1).register_post_accumulate_grad_hook([](Tensor) {}),
                       doctest::Contains("only leaves"), Error);
}

TEST_CASE("a leaf with hooks gets its gradient before the rules below have run") {
  const Tensor w = leaf({2}), x = leaf({3});
  std::string order;
  w.register_post_accumulate_grad_hook([&](const Tensor&) { order += "w "; });
  x.register_post_accumulate_grad_hook([&](const Tensor&) { order += "x "; });
  for (const bool twice : {false, true}) {
    const Tensor h = x * 5;
    h.register_hook([&](const Tensor&) { order += "h "; });
    const Tensor y = w * h;
    (twice ? y + w * 2 : y).sum().backward();  // w waits for both of its gradients
    CHECK(order == "w h x ");
    order.clear();
  }
}

TEST_CASE("each kind of hook is taken back by its own number") {
  const Tensor x = leaf({1});
  int seen = 0, after = 0;
  const unsigned first = x.register_hook([&](const Tensor&) { ++seen; });
  const unsigned one = x.register_post_accumulate_grad_hook([&](const Tensor&) { ++after; });
  const unsigned two = x.register_post_accumulate_grad_hook([&](const Tensor&) { after += 10; });
  x.remove_hook(one);
  x.sum().backward();
  CHECK(seen == 1);
  CHECK(after == 10);
  x.remove_hook(first);
  x.remove_hook(two);
  x.sum().backward();
  CHECK(seen == 1);
  CHECK(after == 10);
  for (const unsigned number : {first + 1, two + 1})
    CHECK_THROWS_WITH_AS(x.remove_hook(number), doctest::Contains("Invalid index"), Error);
  CHECK_THROWS_AS((x * 1).remove_hook(two), Error);
}

TEST_CASE("a hook's number is no other hook's, whatever becomes of the tensor") {
  const Tensor x = leaf({3});
  Tensor y = x * 2;
  int seen = 0;
  const unsigned first = y.register_hook([&](const Tensor&) { seen += 1; });
  y.mul_(10);
  const unsigned second = y.register_hook([&](const Tensor&) { seen += 10; });
  CHECK(first != second);
  CHECK_THROWS_WITH_AS(y.remove_hook(first), doctest::Contains("present value has no such hook"),
                       Error);
  y.sum().backward({}, true);
  CHECK(seen == 11);
  y.remove_hook(second);
  y.sum().backward();
  CHECK(seen == 12);
  // A leaf keeps its hooks while it is frozen.
  const unsigned of_leaf = x.register_hook([&](const Tensor&) { seen += 100; });
  const unsigned after = x.register_post_accumulate_grad_hook([&](const Tensor&) { seen += 1000; });
  x.requires_grad_(false);
  x.remove_hook(of_leaf);
  x.remove_hook(after);
  x.requires_grad_(true);
  x.sum().backward();
  CHECK(seen == 12);
  // One that takes itself back runs once, and those behind it run all the same.
  unsigned own = 0;
  own = x.register_hook([&](const Tensor&) { ++seen, x.remove_hook(own); });
  x.register_hook([&](const Tensor&) { seen += 100; });
  x.sum().backward();
  x.sum().backward();
  CHECK(seen == 213);
}

TEST_CASE("a leaf may die while another thread's backward hands it a gradient") {
  for (int round = 0; round < 200; ++round) {
    Tensor x = leaf({1, 2, 3});
    x.register_post_accumulate_grad_hook([](Tensor t) { CHECK(t.grad().defined()); });
    const Tensor loss = (x * x).sum();
    std::thread other([&x] { x = Tensor(); });
    loss.backward();
    other.join();
  }
}

TEST_CASE("backward with inputs fills only the gradients of these, leaves or not") {
  const Tensor a = leaf({2}), b = leaf({3});
  const Tensor c = a * b, d = c * c;
  d.backward({}, true, false, TensorList{a, c});
  CHECK(a.grad().item() == 2 * 6 * 3);
  CHECK(c.grad().item() == 12);
  CHECK_FALSE(b.grad().defined());
  autograd::backward({d}, {}, {}, false, TensorList{b});
  CHECK(b.grad().item() == 2 * 6 * 2);
  CHECK(a.grad().item() == 36);
  CHECK_THROWS_WITH_AS(autograd::backward({a * 1}, {}, {}, false, TensorList{}),
                       doctest::Contains("cannot be empty"), Error);
  CHECK_THROWS_WITH_AS(autograd::backward({a * 1}, {}, {}, false, TensorList{a.detach()}),
                       doctest::Contains("input 0 does not require grad"), Error);
}

TEST_CASE("rules may call backward within each other, thousands deep") {
  struct Deep : autograd::Function<Deep> {
    static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x) {
      const AutoGradMode recording(true);
      ctx->saved_data["x"] = x.detach().requires_grad_() - 1;
      return ctx->saved_data["x"].toTensor().detach();
    }
    static TensorList backward(autograd::AutogradContext* ctx, TensorList g) {
      const Tensor x = ctx->saved_data["x"].toTensor();
      if (!x.is_nonzero()) return g;
      const AutoGradMode recording(true);
      apply(x).sum().backward();
      return g;
    }
  };
  const Tensor x = leaf({3000});
  Deep::apply(x).backward();
  CHECK(x.grad().item() == 1);
}

TEST_CASE("a hook that writes to its gradient changes this pass, and no later one") {
  for (const Dtype d : {kFloat32, kFloat64}) {
    for (int pass = 0; pass < 3; ++pass) {
      const Tensor x = full({}, 5, TensorOptions(d).requires_grad(true)), y = x * 3;
      if (pass == 1)
        y.register_hook([](Tensor g) {
          const NoGradGuard no_grad;
          g.mul_(2);
          return Tensor();
        });
      y.backward();
      CHECK(x.grad().item<double>() == (pass == 1 ? 6 : 3));
    }
    // It changes nobody else's gradient: not that of the other output or of the other term, and not
    // the one that backward() was given.
    const auto twice = [](Tensor g) {
      const NoGradGuard no_grad;
      g.mul_(2);
      return Tensor();
    };
    for (const bool sum : {false, true}) {
      const Tensor a = full({}, 5, TensorOptions(d).requires_grad(true)),
                   b = full({}, 5, TensorOptions(d).requires_grad(true));
      const Tensor one = a * 3, two = b * 3, seed = full({}, 1, d);
      two.register_hook(twice);
      if (sum)
        (one + two).backward(seed);
      else
        autograd::backward({one, two}, {seed, seed});
      CHECK(a.grad().item<double>() == 3);
      CHECK(b.grad().item<double>() == 6);
      CHECK(seed.item<double>() == 1);
    }
    // Each leaf gets a 1 of its own.
    const Tensor leaf = full({}, 5, TensorOptions(d).requires_grad(true));
    leaf.backward();
    leaf.mutable_grad().mul_(7);
    const Tensor other = full({}, 5, TensorOptions(d).requires_grad(true));
    other.backward();
    CHECK(leaf.grad().item<double>() == 7);
    CHECK(other.grad().item<double>() == 1);
  }
}

TEST_CASE("a rule that writes to its gradient changes no later pass") {
  for (int pass = 0; pass < 3; ++pass) {
    const Tensor x = full({}, 5.0, requires_grad());
    testing::TwiceInPlace::apply(x).backward();
    CHECK(x.grad().item() == 2);
  }
}

TEST_CASE("queue_callback: hooks put work off until the outermost backward has ended") {
  const Tensor x = full({2}, 3., requires_grad());
  std::vector<std::string> order;
  const auto put_off = [&](const char* what) {
    autograd::queue_callback([&order, what] { order.emplace_back(what); });
  };
  Tensor h = x * 2;
  h.register_hook([&](const Tensor&) {
    put_off("outer");
    const AutoGradMode recording(true);
    Tensor inside = x * 1;
    inside.register_hook([&](const Tensor&) { put_off("inner"); });
    inside.sum().backward();
    order.emplace_back("inner pass has ended");
    put_off("later");
  });
  (h * h).sum().backward();
  CHECK(order == std::vector<std::string>{"inner pass has ended", "outer", "inner", "later"});
  put_off("at once");
  CHECK(order.back() == "at once");

  // A pass that fails forgets them, and what one of them throws comes out of backward().
  order.clear();
  Tensor fails = x * 2;
  fails.register_hook([&](const Tensor&) {
    put_off("never");
    throw Error("a hook failed");
  });
  CHECK_THROWS_AS(fails.sum().backward(), Error);
  CHECK(order.empty());
  Tensor late = x * 2;
  late.register_hook(
      [](const Tensor&) { autograd::queue_callback([] { throw Error("put off, and failed"); }); });
  x.mutable_grad() = Tensor();
  CHECK_THROWS_WITH_AS(late.sum().backward(), "put off, and failed", Error);
  CHECK(x.grad().defined());  // the pass itself had ended
  (x * 2).sum().backward();
  CHECK(order.empty());

  // With inputs, after these have their gradients.
  Tensor again = x * 2;
  x.mutable_grad() = Tensor();
  bool filled = false;
  again.register_hook(
      [&](const Tensor&) { autograd::queue_callback([&] { filled = x.grad().defined(); }); });
  again.sum().backward({}, {}, false, {x});
  CHECK(filled);
}

TEST_CASE("hooks of a leaf stay when its dtype, shape or device change") {
  const Tensor w = ones({2}).requires_grad_();
  int before = 0, after = 0;
  w.register_hook([&](const Tensor& g) {
    ++before;
    return g * 2;
  });
  const unsigned removed = w.register_hook([](const Tensor& g) { return g * 0; });
  w.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    ++after;
    CHECK(leaf.grad().dtype() == leaf.dtype());
  });
  const Tensor old_sum = w.sum();
  w.set_data(ones({3}, kFloat16));
  w.remove_hook(removed);
  w.sum().backward();
  CHECK(w.grad().to_vector<float>() == std::vector<float>{2, 2, 2});
  old_sum.backward();  // of the leaf as it was: nobody wants it
  CHECK(before == 1);
  CHECK(after == 1);
  nn::Linear layer(2, 2);
  layer->weight.register_post_accumulate_grad_hook([&](const Tensor&) { ++after; });
  layer->to(kFloat64);
  layer->forward(ones({1, 2}, kFloat64)).sum().backward();
  CHECK(after == 2);
}

TEST_CASE("hooks of a leaf outlast requires_grad_(false)") {
  Tensor p = leaf({1});
  int before = 0, after = 0;
  p.register_hook([&](const Tensor&) { ++before; });
  p.register_post_accumulate_grad_hook([&](const Tensor&) { ++after; });
  const Tensor old_graph = p * 5;
  for (int i = 0; i < 2; ++i) {
    p.requires_grad_(false);
    p.requires_grad_(true);
  }
  (p * 2).backward();
  CHECK(before == 1);
  CHECK(after == 1);
  CHECK(p.grad().item<double>() == 2);
  p.requires_grad_(false);
  old_graph.backward({}, true);
  CHECK(p.grad().item<double>() == 2);
  p.requires_grad_(true);
  old_graph.backward();  // recorded before all that
  CHECK(p.grad().item<double>() == 7);
  CHECK(after == 2);
  const Tensor of_other_shape = p * 5;
  p.mutable_grad() = Tensor();
  p.requires_grad_(false);
  p.set_data(ones({3}, kFloat64));
  p.requires_grad_(true);
  (p * 2).sum().backward({}, {}, false);
  CHECK(after == 3);
  of_other_shape.backward();
  CHECK(p.grad().to_vector() == std::vector<double>{2, 2, 2});
}

TEST_CASE("backward into chosen inputs adds to each of them once") {
  const Tensor x = leaf({1}), h = x * 3;
  h.retain_grad();
  (h * 2).backward({}, true, false, TensorList{h});
  CHECK(h.grad().item<double>() == 2);
  (h * 2).backward({}, true, false, TensorList{x, h, x});
  CHECK(x.grad().item<double>() == 6);
  CHECK(h.grad().item<double>() == 4);
  const Tensor k = x * 5;
  k.backward({}, true, false, TensorList{k, k});
  CHECK(k.grad().item<double>() == 1);
}

TEST_CASE("a tensor leaves the graph alone, and its views stay in it") {
  const Tensor x = leaf({1, 2, 3, 4}), w = leaf({5, 6});
  Tensor y = x * 2;
  const Tensor v = y.slice(0, 0, 2);
  y.detach_();
  CHECK_FALSE(y.requires_grad());
  (v * 3).sum().backward();
  CHECK(x.grad().to_vector() == Values{6, 6, 0, 0});
  y.mul_(2);  // what a view shows now is no part of the graph
  CHECK_FALSE(v.requires_grad());
  Tensor z = leaf({1, 2, 3, 4}) * 2;
  const Tensor written = z.slice(0, 0, 2);
  written.mul_(w);  // its history is there before anybody asks
  z.detach_();
  written.sum().backward();
  CHECK(w.grad().to_vector() == Values{2, 4});
  w.mutable_grad() = Tensor();
  const Tensor p = leaf({1, 2});
  p.detach_();
  CHECK_FALSE(p.requires_grad());
  (p * w).sum().backward();
  CHECK_FALSE(p.grad().defined());
  CHECK(p.mul_(2).to_vector() == Values{2, 4});
}
