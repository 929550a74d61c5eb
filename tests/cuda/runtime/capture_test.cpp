// Capturing a step: random numbers, refusals, memory, and other threads.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "halftape/core/capture/capture.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::testing;

TEST_CASE("a graph draws other random numbers at each replay, those that calls would draw") {
  manual_seed(5);
  Tensor r = zeros({64});
  Graph graph(kCUDA, [&] {
    r.uniform_(0, 1);
    r.add_(rand({64}));
  });
  std::vector<std::vector<double>> seen;
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    seen.push_back(r.to(kCPU).to(kFloat64).to_vector<double>());
  }
  manual_seed(5);
  for (int i = 0; i < 3; ++i) {
    r.uniform_(0, 1);
    r.add_(rand({64}));
    CHECK(seen[static_cast<size_t>(i)] == r.to(kCPU).to(kFloat64).to_vector<double>());
  }
  CHECK(seen[0] != seen[1]);
}

TEST_CASE("a checkpoint in a captured step drops the same elements in its second run") {
  const Tensor x = ones({256}, requires_grad()), y = zeros({256});
  const std::function<Tensor(const TensorList&)> f = [](const TensorList& in) {
    const Tensor h = dropout(in[0], 0.5);
    return h * h;
  };
  Graph graph(kCUDA, [&] {
    x.mutable_grad() = Tensor();
    const Tensor out = autograd::checkpoint(f, {x});
    out.sum().backward();
    y.detach().copy_(out.detach());
  });
  std::vector<std::vector<double>> seen;
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    CHECK(x.grad().equal(y * 2));  // y is 0 or 4, its slope twice that
    seen.push_back(y.to(kCPU).to(kFloat64).to_vector<double>());
  }
  CHECK(seen[0] != seen[1]);
  CHECK(seen[1] != seen[2]);
}

TEST_CASE("what a replay could not repeat is refused when the step is captured, by name") {
  const Tensor x = ones({4});
  CHECK(message([&] {
          const Graph g(kCUDA, [&] { (void)(x.sum().item<float>()); });
        }).find("item()") != std::string::npos);
  CHECK(message([&] { const Graph g(kCUDA, [&] { (void)x.to(kCPU); }); }).find("a copy between") !=
        std::string::npos);
  CHECK(message([&] {
          const Graph g(kCUDA, [&] { backend(kCUDA).synchronize(); });
        }).find("synchronize()") != std::string::npos);
  const cuda::Stream other;
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"synchronize()", [] { cuda::synchronize(); }},
      {"empty_cache()", [] { cuda::empty_cache(); }},
      {"Stream::synchronize()", [&] { other.synchronize(); }},
      {"Event::synchronize()", [] { cuda::Event().synchronize(); }},
      {"StreamGuard", [&] { const cuda::StreamGuard guard(other); }}};
  for (const auto& refused : calls) {
    const std::string said =
        message([&] { const Graph g(kCUDA, [&] { x.add(1), refused.second(); }); });
    CHECK_MESSAGE(said.find(refused.first) != std::string::npos, said);
  }
  CHECK(message([&] {
          const Graph g(kCUDA, [&] { const Graph inner(kCUDA, [&] { x.add(1); }); });
        }).find("inside the step of another graph") != std::string::npos);
  Tensor w = ones({4}, requires_grad());
  CHECK(message([&] {
          const Graph g(kCUDA, [&] { (w * w).sum().backward(); });
        }).find("begin the step with zero_grad()") != std::string::npos);
  CHECK(message([&] {
          Graph inner(kCUDA, [&] { (void)x.add(1); });
          const Graph g(kCUDA, [&] { inner.replay(); });
        }).find("inside the step of another graph") != std::string::npos);
  CHECK(message([&] {
          const Graph g(kCUDA, [&] { set_random_state(get_random_state()); });
        }).find("inside a captured step") != std::string::npos);
  if (cuda::device_count() > 1) {
    const Tensor there = ones({4}, TensorOptions(kFloat32).device(Device(kCUDA, 1)));
    CHECK(message([&] {
            const Graph g(kCUDA, [&] { (void)(there + 1); });
          }).find("work on cuda:1 inside a step on cuda:0") != std::string::npos);
  }
  // The device still works.
  CHECK((x + 1).sum().item<float>() == 8);
  Tensor y = zeros({4});
  Graph good(kCUDA, [&] { y.add_(x); });
  good.replay();
  good.replay();
  CHECK(y.sum().item<float>() == 8);
}

TEST_CASE("a part of a buffer counts as made where the buffer was made") {
  const Shape shape{16};
  const auto part = [&] {
    const Array all({64}, kFloat32, kCUDA);
    return Array(Buffer::part_of(all.buffer(), 0, 64), shape, contiguous_strides(shape), 0,
                 kFloat32);
  };
  Array left;
  CHECK(message([&] {
          const Graph g(kCUDA, [&] {
            if (!left.defined()) left = part();
            backend(kCUDA).fill(left, 1);
          });
        }).find("its trial has left") != std::string::npos);
  // The part may lie where the trial had a buffer that is gone.
  Graph graph(kCUDA, [&] {
    std::vector<Array> many;
    for (int i = 0; i < 32; ++i) many.emplace_back(shape, kFloat32, kCUDA);
    many.clear();
    for (int i = 0; i < 32; ++i) many.push_back(part());
    for (const Array& a : many) backend(kCUDA).fill(a, 1);
  });
  graph.replay();
}

TEST_CASE("a graph is replayed in one stream") {
  Tensor y = zeros({4});
  Graph graph(kCUDA, [&] { y.add_(1); });
  graph.replay();
  const cuda::StreamGuard guard{cuda::Stream()};
  CHECK(message([&] { graph.replay(); }).find("another stream") != std::string::npos);
}

TEST_CASE("a replay that is refused for its stream changes nothing") {
  Tensor y = zeros({4});
  int refreshed = 0;
  Graph graph(kCUDA, [&] {
    y.add_(1);
    if (Capture* capture = Capture::on(kCUDA))
      (void)capture->value(16, [&](std::byte* bytes) {
        std::memset(bytes, 0, 16);
        ++refreshed;
      });
  });
  graph.replay();
  CHECK(refreshed == 1);
  {
    const cuda::StreamGuard guard{cuda::Stream()};
    CHECK_THROWS_AS(graph.replay(), Error);
  }
  CHECK(refreshed == 1);
  CHECK(y.sum().item<float>() == 4);
}

TEST_CASE("a captured step may copy from and to pinned memory, as late as a replay runs") {
  const Tensor from = full({4}, 1, TensorOptions(kFloat32).device(kCPU)).pin_memory();
  Tensor x = zeros({4}), to;
  Graph graph(kCUDA, [&] {
    x.copy_(from);
    to = (x * 2).to(kCPU, /*non_blocking=*/true);
  });
  for (const double value : {3.0, 5.0}) {
    from.fill_(value);
    graph.replay();
    cuda::synchronize();
    CHECK(x.to(kCPU).to_vector() == std::vector<double>(4, value));
    CHECK(to.is_pinned());
    CHECK(to.to_vector() == std::vector<double>(4, 2 * value));
  }
}

TEST_CASE("a capture begins when memory that is kept for reuse has been given back") {
  { const Tensor large = empty({1 << 25}, TensorOptions(kFloat32).device(kCUDA)); }
  cuda::synchronize();
  const int64_t kept = cuda::memory_reserved();
  const Graph graph(kCUDA, [x = ones({4})] { (void)(x + 1); });
  CHECK(cuda::memory_reserved() <= kept - (64 << 20));  // a device reserves some MiB at a time
}

TEST_CASE("a step that throws leaves what it wrote as it was") {
  Tensor y = zeros({4});
  const Tensor bad = ones({3});
  CHECK_THROWS_AS(Graph(kCUDA,
                        [&] {
                          y.add_(1);
                          y.add_(bad);
                        }),
                  Error);
  CHECK(y.sum().item<float>() == 0);
}

TEST_CASE("a step whose kernels find a bad index leaves what it wrote, and the random numbers") {
  const Tensor rows = ones({4, 2}), index = full({1}, 99, kInt64);
  for (const bool throws : {false, true}) {
    CAPTURE(throws);
    manual_seed(3);
    Tensor y = zeros({64});
    const auto make = [&] {
      Graph(kCUDA, [&] {
        y.uniform_(0, 1);
        (void)rows.index_select(0, index);  // which nothing of the step comes after
        if (throws) throw Error("the step's own");
      });
    };
    CHECK(has(message(make), throws ? "the step's own" : "index 99"));
    CHECK(y.eq(0).all().item<bool>());
    const Tensor next = rand({8});
    manual_seed(3);
    CHECK(next.equal(rand({8})));
  }
}

TEST_CASE(
    "a captured step sets no random numbers, marks no stream and asks for none, pins nothing") {
  Tensor y = zeros({4});
  const Generator before = get_generator(kCUDA), of_cpu = get_generator(kCPU);
  cuda::Event event;
  event.record();
  const auto refused = [&](const char* name, const std::function<void()>& call) {
    CAPTURE(name);
    const std::string said = message([&] {
      Graph(kCUDA, [&] {
        y.add_(1);
        call();
      });
    });
    CHECK(has(said, name));
    CHECK(has(said, "inside a captured step"));
  };
  refused("random numbers", [] { manual_seed(7); });
  refused("random numbers", [&] { set_generator(before, kCUDA); });
  refused("random numbers", [] { set_random_state(get_random_state()); });
  refused("random numbers", [] { set_cpu_random_engine(RandomEngine::Philox); });
  refused("Event::record()", [&] { event.record(); });
  refused("Event::block()", [&] { event.block(cuda::current_stream()); });
  refused("Event::query()", [&] { (void)event.query(); });
  const Tensor plain = ones({4}, TensorOptions(kFloat32).device(kCPU));
  refused("call pin_memory() outside it", [&] { y.copy_(plain.pin_memory()); });
  refused("Stream::query()", [] { (void)cuda::current_stream().query(); });
  CHECK(y.eq(0).all().item<bool>());
  refused("random numbers", [] { set_generator({.seed = 7, .offset = 8}, kCPU); });
  CHECK(get_generator(kCUDA).offset == before.offset);
  CHECK(get_generator(kCPU).seed == of_cpu.seed);
}

TEST_CASE("arrays of a captured step outlive the graph, and the graph the tensors it reads") {
  Tensor out;
  {
    Tensor x = full({1000}, 2.0);
    Graph graph(kCUDA, [&, w = x * 3] { out = (x * w).sum(); });
    x = Tensor();  // only the graph holds the bytes
    graph.replay();
    CHECK(out.item<float>() == 12000);
  }
  const Tensor other = zeros({100000});
  CHECK(out.item<float>() == 12000);
}

TEST_CASE("memory that a captured step lets go is used again within it") {
  const Tensor x = ones({1 << 18});
  Tensor y;
  Graph graph(kCUDA, [&] {
    y = x;
    for (int i = 0; i < 20; ++i) y = y + 1;
  });
  cuda::reset_peak_memory_stats();
  const int64_t before = cuda::memory_allocated();
  graph.replay();
  CHECK(y.sum().item<float>() == 21.0f * (1 << 18));
  // Twenty results of 1 MiB, of which two live at a time.
  CHECK(before <= 24 << 20);
  CHECK(cuda::max_memory_allocated() - before < 1 << 20);
}

TEST_CASE("while a thread captures, it and others may free pinned memory, wait and drop graphs") {
  const auto pinned = [] { return ones({1000}, kCPU).pin_memory(); };
  for (const bool same_thread : {false, true}) {
    CAPTURE(same_thread);
    Tensor memory = pinned(), y = zeros({4});
    auto other = std::make_unique<Graph>(kCUDA, [x = ones({4})] { (void)(x + 1); });
    int times = 0;
    Graph graph(kCUDA, [&] {
      y.add_(1);
      if (++times == 2) {  // the first time is the trial
        const auto beside = [&] {
          memory = Tensor();
          other.reset();
          if (same_thread) return;  // the capturing thread may not wait
          cuda::synchronize();
          cuda::empty_cache();
        };
        same_thread ? beside() : std::thread(beside).join();
      }
      y.mul_(2);
    });
    CHECK(times == 2);
    CHECK_FALSE(memory.defined());
    graph.replay();
    graph.replay();
    CHECK(y.to(kCPU).to_vector() == std::vector<double>{6, 6, 6, 6});
  }
}

TEST_CASE("on the CPU a graph calls the step") {
  int calls = 0;
  Graph graph(kCPU, [&] { ++calls; });
  CHECK(calls == 0);
  graph.replay();
  graph.replay();
  CHECK(calls == 2);
  CHECK(graph.size() == 0);
  CHECK_THROWS_AS(Graph(kCPU, {}), Error);
}
