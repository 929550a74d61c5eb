#include "workloads.h"

#include <halftape/halftape.h>

#include <memory>

#include "gpt.h"
#include "resnet9.h"

namespace halftape::testing {
namespace {

namespace F = nn::functional;
using Step = std::function<void()>;
using Loss = std::function<Tensor(amp::GradScaler&)>;

Step step_of(std::shared_ptr<optim::Optimizer> optimizer, Loss loss_of) {
  auto scaler = std::make_shared<amp::GradScaler>();
  return [=, optimizer = std::move(optimizer), loss_of = std::move(loss_of)] {
    optimizer->zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCUDA, kFloat16);
      loss = loss_of(*scaler);
    }
    scaler->scale(loss).backward();
    scaler->step(*optimizer);
    scaler->update();
  };
}

/// Linear layers with ReLU between them, and AdamW.
Step mlp_step(const std::vector<int64_t>& widths, int64_t batch, bool classes, bool by_loss) {
  nn::Sequential model;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    model->push_back(nn::Linear(widths[i], widths[i + 1]));
    if (i + 2 < widths.size()) model->push_back(nn::ReLU());
  }
  const Tensor x = rand({batch, widths.front()});
  const Tensor y =
      classes ? randint(0, widths.back(), {batch}, kInt64) : rand({batch, widths.back()});
  return step_of(std::make_shared<optim::AdamW>(model->parameters(), optim::AdamWOptions(1e-3)),
                 [=](amp::GradScaler& scaler) {
                   if (by_loss) return model->loss(x, y, scaler.factor());
                   const Tensor out = model->forward(x);
                   return classes ? F::cross_entropy(out, y) : F::mse_loss(out, y);
                 });
}

/// The GPT of samples/char_gpt, as nanoGPT's train_shakespeare_char.py sets it up.
Step gpt_step() {
  const int64_t batch = 64, context = 256, symbols = 65;
  const GPT model(GPTOptions{.vocab_size = symbols,
                             .block_size = context,
                             .n_layer = 6,
                             .n_head = 6,
                             .n_embd = 384,
                             .dropout = 0.2});
  const Tensor text = randint(0, symbols, {batch, context}, kInt64),
               next = randint(0, symbols, {batch, context}, kInt64);
  // An optimizer cannot be moved, and make_shared() would.
  std::shared_ptr<optim::Optimizer> optimizer(
      new optim::AdamW(make_optimizer(model, 1e-3, 0.99, 0.1)));
  return step_of(std::move(optimizer), [=](amp::GradScaler&) {
    return F::cross_entropy(GPT(model)(text).view({-1, symbols}), next.view({-1}));
  });
}

Step resnet_step() {
  const int64_t batch = 512;
  const ResNet9 model;
  const Tensor x = rand({batch, 3, 32, 32}), y = randint(0, 10, {batch}, kInt64);
  return step_of(std::make_shared<optim::SGD>(
                     model->parameters(), optim::SGDOptions(0.1).momentum(0.9).weight_decay(5e-4)),
                 [=](amp::GradScaler&) { return F::cross_entropy(ResNet9(model)->forward(x), y); });
}

}  // namespace

std::vector<Workload> workloads() {
  const std::vector<int64_t> a{784, 256, 256, 10}, narrow{784, 128, 128, 10},
      b{64, 64, 64, 64, 64, 16}, c(5, 4096);
  const int64_t many = 1 << 18;
  const auto mlp = [](const std::vector<int64_t>& widths, int64_t batch, bool classes,
                      bool by_loss) {
    return [=] { return mlp_step(widths, batch, classes, by_loss); };
  };
  return {
      {"a128", "784-256-256-10, batch 128", 11, 9, 14, mlp(a, 128, true, false)},
      {"a1024", "784-256-256-10, batch 1024", 11, 0, 0, mlp(a, 1024, true, false)},
      {"a128_narrow", "784-128-128-10, batch 128, by loss()", 3, 0, 0,
       mlp(narrow, 128, true, true)},
      {"n128", "128-128-128-10, batch 128, by loss()", 3, 0, 0,
       mlp({128, 128, 128, 10}, 128, true, true)},
      {"b_forward", "64-64-64-64-64-16, batch 2^18", 0, 0, 0, mlp(b, many, false, false)},
      {"b", "64-64-64-64-64-16, batch 2^18, by loss()", 3, 84, 0, mlp(b, many, false, true)},
      {"c", "five of 4096, batch 8192", 22, 4300, 26, mlp(c, 8192, false, false)},
      {"d", "GPT, 6 layers of 384, batch 64 x 256", 200, 4500, 0, gpt_step},
      {"e", "ResNet-9, batch 512, 3x32x32, SGD", 220, 6000, 0, resnet_step},
  };
}

std::vector<Library> other_libraries(const simt::Settings& like) {
  using simt::NanInRelu;
  using simt::Refusals;
  std::vector<Library> all;
  const auto add = [&](const char* name, auto&& change) {
    all.push_back({name, like});
    change(all.back().settings);
  };
  add("ReLU swallows NaN", [](auto& s) { s.nan_in_relu = NanInRelu::Swallowed; });
  add("ReLU keeps NaN without its bit", [](auto& s) { s.nan_in_relu = NanInRelu::KeptWithout; });
  add("GELU by erf", [](auto& s) { s.gelu_by_erf = true; });
  add("coarse tanh", [](auto& s) { s.tanh_error = 0x1p-11; });
  add("turned masks", [](auto& s) { s.turned_masks = true; });
  add("zeros have bits", [](auto& s) { s.zeros_have_bits = true; });
  add("bias after rounding", [](auto& s) { s.bias_after_rounding = true; });
  add("more kernels", [](auto& s) { s.more_kernels = true; });
  add("no wide bias gradients", [](auto& s) { s.wide_bias_gradients = false; });
  add("refuses epilogues", [](auto& s) { s.refuses.of = Refusals::Epilogues; });
  add("refuses epilogues when called",
      [](auto& s) { s.refuses = {.of = Refusals::Epilogues, .when_called = true}; });
  add("refuses halves", [](auto& s) { s.refuses.of = Refusals::Halves; });
  add("refuses all", [](auto& s) { s.refuses.of = Refusals::All; });
  return all;
}

}  // namespace halftape::testing
