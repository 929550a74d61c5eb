// A LibTorch program, which knows nothing of this library: two modules learn a circle and a line.
// It compiles against LibTorch and against halftape::torch_compat alike. Returns 0 when both have
// learnt.
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

namespace F = torch::nn::functional;

// A module in the older style: a plain struct that its owner holds.
struct Net : torch::nn::Module {
  Net(int64_t in, int64_t hidden) {
    fc1 = register_module("fc1", torch::nn::Linear(in, hidden));
    fc2 = register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(hidden, 2).bias(true)));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(fc1->forward(x));
    return torch::log_softmax(fc2(x), /*dim=*/1);
  }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};

// A module with a holder, whose parameters are its own.
struct LineImpl : torch::nn::Module {
  LineImpl() {
    slope = register_parameter("slope", torch::zeros({1, 1}));
    offset = register_parameter("offset", torch::zeros(1));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::matmul(x, slope) + offset; }
  torch::Tensor slope, offset;
};
TORCH_MODULE(Line);

// A user's own names in LibTorch's namespace.
namespace torch {
namespace mine {
inline double accuracy(const Tensor& log_p, const Tensor& target) {
  return log_p.argmax(1).eq(target).to(kFloat).mean().item<float>();
}
}  // namespace mine
}  // namespace torch

static double classify(torch::Device device) {
  torch::manual_seed(1);
  const auto options = torch::TensorOptions().dtype(torch::kFloat32).device(device);
  const torch::Tensor x = torch::rand({512, 2}, options) * 2 - 1;
  const torch::Tensor y = (x * x).sum(1).lt(torch::full({512}, 0.6, options)).to(torch::kLong);

  auto net = std::make_shared<Net>(2, 32);
  net->to(device);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(2e-2));
  for (int epoch = 0; epoch < 60; ++epoch) {
    for (int64_t at = 0; at < x.size(0); at += 128) {
      optimizer.zero_grad();
      torch::Tensor loss =
          torch::nll_loss(net->forward(x.slice(0, at, at + 128)), y.narrow(0, at, 128));
      TORCH_CHECK(loss.dim() == 0, "the loss has ", loss.dim(), " dimensions");
      loss.backward();
      optimizer.step();
    }
  }
  net->eval();
  torch::NoGradGuard no_grad;
  TORCH_CHECK(!net->forward(x).requires_grad());
  return torch::mine::accuracy(net->forward(x), y);
}

static double fit() {
  const at::Tensor x = torch::linspace(-1, 1, 32).view({-1, 1}), y = 3 * x - 0.5;
  Line line;
  torch::optim::SGD optimizer(line->parameters(), torch::optim::SGDOptions(0.3).momentum(0.5));
  torch::Tensor loss;
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    loss = F::mse_loss(line(x), y);
    loss.backward();
    optimizer.step();
  }
  for (const auto& item : line->named_parameters())
    std::cout << item.key() << ": " << item.value() << '\n';
  return loss.item<double>();
}

static bool numbers() {
  std::vector<float> memory{1, 2, 3, 4, 5, 6};
  const at::IntArrayRef sizes{2, 3};
  torch::Tensor t = torch::from_blob(memory.data(), sizes, torch::kFloat);
  auto a = t.accessor<float, 2>();
  float sum = 0;
  for (int64_t i = 0; i < a.size(0); ++i)
    for (int64_t j = 0; j < a.size(1); ++j) sum += a[i][j];
  const c10::optional<int64_t> none = c10::nullopt;
  const std::vector<int64_t> expected{2, 3};
  bool thrown = false;
  try {
    torch::matmul(t, t);
  } catch (const c10::Error& error) {
    thrown = std::string(error.what()).size() > 0;
  }
  torch::Tensor x = torch::tensor({{1.0, 2.0}, {3.0, 4.0}}, torch::requires_grad());
  const auto grads = torch::autograd::grad({(x * x).sum()}, {x}, {}, c10::nullopt, true);
  return sum == 21 && !none.has_value() && t.sizes() == expected && thrown &&
         torch::allclose(grads[0], 2 * x) && t.dtype() == torch::kFloat &&
         t.device().type() == torch::kCPU && t.element_size() == 4;
}

/// Autocast by LibTorch's switches.
static bool mixed() {
  using namespace at::autocast;
  torch::nn::Linear net(4, 2);
  const torch::Tensor x = torch::ones({3, 4});
  const bool before = is_autocast_enabled(at::kCPU);
  const at::ScalarType dtype_before = get_autocast_dtype(at::kCPU);
  set_autocast_enabled(at::kCPU, true);
  set_autocast_dtype(at::kCPU, at::kHalf);
  increment_nesting();
  const torch::Tensor y = net->forward(x);
  const bool on = is_cpu_enabled() && !is_enabled() && is_autocast_cache_enabled();
  const bool cast = cached_cast(at::kHalf, x, at::kCPU).scalar_type() == torch::kHalf &&
                    cached_cast(at::kHalf, x).scalar_type() == torch::kFloat;
  if (decrement_nesting() == 0) clear_cache();
  set_autocast_dtype(at::kCPU, dtype_before);
  set_autocast_enabled(at::kCPU, before);
  y.sum().backward();
  return is_autocast_available(at::kCPU) && on && cast && y.scalar_type() == torch::kHalf &&
         net->weight.grad().scalar_type() == torch::kFloat && !is_autocast_enabled(at::kCPU);
}

int main() {
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  const double accuracy = classify(device), loss = fit();
  std::printf("accuracy %.3f, loss %.2e\n", accuracy, loss);
  if (accuracy < 0.95) return 1;
  if (loss > 1e-4) return 2;
  if (!mixed()) return 4;
  return numbers() ? 0 : 3;
}
