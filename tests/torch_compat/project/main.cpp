// A LibTorch program of a user's own: an op with its own rule learns to scale. Returns 0 when it
// has.
#include <torch/torch.h>

#include <cmath>
#include <iostream>

using namespace torch::autograd;

class Scale : public Function<Scale> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x, torch::Tensor by,
                               double constant) {
    ctx->save_for_backward({x, by});
    ctx->saved_data["constant"] = constant;
    return x * by * constant;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    const auto saved = ctx->get_saved_variables();
    const auto grad = grad_outputs[0] * ctx->saved_data["constant"].toDouble();
    return {grad * saved[1], (grad * saved[0]).sum(), torch::Tensor()};
  }
};

int main() {
  torch::manual_seed(1);
  auto by = torch::ones({}, torch::requires_grad());
  torch::optim::SGD optimizer({by}, torch::optim::SGDOptions(0.05).momentum(0.5));
  for (int i = 0; i < 200; ++i) {
    const auto x = torch::randn({32});
    optimizer.zero_grad();
    torch::mse_loss(Scale::apply(x, by, 2.0), 6 * x).backward();
    optimizer.step();
  }
  std::cout << by << std::endl;
  return std::abs(by.item<float>() - 3) < 1e-3 ? 0 : 1;
}
