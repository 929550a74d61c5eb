// NCCL fails, hangs, loses a peer or is aborted: every rank ends with a reason, and in time.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <barrier>
#include <chrono>

#include "rig_ranks.h"
#include "settings.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::testing;
using std::chrono::milliseconds;

namespace {

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
  return text.find(part) != std::string::npos;
}

Tensor ones_on(Device device, int64_t n = 3) {
  return ones({n}, TensorOptions(kFloat32).device(device));
}

int count(int rank, const std::string& call) {
  int n = 0;
  for (const std::string& line : fake().log(rank)) n += line.starts_with(call);
  return n;
}

class Stopwatch {
 public:
  milliseconds elapsed() const {
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start_);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

TEST_CASE("a rank that never comes: the others name the phase, within the timeout") {
  const Fresh fresh;
  MemoryStore store(milliseconds(300));
  const Stopwatch watch;
  const auto errors = on_threads(2, [&](int r) {
    (void)open_nccl({r, 3, &store, milliseconds(300), "", r});
  });
  CHECK(watch.elapsed() < milliseconds(2000));
  for (const int r : {0, 1}) {
    has(errors[static_cast<size_t>(r)],
        "making the communicator of rank " + std::to_string(r) + " of 3 on cuda:" +
            std::to_string(r) + " (ncclCommInitRankConfig): not all ranks came within 300 ms");
    CHECK(count(r, "ncclCommAbort") == 1);
  }
}

TEST_CASE("failures of the start are told in NCCL's words") {
  for (const auto& [call, result, part] :
       {std::tuple("ncclGetUniqueId", 2, "ncclGetUniqueId: unhandled system error"),
        std::tuple("ncclCommInitRankConfig", 1, "unhandled cuda error: the fake's last words"),
        std::tuple("ncclCommInitRankConfig", 5, "each rank needs a GPU of its own")}) {
    const Fresh fresh;
    fake().fail(call, 1, result);
    MemoryStore store(milliseconds(200));
    has(on_threads(1,
                   [&](int r) {
                     (void)open_nccl({r, 1, &store, milliseconds(200), "", r});
                   })[0],
        part);
  }
}

TEST_CASE("a call that fails closes its group, and ends the communicator on that rank") {
  for (const std::string call : {"ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd"}) {
    CAPTURE(call);
    const Fresh fresh;
    const simt::With late(deferred());
    std::barrier both(2);
    const auto errors = on_nccl(2,
                                [&](const auto& group, Device device) {
                                  group->barrier();
                                  both.arrive_and_wait();
                                  if (group->rank() == 0) fake().fail(call, 1, 3);
                                  both.arrive_and_wait();
                                  const auto reduce = [&] { group->all_reduce(ones_on(device)); };
                                  std::string first, second;
                                  try {
                                    reduce();
                                    group->barrier();
                                  } catch (const Error& e) {
                                    first = e.what();
                                  }
                                  CHECK_THROWS_AS(reduce(), Error);
                                  throw Error(first);
                                },
                                {.timeout = milliseconds(400)});
    int failed = 0, overdue = 0;
    for (const std::string& text : errors) {
      failed += text.find("internal error: the fake's last words") != std::string::npos;
      overdue += text.find("has not ended on cuda:") != std::string::npos;
    }
    CAPTURE(errors[0]);
    CAPTURE(errors[1]);
    CHECK(failed == 1);
    CHECK(overdue == 1);
    for (const int r : {0, 1}) {
      CHECK(count(r, "ncclCommAbort") == 1);
      CHECK(count(r, "ncclCommDestroy") == 0);
    }
  }
}

TEST_CASE("a hang on the device is aborted within the timeout, and the next call names it") {
  const Fresh fresh;
  const simt::With late(deferred());
  const auto errors = on_nccl(2,
                              [&](const auto& group, Device device) {
                                group->barrier();  // call 1
                                if (group->rank() == 1)
                                  return;  // it never makes call 2, and waits in its destructor
                                const Tensor x = ones_on(device, 5000);
                                group->all_reduce(x);
                                const Stopwatch watch;
                                (void)x.to_vector<float>();  // the host waits, until the abort
                                CHECK(watch.elapsed() > milliseconds(200));
                                CHECK(watch.elapsed() < milliseconds(1500));
                                group->barrier();
                              },
                              {.timeout = milliseconds(300)});
  CHECK(errors[1].empty());
  has(errors[0],
      "barrier 3: NCCL: collective call 2 (an exchange of 20000 bytes) has not ended on "
      "cuda:0 within 300 ms");
  CHECK(count(0, "ncclCommAbort") == 1);
}

TEST_CASE("a host that waited for a call that was aborted is told, not given its numbers") {
  const Fresh fresh;
  const simt::With late(deferred());
  const auto errors = on_nccl(2,
                              [&](const auto& group, Device) {
                                if (group->rank() == 0)
                                  group->all_reduce(ones({3}));  // of the host
                              },
                              {.timeout = milliseconds(300)});
  has(errors[0], "collective call 1 (an exchange of 24 bytes) has not ended");
}

TEST_CASE("calls that end in time are no hang, however many come after each other") {
  const Fresh fresh;
  const simt::With late(deferred());
  CHECK(on_nccl(2,
                [&](const auto& group, Device device) {
                  const Stopwatch watch;
                  while (watch.elapsed() < milliseconds(700)) {
                    const Tensor x = ones_on(device);
                    group->all_reduce(x);
                    std::this_thread::sleep_for(milliseconds(20));
                    // The number decides on all ranks alike, so they leave the loop together.
                    const Tensor go =
                        ones_on(device, 1) * (watch.elapsed() < milliseconds(600) ? 1 : 0);
                    group->all_reduce(go, ReduceOp::Min);
                    if (go.item<float>() == 0) break;
                  }
                },
                {.timeout = milliseconds(250)}) == none(2));
}

TEST_CASE("a peer that cannot be reached: the call itself throws in time") {
  const Fresh fresh;
  const auto errors = on_nccl(2,
                              [&](const auto& group, Device device) {
                                group->barrier();
                                if (group->rank() == 1) return;
                                fake().stall(0, 1);
                                const Stopwatch watch;
                                CHECK_THROWS_AS(group->all_reduce(ones_on(device)), Error);
                                CHECK(watch.elapsed() < milliseconds(1500));
                                group->barrier();
                              },
                              {.timeout = milliseconds(300)});
  has(errors[0],
      "NCCL: an exchange of rank 0 of 2 on cuda:0: its peers were not reached within "
      "300 ms");
}

TEST_CASE("what NCCL notices by itself ends the group") {
  const Fresh fresh;
  const auto errors = on_nccl(2, [&](const auto& group, Device device) {
    group->barrier();
    if (group->rank() == 1) return;
    fake().async_error(0, 6);
    const Stopwatch watch;
    while (count(0, "ncclCommAbort") == 0 && watch.elapsed() < milliseconds(3000))
      std::this_thread::sleep_for(milliseconds(5));
    group->all_reduce(ones_on(device));
  });
  has(errors[0],
      "NCCL: rank 0 of 2 on cuda:0 noticed: remote process exited or there was a network "
      "error: the fake's last words");
}

TEST_CASE(
    "another thread aborts: while the device hangs, while a peer is not reached, in a launch") {
  const auto aborted = [](const auto& during) {
    MemoryStore store(milliseconds(60000));
    std::vector<std::shared_ptr<Engine>> engines(2);
    std::barrier both(2);
    return on_threads(2, [&](int r) {
      auto& engine = engines[static_cast<size_t>(r)];
      engine = open_nccl({r, 2, &store, milliseconds(60000), "", r});
      both.arrive_and_wait();
      std::thread other;
      if (r == 0) {
        other = std::thread([&] {
          std::this_thread::sleep_for(milliseconds(200));
          engine->abort();
        });
        std::exception_ptr error;
        try {
          during(*engine);
        } catch (...) {
          error = std::current_exception();
        }
        other.join();
        CHECK_THROWS_AS(engine->check(), Error);
        both.arrive_and_wait();
        engine.reset();
        if (error) std::rethrow_exception(error);
        throw Error("nothing was thrown");
      }
      both.arrive_and_wait();
      engine->abort();  // the other end is gone
      engine.reset();
    })[0];
  };
  const auto send = [](Engine& engine) {
    const Tensor x = ones_on(Device(kCUDA, 0));
    const Message message{1, x.array().raw(), 12};
    engine.exchange({&message, 1}, {}, 1 << 24, milliseconds(60000));
    (void)x.to_vector<float>();
    engine.check();
  };
  SUBCASE("the device") {
    const Fresh fresh;
    const simt::With late(deferred());
    has(aborted(send), "the group was aborted");
  }
  SUBCASE("a peer") {
    const Fresh fresh;
    fake().stall(0, 1);
    has(aborted(send), "the group was aborted");
  }
  SUBCASE("a launch, which is inside NCCL") {
    const Fresh fresh;
    has(aborted(send), "the group was aborted");
  }
}

TEST_CASE("an abort or a destructor that is stuck in the driver does not hold the program") {
  const Fresh fresh;
  MemoryStore store(milliseconds(1000));
  const Stopwatch watch;
  CHECK(on_threads(2, [&](int r) {
          const auto engine = open_nccl({r, 2, &store, milliseconds(1000), "", r});
          if (r == 0) fake().stick();
          if (r == 0) engine->abort();
        }) == none(2));
  CHECK(watch.elapsed() > milliseconds(900));
  CHECK(watch.elapsed() < milliseconds(8000));
  fake().release();
  for (int i = 0; i < 1000 && fake().alive() > 0; ++i) std::this_thread::sleep_for(milliseconds(5));
}

TEST_CASE("a GPU that fails ends the group with the reason") {
  const Fresh fresh;
  simt::Settings quiet = deferred();
  quiet.quiet = true;
  const simt::With late(quiet);
  const auto errors =
      on_nccl(2,
              [&](const auto& group, Device device) {
                group->barrier();
                if (group->rank() == 1) return;
                group->all_reduce(ones_on(device));
                simt::fail_launch(1);
                (void)(ones_on(device) + 1);
                const Stopwatch watch;
                while (count(0, "ncclCommAbort") == 0 && watch.elapsed() < milliseconds(3000))
                  std::this_thread::sleep_for(milliseconds(5));
                group->barrier();
              },
              {.timeout = milliseconds(1000)});
  CHECK(!errors[0].empty());
  CHECK(count(0, "ncclCommAbort") == 1);
  simt::reset();
}
