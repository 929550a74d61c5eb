// Custom functions under autocast. amp::Function runs backward in the state of forward; with
// cast_inputs both run in that dtype with autocast off, for code that knows one dtype only.
#include "recipe.h"

using namespace recipe;
using autograd::AutogradContext;
using autograd::variable_list;

namespace {

/// A matrix product: its backward multiplies matrices again, in the dtype that forward had.
struct Product : amp::Function<Product> {
  static constexpr const char* name = "Product";
  static Tensor forward(AutogradContext* ctx, Tensor a, Tensor b) {
    ctx->save_for_backward({a, b});
    return matmul(a, b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor da = matmul(grads[0], saved[1].t()), db = matmul(saved[0].t(), grads[0]);
    backward_dtype = da.dtype();
    return {da, db};
  }
  static inline Dtype backward_dtype = kFloat64;
};

/// ln Σ exp(x) of each row as somebody wrote it for float32: in float16 exp(12) is infinite.
struct LogSumExp : amp::Function<LogSumExp> {
  static constexpr const char* name = "LogSumExp";
  static constexpr Dtype cast_inputs = kFloat32;
  static Tensor forward(AutogradContext* ctx, Tensor x) {
    const Tensor rows = x.contiguous();  // it keeps the memory that `from` points to
    const float* from = rows.const_data_ptr<float>();
    const Tensor y = zeros({x.size(0)});
    auto* const to = y.data_ptr<float>();
    for (int64_t i = 0; i < x.size(0); ++i) {
      float sum = 0;
      for (int64_t j = 0; j < x.size(1); ++j) sum += std::exp(from[i * x.size(1) + j]);
      to[i] = std::log(sum);
    }
    ctx->save_for_backward({x, y});
    return y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    return {exp(saved[0] - saved[1].unsqueeze(1)) * grads[0].unsqueeze(1)};
  }
};

}  // namespace

int main() {
  manual_seed(1);
  const Tensor a = randn({8, 16}).requires_grad_(), b = randn({16, 4}).requires_grad_();
  const Tensor expected = matmul(a, b).detach();
  Tensor y, total;
  {
    const amp::autocast region(kCPU, kFloat16);
    y = Product::apply(a, b);
    total = LogSumExp::apply(y * 4).sum();
  }
  total.backward();  // outside the region
  std::printf("Product: forward %s, backward %s; %.1e from float32\n", type_name(y.dtype()),
              type_name(Product::backward_dtype), distance(y.detach().to(kFloat32), expected));
  expect(y.dtype() == kFloat16 && Product::backward_dtype == kFloat16,
         "backward runs as forward did");
  expect(a.grad().dtype() == kFloat32, "and the gradients fit the parameters");

  const Tensor reference = logsumexp(expected * 4, 1).sum();
  std::printf("LogSumExp: %s, %.5f; float32 says %.5f\n", type_name(total.dtype()),
              total.item<double>(), reference.item<double>());
  expect(total.dtype() == kFloat32, "cast_inputs made its input float32");
  expect(std::abs(total.item<double>() / reference.item<double>() - 1) < 2e-3,
         "so that exp did not overflow");
  return verdict();
}
