#include <doctest/doctest.h>
#include <halftape/halftape.h>

#include <sstream>

#include "halftape/tests/support/thread_ranks.h"

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::on_ranks;

namespace {
Tensor images(int64_t n) {
  return (arange(n * 3 * 4).to(kFloat64) * 0.7).sin().reshape({n, 3, 2, 2}) * 3 + 1;
}
}  // namespace

TEST_CASE("SyncBatchNorm on ranks is BatchNorm of the whole batch, with its gradients") {
  const int64_t rows[] = {1, 4, 2};  // of each rank
  nn::BatchNorm2d whole(nn::BatchNormOptions(3));
  whole->to(kFloat64);
  const Tensor all = images(7).requires_grad_();
  const Tensor weights = (arange(7 * 12).to(kFloat64) * 1.3).cos().reshape({7, 3, 2, 2});
  (whole->forward(all) * weights).sum().backward();
  whole->eval();
  const Tensor evaluated = whole->forward(images(2)).detach();
  on_ranks(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    const int me = group->rank();
    const int64_t from = me == 0 ? 0 : me == 1 ? 1 : 5;
    SyncBatchNorm norm(nn::BatchNormOptions(3), group);
    norm->to(kFloat64);
    const Tensor x = images(7).slice(0, from, from + rows[me]).clone().requires_grad_();
    const Tensor y = norm->forward(x);
    (y * weights.slice(0, from, from + rows[me])).sum().backward();
    const auto near = [](const Tensor& a, const Tensor& b) {
      return (a - b).abs().max().item<double>() < 64 * 0x1p-52;
    };
    CHECK(near(x.grad(), all.grad().slice(0, from, from + rows[me])));
    CHECK(near(norm->running_mean, whole->running_mean));
    CHECK(near(norm->running_var, whole->running_var));
    CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
    const Tensor of_weight = norm->weight.grad().clone();
    group->all_reduce(of_weight);
    CHECK(near(of_weight, whole->weight.grad()));
    norm->eval();
    CHECK(near(norm->forward(images(2)), evaluated));
    norm->train();
    // A batch with an inf on one rank leaves the running statistics of all as they are.
    const Tensor before = norm->running_mean.clone();
    norm->forward(me == 1 ? images(2) * INFINITY : images(2));
    CHECK(norm->running_mean.equal(before));
    CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
    CHECK_THROWS_WITH_AS(norm->forward(ones({2, 4, 2, 2})),
                         doctest::Contains("num_features 3, got [2, 4, 2, 2]"), Error);
    CHECK_THROWS_WITH_AS(norm->forward(ones({3})), doctest::Contains("num_features 3, got [3]"),
                         Error);
  });
}

TEST_CASE("SyncBatchNorm's other options are those of BatchNorm") {
  const Tensor wrong = images(4).slice(0, 0, 2) * INFINITY;
  for (const auto& options : {nn::BatchNormOptions(3).affine(false).momentum(std::nullopt),
                              nn::BatchNormOptions(3).track_running_stats(false),
                              nn::BatchNormOptions(3).skip_nonfinite(false)}) {
    nn::BatchNorm2d whole(options);
    whole->to(kFloat64);
    const Tensor first = whole->forward(images(4)).detach();
    whole->forward(images(4) * 2);
    if (!options.skip_nonfinite()) whole->forward(cat({wrong, wrong}));
    on_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      const int me = group->rank();
      const auto mine = [me](const Tensor& t) { return t.slice(0, 2 * me, 2 * me + 2); };
      SyncBatchNorm norm(options, group);
      norm->to(kFloat64);
      CHECK((norm->forward(mine(images(4))) - mine(first)).abs().max().item<double>() < 1e-13);
      norm->forward(mine(images(4)) * 2);
      if (!options.skip_nonfinite()) norm->forward(wrong);
      CHECK(norm->weight.defined() == options.affine());
      CHECK(norm->running_mean.defined() == options.track_running_stats());
      if (!options.track_running_stats()) return;
      CHECK(allclose(norm->running_mean, whole->running_mean, 1e-12, 1e-12, true));
      CHECK(allclose(norm->running_var, whole->running_var, 1e-12, 1e-12, true));
      CHECK(norm->num_batches_tracked.equal(whole->num_batches_tracked));
    });
  }
}

TEST_CASE("SyncBatchNorm needs two values per channel over all ranks, and has a text") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    SyncBatchNorm norm(nn::BatchNormOptions(3), group);
    CHECK_THROWS_WITH_AS(norm->forward(ones({1 - group->rank(), 3})),
                         doctest::Contains("more than 1 value per channel over all ranks"), Error);
    CHECK(norm->num_batches_tracked.item<int64_t>() == 0);
    CHECK_THROWS_WITH_AS(norm->forward(Tensor()), doctest::Contains("num_features 3"), Error);
    CHECK(norm->forward(ones({1, 3})).equal(zeros({1, 3})));  // one on each rank will do
    std::ostringstream text;
    text << norm;
    CHECK(text.str() == "SyncBatchNorm(3, eps=1e-05)");
  });
}

TEST_CASE("a rank may evaluate alone, with running statistics and without") {
  for (const bool tracks : {true, false}) {
    const auto options = nn::BatchNormOptions(3).track_running_stats(tracks);
    SyncBatchNorm norm(options);  // of no group: it would ask for one
    nn::BatchNorm2d plain(options);
    norm->eval(), plain->eval();
    CHECK(norm->forward(images(4).to(kFloat32)).equal(plain->forward(images(4).to(kFloat32))));
  }
}

TEST_CASE("sync_sum has derivatives of any order") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const double value = group->rank() + 1.;
    const Tensor x = full({2}, value).requires_grad_();
    const Tensor y = sync_sum(x * x, *group);  // 1 + 4
    CHECK(y.equal(full({2}, 5.)));
    const Tensor g = autograd::grad({(y * y).sum()}, {x}, {}, {}, true)[0];
    CHECK(g.detach().equal(full({2}, 40 * value)));  // two ranks, 2 y · 2 x
    // The sum over the ranks of 8 y · x, with y = 5, derived by this rank's x: 8 y, and 16 x by way
    // of y times the sum of the ranks' x, which is 3.
    CHECK(autograd::grad({g.sum()}, {x})[0].equal(full({2}, 40 + 48 * value)));
  });
}

TEST_CASE("sync_sum is of floating tensors") {
  on_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    for (const Tensor& wrong : {Tensor(), ones({2}, kInt64), ones({2}, kBool)})
      CHECK_THROWS_WITH_AS(sync_sum(wrong, *group),
                           doctest::Contains("sync_sum: needs a floating tensor"), Error);
    CHECK(sync_sum(ones({2}), *group).equal(full({2}, 2.)));  // the ranks are still in step
  });
}
