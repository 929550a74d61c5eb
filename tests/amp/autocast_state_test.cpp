// Where an autocast region reaches: threads, checkpoints, backward, programs without regions; and
// how long a cached cast lives.
#include <doctest/doctest.h>

#include <memory>
#include <thread>

#include <halftape/halftape.h>

#include "halftape/tests/support/tracing_backend.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::autocast;

TEST_CASE("a captured state carries the region into another thread") {
  const Tensor x = randn({3, 4}), w = randn({5, 4});
  amp::AutocastState state;
  Tensor here;
  {
    const autocast region(kCPU, kFloat16, amp::Policy().set("tanh", Cast::Float32), true, false);
    state = amp::capture();
    here = tanh(linear(x, w));
  }
  Tensor there;
  bool enabled = false, cached = true, after = true;
  std::thread([&] {
    {
      const autocast region(state);
      enabled = amp::is_autocast_enabled(kCPU);
      cached = amp::is_autocast_cache_enabled();
      there = tanh(linear(x, w));
    }
    after = amp::is_autocast_enabled(kCPU);
  }).join();
  CHECK(enabled);
  CHECK_FALSE(cached);
  CHECK_FALSE(after);
  CHECK(there.dtype() == kFloat32);
  CHECK(there.equal(here));
  CHECK_FALSE(amp::is_autocast_enabled(kCPU));
}

TEST_CASE("threads with regions of their own do not disturb each other") {
  const Tensor x = randn({8, 8}), w = randn({8, 8}, requires_grad());
  std::vector<Tensor> y(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < y.size(); ++i)
    threads.emplace_back([&, i] {
      for (int n = 0; n < 20; ++n) {
        const autocast region(kCPU, i % 2 ? kFloat16 : kBFloat16);
        y[i] = linear(x, w);
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < y.size(); ++i) {
    const Dtype d = i % 2 ? kFloat16 : kBFloat16;
    CHECK(y[i].dtype() == d);
    CHECK(y[i].equal(linear(x.to(d), w.to(d))));
  }
}

TEST_CASE("a checkpoint runs again in the region it was made in, and keeps no casts") {
  const Tensor x = randn({3, 4}), w = randn({4, 4}, requires_grad());
  int runs = 0;
  auto block = [&](const TensorList& in) {
    ++runs;
    CHECK(amp::is_autocast_enabled(kCPU));
    CHECK(amp::get_autocast_dtype(kCPU) == kFloat16);
    CHECK_FALSE(amp::is_autocast_cache_enabled());
    CHECK(relu(ones({2}, kFloat16)).dtype() == kFloat32);  // the region's policy says so
    const Tensor y = exp(tanh(linear(in[0], w)));
    CHECK(y.dtype() == kFloat16);  // and here
    {
      const autocast hole(kCPU, {}, false);
      CHECK_FALSE(amp::is_autocast_enabled(kCPU));
    }
    CHECK(amp::is_autocast_enabled(kCPU));
    return y;
  };
  auto run = [&](bool checkpointed) {
    const autocast region(kCPU, kFloat16,
                          amp::Policy().set("exp", Cast::Keep).set("relu", Cast::Float32), true,
                          false);
    return checkpointed ? autograd::checkpoint(std::function<Tensor(const TensorList&)>(block), {x})
                        : block({x});
  };
  const Tensor plain = autograd::grad({run(false).sum()}, {w})[0];
  const Tensor loss = run(true).sum();
  CHECK(runs == 2);
  CHECK(autograd::grad({loss}, {w})[0].equal(plain));
  CHECK(runs == 3);
  CHECK_FALSE(amp::is_autocast_enabled(kCPU));
}

namespace {
/// A function for kernels of float32, in which somebody opens a region all the same.
struct RegionInside : amp::Function<RegionInside> {
  static constexpr Dtype cast_inputs = kFloat32;
  static inline std::vector<Dtype>* seen = nullptr;
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) {
    const autocast region(kCPU);  // which names none
    seen->push_back(amp::get_autocast_dtype(kCPU));
    return x.mm(x.t());
  }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    return {g[0].to(kFloat32).mm(ones({3, 4}))};
  }
};
}  // namespace

TEST_CASE("a checkpoint's own regions have the dtype that they had, on or off around it") {
  const Tensor x = randn({3, 4}), w = randn({4, 4}, requires_grad());
  std::vector<Dtype> seen;
  const auto inner = [&](const TensorList&) {
    const autocast region(kCPU);  // which names none
    seen.push_back(amp::get_autocast_dtype(kCPU));
    return exp(tanh(linear(x, w))).sum();
  };
  const auto in_hole = [&](const TensorList& in) {
    const autocast hole(kCPU, {}, false);
    return inner(in);
  };
  const auto switched = [&](const TensorList& in) {
    amp::set_autocast_enabled(kCPU, false);
    amp::set_autocast_enabled(kCPU, true);
    return inner(in);
  };
  const auto in_function = [&](const TensorList& in) {
    RegionInside::seen = &seen;
    return exp(tanh(RegionInside::apply(linear(in[0], w)))).sum();
  };
  const auto check = [&](const Tensor& loss, bool elsewhere) {
    const auto run = [&] { autograd::grad({loss}, {w}); };
    elsewhere ? std::thread(run).join() : run();
    CHECK(seen == std::vector<Dtype>(2, kFloat16));
    seen.clear();
  };
  const auto checkpointed = [&](const std::function<Tensor(const TensorList&)>& f) {
    return autograd::checkpoint(f, {x});
  };
  for (const bool elsewhere : {false, true}) {
    const auto within = [&](const auto& f, bool hole) {
      const autocast region(kCPU, kFloat16);
      std::optional<autocast> off;
      if (hole) off.emplace(kCPU, std::nullopt, false);
      return checkpointed(f);
    };
    check(within(in_hole, false), elsewhere);
    check(within(switched, false), elsewhere);
    check(within(inner, true), elsewhere);
    check(within(in_function, false), elsewhere);
    amp::set_autocast_dtype(kCPU, kFloat16);
    const Tensor loss = checkpointed(inner);
    amp::set_autocast_dtype(kCPU, kBFloat16);
    check(loss, elsewhere);
    CHECK_FALSE(amp::is_autocast_enabled(kCPU));
  }
}

namespace {
struct Asks : autograd::Function<Asks> {
  static inline bool in_forward = false, in_backward = true;
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) {
    in_forward = amp::is_autocast_enabled(kCPU);
    return x.clone();
  }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    in_backward = amp::is_autocast_enabled(kCPU);
    {
      const autocast region(kCUDA, kFloat16);  // and a region there turns on nothing else
      in_backward |= amp::is_autocast_enabled(kCPU);
    }
    in_backward |= amp::is_autocast_enabled(kCPU);  // nor does its end
    return g;
  }
};
}  // namespace

TEST_CASE("backward runs with autocast off, also when it is called inside the region") {
  const autocast region(kCPU, kFloat16);
  Asks::apply(ones({2}, requires_grad())).sum().backward();
  CHECK(Asks::in_forward);
  CHECK_FALSE(Asks::in_backward);
  CHECK(amp::is_autocast_enabled(kCPU));
  const Tensor x = ones({2}, requires_grad());
  bool in_hook = true;
  x.register_hook([&](const Tensor&) { in_hook = amp::is_autocast_enabled(kCPU); });
  x.sum().backward();
  CHECK_FALSE(in_hook);
}

TEST_CASE("a weight that is given another view of the same bytes is cast anew") {
  const Tensor bytes = arange(6).to(kFloat32).reshape({3, 2}), first = bytes.slice(0, 0, 2);
  const Tensor w = zeros({2, 2}, requires_grad());
  const autocast region(kCPU, kFloat16);
  for (const Tensor& view : {first, bytes.slice(0, 1, 3), first.t(), first, bytes}) {
    w.set_data(view);
    CHECK(matmul(w, eye(2)).equal(view.to(kFloat16)));
  }
  CHECK(amp::autocast_cache_size() == 1);
}

TEST_CASE("a program may switch autocast without a region") {
  const Tensor x = randn({2, 2}), w = randn({2, 2}, requires_grad());
  CHECK(amp::is_autocast_available(kCPU));
  CHECK(amp::get_autocast_dtype(kCPU) == kBFloat16);
  CHECK(amp::get_autocast_dtype(kCUDA) == kFloat16);
  amp::set_autocast_dtype(kCPU, kFloat16);
  CHECK(matmul(x, w).dtype() == kFloat32);
  amp::set_autocast_enabled(kCPU, true);
  CHECK(amp::is_autocast_enabled(kCPU));
  CHECK_FALSE(amp::is_autocast_enabled(kCUDA));
  CHECK(matmul(x, w).dtype() == kFloat16);
  CHECK(amp::autocast_cache_size() == 1);
  amp::set_autocast_enabled(kCPU, false);
  CHECK(amp::autocast_cache_size() == 0);  // nothing would ever drop it
  CHECK(matmul(x, w).dtype() == kFloat32);
  amp::set_autocast_dtype(kCPU, kBFloat16);
  {
    const autocast region(kCPU, kFloat16);
    CHECK(matmul(x, w).dtype() == kFloat16);
    amp::set_autocast_enabled(kCPU, false);
    CHECK(matmul(x, w).dtype() == kFloat32);
    CHECK(amp::autocast_cache_size() == 1);
  }
  CHECK(amp::autocast_cache_size() == 0);  // the region's end has dropped it

  CHECK_THROWS_AS(amp::set_autocast_dtype(kCPU, kFloat64), Error);
  amp::set_autocast_cache_enabled(false);
  CHECK_FALSE(amp::is_autocast_cache_enabled());
  amp::set_autocast_cache_enabled(true);
  CHECK(amp::increment_autocast_nesting() == 1);
  CHECK(amp::decrement_autocast_nesting() == 0);
  CHECK_THROWS_WITH_AS(amp::decrement_autocast_nesting(),
                       doctest::Contains("no region is open that increment_autocast_nesting()"),
                       Error);
  {
    const autocast region(kCPU);  // its own end leaves it
    CHECK_THROWS_AS(amp::decrement_autocast_nesting(), Error);
  }
  CHECK(amp::increment_autocast_nesting() == 1);  // what was refused has counted nothing
  CHECK(amp::decrement_autocast_nesting() == 0);
}

TEST_CASE(
    "regions that end out of order warn once, and the last one brings back the state before") {
  testing::Warnings warnings;
  const Tensor x = randn({2, 2}), w = randn({2, 2}, requires_grad());
  for (int again = 0; again < 2; ++again) {
    auto outer = std::make_unique<autocast>(kCPU, kFloat16);
    auto middle = std::make_unique<autocast>(kCPU, kBFloat16);
    auto inner = std::make_unique<autocast>(kCPU, std::nullopt, false);
    outer.reset();
    CHECK_FALSE(amp::is_autocast_enabled(kCPU));
    inner.reset();
    CHECK(matmul(x, w).dtype() == kBFloat16);
    CHECK(amp::autocast_cache_size() == 1);
    middle.reset();
    CHECK_FALSE(amp::is_autocast_enabled(kCPU));
    CHECK(matmul(x, w).dtype() == kFloat32);
    CHECK(amp::autocast_cache_size() == 0);
    CHECK_FALSE(dtype_policy());
  }
  REQUIRE(warnings.seen.size() == 1);
  CHECK(warnings.seen[0].find("ended before one that was begun inside it") != std::string::npos);
}

TEST_CASE("a region that is destroyed in another thread warns once, and changes neither thread") {
  testing::Warnings warnings;
  const Tensor x = randn({2, 2});
  std::unique_ptr<autocast> region;
  std::thread([&] {
    region = std::make_unique<autocast>(kCPU, kFloat16);
    std::thread([&] {
      const autocast own(kCPU, kBFloat16);
      region.reset();
      CHECK(matmul(x, x).dtype() == kBFloat16);
    }).join();
    CHECK(matmul(x, x).dtype() == kFloat16);
    {
      const autocast inner(kCPU, kBFloat16);
      CHECK(matmul(x, x).dtype() == kBFloat16);
    }
    CHECK(matmul(x, x).dtype() == kFloat16);
    region = std::make_unique<autocast>(kCPU, kBFloat16);
  }).join();
  region.reset();  // its thread is gone
  CHECK_FALSE(amp::is_autocast_enabled(kCPU));
  REQUIRE(warnings.seen.size() == 1);
  CHECK(warnings.seen[0].find("destroyed in another thread") != std::string::npos);
}

// The cache: amp/autocast.h promises each of these.

TEST_CASE("only float32 leaves that require grad are kept") {
  const Tensor w = randn({4, 4}, requires_grad()), plain = randn({4, 4});
  const Tensor half = randn({4, 4}, TensorOptions(kBFloat16).requires_grad(true));
  const autocast region(kCPU, kFloat16);
  (void)matmul(plain, plain), (void)matmul(half, half);
  (void)matmul(w.t(), w * 2);  // a view and a result
  CHECK(amp::autocast_cache_size() == 0);
  (void)matmul(w, w);
  CHECK(amp::autocast_cache_size() == 1);
  amp::clear_autocast_cache();
  CHECK(amp::autocast_cache_size() == 0);
}

TEST_CASE("nested regions of two dtypes keep a cast each") {
  const Tensor x = randn({4, 4}, kFloat16), w = randn({4, 4}, requires_grad());
  testing::TracingBackend trace;
  const autocast outer(kCPU, kFloat16);
  for (int i = 0; i < 3; ++i) {
    (void)matmul(w, w);
    const autocast inner(kCPU, kBFloat16);
    (void)matmul(w, w);
  }
  CHECK(trace.count("cast") == 2);
  CHECK(amp::autocast_cache_size() == 2);
}

TEST_CASE("a region that names no dtype has that of the thread, as in torch") {
  const Tensor x = randn({2, 2});
  const auto found = [&] { return matmul(x, x).dtype(); };
  {
    const autocast outer(kCPU, kFloat16);
    {
      const autocast inner(kCPU);
      CHECK(found() == kFloat16);
    }
    const autocast off(kCPU, {}, false);
    CHECK(found() == kFloat32);
    const autocast on(kCPU);
    CHECK(found() == kFloat16);
  }
  {
    const autocast off(kCPU, kFloat16, false);
    const autocast on(kCPU);
    CHECK(found() == kFloat16);
  }
  for (const Dtype useless : {kFloat32, kFloat64, kInt64}) {  // a program without mixed precision
    const autocast off(kCPU, useless, false);
    CHECK(found() == kFloat32);
    {
      const autocast on(kCPU);
      CHECK(found() == kBFloat16);
    }
    amp::set_autocast_enabled(kCPU, true);
    CHECK(found() == kBFloat16);
  }
  amp::set_autocast_dtype(kCPU, kFloat16);
  {
    const autocast region(kCPU);
    CHECK(found() == kFloat16);
  }
  amp::set_autocast_dtype(kCPU, kBFloat16);
  CHECK(found() == kFloat32);
}

TEST_CASE("a region keeps the cache as it was, on or off, unless it is told") {
  const autocast off(kCPU, kFloat16, true, false);
  const autocast inner(kCPU, kBFloat16);
  CHECK_FALSE(amp::is_autocast_cache_enabled());
  const autocast on(kCPU, kBFloat16, true, true);
  CHECK(amp::is_autocast_cache_enabled());
}

TEST_CASE("an optimizer step inside a region is seen by the next use of the weight") {
  Tensor w = ones({2, 2}, requires_grad());
  optim::SGD sgd({w}, optim::SGDOptions(1));
  const autocast region(kCPU, kFloat16);
  linear(ones({1, 2}), w).sum().backward();
  sgd.step();
  CHECK(linear(ones({1, 2}), w).equal(zeros({1, 2}, kFloat16)));
}

TEST_CASE("new bytes under the same handle are cast anew") {
  Tensor w = ones({2, 2}, requires_grad());
  const autocast region(kCPU, kFloat16);
  (void)linear(ones({1, 2}), w);
  w.set_data(full({2, 2}, 3.0));
  CHECK(linear(ones({1, 2}), w).equal(full({1, 2}, 6.0, kFloat16)));
}

TEST_CASE("an exception on the way out drops the casts") {
  const Tensor w = ones({2, 2}, requires_grad());
  CHECK_THROWS_AS(
      [&] {
        const autocast region(kCPU, kFloat16);
        (void)linear(ones({1, 2}), w);
        CHECK(amp::autocast_cache_size() == 1);
        (void)linear(ones({1, 3}), w);
      }(),
      Error);
  CHECK(amp::autocast_cache_size() == 0);
}

TEST_CASE("inference keeps no casts") {
  const Tensor w = ones({2, 2}, requires_grad());
  const autocast region(kCPU, kFloat16);
  {
    const InferenceMode inference;
    CHECK(linear(ones({1, 2}), w).dtype() == kFloat16);
    CHECK(amp::autocast_cache_size() == 0);
  }
  CHECK(linear(ones({1, 2}), w).requires_grad());
}

TEST_CASE("two uses of a cached weight add up in float32: 257, where torch's cache gives 256") {
  const Tensor w = ones({1, 1}, requires_grad());
  for (const bool cache : {true, false}) {
    Tensor y;
    {
      const autocast region(kCPU, kBFloat16, true, cache);
      y = linear(full({1, 1}, 256.0), w) + linear(full({1, 1}, 1.0), w);
      CHECK(amp::autocast_cache_size() == (cache ? 1 : 0));
    }
    CHECK(autograd::grad({y}, {w})[0].item() == 257);
  }
}

TEST_CASE("a state whose dtype no region can have is refused") {
  for (const Dtype dtype : {kFloat32, kFloat64, kInt64}) {
    amp::AutocastState state = amp::capture();
    state[kCPU].enabled = true;
    state[kCPU].dtype = dtype;
    CHECK_THROWS_WITH_AS(autocast{state}, doctest::Contains("is not float16 or bfloat16"), Error);
    CHECK_FALSE(amp::is_autocast_enabled(kCPU));
  }
}
