// Threads, and who outlives whom: backward passes of one model in two threads, graphs that need
// their group, and questions while a group meets.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <atomic>
#include <thread>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using testing::has;
using testing::message;

TEST_CASE("a second thread's backward through one model is refused, and the first goes on") {
  testing::on_ranks(2, [](const auto& group) {
    nn::Linear first(2, 3), second(3, 1);
    nn::Sequential net(first, second);
    DistributedDataParallel ddp(*net, {}, group);
    const auto loss_of = [&](const Tensor& h) { return second->forward(h).sum(); };
    const Tensor x = ones({4, 2}), other = loss_of(first->forward(x)), h = first->forward(x);
    std::string refused;
    h.register_hook([&](const Tensor&) {  // the second layer's gradients have arrived
      std::thread([&] { refused = message([&] { other.backward(); }); }).join();
    });
    loss_of(h).backward();
    CHECK(has(refused, "two threads run backward() through one model"));
    for (const Tensor& p : net->parameters()) CHECK(p.grad().defined());
  });
}

TEST_CASE("a graph keeps the group that its sums over ranks need") {
  std::weak_ptr<ProcessGroup> alive;
  const Tensor x = arange(12, kFloat32).reshape({4, 3}).requires_grad_();
  Tensor loss;
  {
    const auto group = new_process_group({.rank = 0, .world_size = 1});
    alive = group;
    SyncBatchNorm norm(nn::BatchNormOptions(3), group);
    loss = norm->forward(x).pow(2).sum();
  }
  CHECK_FALSE(alive.expired());
  loss.backward();
  CHECK(x.grad().defined());
  loss = Tensor();
  CHECK(alive.expired());
}

TEST_CASE(
    "while the default group meets, questions for it are answered, and no second one begins") {
  const testing::TempFolder folder;
  std::atomic<bool> ended = false;
  std::string why;
  std::thread meets([&] {
    why = message([&] {
      init_process_group({.timeout = std::chrono::milliseconds(1500),
                          .init_method = "file://" + (folder / "store").string(),
                          .rank = 0,
                          .world_size = 2});  // the other one never comes
    });
    ended = true;
  });
  std::string second;
  while (!ended && second.empty()) {
    CHECK_FALSE(is_initialized());
    CHECK(get_rank() == 0);
    if (std::filesystem::exists(folder / "store"))  // it has begun
      second = message([] { init_process_group({.rank = 0, .world_size = 1}); });
  }
  CHECK_FALSE(ended);  // answered before the meeting gave up
  CHECK(has(second, "there is a default group already"));
  meets.join();
  CHECK(!why.empty());
  CHECK_FALSE(is_initialized());
  init_process_group({.rank = 0, .world_size = 1});  // a meeting that failed is over
  destroy_process_group();
}
