// bfloat16 without a scaler: it has float32's range, so small gradients do not vanish and nothing
// has to be scaled; it only has fewer digits.
#include "recipe.h"

using namespace recipe;

namespace {

struct Result {
  double accuracy = 0;
  int64_t zeros = 0;  // gradients that were exactly 0 in the first step
};

/// `shrink`: a loss so small that float16's gradients vanish.
Result train(Dtype dtype, double shrink) {
  const Set train = train_set();
  nn::Sequential model = make_model();
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(3e-3).eps(1e-30));
  Result result;
  for (int step = 0; step < 300; ++step) {
    const Set batch = train.batch(step, 64);
    optimizer.zero_grad();
    Tensor scores;
    {
      const amp::autocast region(kCPU, dtype);
      scores = model->forward(batch.images);
    }
    (cross_entropy(scores.to(kFloat32), batch.labels) * shrink).backward();
    if (step == 0) result.zeros = (gradients(model) == 0).sum().item<int64_t>();
    optimizer.step();
  }
  result.accuracy = accuracy(model, test_set());
  return result;
}

}  // namespace

int main() {
  constexpr double kShrink = 1e-7;
  const Result bf16 = train(kBFloat16, kShrink), fp16 = train(kFloat16, kShrink),
               plain = train(kBFloat16, 1);
  std::printf("loss as it is: bfloat16 %.1f %%\n", plain.accuracy);
  std::printf("loss * %g:    bfloat16 %.1f %%, %lld gradients are 0;  float16 %.1f %%, %lld\n",
              kShrink, bf16.accuracy, static_cast<long long>(bf16.zeros), fp16.accuracy,
              static_cast<long long>(fp16.zeros));
  expect(plain.accuracy > 92 && bf16.accuracy > 92, "bfloat16 needs no scaler");
  expect(fp16.zeros > 2 * bf16.zeros, "float16 without one loses gradients");
  expect(fp16.accuracy < bf16.accuracy - 10, "and does not learn");
  return verdict();
}
