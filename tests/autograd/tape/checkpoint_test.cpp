// checkpoint(): the same values and gradients as without it, in less memory.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <thread>

#include "halftape/autograd/tape/node.h"
#include "halftape/tests/support/close.h"

using namespace halftape;
using autograd::checkpoint;
using testing::same_bits;

namespace {

Tensor leaf(const Shape& shape, uint64_t seed) {
  manual_seed(seed);
  return randn(shape, kFloat64).requires_grad_();
}

struct Net {
  Tensor a = leaf({8, 8}, 1), b = leaf({8, 8}, 2);
  int runs = 0;
  std::function<Tensor(const TensorList&)> part = [this](const TensorList& x) {
    ++runs;
    return tanh(matmul(dropout(tanh(matmul(x[0], a)), 0.3), b));
  };
};

}  // namespace

TEST_CASE("checkpoint() changes no bit of the gradients, even with dropout") {
  Net kept, again;
  const Tensor x = leaf({4, 8}, 3), y = x.detach().requires_grad_();
  manual_seed(7);
  const Tensor plain = kept.part({x * 1}).square().sum(), drawn = rand({2});
  plain.backward();
  const Tensor next = rand({3});
  manual_seed(7);
  const Tensor loss = checkpoint(again.part, {y * 1}).square().sum();
  CHECK(same_bits(rand({2}), drawn));
  loss.backward();
  CHECK(again.runs == 2);
  CHECK(same_bits(x.grad(), y.grad()));
  CHECK(same_bits(kept.a.grad(), again.a.grad()));
  CHECK(same_bits(kept.b.grad(), again.b.grad()));
  CHECK(same_bits(rand({3}), next));  // the random numbers go on as without it
}

TEST_CASE("what other threads draw changes no number of a checkpointed function") {
  const RandomState before = get_random_state();
  const auto draw = [] {
    Tensor drawn;
    std::thread([&] { drawn = rand({3}); }).join();
    return drawn;
  };
  for (const RandomEngine engine : {RandomEngine::Philox, RandomEngine::Mt19937}) {
    set_cpu_random_engine(engine);
    manual_seed(5);
    int runs = 0;
    const std::function<Tensor(const TensorList&)> f = [&](const TensorList& in) {
      if (runs++ == 0) draw();
      const Tensor h = dropout(in[0], 0.5), noise = rand({1000});
      return h * h * noise;
    };
    const Tensor x = ones({1000}, requires_grad());
    const Tensor y = checkpoint(f, {x});
    const Tensor between = draw();
    y.sum().backward();
    CHECK(runs == 2);
    CHECK(same_bits(x.grad(), y.detach() * 2));
    CHECK(!draw().equal(between));  // nor does the second run give their numbers back
  }
  set_random_state(before);
}

TEST_CASE("a checkpointed function that runs again before its end draws on as if it had not") {
  for (const bool seeds_itself : {true, false}) {
    // The inner backward() needs what the first lines saved, and so runs all of them again.
    const Tensor w = ones({64}, requires_grad());
    const std::function<Tensor(const TensorList&)> f = [&](const TensorList& in) {
      const Tensor h = dropout(in[0], 0.5);
      const Tensor slope = autograd::grad({(h * h).sum()}, {in[0]}, {}, true, true)[0];
      if (seeds_itself) manual_seed(3);
      return dropout(slope, 0.5) * rand({64});
    };
    manual_seed(8);
    const Tensor plain = f({w});
    plain.sum().backward();
    const Tensor expected = w.grad().clone();
    w.mutable_grad() = Tensor();
    manual_seed(8);
    const Tensor y = checkpoint(f, {w});
    CHECK(same_bits(y.detach(), plain.detach()));
    const Generator now = get_generator();
    y.sum().backward();
    CHECK(same_bits(w.grad(), expected));
    CHECK(get_generator().seed == now.seed);
    CHECK(get_generator().offset == now.offset);
  }
}

TEST_CASE("checkpoint() keeps less memory between forward and backward") {
  Net net;
  const Tensor x = leaf({64, 8}, 3);
  auto deep = [&](const TensorList& in) {
    Tensor h = in[0];
    for (int i = 0; i < 20; ++i) h = tanh(h * 1.1);
    return h;
  };
  auto held = [&](bool checkpointed) {
    const int64_t before = Buffer::live_bytes();
    const Tensor y = checkpointed ? checkpoint(deep, {x}) : deep({x});
    return Buffer::live_bytes() - before;
  };
  CHECK(held(true) * 10 < held(false));
}

TEST_CASE("grad(), higher derivatives and nesting work with checkpoint()") {
  auto inner = [](const TensorList& x) { return exp(x[0] * x[0]); };
  auto outer = [&](const TensorList& x) {
    return tanh(checkpoint(std::function<Tensor(const TensorList&)>(inner), x)) * x[0];
  };
  auto f = [&](const TensorList& x) {
    return checkpoint(std::function<Tensor(const TensorList&)>(outer), x);
  };
  const TensorList x{leaf({3}, 5)};
  CHECK(autograd::gradcheck(f, x));
  CHECK(autograd::gradgradcheck(f, x));
}

TEST_CASE("checkpoint() notices a second run that does other work") {
  const Tensor x = leaf({4, 4}, 1);
  const auto refused = [&](const std::function<Tensor(const Tensor&, int run)>& f,
                           const char* told) {
    int run = 0;
    const std::function<Tensor(const TensorList&)> g = [&](const TensorList& in) {
      return f(in[0], run++);
    };
    const Tensor y = checkpoint(g, {x}).sum();
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains(told), Error);
  };
  refused([](const Tensor& t, int run) { return exp(run ? t.slice(0, 0, 1) : t); },
          "the first time, and float64 [1, 4] on ");
  refused([](const Tensor& t, int run) { return exp(run ? t.to(kFloat32) : t).to(kFloat64); },
          "the first time, and float32 [4, 4]");
  refused([](const Tensor& t, int run) { return run ? exp(exp(exp(t))) : exp(exp(t)); },
          "saved 2 tensors the first time, and 3 when it ran again");
  refused([](const Tensor& t, int run) { return exp(run ? t.detach() : t); },
          "saved 1 tensors the first time, and 0 when it ran again");
}

TEST_CASE("backward passes within each other without an end are refused") {
  const Tensor x = ones({1}).requires_grad_();
  std::function<void()> again = [&] {
    const AutoGradMode recording(true);
    const Tensor y = x * 2;
    y.register_hook([&](const Tensor&) { again(); });
    y.sum().backward();
  };
  CHECK_THROWS_WITH_AS(again(), doctest::Contains("backward passes within each other; does a hook"),
                       Error);
  (x * 2).sum().backward();  // all is as before
}

TEST_CASE("checkpoint() repeats the function under the autocast of the first run") {
  const Tensor w = leaf({4, 4}, 1).detach().to(kFloat32).requires_grad_(), x = randn({2, 4});
  std::vector<Dtype> seen;
  std::function<Tensor(const TensorList&)> f = [&](const TensorList& in) {
    const Tensor y = matmul(in[0], w);
    seen.push_back(y.dtype());
    return tanh(y);
  };
  Tensor y;
  {
    const amp::autocast region(get_default_device().type(), kFloat16);
    y = checkpoint(f, {x});
  }
  y.sum().backward();
  CHECK(seen == std::vector<Dtype>{kFloat16, kFloat16});
  CHECK(w.grad().dtype() == kFloat32);
}

TEST_CASE("checkpoint() notices changed inputs, and can run again after an exception") {
  Tensor x = leaf({3}, 1) * 1;
  std::function<Tensor(const TensorList&)> f = [](const TensorList& in) { return tanh(in[0] * 2); };
  const Tensor y = checkpoint(f, {x});
  x.mul_(2);
  CHECK_THROWS_WITH_AS(y.sum().backward(), doctest::Contains("input 0 of shape [3] was changed"),
                       Error);
  const Tensor z = leaf({3}, 1);
  bool fails = false;
  std::function<Tensor(const TensorList&)> g = [&](const TensorList& in) {
    const Tensor h = tanh(in[0] * 2);
    if (fails) throw Error("mine");
    return tanh(h);
  };
  const Tensor u = checkpoint(g, {z});
  fails = true;
  CHECK_THROWS_WITH_AS(u.sum().backward({}, true), "mine", Error);
  fails = false;
  u.sum().backward();
  CHECK(z.grad().defined());
}

TEST_CASE("checkpoint() leaves no tensor and no node alive") {
  const int64_t tensors = detail::TensorImpl::live_count(), nodes = Node::live_count();
  {
    Net net;
    const Tensor x = leaf({4, 8}, 3);
    checkpoint(net.part, {x}).sum().backward();
    const Tensor unused = checkpoint(net.part, {x});
    {
      const NoGradGuard no_grad;
      checkpoint(net.part, {x});
      CHECK(net.runs == 4);
    }
    // An input that takes the result in keeps itself alive no more than others.
    const Tensor w = leaf({3}, 4);
    const std::function<Tensor(const TensorList&)> f = [&](const TensorList& in) {
      return tanh(in[0] * w);
    };
    for (const bool recorded : {false, true}) {
      Tensor y = recorded ? leaf({3}, 5) * 1 : ones({3}, kFloat64);
      y.add_(checkpoint(f, {y}));
      CHECK_THROWS_WITH_AS(y.sum().backward(), doctest::Contains("input 0 of shape"), Error);
      Tensor dropped = recorded ? leaf({3}, 5) * 1 : ones({3}, kFloat64);
      dropped.add_(checkpoint(f, {dropped}));
    }
  }
  CHECK(detail::TensorImpl::live_count() == tensors);
  CHECK(Node::live_count() == nodes);
}

TEST_CASE("a function that calls grad() can be checkpointed") {
  const std::function<Tensor(const TensorList&)> penalty = [](const TensorList& x) {
    const Tensor y = x[0] * x[0] * x[0];
    const Tensor slope = autograd::grad({y.sum()}, {x[0]}, {}, true, true)[0];
    return tanh(slope * slope) * x[0];
  };
  const Tensor x = leaf({3}, 9), y = x.detach().requires_grad_();
  penalty({x}).sum().backward();
  checkpoint(penalty, {y}).sum().backward();
  CHECK(same_bits(x.grad(), y.grad()));
}

TEST_CASE("what a checkpointed function changes in place after it was saved is refused, too") {
  const Tensor x = tensor({1.0}, kFloat64).requires_grad_();
  const std::function<Tensor(const TensorList&)> f = [](const TensorList& in) {
    Tensor y = tanh(in[0]);  // saves its output, which changes
    y.mul_(2);
    return y;
  };
  CHECK_THROWS_WITH_AS(f({x}).sum().backward(), doctest::Contains("changed in place"), Error);
  CHECK_THROWS_WITH_AS(checkpoint(f, {x}).sum().backward(), doctest::Contains("changed in place"),
                       Error);
}

TEST_CASE("a leaf that got other numbers by set_data() since is refused") {
  const Tensor x = leaf({2}, 3);
  const std::function<Tensor(const TensorList&)> f = [](const TensorList& in) {
    return (in[0] * 2).pow(3);
  };
  const Tensor y = checkpoint(f, {x});
  x.set_data(tensor({5.0, 6.0}, kFloat64));
  CHECK_THROWS_WITH_AS(y.sum().backward(), doctest::Contains("was changed in place"), Error);
}
