// State that the library keeps between calls, used from several streams: whoever uses it knows
// nothing of it, and so cannot wait for it.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <functional>
#include <thread>
#include <utility>

#include "halftape/core/contract/backend.h"
#if defined(HALFTAPE_SIMT)
#include "rig.h"
using namespace halftape::testing;
#endif

using namespace halftape;

namespace {

/// The device runs its work as late as it may: a wait that is missing shows.
struct Late {
#if defined(HALFTAPE_SIMT)
  const Clean clean;
  const simt::With late{now_with([](simt::Settings& s) { s.mode = simt::Mode::Deferred; })};
#endif
};

/// A leaf of ones whose gradients come from two streams.
struct LeafInTwoStreams {
  Late late;
  Tensor w = full({100}, 1.0).to(kCUDA).set_requires_grad(true);
  cuda::Stream first, second;
  LeafInTwoStreams() { cuda::synchronize(); }
  void add(const cuda::Stream& stream, double gradient) const {
    const cuda::StreamGuard guard(stream);
    (w * gradient).sum().backward();
  }
  void check_in_second(double gradient) const {
    const cuda::StreamGuard guard(second);
    CHECK(w.grad().to(kCPU).eq(gradient).all().item<bool>());
    first.synchronize();
  }
};

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("what the trial of a step wrote is undone in the caller's stream") {
    [[maybe_unused]] const Late late;
    Tensor w = full({1000}, 1.0).to(kCUDA);
    cuda::synchronize();
    {
      const Graph first(kCUDA, [&] { (void)(w + 1); });
    }  // its stream is taken again
    const cuda::Stream stream;
    const cuda::StreamGuard guard(stream);
    const Graph graph(kCUDA, [&] { w.add_(1); });
    CHECK(w.to(kCPU).eq(1).all().item<bool>());
  }
  TEST_CASE("a weight's 16-bit copy is there for every stream") {
    [[maybe_unused]] const Late late;
    const Tensor x = full({8, 16}, 2, kFloat16).to(kCUDA);
    const Tensor w = full({16, 4}, 3.0).to(kCUDA).set_requires_grad(true);
    cuda::synchronize();
    const cuda::Stream first, second;
    const auto product_in = [&](const cuda::Stream& stream) {
      const cuda::StreamGuard guard(stream);
      return matmul(x, w);
    };
    const auto check_in_second = [&](const Tensor& y) {
      const cuda::StreamGuard guard(second);
      CHECK(y.to(kCPU).eq(96).all().item<bool>());
    };
    Tensor here, there;
    SUBCASE("in one region") {
      const amp::autocast region(kCUDA, kFloat16);
      here = product_in(first);
      there = product_in(second);
      check_in_second(there);
    }
    SUBCASE("in a region each") {
      for (const auto& [stream, y] : {std::pair(&first, &here), std::pair(&second, &there)}) {
        const amp::autocast region(kCUDA, kFloat16);
        *y = product_in(*stream);
      }
      SUBCASE("the first one is read later") {}
      SUBCASE("the first one's memory is used again") {
        amp::clear_autocast_cache();
        const cuda::StreamGuard guard(first);
        const Tensor other = full({16, 4}, 7, kFloat16).to(kCUDA);
        first.synchronize();
      }
      check_in_second(there);
    }
    first.synchronize();
  }

  TEST_CASE("gradients of one leaf arrive from several streams") {
    const LeafInTwoStreams leaf;
    leaf.add(leaf.first, 2);
    leaf.add(leaf.second, 3);
    leaf.check_in_second(5);
  }

  TEST_CASE("a gradient's memory is free once the last stream that added to it has done so") {
    const LeafInTwoStreams leaf;
    leaf.add(leaf.first, 2);
    leaf.add(leaf.second, 2);
    const cuda::StreamGuard guard(leaf.first);
    leaf.w.mutable_grad() = Tensor();
    const Tensor other = full({100}, 7, kFloat32).to(kCUDA);
    leaf.first.synchronize();
    leaf.second.synchronize();
    CHECK(other.to(kCPU).eq(7).all().item<bool>());
  }

  TEST_CASE("a leaf's gradient stays in order when the leaf rests in between") {
    const LeafInTwoStreams leaf;
    leaf.add(leaf.first, 2);
    leaf.w.requires_grad_(false), leaf.w.requires_grad_(true);
    leaf.add(leaf.second, 3);
    leaf.check_in_second(5);
  }

  TEST_CASE("memory of a trial may be freed while its stream captures another step") {
    const Tensor x = ones({1 << 20}, kCUDA);
    Tensor kept, y;
    bool tried = false;
    {
      const Graph first(kCUDA, [&] {
        if (!std::exchange(tried, true)) kept = x + 1;
      });
    }
    // Streams that were given back are taken from the end; the second one was the trial's.
    const auto other = backend(kCUDA).queues()->new_side_queue();
    int calls = 0;
    int64_t freed = 0;
    Graph second(kCUDA, [&] {
      y = x * 3;
      if (++calls != 2) return;
      std::thread([&] {
        const int64_t before = cuda::memory_allocated();
        kept = Tensor();
        cuda::synchronize();
        freed = before - cuda::memory_allocated();
      }).join();
    });
    second.replay();
    CHECK(y.to(kCPU).eq(3).all().item<bool>());
    CHECK(freed >= int64_t{4} << 20);
  }

  TEST_CASE("backward passes that are too deep for a stack keep their stream") {
    const cuda::Stream stream;
    const cuda::StreamGuard guard(stream);
    int deepest = 0;
    const std::function<void(int)> nest = [&](int depth) {
      CHECK(cuda::current_stream() == stream);
      deepest = depth;
      if (depth == 60) return;
      const AutoGradMode recorded(true);  // backward() turns it off
      const Tensor x = ones({1}, kCUDA).set_requires_grad(true);
      const Tensor y = (x * 2).to(depth % 2 == 0 ? kCUDA : kCPU);
      y.register_hook([&](const Tensor&) { nest(depth + 1); });
      y.backward();
    };
    nest(0);
    CHECK(deepest == 60);
  }
}
