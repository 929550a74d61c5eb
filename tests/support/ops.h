// The op table: one row per op and kind of use. What is checked of every row stands in
// tests/autograd/op_table_test.cpp; a new op is one more row.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <halftape/halftape.h>

namespace halftape::testing {

/// An input or a result of the plain reference: double values in row-major order.
struct Values {
  Shape shape;
  std::vector<double> v;
};

struct OpRow {
  std::string name;
  std::function<Tensor(const TensorList&)> call;
  std::vector<Shape> shapes;  // of the inputs
  /// The same in plain loops over doubles. Empty: the row is checked against itself only (its value
  /// is random or has a closed form in another test).
  std::function<std::vector<double>(const std::vector<Values>&)> reference = {};
  double low = -2, high = 2;       // inputs are drawn from here …
  std::vector<double> kinks = {};  // … and not near these points
  Cast cast = Cast::Keep;          // what autocast makes of it
  bool one_kernel = true;          // rounds once: half is float32's result rounded
  bool differentiable = true;      // has gradients (and all that follows from that)
  double eps = 8;                  // float64 and float32 may differ from the reference by this
  size_t needed = 99;              // inputs that must be given; undefined ones behind mean: none

  /// What the row is about: its name up to the words that say which use of the op it is.
  std::string op() const { return name.substr(0, name.find_first_of(" ,(")); }
};

using Rows = std::vector<OpRow>;

/// f(x) as the input of a row's op, which is to meet an undefined x itself.
inline Tensor made(const Tensor& x, Tensor (*f)(const Tensor&)) { return x.defined() ? f(x) : x; }

/// x[i], or undefined where a call has no more.
inline Tensor input_or_none(const TensorList& x, size_t i) {
  return i < x.size() ? x[i] : Tensor();
}

/// Values between low and high without ties or symmetry, away from the kinks.
inline Tensor draw(const OpRow& row, size_t input, Dtype dtype = kFloat64) {
  const auto n = static_cast<size_t>(numel(row.shapes[input]));
  std::vector<double> v(n);
  for (size_t i = 0; i < n; ++i) {
    const double t =
        0.137 + 0.61803398874989 * static_cast<double>(i + 1) + 0.3247 * static_cast<double>(input);
    v[i] = row.low + (row.high - row.low) * (t - std::floor(t));
    for (double kink : row.kinks)
      if (std::abs(v[i] - kink) < 0.05) v[i] = kink + 0.07;
  }
  return tensor(v, dtype).reshape(row.shapes[input]);
}

inline TensorList draw_all(const OpRow& row, Dtype dtype = kFloat64) {
  TensorList all;
  for (size_t i = 0; i < row.shapes.size(); ++i) all.push_back(draw(row, i, dtype));
  return all;
}

// Plain references.

/// f(index) for every index of a shape, in row-major order.
template <class F>
void each_index(const Shape& shape, F f) {
  const int64_t n = numel(shape);
  for (int64_t flat = 0; flat < n; ++flat) {
    Dims at = Dims::filled(shape.size(), 0);
    int64_t rest = flat;
    for (int d = shape.size() - 1; d >= 0; --d) at[d] = rest % shape[d], rest /= shape[d];
    f(at);
  }
}

/// Position of an index in a row-major array of another shape, to which broadcasting applies.
inline size_t position(const Shape& shape, const Dims& index) {
  int64_t at = 0;
  const int lead = index.size() - shape.size();
  for (int d = 0; d < shape.size(); ++d) at = at * shape[d] + (shape[d] == 1 ? 0 : index[d + lead]);
  return static_cast<size_t>(at);
}

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

inline auto elementwise(double (*f)(double)) {
  return [f](const std::vector<Values>& in) {
    std::vector<double> out;
    for (double x : in[0].v) out.push_back(f(x));
    return out;
  };
}

inline auto elementwise2(double (*f)(double, double)) {
  return [f](const std::vector<Values>& in) {
    std::vector<double> out;
    each_index(broadcast("reference", in[0].shape, in[1].shape), [&](const Dims& i) {
      out.push_back(f(in[0].v[position(in[0].shape, i)], in[1].v[position(in[1].shape, i)]));
    });
    return out;
  };
}

/// Folds the elements over `dims` (empty: all) from `start` on.
inline auto folded(Dims dims, double start, double (*f)(double, double), bool mean = false) {
  return [=](const std::vector<Values>& in) {
    const Dims over = wrap_dims("reference", dims, in[0].shape.size());
    const Shape kept = reduced_shape(in[0].shape, over, true);
    std::vector<double> out(static_cast<size_t>(numel(kept)), start);
    each_index(in[0].shape, [&](const Dims& i) {
      double& slot = out[position(kept, i)];
      slot = f(slot, in[0].v[position(in[0].shape, i)]);
    });
    const double count = static_cast<double>(in[0].v.size()) / static_cast<double>(out.size());
    if (mean)
      for (double& o : out) o /= count;
    return out;
  };
}

/// Elements picked by index: out[i] = x[where(i)].
inline auto picked(Shape shape, std::function<Dims(Dims)> where) {
  return [=](const std::vector<Values>& in) {
    std::vector<double> out;
    each_index(shape,
               [&](const Dims& i) { out.push_back(in[0].v[position(in[0].shape, where(i))]); });
    return out;
  };
}
inline std::vector<double> same(const std::vector<Values>& in) { return in[0].v; }

/// (…, m, k)·(…, k, n) with broadcast batch dimensions; `transposed`: the second is (n, k).
inline std::vector<double> matmul_reference(const Values& a, const Values& b, bool transposed) {
  auto batch = [](const Shape& s) {
    return Dims(std::span(s.begin(), static_cast<size_t>(s.size() - 2)));
  };
  const int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(),
                n = transposed ? b.shape[b.shape.size() - 2] : b.shape.back();
  std::vector<double> out;
  each_index(broadcast("reference", batch(a.shape), batch(b.shape)), [&](const Dims& at) {
    const size_t in_a = position(batch(a.shape), at), in_b = position(batch(b.shape), at);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l)
          sum += a.v[in_a * static_cast<size_t>(m * k) + static_cast<size_t>(i * k + l)] *
                 b.v[in_b * static_cast<size_t>(k * n) +
                     static_cast<size_t>(transposed ? j * k + l : l * n + j)];
        out.push_back(sum);
      }
  });
  return out;
}

/// Softmax of rows of C, or its logarithm.
inline std::vector<double> softmax_rows(const std::vector<double>& x, size_t C, bool log) {
  std::vector<double> out;
  for (size_t row = 0; row < x.size(); row += C) {
    double sum = 0;
    for (size_t j = 0; j < C; ++j) sum += std::exp(x[row + j]);
    for (size_t j = 0; j < C; ++j)
      out.push_back(log ? x[row + j] - std::log(sum) : std::exp(x[row + j]) / sum);
  }
  return out;
}

inline std::vector<double> as_reduced(std::vector<double> losses, Reduction reduction) {
  if (reduction == Reduction::None) return losses;
  double sum = 0;
  for (double l : losses) sum += l;
  return {reduction == Reduction::Sum ? sum : sum / static_cast<double>(losses.size())};
}

/// The row, and one with the square of its result: there the gradient of the gradient is not zero,
/// also where the op itself is linear.
inline void with_square(std::vector<OpRow>& rows, OpRow row) {
  rows.push_back(row);
  if (!row.differentiable) return;
  row.name += " squared";
  row.call = [call = row.call](const TensorList& x) {
    const Tensor y = call(x);
    return y * y;
  };
  row.reference = [plain = row.reference](const std::vector<Values>& in) {
    std::vector<double> out = plain(in);
    for (double& y : out) y *= y;
    return out;
  };
  row.one_kernel = false;
  rows.push_back(row);
}

// The table is made of families, a file each.
void shape_rows(std::vector<OpRow>& rows);
void index_rows(std::vector<OpRow>& rows);
void found_rows(std::vector<OpRow>& rows);
void random_rows(std::vector<OpRow>& rows);
void reduce_rows(std::vector<OpRow>&);
void matrix_rows(std::vector<OpRow>&);
void linear_rows(std::vector<OpRow>& rows);
void formula_rows(std::vector<OpRow>& rows);
void elementwise_rows(std::vector<OpRow>& rows);
void norm_rows(std::vector<OpRow>& rows);
void further_loss_rows(std::vector<OpRow>& rows);
void conv_rows(std::vector<OpRow>& rows);
void pool_rows(std::vector<OpRow>& rows);
void resample_rows(std::vector<OpRow>& rows);
void attention_rows(std::vector<OpRow>& rows);
void recurrent_rows(std::vector<OpRow>& rows);

std::vector<OpRow> op_table();

}  // namespace halftape::testing
