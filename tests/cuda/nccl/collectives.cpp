// Every collective call of a group over NCCL against a plain loop, and what NCCL is asked for.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <algorithm>
#include <barrier>

#include "../nccl_check/check_group.h"
#include "rig_ranks.h"
#include "settings.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::testing;

namespace {

std::vector<double> values(const Tensor& t) { return t.to(kFloat64).to_vector<double>(); }

/// Numbers that differ by rank and place, small enough for sums and products in every dtype.
Tensor numbers(int rank, int64_t n, Dtype dtype, Device device) {
  std::vector<double> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<double>((i * 7 + rank * 5 + 3) % 5 + 1));
  return tensor(x).to(dtype).to(device);
}

std::vector<double> loop(ReduceOp op, int size, int64_t n) {
  std::vector<double> y;
  for (int r = 0; r < size; ++r) {
    const std::vector<double> x = values(numbers(r, n, kFloat64, kCPU));
    for (size_t i = 0; i < x.size(); ++i) {
      if (r == 0)
        y.push_back(x[i]);
      else
        y[i] = op == ReduceOp::Min       ? std::min(y[i], x[i])
               : op == ReduceOp::Max     ? std::max(y[i], x[i])
               : op == ReduceOp::Product ? y[i] * x[i]
                                         : y[i] + x[i];
      if (r == size - 1 && op == ReduceOp::Avg) y[i] /= size;
    }
  }
  return y;
}

/// Both: at once, and as late as may be.
template <class Body>
void in_both_modes(const Body& body) {
  body();
  const simt::With late(deferred());
  body();
}

}  // namespace

TEST_CASE("all_reduce over NCCL is a loop over the ranks, in the tree and by NCCL") {
  in_both_modes([] {
    for (const int size : {2, 3, 4})
      for (const auto how : {distributed::Summation::Tree, distributed::Summation::Engine})
        for (const ReduceOp op :
             {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max}) {
          const Fresh fresh;
          CHECK(on_nccl(size,
                        [&](const auto& group, Device device) {
                          for (const int64_t n : {1, 37, 20000}) {
                            const Tensor x = numbers(group->rank(), n, kFloat32, device);
                            group->all_reduce(x, op);
                            const std::vector<double> got = values(x), wanted = loop(op, size, n);
                            for (size_t i = 0; i < got.size(); ++i)
                              REQUIRE(got[i] == doctest::Approx(wanted[i]));
                          }
                        },
                        {.summation = how}) == none(size));
        }
  });
}

TEST_CASE("all dtypes: NCCL's own sum where it has one, the tree for the others") {
  for (const Dtype dtype :
       {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CAPTURE(dtype);
    const Fresh fresh;
    CHECK(on_nccl(2,
                  [&](const auto& group, Device device) {
                    const Tensor x = numbers(group->rank(), 37, dtype, device);
                    group->all_reduce(x);
                    std::vector<double> wanted = loop(ReduceOp::Sum, 2, 37);
                    if (dtype == kBool) wanted.assign(37, 1);
                    CHECK(values(x) == wanted);
                  },
                  {.summation = distributed::Summation::Engine}) == none(2));
    const std::vector<std::string> log = fake().log(0);
    const bool by_nccl = std::any_of(log.begin(), log.end(), [](const std::string& line) {
      return line.starts_with("ncclAllReduce");
    });
    CHECK(by_nccl == (dtype != kBool && dtype != kInt16));
  }
}

TEST_CASE("gathers, scatters, broadcasts and barriers") {
  in_both_modes([] {
    for (const int size : {2, 4}) {
      const Fresh fresh;
      CHECK(on_nccl(size, [&](const auto& group, Device device) {
              const int me = group->rank();
              const auto filled = [&](const Shape& shape, int value) {
                return full(shape, value, TensorOptions(kFloat32).device(device));
              };
              const Tensor together = filled({2 * size, 3}, -1);
              group->all_gather_into_tensor(together, filled({2, 3}, me));
              std::vector<Tensor> to_all, came;
              for (int r = 0; r < size; ++r) {
                to_all.push_back(filled({3}, me * 10 + r));
                came.push_back(filled({3}, -1));
              }
              group->all_to_all(came, to_all);
              const Tensor reduced = filled({3}, -1);
              group->reduce_scatter(reduced, to_all);
              const Tensor big = filled({30000}, me);
              group->broadcast(big, size - 1);
              group->barrier();
              for (int r = 0; r < size; ++r) {
                CHECK(values(together.slice(0, 2 * r, 2 * r + 2).reshape({6})) ==
                      std::vector<double>(6, r));
                CHECK(values(came[static_cast<size_t>(r)]) == std::vector<double>(3, r * 10 + me));
              }
              CHECK(values(reduced) ==
                    std::vector<double>(3, 10 * size * (size - 1) / 2 + me * size));
              CHECK(values(big) == std::vector<double>(30000, size - 1));
            }) == none(size));
    }
  });
}

TEST_CASE("tensors of the host travel by way of the GPU; those of another GPU are refused") {
  const Fresh fresh;
  const auto errors = on_nccl(2, [&](const auto& group, Device device) {
    const Tensor host = numbers(group->rank(), 37, kFloat64, kCPU);
    const Work work = group->all_reduce(host, ReduceOp::Sum, {.async_op = true});
    work.wait();
    CHECK(values(host) == loop(ReduceOp::Sum, 2, 37));
    (void)device;
    group->all_reduce(numbers(0, 3, kFloat32, Device(kCUDA, 3)));
  });
  for (const int r : {0, 1}) {
    CAPTURE(errors[static_cast<size_t>(r)]);
    CHECK(errors[static_cast<size_t>(r)].find("a tensor on cuda:3 in a group of nccl, whose device "
                                              "in this process is cuda:" +
                                              std::to_string(r)) != std::string::npos);
  }
}

TEST_CASE("the calls that NCCL gets, and none of them waits") {
  const Fresh fresh;
  const simt::With late(deferred());
  std::barrier both(2);  // the rig counts for all threads
  CHECK(on_nccl(2, [&](const auto& group, Device device) {
          const Tensor x = numbers(group->rank(), 3, kFloat32, device);
          both.arrive_and_wait();
          const int64_t before = simt::counters().synchronisations;
          both.arrive_and_wait();
          const Work work = group->all_reduce(x, ReduceOp::Sum, {.async_op = true});
          CHECK(work.is_success());
          work.wait();
          both.arrive_and_wait();
          CHECK(simt::counters().synchronisations == before);
          CHECK(simt::pending_work() > 0);
          both.arrive_and_wait();
          group->barrier();
        }) == none(2));
  CHECK(fake().log(1) == std::vector<std::string>{"ncclCommInitRankConfig", "ncclSend 12 to 0",
                                                  "ncclRecv 12 from 0", "ncclSend 1 to 0",
                                                  "ncclRecv 1 from 0", "ncclCommFinalize",
                                                  "ncclCommDestroy"});
}

TEST_CASE("a sum that nobody can wait for in time is ended by the destructor alone") {
  // The group goes while its last call is still in the stream.
  const Fresh fresh;
  const simt::With late(deferred());
  std::vector<Tensor> results(2);
  CHECK(on_nccl(2, [&](const auto& group, Device device) {
          const Tensor x = numbers(group->rank(), 37, kFloat32, device);
          group->all_reduce(x, ReduceOp::Sum, {.async_op = true});
          results[static_cast<size_t>(group->rank())] = x;
        }) == none(2));
  for (const Tensor& x : results) CHECK(values(x) == loop(ReduceOp::Sum, 2, 37));
}

TEST_CASE("a rank uses no GPU but its own, in none of its threads") {
  const Fresh fresh;
  const simt::With late(deferred());
  const milliseconds timeout(2000);
  MemoryStore store(timeout);
  simt::reset_counters();
  CHECK(on_threads(1, [&](int) {
          const auto engine = open_nccl({0, 1, &store, timeout, "", 1});
          const Tensor x = ones({3}, TensorOptions(kFloat32).device(Device(kCUDA, 1)));
          CHECK(engine->all_reduce(x.array().raw(), 3, kFloat32, ReduceOp::Sum, 1 << 24, timeout));
          std::this_thread::sleep_for(milliseconds(300));  // its watchdog looks every 100 ms
          CHECK(values(x.cpu()) == std::vector<double>(3, 1));
        }) == none(1));
  CHECK(simt::counters().contexts == 0b10);
}

TEST_CASE("what scripts/gpu_check asks of real GPUs holds on the rig") {
  for (const int size : {1, 3})
    for (const auto how : {distributed::Summation::Tree, distributed::Summation::Engine}) {
      const Fresh fresh;
      const simt::With late(deferred());
      CHECK(on_nccl(size,
                    [&](const auto& group, Device device) {
                      const GroupFindings found = check_group(*group, device, 1000);
                      CHECK(found.wrong.empty());
                      CHECK(found.nodes > 0);
                    },
                    {.summation = how}) == none(size));
    }
}
