// What a group over NCCL must do, on a GPU and on the rig.
#pragma once
#include <halftape/halftape.h>

#include <chrono>
#include <memory>
#include <string>

namespace halftape::testing {

struct GroupFindings {
  std::string wrong;     // empty if all is right
  double all_reduce_us;  // one of 25 MiB of float32 by the group, with its queue kept busy
  int64_t nodes;         // of a captured sum
};

/// Sums by the tree and by NCCL, a captured sum that is replayed, and the time of a sum. The group
/// is of Summation::Engine or Tree; `elements`: of the sum that is timed.
inline GroupFindings check_group(distributed::ProcessGroup& group, Device device,
                                 int64_t elements) {
  using distributed::ReduceOp;
  GroupFindings found{};
  const int n = group.size(), me = group.rank();
  const auto filled = [&](int64_t count, double value, Dtype dtype) {
    return full({count}, value, TensorOptions(dtype).device(device));
  };
  const auto expect = [&](const Tensor& x, double value, const std::string& what) {
    for (const double got : x.to(kCPU).to(kFloat64).to_vector<double>())
      if (got != value && found.wrong.empty())
        found.wrong =
            what + " has " + std::to_string(got) + " in place of " + std::to_string(value);
  };
  const int sum = n * (n + 1) / 2;
  for (const Dtype dtype : {kFloat32, kFloat16, kBFloat16, kFloat64, kInt64})
    for (const int64_t count : {1, 1000, 100003}) {
      const Tensor x = filled(count, me + 1, dtype);
      group.all_reduce(x);
      expect(x, sum, "a sum");
      group.all_reduce(x, ReduceOp::Max);
      expect(x, sum, "a maximum");
    }
  const Tensor all = filled(n * 5, -1, kFloat32);
  group.all_gather_into_tensor(all, filled(5, me, kFloat32));
  for (int r = 0; r < n; ++r) expect(all.slice(0, 5 * r, 5 * r + 5), r, "a gathered tensor");
  const Tensor news = filled(40000, me + 7, kFloat32);
  group.broadcast(news, n - 1);
  expect(news, n - 1 + 7, "a broadcast tensor");
  group.barrier();
  {
    const Tensor x = filled(30000, me + 1, kFloat32);
    Tensor y;
    Graph graph(device, [&] {
      y = x * 2;
      group.all_reduce(y);
      y = y + 1;
    });
    found.nodes = graph.size();
    for (const double factor : {1.0, 3.0}) {
      x.copy_(filled(30000, factor * (me + 1), kFloat32));
      graph.replay();
      expect(y, 2 * factor * sum + 1, "a captured sum");
    }
    group.barrier();
  }
  const Tensor x = filled(elements, 0, kFloat32);
  const auto time = [&](int calls) {
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) group.all_reduce(x);
    cuda::synchronize(device);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count() / calls;
  };
  (void)time(3);
  found.all_reduce_us = time(10);
  return found;
}

}  // namespace halftape::testing
