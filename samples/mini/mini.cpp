// Mixed-precision training with loss scaling, whole, in one file that needs no library.
//
//     g++ -std=c++20 -O3 samples/mini/mini.cpp -o mini && ./mini
//
// It trains one small network three times: in float32, in float16 (fp16), and in float16 with a
// GradScaler. The second training fails. Why, and how multiplying the loss mends it, is all that
// this file has to say; it reads from top to bottom. `./mini 1` leaves the loss as it is: so small
// a network then trains in plain float16, too. Last line: accuracies on images that it never saw.
#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <variant>
#include <vector>

namespace mini {
// 1. Sixteen bits ---------------------------------------------------------------------------------
// A half has 1 bit of sign, 5 of exponent and 10 of fraction. Its largest number is 65504, and its
// smallest 2^-24: what is not above half of that becomes zero. Gradients are such small numbers.

struct Half {
  uint16_t bits = 0;
  /// Rounds to the nearest half; of two that are equally near, to the one whose last bit is 0.
  explicit Half(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value), magnitude = word & 0x7fffffff;
    const int exponent = static_cast<int>(magnitude >> 23) - 127;
    uint32_t rounded = 0;                          // for numbers below 2^-25
    if (exponent > 15) rounded = 0x7c00;           // infinity, for those from 65536 on
    if (magnitude > 0x7f800000) rounded = 0x7e00;  // NaN
    if (exponent >= -25 && exponent <= 15) {
      // Below 2^-14 halves lie as far apart as just above it: fewer bits of the number are kept.
      const int lowest = std::max(exponent, -14), dropped = 13 + lowest - exponent;
      const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
      const uint32_t rest = significand & ((1u << dropped) - 1), tie = 1u << (dropped - 1);
      const uint32_t kept = significand >> dropped;
      // The leading bit of `kept`, and a carry beyond it, add to the exponent: a subnormal becomes
      // normal, a normal number reaches the next power of two, and 65520 reaches infinity.
      rounded = (static_cast<uint32_t>(lowest + 14) << 10) + kept;
      if (rest > tie || (rest == tie && kept % 2 == 1)) ++rounded;
    }
    bits = static_cast<uint16_t>((word >> 16 & 0x8000) | rounded);
  }
  /// Exact: every half is a float.
  operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (bits & 1023u) << 13);
    const uint32_t units = (bits & 1023u) + (exponent > 0 ? 1024 : 0);  // of 2^(exponent - 25) each
    const uint32_t unit = (std::max(exponent, 1u) + 102) << 23;         // as the bits of a float
    return (sign ? -1.f : 1.f) * static_cast<float>(units) * std::bit_cast<float>(unit);
  }
};

// 2. Registers and memory -------------------------------------------------------------------------
// Nothing is computed in 16 bits, here or in the library: halves are loaded, which is exact, an op
// computes in float32, and its result is rounded once, when it is stored.

/// Numbers as an op computes with them.
struct Matrix {
  int rows, cols;
  std::vector<float> data;
  Matrix(int r, int c, float fill = 0) : rows{r}, cols{c}, data(static_cast<size_t>(r) * c, fill) {}
  float* operator[](int row) { return data.data() + static_cast<size_t>(row) * cols; }
  const float* operator[](int row) const { return data.data() + static_cast<size_t>(row) * cols; }
};

enum class Dtype { Float32, Float16 };
/// Numbers as they lie in memory.
struct Array {
  int rows, cols;
  std::variant<std::vector<float>, std::vector<Half>> stored;
  Array(const Matrix& m, Dtype dtype) : rows{m.rows}, cols{m.cols}, stored{m.data} {
    if (dtype == Dtype::Float16) stored = std::vector<Half>(m.data.begin(), m.data.end());
  }
  Dtype dtype() const { return stored.index() == 0 ? Dtype::Float32 : Dtype::Float16; }
  Matrix load() const {
    Matrix m{rows, cols};
    std::visit([&](auto& from) { m.data.assign(from.begin(), from.end()); }, stored);
    return m;
  }
};

// 3. One formula, read twice ----------------------------------------------------------------------
// A formula is written once, for any type of number. Read with float it gives its value. Read with
// a Dual, a number that carries a derivative along, it gives its slope.

struct Dual {
  float value, slope;
  explicit Dual(float v, float s = 0) : value{v}, slope{s} {}
};
Dual operator+(Dual a, Dual b) { return Dual{a.value + b.value, a.slope + b.slope}; }
Dual operator-(Dual a, Dual b) { return Dual{a.value - b.value, a.slope - b.slope}; }
Dual operator*(Dual a, float b) { return Dual{a.value * b, a.slope * b}; }
auto operator<=>(Dual a, Dual b) { return a.value <=> b.value; }
Dual exp(Dual x) { return Dual{std::exp(x.value), std::exp(x.value) * x.slope}; }
Dual log(Dual x) { return Dual{std::log(x.value), x.slope / x.value}; }

/// log Σ exp(x) − x[label]: how much the label surprises a network that gives these n scores.
template <class T>
T surprise(const T* x, int n, int label) {
  using std::exp, std::log;
  const T largest = *std::max_element(x, x + n);  // taken out, so that exp stays finite
  T sum(0);
  for (int i = 0; i < n; ++i) sum = sum + exp(x[i] - largest);
  return log(sum) + largest - x[label];
}

// 4. The tape -------------------------------------------------------------------------------------
// Every op appends to the tape what it has to do on the way back: given the gradient of its result,
// to add to the gradients of its inputs. backward() plays the tape from its end.

struct Variable {
  Array value;
  std::optional<Array> grad = {};  // has the dtype of the value
};
using Tensor = std::shared_ptr<Variable>;
std::vector<std::function<void()>> tape;

Tensor tensor(const Matrix& m, Dtype dtype = Dtype::Float32) {
  return std::make_shared<Variable>(Variable{{m, dtype}});
}

Tensor record(const Matrix& result, Dtype dtype, std::function<void(const Matrix& grad)> rule) {
  Tensor out = tensor(result, dtype);
  tape.push_back([out, rule] {
    if (out->grad) rule(out->grad->load());
  });
  return out;
}

void accumulate(const Tensor& x, Matrix grad) {
  const Matrix before = x->grad ? x->grad->load() : Matrix{grad.rows, grad.cols};
  for (size_t i = 0; i < grad.data.size(); ++i) grad.data[i] += before.data[i];
  x->grad = Array{grad, x->value.dtype()};
}

void backward(const Tensor& loss) {
  accumulate(loss, Matrix{1, 1, 1});
  for (; !tape.empty(); tape.pop_back()) tape.back()();
}

// 5. Autocast -------------------------------------------------------------------------------------
// Weights stay in float32. In an autocast region an op has its inputs cast to what is best for it:
// products are fast in float16, and sums of exponentials need float32. A cast is an op like others:
// it is on the tape, and on the way back its gradient is cast, too.

long arrived = 0, vanished = 0;  // gradients other than 0 on their way to float16; 0 after it

Tensor cast(const Tensor& x, Dtype to) {
  if (x->value.dtype() == to) return x;
  return record(x->value.load(), to, [x](const Matrix& grad) {
    accumulate(x, grad);  // **if x is in float16, small gradients die here**
    if (x->value.dtype() == Dtype::Float32) return;
    const auto zeros = [](auto&& m) { return std::count(m.data.begin(), m.data.end(), 0.f); };
    arrived += static_cast<long>(grad.data.size()) - zeros(grad);
    vanished += zeros(x->grad->load()) - zeros(grad);
  });
}

bool autocast = false;  // a region begins where this is set, and ends where it is cleared
Tensor prefer(Dtype dtype, const Tensor& x) { return autocast ? cast(x, dtype) : x; }

// 6. Ops ------------------------------------------------------------------------------------------
Matrix transpose(const Matrix& a) {
  Matrix out{a.cols, a.rows};
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < a.cols; ++j) out[j][i] = a[i][j];
  return out;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, b.cols};
  for (int i = 0; i < a.rows; ++i)
    for (int k = 0; k < a.cols; ++k)
      for (int j = 0; j < b.cols; ++j) out[i][j] += a[i][k] * b[k][j];
  return out;
}

/// x · weight + bias, for every row of x.
Tensor linear(const Tensor& any_x, const Tensor& any_weight, const Tensor& any_bias) {
  const Tensor x = prefer(Dtype::Float16, any_x), weight = prefer(Dtype::Float16, any_weight),
               bias = prefer(Dtype::Float16, any_bias);
  const Matrix b = bias->value.load();
  Matrix y = product(x->value.load(), weight->value.load());
  for (int i = 0; i < y.rows; ++i)
    for (int j = 0; j < y.cols; ++j) y[i][j] += b[0][j];
  return record(y, x->value.dtype(), [x, weight, bias](const Matrix& grad) {
    accumulate(x, product(grad, transpose(weight->value.load())));
    accumulate(weight, product(transpose(x->value.load()), grad));
    accumulate(bias, product(Matrix{1, grad.rows, 1}, grad));
  });
}

/// A formula for every number of x, which is taken as it comes: no dtype is preferred.
Tensor map(const Tensor& x, auto formula) {
  const Matrix at = x->value.load();
  Matrix y = at;
  for (float& number : y.data) number = formula(number);
  return record(y, x->value.dtype(), [x, at, formula](Matrix grad) {
    for (size_t i = 0; i < grad.data.size(); ++i)
      grad.data[i] *= formula(Dual{at.data[i], 1}).slope;
    accumulate(x, grad);
  });
}

Tensor relu(const Tensor& x) {
  return map(x, []<class T>(T number) { return number <= T(0) ? T(0) : number; });
}
Tensor operator*(const Tensor& x, float factor) {
  return map(x, [factor](auto number) { return number * factor; });
}

/// The mean over all rows.
Tensor cross_entropy(const Tensor& any_x, const std::vector<int>& labels) {
  const Tensor x = prefer(Dtype::Float32, any_x);
  const Matrix scores = x->value.load();
  const int rows = scores.rows, n = scores.cols;
  float sum = 0;
  for (int i = 0; i < rows; ++i) sum += surprise(scores[i], n, labels[i]);
  return record(Matrix{1, 1, sum / rows}, Dtype::Float32, [=](const Matrix& grad) {
    Matrix slopes{rows, n};
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < n; ++j) {
        std::vector<Dual> row(scores[i], scores[i] + n);
        row[j].slope = 1;  // this score moves, the others stay
        slopes[i][j] = grad[0][0] / rows * surprise(row.data(), n, labels[i]).slope;
      }
    accumulate(x, slopes);
  });
}

// 7. Adam -----------------------------------------------------------------------------------------
struct Adam {
  std::vector<Tensor> parameters;
  double lr = 1e-3, eps = 1e-8, beta1 = 0.9, beta2 = 0.999;
  int steps = 0;
  std::vector<std::vector<double>> mean = {}, square = {};  // running means of g and of g²

  void step() {
    ++steps;
    mean.resize(parameters.size()), square.resize(parameters.size());
    // Both means begin at 0, and are too small at first by these factors.
    const double mean_share = 1 - std::pow(beta1, steps), square_share = 1 - std::pow(beta2, steps);
    for (size_t p = 0; p < parameters.size(); ++p) {
      const Matrix grad = parameters[p]->grad->load();
      Matrix w = parameters[p]->value.load();
      mean[p].resize(w.data.size()), square[p].resize(w.data.size());
      for (size_t i = 0; i < w.data.size(); ++i) {
        double &m = mean[p][i], &s = square[p][i], g = grad.data[i];
        m = beta1 * m + (1 - beta1) * g;
        s = beta2 * s + (1 - beta2) * g * g;
        w.data[i] -= static_cast<float>(lr * m / mean_share / (std::sqrt(s / square_share) + eps));
      }
      parameters[p]->value = Array{w, Dtype::Float32};
    }
  }
};

// 8. The scaler -----------------------------------------------------------------------------------
// A derivative is linear: the gradients of S · loss are S times those of the loss. So the loss is
// multiplied by a large S, gradients pass through float16 where it is fine, and are divided by S in
// float32 before they are used. S is found by trying: if a gradient is infinite, S was too large,
// so that step is not taken, and S is halved. After many good steps in a row S is doubled.

struct GradScaler {
  bool enabled = true, found_inf = false;  // found in the last step
  int growth_interval = 2000;
  double growth_factor = 2, backoff_factor = 0.5;
  float factor = 65536;                 // S
  int growth_tracker = 0, skipped = 0;  // good steps since S last changed; bad steps in all

  Tensor scale(const Tensor& loss) const { return enabled ? loss * factor : loss; }
  /// Divides the gradients by S. The optimizer steps if all of them are finite.
  void step(Adam& optimizer) {
    found_inf = false;
    for (const Tensor& p : optimizer.parameters) {
      Matrix grad = p->grad->load();
      for (float& g : grad.data) g /= enabled ? factor : 1;
      for (float g : grad.data) found_inf |= enabled && !std::isfinite(g);
      p->grad = Array{grad, Dtype::Float32};
    }
    if (!found_inf) optimizer.step();
  }
  /// The law of torch.amp.
  void update() {
    skipped += found_inf;
    growth_tracker = found_inf ? 0 : growth_tracker + 1;
    const bool grows = growth_tracker >= growth_interval;
    if (grows) growth_tracker = 0;
    const double change = found_inf ? backoff_factor : grows ? growth_factor : 1;
    const auto changed = static_cast<float>(factor * change);
    if (std::isfinite(changed)) factor = changed;
  }
};

// 9. The network and its data ---------------------------------------------------------------------
/// The weight and bias of each layer of a network 64 → 64 → 64 → 10.
std::vector<Tensor> parameters(std::mt19937& random) {
  std::vector<Tensor> all;
  const int widths[] = {64, 64, 64, 10};
  for (int layer = 0; layer < 3; ++layer)
    for (const int rows : {widths[layer], 1}) {
      Matrix m{rows, widths[layer + 1]};
      const float bound = 1 / std::sqrt(static_cast<float>(widths[layer]));
      for (float& x : m.data) x = bound * (static_cast<float>(random()) * 0x1p-31f - 1);
      all.push_back(tensor(m));
    }
  return all;
}

Tensor forward(const std::vector<Tensor>& p, const Matrix& images) {
  Tensor x = relu(linear(tensor(images), p[0], p[1]));
  x = relu(linear(x, p[2], p[3]));
  return linear(x, p[4], p[5]);
}

struct Batch {
  Matrix images{0, 64};
  std::vector<int> labels;
};

/// 1,797 handwritten digits. Of each class every fifth is for the test, which is the last batch.
std::vector<Batch> digits() {
  static constexpr const char* texts[] = {
#include "../../io/data/sets/digits_data.inc"
  };
  std::vector<Batch> batches(1);
  Batch test;
  int seen[10] = {};
  for (const char* text : texts) {  // 64 pixels from 0 to g, which is 16, and the label
    const int label = text[64] - '0';
    if (batches.back().images.rows == 128) batches.emplace_back();
    Batch& batch = ++seen[label] % 5 == 0 ? test : batches.back();
    batch.labels.push_back(label);
    ++batch.images.rows;
    for (int p = 0; p < 64; ++p) {
      const int level = text[p] <= '9' ? text[p] - '0' : text[p] - 'a' + 10;
      batch.images.data.push_back((static_cast<float>(level) - 4.9f) / 6);  // mean 0, spread 1
    }
  }
  batches.push_back(test);
  return batches;
}

// 10. Training ------------------------------------------------------------------------------------
/// Prints a row of the table; gives the accuracy.
double train(const char* name, bool half, bool scaled, float loss_weight) {
  const std::vector<Batch> batches = digits();
  std::mt19937 random{0};  // the same first weights in every training
  // Adam divides a gradient by its size, so a weight on the loss cancels out, but for eps.
  Adam optimizer{.parameters = parameters(random), .eps = 1e-8 * loss_weight};
  GradScaler scaler{.enabled = scaled, .growth_interval = 20};  // the run is short
  arrived = vanished = 0;
  for (int epoch = 0; epoch < 60; ++epoch) {
    optimizer.lr = 1e-3 * (60 - epoch) / 60;
    for (size_t b = 0; b + 1 < batches.size(); ++b) {
      autocast = half;
      const Tensor scores = forward(optimizer.parameters, batches[b].images);
      const Tensor loss = cross_entropy(scores, batches[b].labels);
      autocast = false;
      backward(scaler.scale(loss * loss_weight));
      scaler.step(optimizer);
      scaler.update();
      for (const Tensor& p : optimizer.parameters) p->grad.reset();
    }
  }
  autocast = half;
  const Matrix scores = forward(optimizer.parameters, batches.back().images)->value.load();
  tape.clear();  // nobody asks for these gradients
  int right = 0;
  for (int i = 0; i < scores.rows; ++i)
    right += std::max_element(scores[i], scores[i] + 10) - scores[i] == batches.back().labels[i];
  const double accuracy = 100.0 * right / scores.rows;
  const double lost = half ? 100.0 * vanished / arrived : 0;
  std::printf("%-18s %16.1f %% %16d %16.2f %%\n", name, lost, scaler.skipped, accuracy);
  return accuracy;
}
}  // namespace mini

int main(int argc, char** argv) {
  char* end = nullptr;
  const float weight = argc == 2 ? std::strtof(argv[1], &end) : 1e-5f;
  if (argc > 2 || (argc == 2 && *end) || !std::isfinite(weight) || !(weight > 0)) {
    std::fprintf(stderr, "usage: mini [WEIGHT], a number above 0: the loss is multiplied by it\n");
    return 2;
  }
  std::printf("The loss is multiplied by %g.\n\n%37s %16s %18s\n", weight, "gradients lost",
              "steps skipped", "accuracy");
  const double float32 = mini::train("float32", false, false, weight);
  const double fp16 = mini::train("fp16", true, false, weight);
  const double amp = mini::train("fp16 + GradScaler", true, true, weight);
  std::printf("\naccuracy float32=%.2f fp16=%.2f amp=%.2f\n", float32, fp16, amp);
  return 0;
}
