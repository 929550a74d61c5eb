// The lab as C functions, which the page calls. Those that can fail return 0 or null then, and
// lab_error() says why. Lists of numbers stay as they are until the next call.
#include <emscripten.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "halftape/autograd/ops/creation/create.h"
#include "lab.h"

using namespace halftape;

namespace {

std::optional<lab::Lab> trained;
std::string error, text;
std::vector<double> settings(16), numbers;
std::vector<uint8_t> ink;

template <class F>
bool done(const F& f) {
  try {
    f();
    return true;
  } catch (const std::exception& e) {
    error = e.what();
    return false;
  }
}

template <class F>
const double* listed(const F& f) {
  numbers.clear();
  return done(f) ? numbers.data() : nullptr;
}

lab::Lab& running() {
  HALFTAPE_CHECK(trained.has_value(), "no network yet: start a training first");
  return *trained;
}

void append(const amp::ExponentCounts& counts) {
  numbers.insert(numbers.end(), counts.slots.begin(), counts.slots.end());
}

/// Step, scale, layers; for each layer the error, then 3 × kExponentSlots counts.
void append(const lab::Ledger& ledger) {
  for (const double n :
       {static_cast<double>(ledger.step), ledger.scale, static_cast<double>(ledger.layers.size())})
    numbers.push_back(n);
  for (const lab::LayerLedger& layer : ledger.layers) {
    numbers.push_back(layer.error);
    append(layer.stored);
    append(layer.exact);
    append(layer.weight);
  }
}

}  // namespace

extern "C" {

EMSCRIPTEN_KEEPALIVE const char* lab_error() { return error.c_str(); }

/// Where the page writes: data, precision, loss weight, fixed, scale, growth interval, lr, seed,
/// batch, number of hidden layers, their widths.
EMSCRIPTEN_KEEPALIVE double* lab_settings() { return settings.data(); }

EMSCRIPTEN_KEEPALIVE int lab_start() {
  return done([] {
    lab::Settings s;
    const auto whole = [](double x) { return x == x ? static_cast<int64_t>(x) : int64_t{0}; };
    s.data = static_cast<lab::Data>(settings[0]);
    s.precision = static_cast<lab::Precision>(settings[1]);
    s.loss_weight = settings[2];
    s.fixed_scale = settings[3] != 0;
    s.scale = settings[4];
    s.growth_interval = whole(settings[5]);
    s.lr = settings[6];
    s.seed = static_cast<uint64_t>(whole(settings[7]));
    s.batch = whole(settings[8]);
    const auto layers = std::min(static_cast<size_t>(whole(settings[9])), settings.size() - 10);
    s.widths.clear();
    for (size_t i = 0; i < layers; ++i) s.widths.push_back(whole(settings[10 + i]));
    trained.reset();
    trained.emplace(s);
  });
}

/// Loss, scale and 1 if skipped, for each of n steps; before them the number of all skipped steps.
EMSCRIPTEN_KEEPALIVE const double* lab_steps(int n) {
  return listed([&] {
    lab::Lab& lab = running();
    numbers.push_back(0);
    for (int i = 0; i < n; ++i) {
      const lab::Step step = lab.step();
      for (const double x : {step.loss, step.scale, step.applied ? 0.0 : 1.0}) numbers.push_back(x);
    }
    numbers[0] = static_cast<double>(lab.skipped());
  });
}

/// Percent, and −1 on failure.
EMSCRIPTEN_KEEPALIVE double lab_accuracy() {
  double percent = -1;
  done([&] { percent = running().accuracy(); });
  return percent;
}

EMSCRIPTEN_KEEPALIVE const char* lab_hash() {
  return done([] { text = running().hash(); }) ? text.c_str() : nullptr;
}

EMSCRIPTEN_KEEPALIVE const double* lab_ledger() {
  return listed([] { append(running().ledger()); });
}

/// The ledgers of the next step at the scales 2^first, 2^(first + by), …: n of them.
EMSCRIPTEN_KEEPALIVE const double* lab_sweep(int first, int by, int n) {
  return listed([&] {
    for (int i = 0; i < n; ++i) append(running().ledger_at(std::ldexp(1.0, first + by * i)));
  });
}

/// Where the page writes a drawing: width · height bytes, 255 for ink.
EMSCRIPTEN_KEEPALIVE uint8_t* lab_ink(int width, int height) {
  return done([&] { ink.assign(static_cast<size_t>(width) * static_cast<size_t>(height), 0); })
             ? ink.data()
             : nullptr;
}

/// 64 pixels from 0 to 16 as the network sees them, and its ten probabilities.
EMSCRIPTEN_KEEPALIVE const double* lab_recognise(int width, int height) {
  return listed([&] {
    const auto digit = lab::as_digit(ink.data(), width, height);
    numbers.assign(digit.begin(), digit.end());
    const Tensor all = running().probabilities(tensor(numbers, kFloat32).reshape({1, -1}));
    for (const double p : all.to_vector()) numbers.push_back(p);
  });
}

/// For the spirals: the probability of the second arm on n × n points of [−2, 2]², row by row.
EMSCRIPTEN_KEEPALIVE const double* lab_map(int n) {
  return listed([&] {
    std::vector<float> points;
    for (int y = 0; y < n; ++y)
      for (int x = 0; x < n; ++x)
        for (const int at : {x, y}) points.push_back(static_cast<float>(4 * (at + 0.5) / n - 2));
    const Tensor p = running().probabilities(tensor(points, kFloat32).reshape({-1, 2}));
    numbers = p.select(1, 1).to_vector();
  });
}

/// The spirals' points to train on: x, y, arm.
EMSCRIPTEN_KEEPALIVE const double* lab_points() {
  return listed([] {
    const lab::Samples& all = running().data().train;
    const std::vector<double> labels = all.labels.to_vector(), inputs = all.inputs.to_vector();
    for (size_t i = 0; i < labels.size(); ++i)
      for (const double x : {inputs[2 * i], inputs[2 * i + 1], labels[i]}) numbers.push_back(x);
  });
}

/// How many numbers the last list has.
EMSCRIPTEN_KEEPALIVE int lab_length() { return static_cast<int>(numbers.size()); }

}  // extern "C"
