// The order in which a backward pass runs: every node after all that leads to it, once.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <string>
#include <vector>

#include "halftape/tests/support/lists.h"

using namespace halftape;
using testing::leaf;

namespace {

struct Sum : autograd::Function<Sum> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& a, const Tensor& b) {
    return a + b;
  }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    return {g[0], g[0]};
  }
};

}  // namespace

TEST_CASE("an op whose second input is a view of what was written runs before that view") {
  using Op = std::function<Tensor(const Tensor&, const Tensor&)>;
  const Op ops[] = {
      [](const Tensor& w, const Tensor& v) { return w + v; },
      [](const Tensor& w, const Tensor& v) {
        return cat({w, v});
      },
      [](const Tensor& w, const Tensor& v) {
        return stack({w, v});
      },
      [](const Tensor& w, const Tensor& v) { return where(ones({3}, kBool), v, w); },
      [](const Tensor& w, const Tensor& v) { return Sum::apply(w, v); },
  };
  for (const Op& op : ops) {
    const Tensor x = leaf({1, 1, 1}), w = leaf({1, 1, 1});
    const Tensor base = x * 2, v = base.view({3});
    int calls = 0;
    base.mul_(3);  // the view's history is made anew when somebody asks for it
    const Tensor y = op(w, v);
    const Tensor loss = y.sum() + (v * v).sum();
    v.register_hook([&](const Tensor& g) {
      ++calls;
      CHECK(g.to_vector() == std::vector<double>{13, 13, 13});
    });
    const Tensor g = autograd::grad({loss}, {v}, {}, true)[0];
    CHECK(g.to_vector() == std::vector<double>{13, 13, 13});
    loss.backward();
    CHECK(calls == 2);
    CHECK(x.grad().to_vector() == std::vector<double>{78, 78, 78});
  }
}

TEST_CASE("a leaf with a hook has its gradient as soon as the last op that uses it has run") {
  std::string order;
  const Tensor first = leaf({2}), shared = leaf({3}), last = leaf({5}), plain = leaf({7});
  const auto note = [&](const Tensor& t, char c) {
    t.register_post_accumulate_grad_hook([&order, c](const Tensor&) { order += c; });
  };
  note(first, 'f'), note(shared, 's'), note(last, 'l');
  const Tensor a = first * shared;
  a.register_hook([&](const Tensor&) { order += 'a'; });
  const Tensor b = a * plain;
  b.register_hook([&](const Tensor&) { order += 'b'; });
  (b * last * shared).sum().backward();
  CHECK(order == "lbafs");
  CHECK(first.grad().item<double>() == 3 * 7 * 5 * 3);
  CHECK(shared.grad().item<double>() == 2 * 2 * 7 * 5 * 3);
  CHECK(last.grad().item<double>() == 2 * 3 * 7 * 3);
  CHECK(plain.grad().item<double>() == 2 * 3 * 5 * 3);
}

TEST_CASE("a leaf with a hook that a branch does not reach has its gradient all the same") {
  const Tensor used = leaf({2}), unused = leaf({3});
  int calls = 0;
  used.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  unused.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  const TensorList parts = (cat({used, unused}) * used).split(1);
  parts[0].sum().backward();
  CHECK(used.grad().item<double>() == 4);
  CHECK(unused.grad().item<double>() == 0);
  CHECK(calls == 2);
  used.backward(ones({1}));  // the leaf itself is the root
  CHECK(used.grad().item<double>() == 5);
  CHECK(calls == 3);
}
