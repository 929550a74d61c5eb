// The default group, and meeting places and options that cannot be.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <cstdlib>
#include <future>
#include <thread>

#include "halftape/distributed/engine/opening.h"
#include "halftape/distributed/store/file_store.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::has;
using halftape::testing::message;

TEST_CASE("the default group is there from init_process_group() to destroy_process_group()") {
  const auto none = [] {
    CHECK_FALSE(is_initialized());
    CHECK(get_rank() == 0);
    CHECK(get_world_size() == 1);
    CHECK(has(message([] { default_group(); }), "call init_process_group() first"));
    CHECK(has(message([] { destroy_process_group(); }), "there is no default group"));
  };
  none();
  const testing::TempFolder folder;
  const auto store = std::make_shared<FileStore>(folder / "store");
  // A start that fails leaves no default group behind.
  CHECK(has(message([] { init_process_group({.rank = 2, .world_size = 2}); }), "rank 2 of 2"));
  none();
  const auto group = init_process_group({.rank = 0, .world_size = 1, .store = store});
  CHECK(is_initialized());
  CHECK(default_group() == group);
  CHECK(get_rank() == 0);
  CHECK(get_world_size() == 1);
  CHECK(group->backend() == "none");
  CHECK(group->store() == store);
  CHECK_FALSE(group->queues());
  CHECK(has(message([] { init_process_group({.rank = 0, .world_size = 1}); }),
            "there is a default group already; call destroy_process_group() first"));
  CHECK(default_group() == group);
  SyncBatchNorm norm(nn::BatchNormOptions(2));  // takes the default group
  CHECK(norm->forward(tensor({1., 2., 3., 4.}).to(kFloat32).reshape({2, 2})).sizes() ==
        Shape{2, 2});
  destroy_process_group();
  none();
}

TEST_CASE("options of a group that cannot be are refused, with what to give instead") {
  const std::string half = "give both rank and world_size, or neither";
  const std::string port = "is not a number from 1 to 65535";
  struct Row {
    ProcessGroupOptions options;
    std::string words;
  };
  std::vector<Row> rows{
      {{.rank = 0}, half},
      {{.world_size = 2}, half},
      {{.rank = 0, .world_size = 0}, "rank 0 of 0; ranks are counted from 0"},
      {{.rank = 1, .world_size = 2}, "rank 1 of 2 does not know where the processes meet"},
      {{.init_method = "env://", .rank = 1, .world_size = 2}, "\"env://\" is no meeting place"},
      {{.init_method = "tcp://a", .rank = 1, .world_size = 2},
       "\"tcp://a\" is not tcp://host:port"},
      {{.init_method = "tcp://:1", .rank = 1, .world_size = 2}, "is not tcp://host:port"}};
  for (const char* wrong : {"", "0", "65536", "100000", "-1", "1x", " 1", "0x1"})
    rows.push_back({{.init_method = "tcp://a:" + std::string(wrong), .rank = 1, .world_size = 2},
                    "the port of \"tcp://a:" + std::string(wrong) + "\" " + port});
  for (const Row& row : rows)
    CHECK_MESSAGE(has(message([&] { new_process_group(row.options); }), row.words), row.words);
}

#if !defined(_WIN32)
TEST_CASE("whoever gives a meeting place needs none in the environment") {
  const std::pair<const char*, const char*> variables[] = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "tcp://10.0.0.1:29500"}};
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  const testing::TempFolder folder;
  const auto store = std::make_shared<FileStore>(folder / "store", milliseconds(50));
  const std::string none = message([] { new_process_group({}); }),
                    method = message([] { new_process_group({.init_method = "tcp://a"}); }),
                    own = message(
                        [&] { new_process_group({.timeout = milliseconds(50), .store = store}); });
  for (const auto& [name, value] : variables) unsetenv(name);
  CHECK(has(none, "MASTER_PORT is set"));
  CHECK(has(method, "\"tcp://a\" is not tcp://host:port"));
  CHECK(!own.empty());  // nobody else comes
  CHECK(!has(own, "MASTER_PORT"));
}
#endif

#if !defined(_WIN32)
TEST_CASE("whoever gives a meeting place needs no list of Slurm's hosts") {
  const std::pair<const char*, const char*> variables[] = {{"SLURM_PROCID", "1"},
                                                           {"SLURM_STEP_NUM_TASKS", "2"},
                                                           {"SLURM_LOCALID", "0"},
                                                           {"SLURM_STEP_ID", "0"},
                                                           {"SLURM_STEP_NODELIST", "node["}};
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  const std::string none = message([] { new_process_group({}); }),
                    method = message([] { new_process_group({.init_method = "tcp://a"}); });
  for (const auto& [name, value] : variables) unsetenv(name);
  CHECK(has(none, "the list of hosts \"node[\" of Slurm"));
  CHECK(has(method, "\"tcp://a\" is not tcp://host:port"));
}
#endif

TEST_CASE("an engine that does not start in time, or at all, and a loss on the way") {
  FailureNews news;
  const auto none = [] { return std::unique_ptr<Engine>(); };
  CHECK(open_in_time(none, milliseconds(5000), news) == nullptr);
  CHECK(message([&] {
          open_in_time([]() -> std::unique_ptr<Engine> { throw Error("it rains"); },
                       milliseconds(5000), news);
        }) == "it rains");
  std::promise<void> end;
  const std::shared_future<void> ended(end.get_future());
  const auto hangs = [ended]() -> std::unique_ptr<Engine> {
    ended.wait();
    return nullptr;
  };
  CHECK(has(message([&] { open_in_time(hangs, milliseconds(80), news); }),
            "not all of their connections came about within 0.08 s"));
  std::thread other([&news] {
    std::this_thread::sleep_for(milliseconds(50));
    news.tell("rank 1 of 2 has died");
    news.tell("rank 0 of 2 has died");  // because of the first one
  });
  const std::string lost = "init_process_group: rank 1 of 2 has died";
  CHECK(message([&] { open_in_time(hangs, milliseconds(20000), news); }) == lost);
  other.join();
  CHECK(message([&] { open_in_time(hangs, milliseconds(20000), news); }) == lost);
  end.set_value();
}

TEST_CASE("a group needs an engine, and a rank within its size") {
  CHECK(has(message([] { ProcessGroup(nullptr, 0, 2); }), "2 processes need an engine"));
  for (const auto& [rank, size] : {std::pair(0, 0), std::pair(-1, 2), std::pair(2, 2)})
    CHECK(has(message([&, r = rank, n = size] { ProcessGroup(nullptr, r, n); }),
              "rank " + std::to_string(rank) + " of " + std::to_string(size)));
  testing::on_ranks(2, [](const auto& group) {
    CHECK(group->backend() == "threads");
    CHECK(group->store() == nullptr);
    CHECK(has(message([&] { group->all_to_all_single(ones({3}), ones({3})); }),
              "3 elements are not 2 equal parts"));
  });
}
