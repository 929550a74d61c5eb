// The layers of normalisation: parameters, shapes, modes.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::differ;
using testing::kInf, testing::kNaN;
using testing::same_bits;

TEST_CASE("weights of norms start as one and biases as zero, and are there where they are wanted") {
  using Names = std::vector<std::string>;
  nn::LayerNorm layer(nn::LayerNormOptions({2, 3}));
  CHECK(layer->named_parameters().keys() == Names{"weight", "bias"});
  CHECK(layer->weight.equal(ones({2, 3})));
  CHECK(layer->bias.equal(zeros({2, 3})));
  const nn::LayerNorm without(nn::LayerNormOptions(3).bias(false));
  CHECK(without->named_parameters().keys() == Names{"weight"});
  CHECK(nn::LayerNorm(nn::LayerNormOptions(3).elementwise_affine(false))->parameters().empty());
  CHECK(nn::RMSNorm(3)->named_parameters().keys() == Names{"weight"});
  CHECK(nn::GroupNorm(2, 4)->named_parameters().keys() == Names{"weight", "bias"});
  CHECK(nn::GroupNorm(nn::GroupNormOptions(2, 4).affine(false))->parameters().empty());

  nn::BatchNorm2d batch(3);
  CHECK(batch->named_parameters().keys() == Names{"weight", "bias"});
  CHECK(batch->named_buffers().keys() ==
        Names{"running_mean", "running_var", "num_batches_tracked"});
  batch(randn({2, 3, 4, 4}));
  CHECK_FALSE(batch->running_mean.equal(zeros({3})));
  {
    const NoGradGuard no_grad;
    batch->weight.fill_(5);
  }
  batch->reset_running_stats();
  CHECK(batch->running_mean.equal(zeros({3})));
  CHECK(batch->running_var.equal(ones({3})));
  CHECK(batch->num_batches_tracked.item<int64_t>() == 0);
  CHECK(batch->weight.equal(full({3}, 5.0)));
  batch->reset_parameters();
  CHECK(batch->weight.equal(ones({3})));
  CHECK(nn::InstanceNorm1d(3)->parameters().empty());
  CHECK(nn::InstanceNorm1d(3)->buffers().empty());
}

TEST_CASE("norms in a model learn, and follow the model to half and back") {
  manual_seed(3);
  nn::Sequential model(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::LayerNorm(8), nn::RMSNorm(8));
  const Tensor x = randn({4, 6});
  sum(square(model->forward(x)) * randn({4, 8})).backward();
  for (const Tensor& p : model->parameters()) CHECK(p.grad().defined());
  model->to(kFloat16);
  CHECK(model->forward(x.to(kFloat16)).dtype() == kFloat16);
  CHECK(model->named_buffers()["1.num_batches_tracked"].dtype() == kInt64);
}

TEST_CASE("without running statistics BatchNorm takes those of the batch in evaluation, too") {
  nn::BatchNorm1d layer(nn::BatchNorm1dOptions(2).track_running_stats(false));
  CHECK(layer->buffers().empty());
  const Tensor x = randn({5, 2}), y = layer(x);
  layer->eval();
  CHECK(same_bits(layer(x), y));
}

TEST_CASE("a norm whose option no longer tracks statistics takes those of the batch") {
  const Tensor x = tensor({{1., 2.}, {3., 4.}}), by_batch = tensor({{-1., -1.}, {1., 1.}});
  nn::BatchNorm1d batch(2);
  batch->options.track_running_stats(false);
  CHECK(batch(x).allclose(by_batch, 0, 1e-4));
  batch->eval();
  CHECK(batch(x).allclose(by_batch, 0, 1e-4));
  // LibTorch's numbers: what is kept follows in evaluation, too, and no batch is counted.
  CHECK(batch->running_mean.allclose(tensor({0.38, 0.57})));
  CHECK(batch->num_batches_tracked.item<int64_t>() == 0);
  nn::BatchNorm1d mean(nn::BatchNorm1dOptions(2).momentum(std::nullopt));
  mean->options.track_running_stats(false);
  mean(x);
  CHECK(mean->running_mean.equal(zeros({2})));

  const Tensor samples = arange(12.).reshape({2, 2, 3});
  nn::InstanceNorm1d instance(nn::InstanceNorm1dOptions(2).track_running_stats(true));
  const Tensor expected = instance(samples);
  instance->eval();
  instance->options.track_running_stats(false);
  CHECK(same_bits(instance(samples), expected));
  CHECK(instance->running_mean.allclose(tensor({0.76, 1.33})));
}

TEST_CASE("BatchNorm counts its batches in one int64 alone, and refuses others before it learns") {
  nn::BatchNorm1d layer(4);
  const Tensor x = randn({8, 4}), count = layer->num_batches_tracked;
  for (const Tensor& other :
       {empty({0}, kInt64), zeros({2}, kInt64), zeros({}, kInt32), zeros({}, kFloat32)}) {
    layer->num_batches_tracked = other;
    const uint64_t version = other.version();
    CHECK_THROWS_WITH_AS(layer(x), doctest::Contains("num_batches_tracked is"), Error);
    CHECK(other.version() == version);
    CHECK(layer->running_mean.equal(zeros({4})));
  }
  layer->num_batches_tracked = count;
  layer(x);
  CHECK(count.item<int64_t>() == 1);
}

TEST_CASE("InstanceNorm takes a single sample, and in evaluation its running statistics") {
  nn::InstanceNorm2d layer(nn::InstanceNorm2dOptions(3).affine(true).track_running_stats(true));
  const Tensor x = randn({2, 3, 4, 5});
  const Tensor y = layer(x);
  CHECK(layer->num_batches_tracked.item<int64_t>() == 0);
  CHECK_FALSE(layer->running_mean.equal(zeros({3})));
  const Tensor mean = layer->running_mean.clone();
  layer->eval();
  const Tensor z = layer(x[1]);
  CHECK(z.sizes() == Shape{3, 4, 5});
  const Tensor expected =
      (x[1] - mean.reshape({3, 1, 1})) / sqrt(layer->running_var.reshape({3, 1, 1}) + 1e-5);
  CHECK(differ(z, expected, {.ulps = 4, .eps = 4}) == "");
  CHECK(same_bits(nn::InstanceNorm2d(3)(x), nn::InstanceNorm2d(3)(x).clone()));
}

TEST_CASE("a batch with an infinity or NaN leaves running statistics bit for bit as they are") {
  for (const Dtype dtype : {kFloat32, kFloat16}) {
    for (const double bad : {kInf, -kInf, kNaN}) {
      nn::BatchNorm1d layer(3), open(nn::BatchNorm1dOptions(3).skip_nonfinite(false));
      nn::InstanceNorm1d one(nn::InstanceNorm1dOptions(3).track_running_stats(true));
      const Tensor good = randn({3, 3, 4}).to(dtype);
      layer(good), open(good), one(good);
      const Tensor mean = layer->running_mean.clone(), var = layer->running_var.clone(),
                   of_one = one->running_mean.clone();
      Tensor x = randn({3, 3, 4}).to(dtype);
      x[1][2][0] = bad;
      const Tensor y = layer(x);
      CHECK_FALSE(y.isfinite().all().item<bool>());
      CHECK(y.select(1, 0).isfinite().all().item<bool>());  // other channels are as ever
      CHECK(same_bits(layer->running_mean, mean));
      CHECK(same_bits(layer->running_var, var));
      CHECK(layer->num_batches_tracked.item<int64_t>() == 1);
      one(x);
      CHECK(same_bits(one->running_mean, of_one));
      open(x);
      CHECK_FALSE(open->running_mean.isfinite().all().item<bool>());
      CHECK(open->num_batches_tracked.item<int64_t>() == 2);
      layer(good);
      CHECK(layer->num_batches_tracked.item<int64_t>() == 2);
      CHECK(layer->running_var.isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("normalize writes into the tensor that it is given") {
  using F = nn::functional::NormalizeFuncOptions;
  const Tensor x = tensor({{3, 4}, {0, 5}}, kFloat32), out = zeros({2, 2});
  const Tensor y = nn::functional::normalize(x, F().dim(1).out(out));
  CHECK(y.is_same(out));
  CHECK(same_bits(out, normalize(x)));
  CHECK_THROWS_WITH_AS(nn::functional::normalize(x, F().out(zeros({2}))),
                       doctest::Contains("out is [2], the result [2, 2]"), Error);
  const Tensor leaf = x.clone().requires_grad_();
  CHECK_THROWS_WITH_AS(nn::functional::normalize(leaf, F().out(out)),
                       doctest::Contains("without history"), Error);
  CHECK(same_bits(nn::functional::normalize(leaf), normalize(x)));
}

TEST_CASE("norms of the wrong input say what was expected") {
  nn::BatchNorm1d b1(3);
  CHECK_THROWS_WITH_AS(b1(ones({3})), doctest::Contains("BatchNorm1d: expected 2 or 3"), Error);
  CHECK_THROWS_WITH_AS(b1(ones({2, 3, 4, 5})), doctest::Contains("[2, 3, 4, 5]"), Error);
  CHECK_THROWS_WITH_AS(b1(ones({2, 4})),
                       doctest::Contains("[2, 4] has 4 channels, num_features is 3"), Error);
  CHECK_THROWS_WITH_AS(b1(ones({1, 3})), doctest::Contains("one value for each channel"), Error);
  CHECK(same_bits(b1->running_mean, zeros({3})));
  b1->eval();
  CHECK_NOTHROW(b1(ones({1, 3})));
  CHECK_THROWS_WITH_AS(nn::BatchNorm2d(3)(ones({2, 3, 4})), doctest::Contains("expected 4"), Error);
  CHECK_THROWS_WITH_AS(nn::InstanceNorm2d(3)(ones({2, 3})), doctest::Contains("expected 3 or 4"),
                       Error);
  CHECK_THROWS_WITH_AS(nn::InstanceNorm1d(3)(ones({2, 3, 1})), doctest::Contains("no variance"),
                       Error);
  CHECK_THROWS_WITH_AS(nn::GroupNorm(3, 4), doctest::Contains("not divisible by num_groups 3"),
                       Error);
  CHECK_THROWS_WITH_AS(nn::GroupNorm(2, 4)(ones({2, 3})), doctest::Contains("3 channels"), Error);
  CHECK_THROWS_WITH_AS(nn::LayerNorm(5)(ones({2, 6})),
                       doctest::Contains("[2, 6] does not end in normalized_shape [5]"), Error);
  CHECK_THROWS_WITH_AS(nn::LayerNorm(nn::LayerNormOptions(Shape{})),
                       doctest::Contains("normalized_shape is empty"), Error);
  CHECK_THROWS_WITH_AS(nn::BatchNorm1d(0), doctest::Contains("must be positive"), Error);
  CHECK_THROWS_WITH_AS(nn::LocalResponseNorm(2)(ones({2, 6})), doctest::Contains("(N, C, …)"),
                       Error);
}
