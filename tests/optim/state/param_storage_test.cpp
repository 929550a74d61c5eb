// 16-bit parameters whose small updates are not lost: float32 masters, stochastic rounding, Kahan's
// remainder.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <limits>
#include <memory>

#include "halftape/core/formula/weights.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::Weights;
using testing::optimizer_kind;
using testing::OptimizerKind;
using testing::rule_optimizers;
using testing::same_bits;

namespace {

constexpr Weights kAll[] = {Weights::Plain, Weights::Master, Weights::Stochastic, Weights::Kahan};
constexpr Dtype kNarrow[] = {kFloat16, kBFloat16};

using testing::leaf;
Tensor leaf(const Tensor& values) { return values.detach().clone().set_requires_grad(true); }

/// Steps with gradients that depend on the step alone.
void run(optim::Optimizer& optimizer, int from, int to) {
  for (int t = from; t < to; ++t) {
    for (Tensor p : optimizer.parameters()) {
      const Tensor x = arange(static_cast<double>(p.numel()), kFloat32).reshape(p.sizes());
      // Rounded to 16 bits, so that parameters of every dtype get the same.
      p.mutable_grad() = (sin(x + t) * 0.25).to(kBFloat16).to(kFloat16).to(p.dtype());
    }
    optimizer.step();
  }
}

std::map<std::string, Tensor> copies(const optim::Optimizer& optimizer) {
  std::map<std::string, Tensor> out;
  int i = 0;
  for (const Tensor& p : optimizer.parameters()) {
    const std::string at = std::to_string(i++) + "/";
    out[at + "parameter"] = p.detach().clone();
    for (const auto& [key, value] : optimizer.state_of(p)) out[at + key] = Tensor(value.clone());
  }
  return out;
}
bool same(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  bool equal = a.size() == b.size();
  for (const auto& [key, value] : a) equal = equal && b.count(key) && same_bits(value, b.at(key));
  return equal;
}

struct Threads {
  int before = get_num_threads();
  ~Threads() { set_num_threads(before); }
};

/// The mean of round_stochastically over all its 2^16 ways, in double.
template <class T>
double mean_rounding(float x) {
  double sum = 0;
  for (int i = 0; i < 65536; ++i) {
    const float r = round_stochastically<T>(x, static_cast<float>(i) * 0x1p-16f);
    REQUIRE(static_cast<float>(T(r)) == r);
    sum += static_cast<double>(r);
  }
  return sum / 65536;
}

}  // namespace

TEST_CASE("stochastic rounding is right on average, exactly, and only the two neighbours occur") {
  for (const float x : {1.0f + 0x1p-16f, 1.00390625f, 3.14159274f, 1.99999988f, 1234.5677f,
                        0x1p-100f, 0x1.23456p-120f, 0x1p-126f * 1.5f}) {
    CAPTURE(x);
    const double mean = mean_rounding<BFloat16>(x);
    CHECK(mean == static_cast<double>(x));
    CHECK(mean_rounding<BFloat16>(-x) == -mean);
  }
  // The last two are subnormal in float16; of the last one, only multiples of 2^-40 are counted.
  for (const float x : {1.0f + 0x1p-23f, 3.14159274f, 1234.5677f, 0x1.abcp-10f, 0x1p-14f * 1.03125f,
                        0x1.5p-20f, 0x1.8p-30f}) {
    CAPTURE(x);
    const double mean = mean_rounding<Half>(x);
    CHECK(std::abs(mean - static_cast<double>(x)) <= 0x1p-13 * 0x1p-10 * static_cast<double>(x));
    CHECK(mean_rounding<Half>(-x) == -mean);
  }
  for (const float u : {0.0f, 0.5f, 0.99999994f}) {
    const float x = 1 + 0x1p-9f;  // a quarter of the way from 1 to its neighbour in bfloat16
    CHECK(round_stochastically<BFloat16>(x, u) == (u < 0.75f ? 1.0f : 1 + 0x1p-7f));
    for (const float kept : {0.0f, 1.0f, -2.5f, 0x1p-24f}) {
      CHECK(round_stochastically<Half>(kept, u) == kept);
      CHECK(round_stochastically<BFloat16>(kept, u) == kept);
    }
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(round_stochastically<Half>(-inf, u) == -inf);
    CHECK(round_stochastically<Half>(65519, u) == 65519);  // the store rounds it to nearest
    CHECK(std::isnan(round_stochastically<BFloat16>(std::nanf(""), u)));
  }
}

TEST_CASE("10,000 updates of 2^-12: plain bfloat16 loses them all, the others keep the sum") {
  constexpr double update = 0x1p-12, sum = 1 + 10000 * update;  // 3.44140625
  std::map<Weights, std::vector<double>> after;
  for (const Weights w : kAll) {
    manual_seed(3);
    const Tensor p = leaf({512}, 1, kBFloat16);
    optim::SGD optimizer({p}, optim::SGDOptions(1.0).weights(w));
    p.mutable_grad() = full({512}, -update, kBFloat16);
    for (int i = 0; i < 10000; ++i) optimizer.step();
    after[w] = p.to(kFloat64).to_vector();
  }
  const double step = 0x1p-6;  // of bfloat16 in [2, 4)
  CHECK(after[Weights::Plain] == std::vector<double>(512, 1.0));
  CHECK(after[Weights::Master] == std::vector<double>(512, std::round(sum / step) * step));
  for (const double x : after[Weights::Kahan]) CHECK(std::abs(x - sum) <= step);
  // Each element is a random walk: below 2 it goes up by 2^-7 with probability 2^-5, above by 2^-6
  // with 2^-6, so its variance is at most 4096·2^-19 + 5904·2^-18, and that of the mean 512th that.
  const double deviation = std::sqrt(4096 * 0x1p-19 + 5904 * 0x1p-18);
  double mean = 0;
  for (const double x : after[Weights::Stochastic]) {
    mean += x / 512;
    CHECK(std::abs(x - sum) < 6 * deviation);
  }
  CHECK(std::abs(mean - sum) < 5 * deviation / std::sqrt(512.0));
}

TEST_CASE("the master is the float32 run bit for bit, and the parameter its rounding") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    for (const Dtype d : kNarrow) {
      CAPTURE(kind.name);
      CAPTURE(d);
      manual_seed(5);
      const Tensor start = randn({33, 7}).to(d);
      const Tensor p = leaf(start), exact = leaf(start.to(kFloat32));
      const auto narrow = kind.make({p}, Weights::Master),
                 wide = kind.make({exact}, Weights::Plain);
      run(*narrow, 0, 40);
      run(*wide, 0, 40);
      CHECK(same_bits(Tensor(narrow->state_of(p).at("master")), exact.detach()));
      CHECK(same_bits(p.detach(), exact.detach().to(d)));
      CHECK(!same_bits(p.detach(), start));
      for (const auto& [key, value] : wide->state_of(exact))
        CHECK(same_bits(Tensor(narrow->state_of(p).at(key)), Tensor(value)));
    }
  }
}

TEST_CASE("Kahan's weights stay within one step of the float32 run, where plain ones leave it") {
  for (const Dtype d : kNarrow) {
    CAPTURE(d);
    manual_seed(6);
    const Tensor start = rand({64}).to(d) + 1;
    const Tensor plain = leaf(start), kahan = leaf(start), exact = leaf(start.to(kFloat32));
    const auto options = [](Weights w) { return optim::SGDOptions(0x1p-9).weights(w); };
    optim::SGD a({plain}, options(Weights::Plain)), b({kahan}, options(Weights::Kahan)),
        c({exact}, options(Weights::Plain));
    for (int t = 0; t < 2000; ++t) {
      const Tensor g = (randn({64}) + 0.25).to(d);
      plain.mutable_grad() = kahan.mutable_grad() = g;
      exact.mutable_grad() = g.to(kFloat32);
      a.step(), b.step(), c.step();
    }
    const std::vector<double> expected = exact.to(kFloat64).to_vector();
    CHECK(testing::differ(kahan.detach(), expected, {.ulps = 1}) == "");
    CHECK(testing::differ(plain.detach(), expected, {.ulps = 1}) != "");
  }
}

TEST_CASE("an infinite parameter has no remainder, and stays infinite") {
  const Tensor p = leaf({1}, 60000, kFloat16);
  optim::SGD optimizer({p}, optim::SGDOptions(1.0).weights(Weights::Kahan));
  p.mutable_grad() = full({1}, -30000, kFloat16);
  for (int i = 0; i < 2; ++i) {
    optimizer.step();
    CHECK(std::isinf(p.item()));
    CHECK(Tensor(optimizer.state_of(p).at("remainder")).item() == 0);
  }
}

TEST_CASE("rounding at random gives the same bits for any threads and layout, and others by seed") {
  const Threads restore;
  const auto trained = [](int threads, uint64_t seed, bool transposed) {
    set_num_threads(threads);
    manual_seed(seed);
    const Tensor p = transposed ? leaf(zeros({300, 170}, kBFloat16).transpose(0, 1))
                                : leaf({170, 300}, 0, kBFloat16);
    const auto optimizer = optimizer_kind("SGD with momentum").make({p}, Weights::Stochastic);
    run(*optimizer, 0, 5);
    return p.detach().contiguous();
  };
  const Tensor one = trained(1, 7, false);
  for (const int threads : {2, 3, 8}) CHECK(same_bits(trained(threads, 7, false), one));
  CHECK(same_bits(trained(2, 7, true), one));
  CHECK(!same_bits(trained(1, 8, false), one));
}

TEST_CASE("every parameter, update and element is rounded by numbers of its own") {
  manual_seed(9);
  const Tensor a = leaf({4096}, 1, kBFloat16), b = leaf({4096}, 1, kBFloat16);
  optim::SGD optimizer({a, b}, optim::SGDOptions(1.0).weights(Weights::Stochastic));
  std::vector<std::vector<double>> rounded;
  for (int t = 0; t < 2; ++t) {
    for (Tensor p : {a, b}) {
      p.detach().fill_(1);
      p.mutable_grad() = full({4096}, -0x1p-8, kBFloat16);  // half a step
    }
    optimizer.step();
    for (const Tensor& p : {a, b}) rounded.push_back(p.to_vector());
  }
  // Fair coins: 4096 throws differ from 2048 by less than 5·32, and so do their agreements.
  const auto agreements = [](const std::vector<double>& x, const std::vector<double>& y) {
    int64_t n = 0;
    for (size_t i = 0; i < x.size(); ++i) n += x[i] == y[i];
    return std::abs(n - 2048);
  };
  const std::vector<double> up(4096, 1 + 0x1p-7);
  for (size_t i = 0; i < rounded.size(); ++i) {
    CHECK(agreements(rounded[i], up) < 160);
    for (size_t j = 0; j < i; ++j) CHECK(agreements(rounded[i], rounded[j]) < 160);
  }
  std::vector<double> shifted(rounded[0].begin() + 1, rounded[0].end());
  shifted.push_back(rounded[0][0]);
  CHECK(agreements(rounded[0], shifted) < 160);
}

TEST_CASE("a skipped step leaves parameter, master, remainder and counter bit for bit") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    for (const Weights w : kAll) {
      CAPTURE(kind.name);
      CAPTURE(static_cast<int>(w));
      const Tensor p = leaf(randn({100}).to(kBFloat16));
      const auto optimizer = kind.make({p}, w);
      run(*optimizer, 0, 2);
      const auto before = copies(*optimizer);
      const auto version = p.array().version();
      optimizer->step(StepControl{.found_inf = full({}, 1, kFloat32, p.device()), .inv_scale = {}});
      CHECK(same(copies(*optimizer), before));
      CHECK(p.array().version() == version + 1);  // that it was skipped is the device's to know
      optimizer->step(StepControl{.found_inf = full({}, 0, kFloat32, p.device()), .inv_scale = {}});
      CHECK(!same(copies(*optimizer), before));
    }
  }
}

TEST_CASE("a run continues bit for bit from its saved state, whatever keeps its weights") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    for (const Weights w : kAll) {
      CAPTURE(kind.name);
      CAPTURE(static_cast<int>(w));
      const Tensor a = leaf(randn({50}).to(kBFloat16)), b = leaf(randn({9}).to(kFloat16));
      const auto whole = kind.make({a, b}, w);
      run(*whole, 0, 6);
      const Tensor c = leaf(a), d = leaf(b);
      const auto resumed = kind.make({c, d}, Weights::Plain);  // the saved option wins
      resumed->load_state_dict(whole->state_dict());
      run(*whole, 6, 12);
      run(*resumed, 6, 12);
      CHECK(same(copies(*whole), copies(*resumed)));
    }
  }
}

TEST_CASE("parameters of more than 16 bits are updated as they are") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    for (const Dtype d : {kFloat32, kFloat64}) {
      CAPTURE(kind.name);
      CAPTURE(d);
      const Tensor start = randn({20}, d), p = leaf(start);
      const auto plain = kind.make({p}, Weights::Plain);
      run(*plain, 0, 5);
      for (const Weights w : kAll) {
        const Tensor q = leaf(start);
        const auto kept = kind.make({q}, w);
        run(*kept, 0, 5);
        CHECK(same(copies(*kept), copies(*plain)));
      }
    }
  }
}

TEST_CASE("moments are kept in float32 where weights are kept with care") {
  for (const Weights w : kAll) {
    const Tensor p = leaf({4}, 1, kBFloat16);
    const auto optimizer = optimizer_kind("Adam").make({p}, w);
    run(*optimizer, 0, 1);
    const auto& state = optimizer->state_of(p);
    CHECK(state.at("exp_avg").dtype() == (w == Weights::Plain ? kBFloat16 : kFloat32));
    CHECK(state.count("master") == (w == Weights::Master));
    CHECK(state.count("remainder") == (w == Weights::Kahan));
    CHECK(state.count("rounding") == (w == Weights::Stochastic));
  }
}

TEST_CASE("a weight that is written between steps goes on from what was written") {
  for (const Weights w : {Weights::Master, Weights::Kahan}) {
    for (const Dtype d : kNarrow) {
      CAPTURE(static_cast<int>(w));
      CAPTURE(d);
      manual_seed(8);
      const Tensor start = randn({64}).to(d) * 100;
      const Tensor p = leaf(start), untouched = leaf(start);
      const auto make = [&](const Tensor& of) {
        return optim::SGD({of}, optim::SGDOptions(0x1p-5).weights(w));
      };
      auto written = make(p), other = make(untouched);
      run(written, 0, 5), run(other, 0, 5);
      {
        const NoGradGuard no_grad;
        p.mul_(1);  // a write that changes nothing
        untouched.slice(0, 32, 64).fill_(0x1p-10);
        untouched.slice(0, 0, 4).fill_(std::numeric_limits<double>::infinity());
      }
      const Tensor fresh = leaf(untouched);
      auto expected = make(fresh);
      run(written, 5, 6), run(other, 5, 6), run(expected, 5, 6);
      const auto part = [](const Tensor& x, int from, int to) {
        return x.detach().slice(0, from, to);
      };
      CHECK(same_bits(part(untouched, 32, 64), part(fresh, 32, 64)));
      CHECK(same_bits(part(untouched, 0, 4), part(fresh, 0, 4)));
      CHECK(same_bits(part(untouched, 4, 32), part(p, 4, 32)));
      const char* extra = w == Weights::Master ? "master" : "remainder";
      CHECK(same_bits(part(Tensor(other.state_of(untouched).at(extra)), 4, 32),
                      part(Tensor(written.state_of(p).at(extra)), 4, 32)));
    }
  }
}

TEST_CASE("the option is chosen before the first step, and a later change is refused") {
  for (const Weights w : kAll) {
    const Tensor p = leaf({4}, 1, kBFloat16);
    const auto optimizer = optimizer_kind("SGD with momentum").make({p}, w);
    run(*optimizer, 0, 1);
    auto& options = static_cast<optim::SGDOptions&>(optimizer->param_groups()[0].options());
    const auto before = copies(*optimizer);
    for (const Weights other : kAll) {
      options.weights(other);
      if (other == w) continue;
      p.mutable_grad() = ones({4}, kBFloat16);
      CHECK_THROWS_WITH_AS(optimizer->step(), doctest::Contains("choose weights before"), Error);
      CHECK(same(copies(*optimizer), before));
    }
  }
}

TEST_CASE("a saved state that does not fit is refused by name, and nothing changes") {
  const Tensor p = leaf({4}, 1, kBFloat16);
  const auto optimizer = optimizer_kind("SGD with momentum").make({p}, Weights::Master);
  run(*optimizer, 0, 2);
  const auto before = copies(*optimizer);
  optim::OptimizerState saved = optimizer->state_dict();
  saved.state[0]["master"] = saved.state[0]["master"].to(kBFloat16);
  CHECK_THROWS_WITH_AS(optimizer->load_state_dict(saved),
                       doctest::Contains("\"master\" of parameter 0 is bfloat16"), Error);
  saved = optimizer->state_dict();
  saved.groups[0]["weights"] = 7;
  CHECK_THROWS_WITH_AS(optimizer->load_state_dict(saved), doctest::Contains("\"weights\" is 7"),
                       Error);
  CHECK(same(copies(*optimizer), before));
}

TEST_CASE("a float16 model with masters trains under a GradScaler, and skips an overflow") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    CAPTURE(kind.name);
    manual_seed(11);
    nn::Linear model(8, 3);
    model->to(kFloat16);
    const Tensor x = randn({64, 8}).to(kFloat16), y = arange(64) % 3;
    const auto optimizer = kind.make(model->parameters(), Weights::Master);
    amp::GradScaler scaler({.init_scale = 0x1p22, .allow_fp16_grads = true});
    double first = 0, last = 0;
    int64_t skips = 0;
    for (int t = 0; t < 60; ++t) {
      optimizer->zero_grad();
      const Tensor loss = nn::functional::cross_entropy(model->forward(x).to(kFloat32), y);
      (t == 0 ? first : last) = loss.item();
      scaler.scale(loss).backward();
      const auto before = t > 0 ? copies(*optimizer) : std::map<std::string, Tensor>();
      const bool skipped = !scaler.step(*optimizer).applied();
      if (skipped && t > 0) CHECK(same(copies(*optimizer), before));
      skips += skipped;
      scaler.update();
    }
    CHECK(skips >= 2);
    CHECK(skips < 20);
    CHECK(last < first);
    for (const Tensor& p : model->parameters()) {
      CHECK(p.dtype() == kFloat16);
      CHECK(same_bits(p.detach(), Tensor(optimizer->state_of(p).at("master")).to(kFloat16)));
    }
  }
}

TEST_CASE("step() divides float16 gradients in float32: what scaling saved of them is not lost") {
  // 2^-30, far below half's smallest number, 1024 times, is 2^-20 of a master.
  const Tensor p = ones({2}, TensorOptions(kFloat16).requires_grad(true)),
               tiny = full({2}, 0x1p-30), wide = ones({1}, requires_grad());
  optim::SGD optimizer({p, wide}, optim::SGDOptions(1.0).weights(optim::Weights::Master));
  amp::GradScaler scaler({.init_scale = 65536, .allow_fp16_grads = true});
  auto backward = [&] {
    optimizer.zero_grad();
    scaler.scale((p.to(kFloat32) * tiny * 0x1p10).sum() + wide.sum()).backward();
  };
  for (int i = 0; i < 16; ++i) {
    backward();
    CHECK(scaler.step(optimizer).applied());
    CHECK(p.grad().equal(full({2}, 0x1p-4, kFloat16)));  // as it was, and still marked
    CHECK_THROWS_AS(nn::utils::clip_grad_norm_({p}, 1), Error);
    scaler.update();
    scaler.scale(p.sum()).backward();
    CHECK_THROWS_WITH_AS(scaler.step(optimizer), doctest::Contains("zero_grad()"), Error);
  }
  CHECK(Tensor(optimizer.state_of(p).at("master")).equal(full({2}, 1 - 0x1p-16)));

  // Found where it stands, before division and after it, and nothing moves.
  const Tensor q = ones({1}, TensorOptions(kFloat16).requires_grad(true));
  optimizer.add_param_group(optim::OptimizerParamGroup(std::vector<Tensor>{q}));
  backward();
  q.mutable_grad() = full({1}, std::numeric_limits<double>::infinity(), kFloat16);
  CHECK(scaler.step(optimizer).found_inf());
  scaler.update();
  REQUIRE(scaler.stats().nonfinite);
  CHECK(scaler.stats().nonfinite->index == 2);
  scaler.update(0x1p-120);
  scaler.scale(full({}, 1.0));
  optimizer.zero_grad();
  q.mutable_grad() = full({1}, 65504.0, kFloat16);
  CHECK(scaler.step(optimizer).found_inf());
  CHECK(q.equal(ones({1}, kFloat16)));
}
