// What LibTorch programs use beside tensors: loops over threads, archives, helpers for templates.
// Returns 0 when all of it does what LibTorch's does.
#include <torch/torch.h>
#include <torch/version.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using namespace torch::indexing;

static int failures = 0;
static_assert(TORCH_VERSION_MAJOR >= 2, "a program asks so for its branches");

#define EXPECT(...)                                            \
  do {                                                         \
    if (!(__VA_ARGS__)) {                                      \
      std::cerr << __LINE__ << ": not so: " #__VA_ARGS__ "\n"; \
      ++failures;                                              \
    }                                                          \
  } while (false)

static_assert(torch::all_of<>::value && torch::all_of<true, true>::value);
static_assert(!torch::any_of<>::value && torch::any_of<false, true>::value);
static_assert(torch::detail::is_module<torch::nn::LinearImpl>::value);
static_assert(!torch::detail::is_module<int>::value);
static_assert(torch::detail::check_not_lvalue_references<int, float>());
static_assert(!torch::detail::check_not_lvalue_references<int, float&>());
static_assert(
    std::is_same_v<torch::detail::return_type_of_forward_t<torch::nn::LinearImpl, torch::Tensor>,
                   torch::Tensor>);
static_assert(
    std::is_void_v<torch::detail::return_type_of_forward_t<torch::nn::Module, torch::Tensor>>);

static void check_loops() {
  for (const int threads : {1, 2, 5}) {
    torch::set_num_threads(threads);
    EXPECT(torch::get_num_threads() == threads);
    for (const int64_t grain :
         {int64_t{0}, int64_t{1}, int64_t{7}, std::numeric_limits<int64_t>::max()}) {
      std::vector<std::atomic<int>> times(100);
      std::atomic<int> calls{0};
      at::parallel_for(3, 100, grain, [&](int64_t from, int64_t to) {
        ++calls;
        for (; from < to; ++from) ++times[static_cast<size_t>(from)];
        at::parallel_for(0, 10, 1, [&](int64_t a, int64_t b) {  // within another: one part
          EXPECT(threads == 1 || calls > 1 || grain > 97 || (a == 0 && b == 10));
        });
      });
      EXPECT(calls <= threads);
      for (size_t i = 0; i < times.size(); ++i) EXPECT(times[i] == (i < 3 ? 0 : 1));
    }
    bool called = false;
    at::parallel_for(5, 5, 1, [&](int64_t, int64_t) { called = true; });
    EXPECT(!called);
    std::string said;
    try {
      at::parallel_for(0, 10, 1, [](int64_t from, int64_t) {
        throw std::runtime_error(from == 0 ? "the first" : "another");
      });
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    EXPECT(said == "the first");
    EXPECT(!at::in_parallel_region());
    // The same bits for any number of threads: 0.1f a thousand times, in parts of 64.
    static const float once = at::parallel_reduce(
        0, 1000, 64, 0.0f,
        [](int64_t from, int64_t to, float sum) {
          for (; from < to; ++from) sum += 0.1f;
          return sum;
        },
        [](float a, float b) { return a + b; });
    const float again = at::parallel_reduce(
        0, 1000, 64, 0.0f,
        [](int64_t from, int64_t to, float sum) {
          for (; from < to; ++from) sum += 0.1f;
          return sum;
        },
        [](float a, float b) { return a + b; });
    EXPECT(once == again && once > 99.9f && once < 100.1f);
    std::atomic<int64_t> parts = 0;
    const bool any = at::parallel_reduce(
        0, int64_t{1} << 40, 1, false,
        [&](int64_t, int64_t to, bool) { return ++parts, to == int64_t{1} << 40; },
        [](bool a, bool b) { return a || b; });
    EXPECT(any && parts <= 4096);
  }
}

static void check_archives() {
  torch::nn::Linear a(3, 2), b(3, 2);
  torch::optim::Adam optimizer(a->parameters(), torch::optim::AdamOptions(0.25));
  a->forward(torch::ones({1, 3})).sum().backward();
  optimizer.step();
  torch::optim::Adam other(a->parameters(), torch::optim::AdamOptions(0.5));
  torch::serialize::OutputArchive out, part;
  out.write("epoch", c10::IValue(int64_t{7}));
  a->save(part);
  out.write("model", part);
  torch::serialize::OutputArchive state;
  optimizer.save(state);
  out.write("optimizer", state);
  std::stringstream stream;
  out.save_to(stream);

  torch::serialize::InputArchive in, from;
  in.load_from(stream, torch::kCPU);
  torch::IValue epoch;
  in.read("epoch", epoch);
  EXPECT(in.keys().size() == 3 && c10::to_string(epoch.toInt()) == "7");
  EXPECT(epoch.isInt() && epoch.toInt() == 7);
  in.read("model", from);
  b->load(from);
  EXPECT(torch::equal(a->weight, b->weight));
  in.read("optimizer", from);
  other.load(from);
  EXPECT(static_cast<torch::optim::AdamOptions&>(other.param_groups()[0].options()).lr() == 0.25);
}

static void check_seeds_of_gpus() {
  torch::manual_seed(7);
  const auto wanted = torch::randn({4});
  torch::manual_seed(7);
  torch::cuda::manual_seed_all(8);
  torch::cuda::manual_seed(9);
  EXPECT(torch::equal(torch::randn({4}), wanted));
  for (size_t i = 0; i < torch::cuda::device_count(); ++i) {
    const torch::Device gpu(torch::kCUDA, static_cast<torch::DeviceIndex>(i));
    EXPECT(torch::get_generator(gpu).seed == (i == 0 ? 9 : 8));
  }
}

static void check_warnings() {
  struct : c10::WarningHandler {
    std::string text;
    void process(const c10::SourceLocation&, const std::string& message, bool) override {
      text += message;
    }
  } handler;
  std::ostringstream printed;
  std::streambuf* const cerr = std::cerr.rdbuf(printed.rdbuf());
  c10::Warning::set_warning_handler(&handler);
  TORCH_WARN("one");
  c10::Warning::set_warning_handler(nullptr);  // the default again
  TORCH_WARN("two");
  torch::warn("three");  // the library's own
  std::cerr.rdbuf(cerr);
  EXPECT(handler.text == "one");
  EXPECT(printed.str().find("Warning: two (") == 0);
  EXPECT(printed.str().find("Warning: three\n") != std::string::npos);
}

/// Names that have other arguments here.
static void check_arguments() {
  const auto x = torch::randn({4, 3, 5}), w = torch::full({3}, 2.0), b = torch::ones({3});
  const auto mean = torch::zeros({3}), var = torch::full({3}, 4.0);
  const auto y = x + 1;
  EXPECT(torch::batch_norm(x, w, b, mean, var, false, 0.1, 0.0, false).allclose(y));
  EXPECT(at::batch_norm(x, {}, {}, mean, var, false, 0.1, 0.0, false).allclose(x / 2));
  EXPECT(torch::instance_norm(x, w, b, mean, var, false, 0.1, 0.0, false).allclose(y));
  EXPECT(mean.equal(torch::zeros({3})) && var.equal(torch::full({3}, 4.0)) &&
         w[0].item<int>() == 2);
  torch::batch_norm(x, w, b, mean, var, true, 1.0, 1e-5, false);
  EXPECT(!mean.equal(torch::zeros({3})) && w[0].item<int>() == 2);
  const auto table = torch::ones({3, 2}).requires_grad_();
  at::embedding(table, torch::tensor({2}), -1).sum().backward();  // -1: no padding
  EXPECT(table.grad()[2].equal(torch::ones({2})));
  const auto [in, out] = torch::nn::init::_calculate_fan_in_and_fan_out(torch::ones({2, 3, 5}));
  EXPECT(in == 15 && out == 10);
  const torch::autograd::DetectAnomalyGuard calls_alone(false);
  EXPECT(torch::autograd::AnomalyMode::is_enabled());
  EXPECT(!torch::autograd::AnomalyMode::should_check_nan());
}

/// Gives the gradient of x alone: among the tensors of forward(), x is number 0.
struct Scaled : torch::autograd::Function<Scaled> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, double by, torch::Tensor x) {
    ctx->saved_data["by"] = by;
    return x * by;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list g) {
    const double by = ctx->saved_data["by"].toDouble();
    return {torch::Tensor(), ctx->needs_input_grad(0) ? g[0] * by : torch::Tensor()};
  }
};

struct Numbers : torch::data::Dataset<Numbers> {
  torch::data::Example<> get(size_t i) override { return {torch::full({1}, double(i)), {}}; }
  torch::optional<size_t> size() const override { return 4; }
};

static void check_spellings() {
  using torch::Tensor;
  EXPECT(torch::ones(1).to(at::ScalarType::Half).scalar_type() == torch::kF16);
  EXPECT(torch::ones(1, torch::kI64).scalar_type() == at::ScalarType::Long);
  const Tensor p = torch::full({3, 1}, 0.5), y = torch::ones(3);
  EXPECT(std::abs(torch::binary_cross_entropy(p, y, {}, at::Reduction::Sum).item<float>() -
                  3 * std::log(2.f)) < 1e-6f);
  Tensor w = torch::full({2}, 3.0, torch::requires_grad());
  w.mutable_grad() = torch::full({2}, 3.0);
  const auto norm = torch::nn::utils::clip_grad_norm_({w}, 1.0);
  EXPECT(std::abs(norm - std::sqrt(18.)) < 1e-5 && 0.5 * norm < norm / 1.5 && norm + 1 > 5);
  std::ostringstream text;
  text << norm;
  EXPECT(text.str().substr(0, 4) == "4.24");
  auto options = torch::optim::AdamWOptions(1e-3).weight_decay(0).lr(2e-3);
  static_assert(std::is_same_v<decltype(options), torch::optim::AdamWOptions>);
  torch::optim::AdamW adamw({w}, options);
  torch::optim::RMSprop rmsprop({w}, 0.1);
  torch::optim::Adagrad adagrad({w}, 0.1);
  EXPECT(options.weight_decay() == 0 && rmsprop.param_groups()[0].options().get_lr() == 0.1);
  namespace F = torch::nn::functional;
  EXPECT(
      F::layer_norm(torch::ones({2, 4}), F::LayerNormFuncOptions({4})).abs().sum().item<float>() ==
      0);
  EXPECT(torch::argsort(torch::arange(6).reshape({2, 3}), true).sum().item<int64_t>() == 6);
  Tensor z = torch::full({2}, -3.0);
  EXPECT(torch::clip(z, -1, 1).sum().item<float>() == -2);
  EXPECT(torch::concatenate({z, z}).size(0) == 4 && torch::not_equal(z, 0).all().item<bool>());
  torch::zero_(torch::clamp_(torch::abs_(z), 0, 2));
  EXPECT(torch::multiply(z, z).sum().item<float>() == 0);
  Tensor x = torch::ones({2}, torch::requires_grad());
  Scaled::apply(3.0, x).sum().backward();
  EXPECT(x.grad().sum().item<float>() == 6);
  EXPECT(Numbers().size() == 4);
  try {
    TORCH_CHECK_VALUE(false, "no such value");
  } catch (const c10::ValueError& e) {
    EXPECT(e.msg() == "no such value");
  }
}

int main() {
  check_arguments();
  check_spellings();
  check_loops();
  check_archives();
  check_seeds_of_gpus();
  check_warnings();
  const std::vector<TensorIndex> indices = {
      None, "...", 3, true, Slice(1, None, 2), Slice(None, None, -1)};
  EXPECT(c10::str(indices) ==
         c10::str("(None, ..., 3, true, 1:", INDEX_MAX, ":2, ", INDEX_MAX, ":", INDEX_MIN, ":-1)"));
  EXPECT(c10::str(std::vector<TensorIndex>{}) == "()");
  EXPECT(indices[2].is_integer() && indices[2].integer() == 3 && !indices[3].is_integer());
  std::vector<int> seen;
  torch::apply([&](int v) { seen.push_back(v); }, 1, 2, 3);
  EXPECT(seen == std::vector<int>{1, 2, 3});
  EXPECT(torch::Device("cuda:1") == torch::Device(torch::kCUDA, 1) &&
         torch::Device("cpu") == torch::kCPU);
  torch::set_default_dtype(torch::kDouble);
  EXPECT(torch::ones(1).dtype() == torch::kDouble && torch::get_default_dtype() == torch::kDouble);
  torch::set_default_dtype(torch::kFloat);
  EXPECT(torch::special::expit(torch::zeros(1)).item<float>() == 0.5f);
  return failures == 0 ? 0 : 1;
}
