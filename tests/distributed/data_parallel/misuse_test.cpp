// What would leave gradients on one rank, or reduce them twice.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <memory>
#include <vector>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::has;
using testing::message;
using testing::on_ranks;

namespace {

Tensor squares_of(nn::Sequential& net, const ProcessGroup& group) {
  return net->forward(full({2, 3}, group.rank() + 1.0)).square().sum();
}

}  // namespace

TEST_CASE("a parameter that was frozen when the DistributedDataParallel was made is told") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential net{nn::Linear(3, 4), nn::Linear(4, 2)};
    for (const Tensor& p : net[0]->parameters()) p.set_requires_grad(false);
    const DistributedDataParallel ddp(*net, {}, group);
    squares_of(net, *group).backward();
    for (const Tensor& p : net[0]->parameters()) p.set_requires_grad(true);
    const std::string said = message([&] { squares_of(net, *group).backward(); });
    CHECK(has(said, "0.weight requires grad, and was frozen when this was made"));
  });
}

TEST_CASE("a hook that steps while gradients are reduced is told") {
  for (const bool overlap : {true, false})
    for (const bool earlier : {true, false})
      for (const bool forgets : {true, false}) {
        CAPTURE(overlap);
        CAPTURE(earlier);
        CAPTURE(forgets);
        on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
          nn::Sequential net{nn::Linear(3, 4), nn::Linear(4, 2)};
          std::vector<std::unique_ptr<optim::SGD>> optimizers;
          const auto listen = [&] {
            for (const Tensor& p : net->parameters()) {
              optimizers.push_back(std::make_unique<optim::SGD>(std::vector<Tensor>{p}, 0.1));
              p.register_post_accumulate_grad_hook(
                  [&, optimizer = optimizers.back().get()](const Tensor&) {
                    optimizer->step();
                    if (forgets) optimizer->zero_grad();
                  });
            }
          };
          if (earlier) listen();
          const DistributedDataParallel ddp(*net, {.overlap = overlap}, group);
          if (!earlier) listen();
          const std::string said = message([&] { squares_of(net, *group).backward(); });
          // Of a hook that ran first, and left the gradient, nothing is seen.
          if (earlier && !forgets) return;
          CHECK(has(said, earlier ? "was taken before it was reduced" : "this rank's alone"));
        });
      }
}

TEST_CASE("two DistributedDataParallel do not reduce one parameter's gradient") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    nn::Sequential inner{nn::Linear(3, 4)}, net{inner, nn::Linear(4, 2)};
    const DistributedDataParallel whole(*net, {}, group);
    {
      const DistributedDataParallel part(*inner, {}, group);
      CHECK(has(message([&] { squares_of(net, *group).backward(); }),
                "0.0.weight belongs to another DistributedDataParallel"));
    }
    net->zero_grad();
    squares_of(net, *group).backward();
  });
}
