// What each loss scale would lose, beside trainings at that scale.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <optional>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using amp::ScaleTrials;
using testing::message;
namespace F = nn::functional;

namespace {

/// A network, and its loss on one batch in float16.
struct Net {
  std::string name;
  nn::Sequential model;
  std::function<Tensor()> loss;
};

std::vector<Net> three_nets() {
  manual_seed(2);
  std::vector<Net> nets;
  const data::Split digits = data::digits();
  std::vector<float> pixels(128 * 64);
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<float>(digits.train.pixels[i]) / 8 - 1;
  const Tensor images = tensor(pixels).reshape({128, 64});
  const Tensor labels = tensor(
      std::vector<int64_t>(digits.train.labels.begin(), digits.train.labels.begin() + 128), kInt64);
  const auto add = [&](const char* name, nn::Sequential model, const Tensor& x) {
    const auto loss = [model, x, labels]() mutable {
      const amp::autocast region(kCPU, kFloat16);
      return F::cross_entropy(model->forward(x).flatten(1), labels) * 1e-3;
    };
    nets.push_back({name, model, loss});
  };
  add("MLP",
      nn::Sequential{nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                     nn::Linear(64, 10)},
      images);
  add("convolutions",
      nn::Sequential{nn::Conv2d(nn::Conv2dOptions(1, 8, 3).padding(1)), nn::ReLU(),
                     nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(8, 8, 3)), nn::Tanh(),
                     nn::Flatten(), nn::Linear(32, 10)},
      images.reshape({128, 1, 8, 8}));
  add("normalised",
      nn::Sequential{nn::Linear(64, 48), nn::LayerNorm(nn::LayerNormOptions({48})), nn::GELU(),
                     nn::Linear(48, 48), nn::Sigmoid(), nn::Linear(48, 10)},
      images);
  return nets;
}

/// The share that would be 0 at another scale if all numbers just moved down by its exponent.
double shifted(const ScaleTrials& t, double scale, size_t place) {
  const amp::ExponentCounts& stored = t.reference[place];
  const int64_t gone =
      stored.zeros() + stored.vanishing(std::ilogb(scale / t.reference_scale), kFloat16);
  return amp::lost_share(gone, t.float32[place]);
}

/// Computes in float16 alone where autocast is on.
struct Doubled : amp::Function<Doubled> {
  static constexpr const char* name = "doubled";
  static constexpr Dtype cast_inputs = kFloat16;
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    return {g[0] * 2};
  }
};

}  // namespace

TEST_CASE("a trial loses what the reference's exponents say, in the last layer to the number") {
  for (const Net& net : three_nets()) {
    CAPTURE(net.name);
    const ScaleTrials t = amp::try_scales(*net.model, net.loss, -10, 30);
    REQUIRE(t.trials.size() == 41);
    REQUIRE(t.places.size() >= 3);
    double worst = 0;
    for (size_t trial = 0; trial < t.trials.size(); ++trial) {
      if (t.trials[trial].overflows) continue;
      CAPTURE(t.trials[trial].scale);
      for (size_t place = 0; place < t.places.size(); ++place) {
        CAPTURE(t.places[place]);
        const double off = shifted(t, t.trials[trial].scale, place) - t.lost(trial, place);
        worst = std::max(worst, std::abs(off));
        CHECK(std::abs(off) <= 0.12);  // what was lost above is missing below
        // Of 1,280 numbers at most two round to the border itself when they are stored.
        if (place == 0) CHECK(std::abs(off) <= 2.5 / 1280);
      }
    }
    MESSAGE(net.name, ": off by ", 100 * worst, " points at most");
  }
}

TEST_CASE("a trial has the gradients of a training at that scale") {
  const Net net = three_nets()[0];
  const ScaleTrials t = amp::try_scales(*net.model, net.loss, 0, 24);
  const TensorList parameters = net.model->parameters();
  for (const Tensor& p : parameters) CHECK_FALSE(p.grad().defined());
  const auto gradients = [&](double scale) {
    net.model->zero_grad();
    (net.loss() * scale).backward();
    TensorList all;
    for (const Tensor& p : parameters) all.push_back(p.grad().to(kFloat64) / scale);
    return all;
  };
  for (const size_t trial : {0, 8, 16}) {
    const TensorList g = gradients(t.trials[trial].scale);
    CHECK_FALSE(t.trials[trial].overflows);
    for (size_t i = 0; i < g.size(); ++i) {
      const TensorList best = gradients(0x1p16);
      const double off = ((g[i] - best[i]).norm() / best[i].norm()).item();
      // float16 at 2^16 is itself off by its floor.
      CHECK(t.trials[trial].errors[i] <= off + 0.02);
      CHECK(t.trials[trial].errors[i] >= off - 0.02);
    }
  }
}

TEST_CASE("useful scales lie between two cliffs, and every module has its own") {
  const Net net = three_nets()[0];
  const auto scales = amp::useful_scales(amp::try_scales(*net.model, net.loss, -10, 40), 0.05);
  REQUIRE(scales.size() == 3);
  CHECK(scales[0].module == "0");
  CHECK(scales[2].module == "4");
  for (const amp::UsefulScales& s : scales) {
    REQUIRE(s.smallest);
    CHECK(*s.smallest > 0x1p-10);
    CHECK(*s.largest < 0x1p40);
    CHECK(*s.largest / *s.smallest >= 256);
  }
  const ScaleTrials low = amp::try_scales(*net.model, net.loss, -20, -18);
  for (const amp::UsefulScales& s : amp::useful_scales(low)) CHECK_FALSE(s.smallest);
  CHECK(testing::has(message([&] { amp::useful_scales(low, 0); }), "error of 0"));
}

TEST_CASE("trials leave weights, buffers, gradients and random numbers alone") {
  manual_seed(4);
  nn::Sequential model(nn::Linear(8, 8), nn::BatchNorm1d(8), nn::Dropout(0.5), nn::Linear(8, 1));
  const Tensor x = randn({16, 8});
  const auto loss = [&] {
    const amp::autocast region(kCPU, kBFloat16);
    return (model->forward(x) * 3).mean();
  };
  loss().backward();
  TensorList before;
  const auto state = [&] {
    TensorList all;
    for (const Tensor& p : model->parameters()) all.push_back(p.detach()), all.push_back(p.grad());
    for (const Tensor& b : model->buffers()) all.push_back(b);
    return all;
  };
  for (const Tensor& t : state()) before.push_back(t.clone());
  const Generator generator = get_generator();
  const ScaleTrials t = amp::try_scales(*model, loss, 0, 3);
  CHECK(get_generator().offset == generator.offset);
  const TensorList after = state();
  for (size_t i = 0; i < before.size(); ++i) CHECK(testing::same_bits(before[i], after[i]));
  // A dropout of its own at each pass would be an error of 100 %.
  for (const size_t weight : {0, 4}) CHECK(t.trials[0].errors[weight] < 0.1);
}

TEST_CASE("trials leave buffers alone that a checkpoint changes again in backward") {
  nn::BatchNorm1d norm(4);
  nn::Sequential model(nn::Linear(4, 4), norm);
  const Tensor x = randn({8, 4});
  const auto forward = [&](const TensorList& in) { return model->forward(in[0]); };
  amp::try_scales(
      *model, [&] { return autograd::checkpoint(forward, {x}).square().sum(); }, 0, 3);
  CHECK(norm->num_batches_tracked.item<int64_t>() == 0);
  CHECK(norm->running_mean.eq(0).all().item<bool>());
}

TEST_CASE("trials leave a buffer alone in which forward puts another tensor's numbers") {
  struct Averaging : nn::Module {
    Tensor weight = register_parameter("weight", ones({2}));
    Tensor average = register_buffer("average", zeros({2}));
    Tensor forward(const Tensor& x) {
      const NoGradGuard no_grad;
      average.set_data(average * 0.5 + x);
      const AutoGradMode recording(true);
      return (weight * x).sum();
    }
  } model;
  const Tensor x = ones({2});
  amp::try_scales(
      model, [&] { return model.forward(x); }, 0, 3);
  CHECK(model.average.equal(zeros({2})));
  amp::GradScaler scaler;
  amp::Inspector inspector(model, scaler, {.every = 1, .shadow_every = 1});
  scaler.scale(model.forward(x)).backward();
  inspector.step([&] { return model.forward(x); });
  CHECK(model.average.equal(ones({2})));
}

TEST_CASE("a checkpoint of layers that run as one op is computed again as it was") {
  nn::Sequential model(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2));
  const Tensor x = randn({8, 4});
  for (const int regions : {0, 1, 2}) {
    CAPTURE(regions);
    const auto layers = [&](const TensorList& in) {
      std::optional<amp::autocast> hole;
      if (regions == 2) hole.emplace(kCPU, std::nullopt, false);
      return model->forward(in[0]);
    };
    const auto loss = [&] {
      std::optional<amp::autocast> region;
      if (regions > 0) region.emplace(kCPU, kFloat16);
      return autograd::checkpoint(layers, {x}).square().sum();
    };
    CHECK_NOTHROW(amp::try_scales(*model, loss, 0, 3));
    amp::GradScaler off({.enabled = false});
    amp::Inspector inspector(*model, off, {.every = 1, .shadow_every = 1});
    loss().backward();
    CHECK_NOTHROW(inspector.step(loss));
    CHECK_NOTHROW(amp::explain([&] { loss().backward(); }));
  }
}

TEST_CASE("where autocast brings 16 bits to one dtype, the comparison brings them to float32") {
  for (const Dtype low : {kFloat16, kBFloat16}) {
    const Tensor x = (manual_seed(6), randn({5, 4})), y = randint(3, {5});
    const auto made = [] {
      return nn::Sequential(nn::Linear(4, 6), nn::LayerNorm(nn::LayerNormOptions({6})),
                            nn::Linear(6, 6), nn::Tanh(), nn::Linear(6, 3));
    };
    nn::Sequential wide = made(), narrow = made(), holder;
    narrow->to(low);
    amp::Precise precise(amp::PrecisionPolicy(kFloat32, low, kFloat32), nn::Linear(4, 3));
    holder->register_module("precise", precise);
    const auto forward = [&](const TensorList& in) { return narrow->forward(in[0]); };
    const auto in_region = [&](const std::function<Tensor()>& output) {
      return [&y, low, output] {
        const amp::autocast region(kCPU, low);
        return F::cross_entropy(output(), y);
      };
    };
    const Net nets[] = {
        {"16-bit weights", narrow, in_region([&] { return narrow->forward(x); })},
        {"a checkpoint", narrow, in_region([&] { return autograd::checkpoint(forward, {x}); })},
        {"a 16-bit input", wide, in_region([&] { return wide->forward(x.to(low)); })},
        {"Precise", holder, [&] { return F::cross_entropy(precise->forward(x), y); }}};
    for (const Net& net : nets) {
      CAPTURE(low);
      CAPTURE(net.name);
      const ScaleTrials t = amp::try_scales(*net.model, net.loss, 6, 6);
      for (const double error : t.trials[0].errors) CHECK(error < 0.05);
      for (size_t place = 0; place < t.places.size(); ++place)
        CHECK(t.trials[0].seen[place].total() == t.float32[place].total());
    }
  }
}

TEST_CASE("the comparison rounds nothing on the way to 16-bit weights or through a function") {
  const Tensor x = (manual_seed(6), randn({5, 4}));
  nn::Linear wide(4, 3), narrow(4, 3);
  narrow->to(kFloat16);
  const auto errors = [](const nn::Linear& layer, const std::function<Tensor()>& loss) {
    return amp::try_scales(*layer, loss, 26, 26).trials[0].errors;
  };
  // Gradients of 2^-26 are 0 in float16.
  const std::vector<double> of_function = errors(wide, [&] {
    const amp::autocast region(kCPU, kFloat16);
    return Doubled::apply(wide->forward(x)).sum() * 0x1p-26;
  });
  for (const double error : of_function) CHECK(error < 0.01);
  const std::vector<double> of_narrow = errors(narrow, [&] {
    const amp::autocast region(kCPU, kFloat16);
    return F::linear(x, narrow->weight * 0x1p12).sum() * 0x1p-26;
  });
  CHECK(of_narrow[0] < 0.01);
}

TEST_CASE("senseless trials are refused") {
  const Net net = three_nets()[0];
  const auto tried = [&](int first, int last) {
    return message([&] { amp::try_scales(*net.model, net.loss, first, last); });
  };
  CHECK(testing::has(tried(3, 2), "from 3 to 2"));
  CHECK(testing::has(tried(-127, 2), "from -127"));
  CHECK(testing::has(tried(0, 128), "to 128"));
  CHECK(testing::has(message([&] { amp::try_scales(*net.model, nullptr); }), "an empty function"));
  CHECK(testing::has(message([&] { amp::try_scales(*net.model, [] { return ones({}); }); }),
                     "requires grad"));
  CHECK(testing::has(message([&] {
                       amp::try_scales(*net.model,
                                       [&]() -> Tensor { halftape::detail::fail("no batch"); });
                     }),
                     "no batch"));
  CHECK_FALSE(amp::is_autocast_enabled(DeviceType::CPU));
}

TEST_CASE("trials leave weights alone that a lookup shortens") {
  const auto weights = [](bool inspected) {
    manual_seed(5);
    nn::Sequential model(nn::Embedding(nn::EmbeddingOptions(6, 3).max_norm(1.0)), nn::Linear(3, 2));
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    amp::GradScaler scaler({.init_scale = 1024});
    std::optional<amp::Inspector> inspector;
    if (inspected)
      inspector.emplace(*model, scaler, amp::InspectorOptions{.every = 1, .shadow_every = 1});
    for (int64_t step = 0; step < 6; ++step) {
      const Tensor rows = arange(3) + 2 * (step % 2);
      const auto loss = [&] { return (model->forward(rows) - 5).square().sum(); };
      if (inspected && step == 3) amp::try_scales(*model, loss, 0, 3);
      optimizer.zero_grad();
      scaler.scale(loss()).backward();
      scaler.step(optimizer);
      scaler.update();
      if (inspector) inspector->step(loss);
    }
    return model->parameters()[0].detach().clone();
  };
  CHECK(weights(true).equal(weights(false)));
}
