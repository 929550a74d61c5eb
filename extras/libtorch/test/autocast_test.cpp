// Tests of autocast in ../amp.h; `run` builds and starts them.
#include "../amp.h"

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <stdexcept>
#include <type_traits>

namespace {

using amp::autocast;
using amp::GradScaler;
using amp::GradScalerOptions;
using torch::kBFloat16;
using torch::kCPU;
using torch::kCUDA;
using torch::kFloat;
using torch::kHalf;
using torch::Tensor;

constexpr bool kHasHalfOnCpu = TORCH_VERSION_MAJOR >= 2;

static_assert(!std::is_copy_constructible_v<autocast> && !std::is_move_constructible_v<autocast> &&
              !std::is_copy_assignable_v<autocast> && !std::is_move_assignable_v<autocast>);
static_assert(!std::is_copy_constructible_v<GradScaler> &&
              !std::is_move_constructible_v<GradScaler>);

template <class T, class = void>
struct CanBeNew : std::false_type {};
template <class T>
struct CanBeNew<T, std::void_t<decltype(new T(kCPU))>> : std::true_type {};
static_assert(!CanBeNew<autocast>::value && CanBeNew<GradScaler>::value);

/// The dtype in which matrix products run here.
std::string product_dtype() {
  return c10::toString(torch::ones({2, 2}).mm(torch::ones({2, 2})).scalar_type());
}

}  // namespace

TEST_CASE("autocast: regions nest, and end as they began") {
  CHECK(product_dtype() == "Float");
  {
    const autocast outer(kCPU);
    CHECK(product_dtype() == "BFloat16");
    {
      const autocast off(kCPU, {}, false);
      CHECK(product_dtype() == "Float");
      const autocast on(kCPU, kBFloat16);
      CHECK(product_dtype() == "BFloat16");
    }
    CHECK(product_dtype() == "BFloat16");
    if (kHasHalfOnCpu) {
      const autocast half(kCPU, kHalf);
      CHECK(product_dtype() == "Half");
    }
    CHECK(product_dtype() == "BFloat16");
  }
  CHECK(product_dtype() == "Float");
  CHECK((amp::detail::get(kCPU).dtype == kBFloat16));
}

TEST_CASE("autocast: an exception ends the region") {
  try {
    const autocast region(kCPU, kBFloat16, true, false);
    CHECK(!at::autocast::is_autocast_cache_enabled());
    throw std::runtime_error("in forward");
  } catch (const std::runtime_error&) {
  }
  CHECK(product_dtype() == "Float");
  CHECK(at::autocast::is_autocast_cache_enabled());
  CHECK(at::autocast::increment_nesting() == 1);
  CHECK(at::autocast::decrement_nesting() == 0);
}

TEST_CASE("autocast: refuses what it cannot do, and changes nothing") {
  const auto open = [](c10::DeviceType d, at::ScalarType t) { const autocast region(d, t); };
  CHECK_THROWS_WITH_AS(open(kCPU, kFloat), doctest::Contains("neither Half nor"), c10::Error);
  CHECK_THROWS_AS(open(kCUDA, torch::kDouble), c10::Error);
  CHECK_THROWS_AS(open(c10::DeviceType::Meta, kHalf), c10::Error);
  if (!kHasHalfOnCpu) CHECK_THROWS_AS(open(kCPU, kHalf), c10::Error);
  CHECK(product_dtype() == "Float");
  CHECK(at::autocast::increment_nesting() == 1);
  CHECK(at::autocast::decrement_nesting() == 0);
  const autocast float32_may_be_disabled(kCPU, kFloat, false);
  CHECK(product_dtype() == "Float");
}

TEST_CASE("autocast: without CUDA its region is disabled, and the CPU's is another") {
  if (torch::cuda::is_available()) return;
  const autocast cuda(kCUDA);
  CHECK(!amp::detail::get(kCUDA).enabled);
  CHECK((amp::detail::get(kCUDA).dtype == kHalf));
  CHECK(product_dtype() == "Float");
  const autocast cpu(kCPU);
  CHECK(product_dtype() == "BFloat16");
}

TEST_CASE("autocast: each thread has its own; one that ends elsewhere stays open") {
  const autocast region(kCPU);
  std::optional<autocast> strange;
  std::thread([&] {
    CHECK(product_dtype() == "Float");
    {
      const autocast mine(kCPU);
      CHECK(product_dtype() == "BFloat16");
    }
    CHECK(product_dtype() == "Float");
    strange.emplace(kCPU);
  }).join();
  strange.reset();  // warns
  CHECK(product_dtype() == "BFloat16");
}

TEST_CASE("autocast: the outermost region ends the cache; step() within a region, too") {
  const Tensor x = torch::ones({1, 1});
  Tensor w = torch::ones({1, 1}, torch::requires_grad());
  const auto product = [&] { return x.mm(w).item<float>(); };
  const auto set = [&](float v) { w.detach().fill_(v); };
  {
    const autocast outer(kCPU);
    CHECK(product() == 1);
    set(2);
    CHECK(product() == 1);  // LibTorch's cache knows no writes
    { const autocast inner(kCPU); }
    CHECK(product() == 1);
    {
      const autocast uncached(kCPU, {}, true, false);
      CHECK(product() == 2);
    }
  }
  const autocast region(kCPU);
  CHECK(product() == 2);
  GradScaler scaler(kCPU);
  torch::optim::SGD optimizer({w}, 1.);
  scaler.scale(w.sum()).backward();
  scaler.step(optimizer);
  CHECK(product() == 1);
}

TEST_CASE("a small MLP learns in 16 bits") {
  for (const auto dtype : {kBFloat16, kHalf}) {
    if (dtype == kHalf && !kHasHalfOnCpu) continue;
    torch::manual_seed(0);
    torch::nn::Sequential model{torch::nn::Linear(8, 32), torch::nn::Tanh(),
                                torch::nn::Linear(32, 1)};
    const Tensor x = torch::randn({64, 8}), y = x.prod(1, true);
    torch::optim::Adam optimizer(model->parameters(), 1e-2);
    GradScaler scaler(kCPU, GradScalerOptions().init_scale(std::ldexp(1., 30)).growth_interval(50));
    std::vector<float> losses;
    for (int i = 0; i < 200; ++i) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const autocast region(kCPU, dtype);
        loss = torch::mse_loss(model->forward(x), y);
      }
      CHECK((loss.scalar_type() == kFloat));
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
      losses.push_back(loss.item<float>());
    }
    CHECK(losses.back() < 0.05F * losses.front());
    CHECK((scaler.stats().skips > 0) == (dtype == kHalf));  // 2^30 is too much for float16 alone
  }
}
