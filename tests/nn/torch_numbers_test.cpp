// With the engine Mt19937 a seed gives on the CPU what it gives in PyTorch: scripts/torch_vectors/
// random_numbers.py, and random_numbers.cpp for what PyTorch draws otherwise where it has MKL and a
// CPU of Intel.
//
// Exact: integers, uniform numbers, masks, orders, and normal numbers of float32 and the 16-bit
// formats in contiguous tensors of 16 and more. Other normal numbers have the C library's log1p,
// sin and cos in them, here as there.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "halftape/halftape.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/printed.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
using halftape::testing::differ;
using halftape::testing::Tolerance;
using halftape::testing::Vectors;
using testing::printed;

namespace {

/// Mt19937 on the CPU, and everything back as it was.
struct TorchNumbers {
  RandomState before = get_random_state();
  Device device = get_default_device();
  TorchNumbers() {
    set_default_device(kCPU);
    set_cpu_random_engine(RandomEngine::Mt19937);
  }
  ~TorchNumbers() {
    set_random_state(before);
    set_default_device(device);
  }
};

constexpr uint64_t kSeeds[] = {0, 1, (uint64_t{1} << 40) + 12345};
constexpr int64_t kSizes[] = {1, 15, 16, 17, 100, 1000};
constexpr Dtype kFloats[] = {kFloat32, kFloat64, kFloat16, kBFloat16};
constexpr Tolerance kExact{};
/// Of numbers that went through the C library's functions.
constexpr Tolerance kRounded{.ulps = 1, .eps = 4};

/// What differs from the end of x as it stands in the file, or nothing.
std::string end_differs(const Vectors& vectors, const std::string& name, const Tensor& x,
                        Tolerance tolerance = kExact) {
  const std::vector<double>& expected = vectors[name];
  const Tensor all = x.detach().reshape({-1});
  const auto kept = static_cast<int64_t>(expected.size());
  const std::string difference = differ(all.slice(0, all.numel() - kept), expected, tolerance);
  return difference.empty() ? difference : name + ": " + difference;
}

Tensor filled(int64_t n, Dtype dtype) { return zeros({n}, dtype); }

Tolerance of_normals(int64_t n, Dtype dtype) {
  return n >= 16 && dtype != kFloat64 ? kExact : kRounded;
}

}  // namespace

#define CHECK_END(...) CHECK(end_differs(vectors, __VA_ARGS__) == "")

TEST_CASE("uniform and normal numbers of a seed are PyTorch's, for every size and dtype") {
  const TorchNumbers on;
  const Vectors vectors("random_numbers.txt");
  for (const uint64_t seed : kSeeds)
    for (const Dtype dtype : kFloats)
      for (const int64_t n : kSizes) {
        const std::string name =
            std::to_string(seed) + "/" + printed(dtype) + "/" + std::to_string(n);
        const TensorOptions o = dtype;
        manual_seed(seed);
        CHECK_END("uniform/" + name, filled(n, dtype).uniform_(-0.123, 0.456));
        CHECK_END("rand/" + name, rand({n}, o));
        manual_seed(seed);
        CHECK_END("normal/" + name, filled(n, dtype).normal_(0.3, 0.7), of_normals(n, dtype));
        CHECK_END("randn/" + name, randn({n}, o), of_normals(n, dtype));
      }
}

TEST_CASE("integers, orders and samples of a seed are PyTorch's") {
  const TorchNumbers on;
  const Vectors vectors("random_numbers.txt");
  const TensorOptions whole = kInt64;
  for (const uint64_t seed : kSeeds) {
    const std::string name = std::to_string(seed) + "/";
    for (const auto& [low, high] : {std::pair<int64_t, int64_t>{0, 10},
                                    {-5, (1 << 28) - 6},
                                    {-5, (1 << 28) - 5},
                                    {7, int64_t{1} << 40}}) {
      manual_seed(seed);
      CHECK_END("randint/" + name + std::to_string(high), randint(low, high, {100}, whole));
    }
    for (const Dtype dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kUInt8, kBool}) {
      manual_seed(seed);
      CHECK_END("random/" + name + printed(dtype), filled(100, dtype).random_());
    }
    manual_seed(seed);
    const Tensor x = filled(100, kInt64).random_();
    std::vector<int64_t> upper, lower;
    for (int64_t i = 0; i < 100; ++i) {
      upper.push_back(x[i].item<int64_t>() >> 32);
      lower.push_back(x[i].item<int64_t>() & 0xffffffff);
    }
    CHECK_END("random/" + name + "int64/upper", tensor(upper, kInt64));
    CHECK_END("random/" + name + "int64", tensor(lower, kInt64));
    for (const int64_t n : {1, 2, 17, 1000}) {
      manual_seed(seed);
      CHECK_END("randperm/" + name + std::to_string(n), randperm(n, whole));
    }
    for (const Dtype dtype : {kFloat32, kFloat64, kFloat16}) {
      manual_seed(seed);
      CHECK_END("bernoulli/" + name + printed(dtype),
                bernoulli(arange(100, whole).to(dtype) / 100));
      if (dtype == kFloat16) continue;
      const Tensor weights = arange(30, whole).remainder(7).to(dtype).reshape({2, 15});
      manual_seed(seed);
      CHECK_END("multinomial/" + name + printed(dtype), multinomial(weights, 9, true));
      const Tensor y = (arange(40, whole).remainder(9) - 4).to(dtype);
      manual_seed(seed);
      CHECK_END("rrelu/" + name + printed(dtype), rrelu(y, 1.0 / 8, 1.0 / 3, true));
    }
  }
}

TEST_CASE("masks, exponential numbers, transformers and samplers are LibTorch's without MKL") {
  const TorchNumbers on;
  const Vectors vectors("random_numbers_without_mkl.txt");
  for (const uint64_t seed : kSeeds) {
    for (const Dtype dtype : {kFloat32, kFloat64}) {
      const std::string name = "/" + std::to_string(seed) + "/" + printed(dtype);
      const auto some = [&](const Shape& shape) { return ones(shape, dtype); };
      for (const int64_t n : kSizes) {
        manual_seed(seed);
        CHECK_END("bernoulli" + name + "/" + std::to_string(n), some({n}).bernoulli_(0.3));
      }
      manual_seed(seed);
      CHECK_END("dropout" + name, nn::Dropout(0.25)->forward(some({100})), kRounded);
      CHECK_END("dropout2d" + name, nn::Dropout2d(0.5)->forward(some({4, 10, 3, 1})));
      CHECK_END("alpha_dropout" + name, nn::AlphaDropout(0.25)->forward(some({100})), kRounded);
      manual_seed(seed);
      CHECK_END("gumbel_softmax" + name, gumbel_softmax(some({4, 6})), {.eps = 8});
      const Tensor weights = arange(30, kInt64).remainder(7).to(dtype).reshape({2, 15});
      manual_seed(seed);
      CHECK_END("multinomial" + name, multinomial(weights, 9));
      CHECK_END("multinomial_one" + name, multinomial(weights, 1));
    }
    const auto check = [&](const std::string& layer, const auto& module) {
      std::vector<Tensor> all;
      for (const Tensor& p : module->parameters()) all.push_back(p.detach().reshape({-1}));
      CHECK_END("module/" + layer + "/" + std::to_string(seed), std::get<0>(cat(all).sort()),
                {.ulps = 1});
    };
    manual_seed(seed);
    using namespace nn;
    check("encoder_layer",
          TransformerEncoderLayer(TransformerEncoderLayerOptions(4, 2).dim_feedforward(6)));
    check("decoder_layer",
          TransformerDecoderLayer(TransformerDecoderLayerOptions(4, 2).dim_feedforward(6)));
    check("transformer", Transformer(TransformerOptions(4, 2, 2, 2).dim_feedforward(6)));
    manual_seed(seed);
    data::samplers::RandomSampler sampler(17);
    for (const char* epoch : {"0", "1"}) {
      sampler.reset();
      const std::vector<size_t> order = sampler.next(17).value();
      CHECK_END("sampler/" + std::to_string(seed) + "/" + epoch,
                tensor(std::vector<int64_t>(order.begin(), order.end()), kInt64));
    }
  }
}

TEST_CASE("tensors that are not contiguous are filled in PyTorch's order") {
  const TorchNumbers on;
  const Vectors vectors("random_numbers.txt");
  const auto fill = [](const Tensor& x, bool normal) { normal ? x.normal_() : x.uniform_(); };
  for (const bool normal : {false, true}) {
    const std::string name = normal ? "normal" : "uniform";
    const TensorOptions o = kFloat32;
    Tensor x = zeros({6, 5}, o);
    manual_seed(3);
    fill(x.t(), normal);
    CHECK_END("transposed/" + name, x, kRounded);
    x = zeros({6, 5, 4}, o);
    manual_seed(3);
    fill(x.slice(1, 1, 3).permute({2, 0, 1}), normal);
    CHECK_END("sliced/" + name, x, kRounded);
  }
}

TEST_CASE("draws follow each other as in PyTorch, and a seed forgets the normal that waits") {
  const TorchNumbers on;
  const Vectors vectors("random_numbers.txt");
  const TensorOptions f = kFloat32, i = kInt64;
  std::vector<Tensor> steps;
  const auto add = [&](const Tensor& x) { steps.push_back(x.to(kFloat64)); };
  manual_seed(4);
  add(randn({3}, f));
  add(rand({2}, f));
  add(randn({1}, f));
  add(randint(0, 9, {2}, i));
  add(randn({2}, f));
  manual_seed(4);
  CHECK_FALSE(get_generator().mt19937->next_normal);
  add(randn({1}, f));
  add(randperm(5, i));
  add(randn({20}, f));
  add(randn({1}, f));
  // Float32 numbers, seen as float64.
  const double scale = epsilon(kFloat32) / epsilon(kFloat64);
  CHECK_END("sequence", cat(steps).slice(0, 0, 20), {.eps = scale});
  CHECK_END("sequence/end", cat(steps), {.eps = scale});
}

TEST_CASE("initial weights of modules after manual_seed(0) are PyTorch's") {
  const TorchNumbers on;
  const Vectors vectors("random_numbers.txt");
  const auto check = [&](const std::string& name, auto make) {
    manual_seed(0);
    const auto module = make();
    std::vector<Tensor> all;
    for (const Tensor& p : module->parameters()) all.push_back(p.detach().reshape({-1}));
    // Bounds of initial weights are square roots and quotients, here in double.
    CHECK_END("module/" + name, cat(all), {.ulps = 1});
    const double sum = cat(all).to(kFloat64).sum().item();
    CHECK(sum == doctest::Approx(vectors["module/" + name + "/sum"][0]).epsilon(1e-6));
  };
  check("linear", [] { return nn::Linear(7, 5); });
  check("bilinear", [] { return nn::Bilinear(3, 4, 5); });
  check("conv1d", [] { return nn::Conv1d(nn::Conv1dOptions(4, 6, 3).groups(2)); });
  check("conv2d", [] { return nn::Conv2d(nn::Conv2dOptions(3, 4, {3, 2})); });
  check("conv_transpose2d", [] { return nn::ConvTranspose2d(3, 4, 3); });
  check("embedding", [] { return nn::Embedding(nn::EmbeddingOptions(10, 3).padding_idx(2)); });
  check("embedding_bag", [] { return nn::EmbeddingBag(10, 3); });
  check("lstm", [] { return nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true)); });
  check("gru_cell", [] { return nn::GRUCell(3, 4); });
  check("attention", [] { return nn::MultiheadAttention(8, 2); });
  // With braces: between parentheses it is the compiler that chooses which one is made first.
  check("prelu", [] {
    return nn::Sequential{nn::Linear(2, 3), nn::PReLU(), nn::BatchNorm1d(3), nn::Linear(3, 1)};
  });
}

TEST_CASE("initialisers after manual_seed(0) give PyTorch's numbers") {
  const TorchNumbers on;
  const Vectors vectors("random_numbers.txt");
  const Tensor x = zeros({20, 30}, kFloat32);
  const auto check = [&](const char* name, const std::function<Tensor(Tensor)>& fill) {
    manual_seed(0);
    CHECK_END(std::string("init/") + name, fill(x), {.ulps = 1});
  };
  check("xavier_uniform_", [](Tensor t) { return nn::init::xavier_uniform_(t); });
  check("xavier_normal_", [](Tensor t) { return nn::init::xavier_normal_(t); });
  check("kaiming_uniform_", [](Tensor t) { return nn::init::kaiming_uniform_(t); });
  check("kaiming_normal_", [](Tensor t) { return nn::init::kaiming_normal_(t); });
  check("sparse_", [](Tensor t) { return nn::init::sparse_(t, 0.5); });
  // PyTorch's rows come from Householder's reflections, in the tensor's precision.
  for (const Dtype dtype : {kFloat32, kFloat64})
    for (const auto& [name, shape] :
         {std::pair{"wide", Shape{5, 2, 4}}, std::pair{"tall", Shape{8, 5}}}) {
      manual_seed(0);
      const Tensor q = zeros(shape, dtype);
      CHECK_END("init/orthogonal_/" + printed(dtype) + "/" + name, nn::init::orthogonal_(q),
                {.eps = 16});
    }
}

TEST_CASE("a training run from a seed has LibTorch's losses: weights, data, masks and batches") {
  const TorchNumbers on;
  const Vectors vectors("random_numbers_without_mkl.txt");
  manual_seed(2);
  nn::Sequential model{nn::Linear(5, 16), nn::Tanh(), nn::Dropout(0.2), nn::Linear(16, 1)};
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.05).momentum(0.9));
  const Tensor data = randn({24, 6});
  auto loader = data::make_data_loader<data::samplers::RandomSampler>(
      data::datasets::TensorDataset(data).map(data::transforms::Stack<data::TensorExample>()), 8);
  std::vector<Tensor> losses;
  for (int epoch = 0; epoch < 10; ++epoch)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      const Tensor y = model->forward(batch.data.narrow(1, 0, 5));
      const Tensor loss = mse_loss(y, batch.data.narrow(1, 5, 1));
      loss.backward();
      optimizer.step();
      losses.push_back(loss.detach().reshape({1}));
    }
  CHECK_END("training", cat(losses), {.eps = 8});
}

TEST_CASE("the number of threads changes none of PyTorch's numbers") {
  const TorchNumbers on;
  const int threads = get_num_threads();
  std::vector<std::vector<double>> all;
  for (const int n : {1, 3}) {
    set_num_threads(n);
    manual_seed(5);
    const TensorOptions o = kFloat32;
    const Tensor x = cat({rand({40001}, o), randn({40001}, o)});
    all.push_back(cat({x, dropout(x, 0.5)}).to_vector());
  }
  set_num_threads(threads);
  CHECK(all[0] == all[1]);
}

TEST_CASE("checkpoint() draws PyTorch's mask again") {
  const TorchNumbers on;
  const TensorOptions o = kFloat64;
  const auto gradient = [&](bool checkpointed) {
    manual_seed(8);
    const Tensor x = ones({50}, o).requires_grad_();
    const auto f = [](const TensorList& in) {
      return dropout(in[0] * in[0] + randn({3}, kFloat64).sum(), 0.5);
    };
    const Tensor y = checkpointed ? autograd::checkpoint(f, {x}) : f({x});
    randn({3}, o);
    y.exp().sum().backward();
    return cat({x.grad(), y.detach(), randn({3}, o)}).to_vector();
  };
  CHECK(gradient(true) == gradient(false));
}
