// What PyTorch's CPU generator draws in a build without MKL: Debian's libtorch-dev 1.13.1. Builds
// with MKL draw masks of one probability from a generator of MKL on CPUs of Intel.
//
//     g++ -std=c++17 -O2 -w scripts/torch_vectors/random_numbers.cpp -o random_numbers
//         -isystem /usr/include/torch/csrc/api/include -ltorch -ltorch_cpu -lc10
//     ./random_numbers > tests/vectors/random_numbers_without_mkl.txt
#include <torch/torch.h>

#include <cstdio>
#include <string>

namespace {

void put(const std::string& name, const torch::Tensor& x) {
  const torch::Tensor all = x.detach().reshape({-1}).to(torch::kFloat64).contiguous();
  const int64_t from = std::max<int64_t>(0, all.numel() - 20);
  std::printf("%s %ld", name.c_str(), static_cast<long>(all.numel() - from));
  for (int64_t i = from; i < all.numel(); ++i) std::printf(" %.17g", all.data_ptr<double>()[i]);
  std::printf("\n");
}

/// Its largest parameters, as not all agree on their order.
template <class Module>
void put_module(const std::string& name, const Module& module) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& p : module->parameters()) all.push_back(p.detach().reshape({-1}));
  put("module/" + name, std::get<0>(torch::cat(all).sort()));
}

/// The losses of a small model with dropout, from initial weights to the order of the examples.
torch::Tensor training() {
  torch::manual_seed(2);
  torch::nn::Sequential model{torch::nn::Linear(5, 16), torch::nn::Tanh(), torch::nn::Dropout(0.2),
                              torch::nn::Linear(16, 1)};
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  const torch::Tensor data = torch::randn({24, 6});
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      torch::data::datasets::TensorDataset(data).map(
          torch::data::transforms::Stack<torch::data::TensorExample>()),
      8);
  std::vector<torch::Tensor> losses;
  for (int epoch = 0; epoch < 10; ++epoch)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      const torch::Tensor y = model->forward(batch.data.narrow(1, 0, 5));
      const torch::Tensor loss = torch::mse_loss(y, batch.data.narrow(1, 5, 1));
      loss.backward();
      optimizer.step();
      losses.push_back(loss.detach().reshape({1}));
    }
  return torch::cat(losses);
}

}  // namespace

int main() {
  std::printf("# The ends of what PyTorch's mt19937 draws on the CPU in a build without MKL.\n");
  std::printf("# Made by: scripts/torch_vectors/random_numbers.cpp (libtorch 1.13.1, CPU)\n");
  const torch::Dtype dtypes[] = {torch::kFloat32, torch::kFloat64};
  const char* words[] = {"float32", "float64"};
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, (uint64_t{1} << 40) + 12345}) {
    for (int d = 0; d < 2; ++d) {
      const std::string name = "/" + std::to_string(seed) + "/" + words[d];
      const auto ones = [&](int64_t n) { return torch::ones({n}, dtypes[d]); };
      for (const int64_t n : {1, 15, 16, 17, 100, 1000}) {
        torch::manual_seed(seed);
        put("bernoulli" + name + "/" + std::to_string(n), ones(n).bernoulli_(0.3));
      }
      torch::manual_seed(seed);
      put("dropout" + name, torch::nn::Dropout(0.25)(ones(100)));
      put("dropout2d" + name, torch::nn::Dropout2d(0.5)(ones(120).reshape({4, 10, 3, 1})));
      put("alpha_dropout" + name, torch::nn::AlphaDropout(0.25)(ones(100)));
      torch::manual_seed(seed);
      put("gumbel_softmax" + name, torch::nn::functional::gumbel_softmax(ones(24).reshape({4, 6})));
      torch::manual_seed(seed);
      const torch::Tensor weights = (torch::arange(30) % 7).to(dtypes[d]).reshape({2, 15});
      put("multinomial" + name, torch::multinomial(weights, 9));
      put("multinomial_one" + name, torch::multinomial(weights, 1));
    }
    torch::manual_seed(seed);
    put_module("encoder_layer/" + std::to_string(seed),
               torch::nn::TransformerEncoderLayer(
                   torch::nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(6)));
    put_module("decoder_layer/" + std::to_string(seed),
               torch::nn::TransformerDecoderLayer(
                   torch::nn::TransformerDecoderLayerOptions(4, 2).dim_feedforward(6)));
    put_module(
        "transformer/" + std::to_string(seed),
        torch::nn::Transformer(torch::nn::TransformerOptions(4, 2, 2, 2).dim_feedforward(6)));
    torch::manual_seed(seed);
    torch::data::samplers::RandomSampler sampler(17);
    for (int epoch = 0; epoch < 2; ++epoch) {
      sampler.reset();
      const std::vector<size_t> order = *sampler.next(17);
      const std::vector<int64_t> numbers(order.begin(), order.end());
      put("sampler/" + std::to_string(seed) + "/" + std::to_string(epoch), torch::tensor(numbers));
    }
  }
  put("training", training());
}
