// A tour of the tape: what is recorded, how gradients are asked for, and how to add an op.
#include <iostream>

#include "program.h"

using namespace halftape;

namespace {

/// A title keeps the output readable beside the code.
void section(const char* title) { std::cout << "\n== " << title << " ==\n"; }

/// A custom op: x·wᵀ + b, with the rule of linear().
struct Affine : autograd::Function<Affine> {
  static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w,
                        const Tensor& b) {
    ctx->save_for_backward({x, w});
    return matmul(x, w.t()) + b;
  }
  static autograd::variable_list backward(autograd::AutogradContext* ctx,
                                          autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &g = grads[0], &x = saved[0], &w = saved[1];
    return {matmul(g, w), matmul(g.t(), x), g.sum(0)};
  }
};

void recording() {
  section("recording");
  const Tensor x = ones({2, 2}).requires_grad_();
  const Tensor y = x + 2;
  const Tensor z = y * y * 3;
  std::cout << "z was made by `" << z.grad_fn()->name() << "`\n";
  z.mean().backward();
  std::cout << "d mean(3(x + 2)²)/dx, which is 1.5(x + 2):\n" << x.grad() << '\n';

  const Tensor a = randn({2, 2});
  std::cout << "a leaf starts without history: " << a.requires_grad() << '\n';
  a.requires_grad_();
  std::cout << "and with it once asked to: " << (a * a).sum().requires_grad() << '\n';
  {
    const NoGradGuard no_grad;
    std::cout << "not under NoGradGuard: " << (a * a).requires_grad() << '\n';
  }
  std::cout << "nor after detach(): " << (a * a).detach().requires_grad() << '\n';
}

void vector_jacobian() {
  section("vector-Jacobian products");
  const Tensor x = tensor({0.5, -1.0, 2.0}).requires_grad_();
  Tensor y = x * 2;
  int doublings = 1;
  for (; y.norm().item() < 1000; ++doublings) y = y * 2;
  y.backward(tensor({0.1, 1.0, 0.0001}));
  std::cout << "vᵀJ after " << doublings << " doublings:\n" << x.grad() << '\n';
}

void second_order() {
  section("gradients of gradients: a penalty on the norm of the input's gradient");
  manual_seed(1);
  nn::Linear model(4, 3);
  const nn::MSELoss criterion;
  const Tensor input = randn({3, 4}).requires_grad_(), target = randn({3, 3});
  const Tensor loss = criterion(model(input), target);
  const Tensor gradient = autograd::grad({loss}, {input}, {}, {}, /*create_graph=*/true)[0];
  const Tensor penalty = ((gradient * gradient).sum(1).sqrt() - 1).square().mean();
  (loss + penalty).backward();
  std::cout << "loss " << loss.item() << ", penalty " << penalty.item()
            << ", d(loss + penalty)/d(weight):\n"
            << model->weight.grad() << '\n';
}

void own_op() {
  section("an op of one's own");
  manual_seed(2);
  const Tensor x = randn({2, 3}).requires_grad_(), w = randn({4, 3}).requires_grad_(),
               b = randn({4}).requires_grad_();
  Affine::apply(x, w, b).sum().backward();
  const Tensor expected = autograd::grad({nn::functional::linear(x, w, b).sum()}, {w})[0];
  std::cout << "its gradient is linear's: " << std::boolalpha << w.grad().allclose(expected)
            << '\n';
  const bool right = autograd::gradcheck(
      [](const TensorList& in) { return Affine::apply(in[0], in[1], in[2]); },
      {randn({2, 3}, kFloat64).requires_grad_(), randn({4, 3}, kFloat64).requires_grad_(),
       randn({4}, kFloat64).requires_grad_()});
  std::cout << "and that of finite differences: " << right << '\n';
}

void hooks() {
  section("hooks");
  const Tensor x = tensor({1.0, 2.0}).requires_grad_();
  Tensor y = x * 3;
  y.retain_grad();
  y.register_hook([](const Tensor& g) { std::cout << "the gradient of y passes:\n" << g << '\n'; });
  (y * y).sum().backward();
  std::cout << "and was kept: " << y.grad().defined() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A tour of the tape, to be read beside the code.", "autograd"};
  return sample::run(app, argc, argv, [] {
    recording();
    vector_jacobian();
    second_order();
    own_op();
    hooks();
  });
}
