// Collective calls inside a Graph.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <algorithm>

#include "rig_ranks.h"
#include "settings.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::testing;

namespace {

std::vector<float> values(const Tensor& t) { return t.to(kCPU).to_vector<float>(); }

Tensor filled(Device device, int64_t n, double value) {
  return full({n}, value, TensorOptions(kFloat32).device(device));
}

}  // namespace

TEST_CASE("a graph replays the collective calls of its step, in both ways of summing") {
  for (const auto how : {distributed::Summation::Tree, distributed::Summation::Engine})
    for (const simt::Mode mode : {simt::Mode::Immediate, simt::Mode::Deferred})
      for (const simt::Order order : {simt::Order::Forward, simt::Order::Random}) {
        const Fresh fresh;
        simt::Settings s = simt::settings;
        s.mode = mode;
        s.order = order;
        const simt::With with(s);
        CHECK(on_nccl(3,
                      [&](const auto& group, Device device) {
                        const int me = group->rank();
                        const Tensor x = filled(device, 10000, me + 1);
                        Tensor y;
                        Graph graph(device, [&] {
                          y = x * 2;
                          group->all_reduce(y);
                          y = y + 1;
                        });
                        graph.replay();
                        CHECK(values(y) == std::vector<float>(10000, 13));
                        x.copy_(filled(device, 10000, 10 * (me + 1)));
                        graph.replay();
                        graph.replay();
                        CHECK(values(y) == std::vector<float>(10000, 121));
                        group->barrier();
                      },
                      {.summation = how}) == none(3));
      }
}

TEST_CASE("what NCCL alone has written is restored after the trial, and counts as written") {
  for (const auto how : {distributed::Summation::Tree, distributed::Summation::Engine}) {
    const Fresh fresh;
    CHECK(on_nccl(2,
                  [&](const auto& group, Device device) {
                    const int me = group->rank();
                    const Tensor sum = filled(device, 8, me + 1), news = filled(device, 8, me + 5);
                    Graph graph(device, [&] {
                      group->broadcast(news);
                      group->all_reduce(sum);
                    });
                    CHECK(values(sum) == std::vector<float>(8, static_cast<float>(me + 1)));
                    CHECK(values(news) == std::vector<float>(8, static_cast<float>(me + 5)));
                    const uint64_t before = sum.array().version();
                    graph.replay();
                    CHECK(sum.array().version() > before);
                    CHECK(values(sum) == std::vector<float>(8, 3));
                    CHECK(values(news) == std::vector<float>(8, 5));
                    graph.replay();
                    CHECK(values(sum) == std::vector<float>(8, 6));
                    group->barrier();
                  },
                  {.summation = how}) == none(2));
  }
}

TEST_CASE("what the capture held back, to join it with its neighbour, comes before the call") {
  for (const auto how : {distributed::Summation::Tree, distributed::Summation::Engine}) {
    const Fresh fresh;
    CHECK(on_nccl(2,
                  [&](const auto& group, Device device) {
                    const Tensor x = arange(12).to(kFloat32).reshape({3, 4}).to(device),
                                 y = arange(3).to(device);
                    Tensor loss;
                    Graph graph(device, [&] {
                      loss = nn::functional::cross_entropy(x, y);
                      group->all_reduce(loss);
                    });
                    x.copy_(x * static_cast<double>(group->rank()));
                    graph.replay();
                    const float wanted =
                        nn::functional::cross_entropy(x, y).template item<float>();  // of this rank
                    const Tensor both = full({}, wanted, TensorOptions(kFloat32).device(device));
                    group->all_reduce(both);
                    CHECK(loss.template item<float>() == both.template item<float>());
                    group->barrier();
                  },
                  {.summation = how}) == none(2));
  }
}

TEST_CASE("a barrier, and sums of the host's tensors, are refused in a captured step") {
  const Fresh fresh;
  const auto errors = on_nccl(
      2, [&](const auto& group, Device device) { Graph graph(device, [&] { group->barrier(); }); },
      {.timeout = milliseconds(2000)});
  for (const std::string& text : errors) {
    CAPTURE(text);
    CHECK(text.find("captured step") != std::string::npos);
  }
}
