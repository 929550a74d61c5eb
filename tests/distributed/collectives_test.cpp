// Every collective call against a plain loop, on 1 to 8 ranks, for sizes around every border.
#include <doctest/doctest.h>
#include <halftape/distributed/collectives.h>
#include <halftape/halftape.h>

#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::on_ranks;
using testing::kAllDtypes;

namespace {

constexpr int kSizes[] = {1, 2, 3, 4, 5, 8};

/// Numbers that differ by rank and place, small enough for sums and products in every dtype.
Tensor numbers(int rank, int64_t n, Dtype dtype) {
  std::vector<double> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<double>((i * 7 + rank * 5 + 3) % 11 - 4));
  const Tensor t = tensor(x).reshape({n});
  return (dtype == kBool ? t > 0 : dtype == kUInt8 ? t.abs() : t).to(dtype);
}

/// The same by one loop over the ranks, in double.
double expected(ReduceOp op, Dtype dtype, int size, int64_t n, int64_t i) {
  double y = 0;
  for (int r = 0; r < size; ++r) {
    const double x = numbers(r, n, dtype).slice(0, i, i + 1).to(kFloat64).item<double>();
    if (r == 0)
      y = x;
    else
      y = op == ReduceOp::Min       ? std::min(y, x)
          : op == ReduceOp::Max     ? std::max(y, x)
          : op == ReduceOp::Product ? y * x
                                    : y + x;
  }
  if (dtype == kBool) y = y != 0;
  return op == ReduceOp::Avg ? y / size : y;
}

std::vector<double> values(const Tensor& t) { return t.to(kFloat64).to_vector<double>(); }

}  // namespace

TEST_CASE("all_reduce is a loop over the ranks") {
  for (const int size : kSizes)
    for (const Dtype dtype : kAllDtypes)
      for (const ReduceOp op :
           {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max}) {
        if (op == ReduceOp::Avg && !is_floating_point(dtype)) continue;
        if (op == ReduceOp::Product && size > 3 && dtype != kBool && dtype != kFloat64) continue;
        const int64_t n = 37;
        std::vector<std::vector<double>> got(static_cast<size_t>(size));
        on_ranks(size, [&](const auto& group) {
          const Tensor x = numbers(group->rank(), n, dtype);
          group->all_reduce(x, op);
          got[static_cast<size_t>(group->rank())] = values(x);
        });
        for (int64_t i = 0; i < n; ++i) {
          double wanted = expected(op, dtype, size, n, i);
          if (is_floating_point(dtype)) wanted = values(tensor({wanted}).to(kFloat32).to(dtype))[0];
          if (dtype == kFloat64) wanted = expected(op, dtype, size, n, i);
          if (dtype == kUInt8) wanted = std::fmod(wanted, 256);
          for (const auto& one : got) CHECK(one[static_cast<size_t>(i)] == wanted);
        }
      }
}

TEST_CASE("sizes around the borders of parts and of small messages") {
  for (const int size : {2, 3, 8})
    for (const int64_t n : {0, 1, 15, 16, 17, 31, 511, 512, 513, 1365, 1366, 2047, 2048, 2049, 4095,
                            4096, 4097, 100003})
      on_ranks(size, [&](const auto& group) {
        const Tensor x = arange(n).to(kFloat32) + static_cast<double>(group->rank());
        group->all_reduce(x);
        const Tensor wanted =
            arange(n).to(kFloat32) * size + static_cast<double>(size * (size - 1) / 2);
        REQUIRE(x.equal(wanted));
        for (int src = 0; src < size; ++src) {
          const Tensor y = group->rank() == src ? arange(n).to(kFloat32) : zeros({n});
          group->broadcast(y, src);
          REQUIRE(y.equal(arange(n).to(kFloat32)));
        }
      });
}

TEST_CASE("a NaN of any one rank is the minimum and the maximum") {
  const int64_t n = 37;
  for (const int size : {2, 3, 4, 5})
    for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32, kFloat64})
      for (const ReduceOp op : {ReduceOp::Min, ReduceOp::Max}) {
        std::vector<double> wanted;
        for (int64_t i = 0; i < n; ++i) wanted.push_back(expected(op, dtype, size, n, i));
        for (int bad = 0; bad < size; ++bad)
          on_ranks(size, [&](const auto& group) {
            std::vector<double> mine = values(numbers(group->rank(), n, dtype));
            if (group->rank() == bad) mine[5] = mine.back() = NAN;
            const Tensor x = tensor(mine).to(dtype);
            group->all_reduce(x, op);
            std::vector<double> got = values(x);
            for (double* at : {&got[5], &got.back()}) {
              CHECK(std::isnan(*at));
              *at = wanted[static_cast<size_t>(at - got.data())];
            }
            CHECK(got == wanted);  // elsewhere nothing has changed
          });
      }
}

TEST_CASE("messages of one size and two dtypes do not meet") {
  on_ranks(2,
           [](const auto& group) {
             const Dtype dtype = group->rank() == 0 ? kFloat32 : kInt32;
             const auto two = [&] { return std::vector<Tensor>(2, full({2}, 5, dtype)); };
             std::vector<Tensor> out{zeros({2}, dtype), zeros({2}, dtype)};
             CHECK(testing::has(testing::message([&] { group->all_to_all(out, two()); }),
                                "no message within the timeout"));
             CHECK(out[1 - static_cast<size_t>(group->rank())].equal(zeros({2}, dtype)));
           },
           {.timeout = std::chrono::milliseconds(100)});
}

TEST_CASE("halves are added in float32 and rounded once") {
  // Rounded at each addition, 2048 + 1 + 1 + 1 would stay 2048; four times 32768 would be inf.
  on_ranks(4, [](const auto& group) {
    const Tensor x = full({3}, group->rank() == 0 ? 2048 : 1, kFloat16),
                 big = full({40000}, 32768, kFloat16);
    group->all_reduce(x);
    group->all_reduce(big, ReduceOp::Avg);
    CHECK(values(x)[0] == 2052);  // 2051 lies between 2050 and 2052, and 2052 is even
    CHECK(values(big)[39999] == 32768);
  });
}

TEST_CASE("the sum of neighbours' sums has the bits of the sum of all") {
  const int64_t n = 5000;
  const auto wide = [&](int shard) {
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i)
      x.push_back(std::ldexp(static_cast<float>((i * 7919 + shard * 104729) % 10007) - 5000.f,
                             static_cast<int>((i + shard * 3) % 40) - 20));
    return tensor(x);
  };
  for (const int shards : {8, 12}) {
    std::vector<std::vector<float>> all;
    for (int size = 1; size <= shards; ++size) {
      const int each = shards / size;
      if (shards % size || (size > 1 && (each & (each - 1)))) continue;
      std::vector<float> got;
      on_ranks(size, [&](const auto& group) {
        std::vector<Array> mine;
        for (int k = 0; k < each; ++k) mine.push_back(wide(group->rank() * each + k).array());
        const Tensor sum = empty({n});
        reduce_tree(sum.array(), mine, ReduceOp::Sum);
        group->all_reduce(sum);
        if (group->rank() == 0) got = sum.template to_vector<float>();
      });
      all.push_back(got);
    }
    REQUIRE(all.size() == 4);
    for (const auto& one : all) CHECK(one == all[0]);
  }
}

TEST_CASE("each rank sends the bytes that a ring would") {
  const int64_t n = 64 * 1024;
  const size_t bytes = on_ranks(4, [&](const auto& group) { group->all_reduce(ones({n})); });
  CHECK(bytes == 4 * 2 * 3 * static_cast<size_t>(n) / 4 * sizeof(float));  // 2 (W − 1) N / W each
}

TEST_CASE("tensors of any strides, and several calls under way") {
  on_ranks(3, [](const auto& group) {
    const Tensor wide = arange(24).to(kFloat32).reshape({4, 6});
    const Tensor columns = wide.slice(1, 1, 6, 2);  // (4, 3), with gaps
    const Tensor before = columns.clone();
    group->all_reduce(columns);
    CHECK(columns.equal(before * 3));
    CHECK(wide.slice(1, 0, 6, 2).equal(arange(24).to(kFloat32).reshape({4, 6}).slice(1, 0, 6, 2)));
    std::vector<Tensor> xs;
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) {
      xs.push_back(full({1 + i * 97}, i + group->rank()));
      works.push_back(group->all_reduce(xs.back(), ReduceOp::Sum, {.async_op = true}));
    }
    for (size_t i = xs.size(); i-- > 0;) {
      works[i].wait();
      works[i].wait();
      CHECK(works[i].is_success());
      CHECK(xs[i].equal(full({xs[i].numel()}, 3 * static_cast<int64_t>(i) + 3)));
    }
  });
}

TEST_CASE("parts of other sizes for each rank, some of them empty") {
  for (const int size : {1, 2, 3, 4})
    on_ranks(size, [&](const auto& group) {
      const int64_t n = 37, each = 16;
      const auto me = static_cast<size_t>(group->rank());
      const auto cut = [&](const Tensor& whole) {
        std::vector<Tensor> parts;
        for (int64_t r = 0; r < group->size(); ++r)
          parts.push_back(whole.slice(0, std::min(r * each, n), std::min((r + 1) * each, n)));
        return parts;
      };
      const Tensor x = arange(n).to(kFloat32) * (group->rank() + 1), before = x.clone();
      group->reduce_scatter(cut(x)[me], cut(x), ReduceOp::Sum);
      const int64_t sum = size * (size + 1) / 2;
      CHECK(cut(x)[me].equal(cut(arange(n).to(kFloat32))[me] * sum));
      for (size_t r = 0; r < static_cast<size_t>(size); ++r)
        if (r != me) CHECK(cut(x)[r].equal(cut(before)[r]));
      if (size < 3) return;  // the parts of fewer are not the whole
      group->all_gather(cut(x), cut(x)[me]);
      CHECK(x.equal(arange(n).to(kFloat32) * sum));
    });
}

TEST_CASE("a call that has ended holds none of its tensors") {
  on_ranks(2, [](const auto& group) {
    for (int i = 0; i < 200; ++i) {
      const Tensor x = ones({4});
      group->broadcast(x.detach(), 0);
      CHECK(x.array().unique());
    }
  });
}

TEST_CASE("a tensor that was saved for backward is noticed to have changed") {
  on_ranks(2, [](const auto& group) {
    const Tensor w = ones({3}).requires_grad_(), y = (w * w).sum(), z = (w * w).sum();
    group->all_reduce(w);
    CHECK(w.detach().equal(full({3}, 2.)));
    CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("was changed in place"), Error);
    group->broadcast(w, 0);
    if (group->rank() == 1) CHECK_THROWS_AS(z.backward(), Error);
    const uint64_t before = w.version();
    group->all_reduce(w, ReduceOp::Max, {.raises_versions = false});  // as the caller wants it
    CHECK(w.version() == before);
  });
}

TEST_CASE("wrong arguments are refused before anything is sent") {
  const size_t sent = on_ranks(2, [](const auto& group) {
    const Tensor x = ones({4});
    CHECK_REFUSED(group->all_reduce(Tensor()), "all_reduce: the tensor is undefined");
    CHECK_REFUSED(group->all_reduce(ones({1}).expand({4})), "of shape [4] overlaps itself");
    CHECK_REFUSED(group->all_reduce(ones({4}).requires_grad_() * 2), "of shape [4] has a history");
    CHECK_REFUSED(group->all_reduce(ones({4}, kInt64), ReduceOp::Avg), "Avg of int64 is not");
    CHECK_REFUSED(group->all_reduce(x, static_cast<ReduceOp>(9)),
                  "all_reduce: ReduceOp 9 does not exist");
    CHECK_REFUSED(group->broadcast(x, 2), "broadcast: from rank 2 in a group of 2");
    CHECK_REFUSED(group->broadcast(x, -1), "broadcast: from rank -1 in a group of 2");
    // Too few, and too many. The tensors share no bytes, so that the number alone is wrong.
    CHECK_REFUSED(group->all_gather({ones({4})}, x), "all_gather: 1 tensors for a group of 2");
    CHECK_REFUSED(group->all_gather({ones({4}), ones({4}), ones({4})}, x),
                  "all_gather: 3 tensors for a group of 2");
    CHECK_REFUSED(group->reduce_scatter(ones({4}), {x}),
                  "reduce_scatter: 1 tensors for a group of 2");
    CHECK_REFUSED(group->all_to_all({ones({4})}, {x, x}), "all_to_all: 1 tensors for a group of 2");
    CHECK_REFUSED(group->all_to_all({ones({4}), ones({4})}, {x}),
                  "all_to_all: 1 tensors for a group of 2");
    CHECK_REFUSED(group->all_gather({ones({5}), ones({5})}, x),
                  "all_gather: a tensor [5] of float32 on cpu beside one [4] of float32 on cpu");
    CHECK_REFUSED(
        group->reduce_scatter(ones({5}), {x, x}),
        "reduce_scatter: a tensor [4] of float32 on cpu beside one [5] of float32 on cpu");
    CHECK_REFUSED(
        group->reduce_scatter(ones({4}, kFloat64), {x, x}),
        "reduce_scatter: a tensor [4] of float32 on cpu beside one [4] of float64 on cpu");
    CHECK_REFUSED(group->all_to_all({ones({5}), ones({5})}, {x, x}),
                  "all_to_all: a tensor [4] of float32 on cpu beside one [5] of float32 on cpu");
    CHECK_REFUSED(
        group->all_gather_into_tensor(ones({9}), x),
        "9 elements of float32 on cpu are not 2 parts, one for each rank, of 4 of float32");
    CHECK_REFUSED(
        group->all_gather_into_tensor(ones({8}, kFloat64), x),
        "8 elements of float64 on cpu are not 2 parts, one for each rank, of 4 of float32");
    CHECK_REFUSED(
        group->reduce_scatter_tensor(x, ones({7})),
        "7 elements of float32 on cpu are not 2 parts, one for each rank, of 4 of float32");
    CHECK_REFUSED(group->all_to_all_single(x, ones({5})),
                  "all_to_all_single: 4 elements of float32 on cpu are not");
    CHECK_REFUSED(group->all_to_all_single(ones({5}), ones({5})),
                  "all_to_all_single: 5 elements are not 2 equal parts, one for each rank");
    CHECK_REFUSED(group->all_to_all_single(x, x), "all_to_all_single: two of the tensors share");
    CHECK(x.equal(ones({4})));
    const Tensor whole = zeros({8}), half = whole.slice(0, 2, 6);
    CHECK_THROWS_WITH_AS(group->all_gather_into_tensor(whole, half),
                         doctest::Contains("share bytes"), Error);
    CHECK_THROWS_WITH_AS(group->all_gather({x, x}, ones({4})), doctest::Contains("share bytes"),
                         Error);
    CHECK_THROWS_WITH_AS(group->all_gather({half, half.clone()}, whole.slice(0, 4, 8)),
                         doctest::Contains("share bytes"), Error);
    CHECK_THROWS_WITH_AS(
        group->all_to_all({whole.slice(0, 0, 4), whole.slice(0, 4, 8)}, {half, half}),
        doctest::Contains("share bytes"), Error);
    for (const milliseconds wrong : {milliseconds(-1), milliseconds::min(), milliseconds::max()}) {
      CHECK_THROWS_WITH_AS(group->all_reduce(x, ReduceOp::Sum, {.timeout = wrong}),
                           doctest::Contains("0 ms to 1000 days"), Error);
      CHECK_THROWS_WITH_AS(ProcessGroup(nullptr, 0, 1, {.timeout = wrong}),
                           doctest::Contains("1 ms to 1000 days"), Error);
      CHECK_THROWS_WITH_AS(new_process_group({.timeout = wrong, .rank = 0, .world_size = 1}),
                           doctest::Contains("1 ms to 1000 days"), Error);
    }
    group->all_reduce(x);  // the ranks are still in step
    CHECK(x.equal(full({4}, 2.)));
  });
  CHECK(sent == 2 * 4 * sizeof(float));  // both ranks' x, by the last call
}

TEST_CASE("after a failure all later calls fail with its reason") {
  using clock = std::chrono::steady_clock;
  on_ranks(2,
           [](const auto& group) {
             const Tensor x = ones({4});
             if (group->rank() == 1) return;  // never comes
             const auto begin = clock::now();
             const Work work = group->all_reduce(x, ReduceOp::Sum, {.async_op = true});
             const Work second = group->barrier({.async_op = true});
             CHECK_THROWS_WITH_AS(work.wait(), doctest::Contains("all_reduce 1: no message within"),
                                  Error);
             CHECK_THROWS_WITH_AS(second.wait(), doctest::Contains("barrier 2: no message within"),
                                  Error);
             CHECK(work.is_completed());
             CHECK_FALSE(work.is_success());
             CHECK(work.exception());
             CHECK_THROWS_WITH_AS(group->broadcast(x), doctest::Contains("no message within"),
                                  Error);
             CHECK(clock::now() - begin < std::chrono::seconds(5));
           },
           {.timeout = milliseconds(300)});
}

TEST_CASE("all exchanges of a call have its timeout together") {
  /// Says how long it may wait, and takes 50 ms.
  struct SlowEngine final : Engine {
    std::vector<milliseconds>& timeouts;
    explicit SlowEngine(std::vector<milliseconds>& told) : timeouts(told) {}
    const char* name() const override { return "slow"; }
    bool reaches(DeviceType device) const override { return device == DeviceType::CPU; }
    void exchange(std::span<const Message>, std::span<const Message>, uint64_t,
                  milliseconds timeout) override {
      timeouts.push_back(timeout);
      std::this_thread::sleep_for(milliseconds(50));
    }
    bool all_reduce(void*, int64_t, Dtype, ReduceOp, uint64_t, milliseconds) override {
      return false;
    }
    void abort() noexcept override {}
  };
  std::vector<milliseconds> timeouts;
  {
    ProcessGroup group(std::make_unique<SlowEngine>(timeouts), 0, 2, {.timeout = milliseconds(60)});
    group.all_reduce(zeros({100000}));
  }
  REQUIRE(timeouts.size() == 2);
  CHECK(timeouts[0] <= milliseconds(60));
  CHECK(timeouts[1] <= milliseconds(10));
}

TEST_CASE("ranks that call different things never exchange bytes") {
  const char* const of_rank_1[] = {"broadcast 1: no message within",
                                   "all_reduce 1: no message within",
                                   "all_reduce 1 (other): no message within"};
  for (const int kind : {0, 1, 2})
    on_ranks(2,
             [&](const auto& group) {
               const int me = group->rank();
               const Tensor x = full({8}, me, kFloat32);
               CHECK_THROWS_WITH_AS(
                   me == 0     ? group->all_reduce(x)
                   : kind == 0 ? group->broadcast(x, 0)
                   : kind == 1 ? group->all_reduce(ones({9}))
                               : group->all_reduce(x, ReduceOp::Sum, {.label = "other"}),
                   doctest::Contains(me == 0 ? "all_reduce 1: no message within" : of_rank_1[kind]),
                   Error);
               CHECK(x.equal(full({8}, me, kFloat32)));
             },
             {.timeout = milliseconds(200)});
}
