// Gradient penalty: a loss that contains its own gradient. The inner gradients are taken of the
// scaled loss, so that they survive float16, and divided by the scale before they are used; the
// sum is scaled again for the outer backward. Drucker & Le Cun 1992.
#include "recipe.h"

using namespace recipe;

namespace {

/// ‖∂loss/∂weights‖² as a differentiable number, unscaled.
Tensor squared_norm(const TensorList& grads) {
  Tensor sum = zeros({});
  for (const Tensor& g : grads) sum = sum + g.to(kFloat32).square().sum();
  return sum;
}

struct Losses {
  double loss = 0, penalty = 0;
};

/// Leaves the gradients of loss + weight·penalty, still scaled, in the model.
Losses backward(nn::Sequential& model, const Set& batch, amp::GradScaler& scaler, bool mixed,
                double weight) {
  Tensor loss, penalty;
  {
    const amp::autocast region(kCPU, kFloat16, mixed);
    loss = cross_entropy(model->forward(batch.images), batch.labels);
  }
  TensorList inner =
      autograd::grad({scaler.scale(loss)}, model->parameters(), {}, true, /*create_graph=*/true);
  {
    const amp::autocast region(kCPU, kFloat16, mixed);
    const double inverse = 1 / scaler.get_scale();
    for (Tensor& g : inner) g = g * inverse;
    penalty = squared_norm(inner);
  }
  scaler.scale(loss + penalty * weight).backward();
  return {loss.item<double>(), penalty.item<double>()};
}

}  // namespace

int main() {
  const Set train = train_set();
  // At the same weights, mixed precision gives float32's gradients.
  nn::Sequential model = make_model();
  amp::GradScaler none({.enabled = false}), scaler({.init_scale = 1024});
  backward(model, train.batch(0, 64), none, false, 1);
  const Tensor expected = gradients(model).clone();
  model->zero_grad();
  backward(model, train.batch(0, 64), scaler, true, 1);
  const double apart = distance(gradients(model) / scaler.get_scale(), expected);
  std::printf("gradients of loss and penalty: %.1e from float32's\n", apart);
  // A ReLU whose input rounds across 0 has another slope; with Tanh it is 4e-4.
  expect(apart < 0.05, "second derivatives survive float16");

  // And the penalty does what it is for.
  double penalty[2] = {};
  for (const bool penalised : {false, true}) {
    nn::Sequential net = make_model();
    optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(3e-3));
    amp::GradScaler scaling;
    for (int step = 0; step < 200; ++step) {
      optimizer.zero_grad();
      const Losses losses =
          backward(net, train.batch(step, 64), scaling, true, penalised ? 0.5 : 0);
      scaling.step(optimizer);
      scaling.update();
      if (step >= 180) penalty[penalised] += losses.penalty / 20;
    }
    std::printf("%s penalty: accuracy %.1f %%, squared norm of the gradient at the end %.4f\n",
                penalised ? "with   " : "without", accuracy(net, test_set()), penalty[penalised]);
    expect(accuracy(net, test_set()) > 90, "it learns");
  }
  expect(penalty[1] < penalty[0] * 0.95, "the penalty keeps the gradient small");
  return verdict();
}
