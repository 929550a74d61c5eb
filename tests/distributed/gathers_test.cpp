// Calls that pass numbers on, or add a part of them: values, dtypes and sizes, and outputs that are
// part of the inputs.
#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::on_ranks;
using testing::kAllDtypes;

namespace {

/// Numbers from 0 to 10 that differ by rank and place.
Tensor ramp(int rank, int64_t n, Dtype dtype) {
  const Tensor t = (arange(n) * 7 + (rank * 5 + 3)).remainder(11);
  return (dtype == kBool ? t > 5 : t).to(dtype);
}

}  // namespace

TEST_CASE("gathers and scatters") {
  for (const int size : {1, 2, 3, 4, 5, 8})
    on_ranks(size, [&](const auto& group) {
      const int me = group->rank();
      const Tensor mine = full({2, 3}, me, kFloat32);
      const Tensor together = empty({2 * size, 3});
      group->all_gather_into_tensor(together, mine);
      std::vector<Tensor> each;
      for (int r = 0; r < size; ++r) each.push_back(empty({2, 3}));
      group->all_gather(each, mine);
      std::vector<Tensor> to_all;
      for (int r = 0; r < size; ++r) to_all.push_back(full({3}, me * 10 + r, kFloat32));
      const Tensor reduced = empty({3}), reduced_tensor = empty({3});
      group->reduce_scatter(reduced, to_all);
      group->reduce_scatter_tensor(reduced_tensor, cat(to_all), ReduceOp::Max);
      std::vector<Tensor> came;
      for (int r = 0; r < size; ++r) came.push_back(empty({3}));
      group->all_to_all(came, to_all);
      const Tensor single = empty({3 * size});
      group->all_to_all_single(single, cat(to_all));
      for (int r = 0; r < size; ++r) {
        CHECK(together.slice(0, 2 * r, 2 * r + 2).equal(full({2, 3}, r, kFloat32)));
        CHECK(each[static_cast<size_t>(r)].equal(full({2, 3}, r, kFloat32)));
        CHECK(came[static_cast<size_t>(r)].equal(full({3}, r * 10 + me, kFloat32)));
        CHECK(single.slice(0, 3 * r, 3 * r + 3).equal(full({3}, r * 10 + me, kFloat32)));
        CHECK(
            to_all[static_cast<size_t>(r)].equal(full({3}, me * 10 + r, kFloat32)));  // inputs stay
      }
      CHECK(reduced.equal(full({3}, 10 * size * (size - 1) / 2 + me * size, kFloat32)));
      CHECK(reduced_tensor.equal(full({3}, (size - 1) * 10 + me, kFloat32)));
      CHECK(mine.equal(full({2, 3}, me, kFloat32)));
      group->barrier();
    });
}

TEST_CASE("gathers, scatters and broadcasts in every dtype, for sizes around every border") {
  for (const int size : {1, 2, 3, 8})
    on_ranks(size, [&](const auto& group) {
      for (const Dtype dtype : kAllDtypes)
        for (const int64_t n : {0, 1, 15, 16, 17, 511, 512, 513, 2047, 2048, 2049}) {
          CAPTURE(dtype);
          CAPTURE(n);
          std::vector<Tensor> of;  // what each rank has; from it go n to each in turn
          for (int r = 0; r < size; ++r) of.push_back(ramp(r, n * size, dtype));
          const int me = group->rank();
          const Tensor mine = of[static_cast<size_t>(me)], first = mine.slice(0, 0, n);
          const auto part = [&](const Tensor& t, int r) { return t.slice(0, n * r, n * (r + 1)); };

          const Tensor gathered = empty({n * size}, dtype), came = empty({n * size}, dtype);
          group->all_gather_into_tensor(gathered, first);
          group->all_to_all_single(came, mine);
          const Tensor least = empty({n}, dtype);
          group->reduce_scatter_tensor(least, mine, ReduceOp::Min);
          std::vector<Tensor> firsts, parts;
          Tensor wanted;
          for (const Tensor& t : of) {
            firsts.push_back(part(t, 0)), parts.push_back(part(t, me));
            wanted = wanted.defined() ? minimum(wanted, parts.back()) : parts.back();
          }
          CHECK(gathered.equal(cat(firsts)));
          CHECK(came.equal(cat(parts)));
          CHECK(least.equal(wanted));
          const Tensor told = me == size - 1 ? first.clone() : zeros({n}, dtype);
          group->broadcast(told, size - 1);
          CHECK(told.equal(firsts.back()));
        }
    });
}

TEST_CASE("outputs that are this rank's own input, or part of it") {
  on_ranks(3, [](const auto& group) {
    const int me = group->rank();
    const Tensor all = zeros({6});
    const Tensor own = all.slice(0, 2 * me, 2 * me + 2);
    own.fill_(me);
    group->all_gather_into_tensor(all, own);
    CHECK(all.equal(tensor({0., 0., 1., 1., 2., 2.}).to(kFloat32)));
    group->reduce_scatter_tensor(own, all);
    CHECK(own.equal(full({2}, 3. * me)));
    for (int r = 0; r < 3; ++r)
      if (r != me) CHECK(all.slice(0, 2 * r, 2 * r + 2).equal(full({2}, 1. * r)));
    std::vector<Tensor> each{zeros({2}), zeros({2}), zeros({2})};
    each[static_cast<size_t>(me)].fill_(me);
    group->all_gather(each, each[static_cast<size_t>(me)]);
    for (int r = 0; r < 3; ++r) CHECK(each[static_cast<size_t>(r)].equal(full({2}, 1. * r)));
  });
}

TEST_CASE("messages of several sizes by all_to_all") {
  on_ranks(3, [](const auto& group) {
    const int me = group->rank();
    std::vector<Tensor> out, in;
    for (int r = 0; r < 3; ++r) {
      in.push_back(full({me * 3 + r}, me, kFloat32));  // rank a sends 3a + b elements to b
      out.push_back(empty({r * 3 + me}));
    }
    group->all_to_all(out, in);
    for (int r = 0; r < 3; ++r)
      CHECK(out[static_cast<size_t>(r)].equal(full({r * 3 + me}, r, kFloat32)));
  });
}
