#include "halftape/autograd/ops/creation/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/softmax.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/core/formula/philox.h"
#include "halftape/core/random/draw.h"

namespace halftape {
namespace {

Tensor with_options(const Array& y, const TensorOptions& o) {
  Tensor t(y);
  if (o.requires_grad()) t.requires_grad_();
  return t;
}

Tensor drawn(const Shape& shape, Distribution kind, double a, double b, Dtype dtype,
             const TensorOptions& o) {
  const Array y(shape, dtype, o.device());
  draw(y, kind, a, b);
  return with_options(y, o);
}

Tensor drawn_floats(const char* op, const Shape& shape, Distribution kind, double a, double b,
                    const TensorOptions& o) {
  HALFTAPE_CHECK(is_floating_point(o.dtype()), op, ": a tensor of ", o.dtype(),
                 " cannot hold it; use a floating-point dtype, or randint()");
  return drawn(shape, kind, a, b, o.dtype(), o);
}

/// True if all elements of x are at least 0 (and not NaN).
bool no_negative(const Tensor& x) { return x.numel() == 0 || x.detach().amin().item() >= 0; }

/// u(0) … u(count − 1): uniform doubles in (0, 1) from the CPU's stream, of 52 bits and a half, so
/// that none is rounded to 1.
auto uniform_doubles(int64_t count) {
  return [key = random_reserve(Device(kCPU), 2 * count)](int64_t i) {
    const auto at = 2 * static_cast<uint64_t>(i);
    const uint64_t bits = uint64_t{random_bits(key.seed, key.offset, at)} << 32 |
                          random_bits(key.seed, key.offset, at + 1);
    return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
  };
}

/// Exponential of rate 1.
Tensor exponential(const Shape& shape, const TensorOptions& o) {
  if (const LockedMt19937 mt(o.device()); mt) {
    const Array y(shape, o.dtype(), o.device());
    visit(y.dtype(), [&](auto t) {
      using T = typename decltype(t)::type;
      T* const out = y.data<T>();
      for (int64_t i = 0; i < y.numel(); ++i) out[i] = convert<T>(mt->exponential());
    });
    return Tensor(y);
  }
  // U = 0 comes once in 2^24 draws or more, and has no logarithm.
  return -log(clamp(rand(shape, o), 1e-30));
}

/// multinomial() of one row as PyTorch's CPU draws it from these weights, numbers of type T.
template <class T>
void multinomial_as_torch(const double* weights, int64_t classes, int64_t n, bool replacement,
                          Mt19937& mt, int64_t* to) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto c = static_cast<uint64_t>(classes);
  auto w = host_vector<Wide>(classes);
  std::transform(weights, weights + c, w.begin(), [](double x) { return static_cast<Wide>(x); });
  if (replacement && n > 1) {
    std::partial_sum(w.begin(), w.end(), w.begin());
    const Wide sum = w.back();
    for (Wide& x : w) x /= sum;
    for (int64_t i = 0; i < n; ++i)
      to[i] = std::lower_bound(w.begin(), w.end() - 1, mt.uniform(),
                               [](Wide x, double u) { return static_cast<double>(x) < u; }) -
              w.begin();
    return;
  }
  // Weights divided by exponential numbers: the largest quotients are drawn.
  for (Wide& x : w) {
    const auto clock = static_cast<Wide>(convert<T>(mt.exponential()));
    x = x > 0 ? static_cast<Wide>(convert<T>(x / clock)) : 0;
  }
  auto order = host_vector<int64_t>(classes);
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](int64_t i, int64_t j) {
    const Wide a = w[static_cast<size_t>(i)], b = w[static_cast<size_t>(j)];
    return a > b || (a == b && i < j);
  });
  std::copy_n(order.begin(), n, to);
}

}  // namespace

namespace detail {
int64_t whole_numbers(Dtype dtype) {
  if (is_floating_point(dtype)) return static_cast<int64_t>(2 / epsilon(dtype));
  return visit(dtype, []<class T>(Type<T>) -> int64_t {
    if constexpr (std::is_integral_v<T>)
      return std::min<int64_t>(std::numeric_limits<T>::max(), int64_t{1} << 53);
    return 0;
  });
}

void check_integers(const char* op, int64_t low, int64_t high, Dtype dtype) {
  HALFTAPE_CHECK(low < high, op, ": the range [", low, ", ", high, ") is empty");
  const int64_t most = whole_numbers(dtype);
  const int64_t least = dtype == kBool || dtype == kUInt8             ? 0
                        : is_floating_point(dtype) || dtype == kInt64 ? -most
                                                                      : -most - 1;
  HALFTAPE_CHECK(low >= least && high - 1 <= most, op, ": the range [", low, ", ", high,
                 ") is not within the integers of ", dtype, ", ", least, " to ", most);
}
}  // namespace detail

Tensor rand(const Shape& shape, const TensorOptions& o) {
  return drawn_floats("rand", shape, Distribution::Uniform, 0, 1, o);
}
Tensor randn(const Shape& shape, const TensorOptions& o) {
  return drawn_floats("randn", shape, Distribution::Normal, 0, 1, o);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, const TensorOptions& o) {
  const Array y(shape, o.dtype_or(kInt64), o.device());
  detail::check_integers("randint", low, high, y.dtype());
  draw_integers(y, low, high);
  return with_options(y, o);
}
Tensor randint(int64_t high, const Shape& shape, const TensorOptions& o) {
  return randint(0, high, shape, o);
}

Tensor randperm(int64_t n, const TensorOptions& o) {
  HALFTAPE_CHECK(n >= 0, "randperm: n = ", n, " is negative");
  const Array host(n, kInt64, Device(kCPU));
  if (n > 0) detail::check_integers("randperm", 0, n, o.dtype_or(kInt64));
  int64_t* const order = host.data<int64_t>();
  std::iota(order, order + n, 0);
  if (const LockedMt19937 mt(kCPU); mt) {
    mt->shuffle(std::span(order, static_cast<size_t>(n)));
  } else {
    const RandomKey key = random_reserve(Device(kCPU), 2 * n);
    for (int64_t i = n - 1; i > 0; --i) {  // Fisher–Yates; 64 bits a draw leave a bias below 2^-32
      const auto at = static_cast<uint64_t>(2 * i);
      const uint64_t bits = uint64_t{random_bits(key.seed, key.offset, at)} << 32 |
                            random_bits(key.seed, key.offset, at + 1);
      std::swap(order[i], order[bits % static_cast<uint64_t>(i + 1)]);
    }
  }
  return with_options(host.to(o.dtype_or(kInt64)).to(o.device()), o);
}

Tensor rand_like(const Tensor& x, const TensorOptions& o) {
  return rand(x.sizes(), x.options().merge_in(o));
}
Tensor randn_like(const Tensor& x, const TensorOptions& o) {
  return randn(x.sizes(), x.options().merge_in(o));
}
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const TensorOptions& o) {
  return randint(low, high, x.sizes(), x.options().merge_in(o));
}
Tensor randint_like(const Tensor& x, int64_t high, const TensorOptions& o) {
  return randint_like(x, 0, high, o);
}

Tensor bernoulli(const Tensor& p) {
  HALFTAPE_CHECK(p.is_floating_point(), "bernoulli: the probabilities are ", p.dtype(),
                 "; they need a floating-point dtype");
  HALFTAPE_CHECK(no_negative(p) && no_negative(1 - p.detach()),
                 "bernoulli: the probabilities are not all between 0 and 1");
  // Uniform numbers in float32: in half precision they would be too coarse for small p.
  const TensorOptions fine = compute_dtype(p.dtype());
  return lt(rand_like(p, fine), p.detach().to(fine)).to(p.dtype());
}
Tensor bernoulli(const Tensor& x, double p) {
  HALFTAPE_CHECK(p >= 0 && p <= 1, "bernoulli: probability ", p, " is not between 0 and 1");
  return drawn(x.sizes(), Distribution::Bernoulli, p, 0, x.dtype(), x.options());
}

Tensor normal(double mean, double std, const Shape& shape, const TensorOptions& o) {
  HALFTAPE_CHECK(std >= 0, "normal: the standard deviation ", std, " is negative");
  return drawn_floats("normal", shape, Distribution::Normal, mean, std, o);
}
Tensor normal(const Tensor& mean, double std) {
  HALFTAPE_CHECK(std >= 0, "normal: the standard deviation ", std, " is negative");
  return mean.detach() + randn_like(mean) * std;
}
Tensor normal(double mean, const Tensor& std) {
  HALFTAPE_CHECK(no_negative(std), "normal: a standard deviation is negative");
  return randn_like(std) * std.detach() + mean;
}
Tensor normal(const Tensor& mean, const Tensor& std) {
  HALFTAPE_CHECK(no_negative(std), "normal: a standard deviation is negative");
  const Shape shape = broadcast("normal", mean.sizes(), std.sizes());
  return mean.detach() + randn(shape, mean.options()) * std.detach();
}

Tensor multinomial(const Tensor& p, int64_t n, bool replacement) {
  HALFTAPE_CHECK(p.dim() == 1 || p.dim() == 2, "multinomial: the probabilities have shape ",
                 p.sizes(), ", expected (C) or (R, C)");
  HALFTAPE_CHECK(p.is_floating_point(), "multinomial: the probabilities are ", p.dtype(),
                 "; they need a floating-point dtype");
  HALFTAPE_CHECK(n > 0, "multinomial: cannot draw ", n, " samples; draw at least one");
  const int64_t classes = p.size(-1), rows = p.dim() == 2 ? p.size(0) : 1;
  const std::vector<double> weights = p.detach().to_vector();
  for (int64_t r = 0; r < rows; ++r) {
    const double* w = weights.data() + r * classes;
    int64_t possible = 0;
    for (int64_t c = 0; c < classes; ++c) {
      HALFTAPE_CHECK(std::isfinite(w[c]) && w[c] >= 0, "multinomial: probability ", w[c],
                     " at position ", c, " of row ", r, " is negative or not finite");
      possible += w[c] > 0;
    }
    HALFTAPE_CHECK(std::isfinite(std::accumulate(w, w + classes, 0.0)),
                   "multinomial: the sum of row ", r, " is not finite; divide it by its largest");
    HALFTAPE_CHECK(possible > 0, "multinomial: all probabilities of row ", r, " are 0");
    HALFTAPE_CHECK(replacement || possible >= n, "multinomial: row ", r, " has ", possible,
                   " non-zero probabilities, too few for ", n, " samples without replacement");
  }
  const Array out(Shape{rows, n}, kInt64, Device(kCPU));
  const auto shaped = [&] {
    const Tensor all(out.to(p.device()));
    return p.dim() == 1 ? all.select(0, 0) : all;
  };
  if (const LockedMt19937 mt(p.device()); mt) {
    visit(p.dtype(), [&](auto t) {
      using T = typename decltype(t)::type;
      for (int64_t r = 0; r < rows; ++r)
        multinomial_as_torch<T>(weights.data() + r * classes, classes, n, replacement, *mt,
                                out.data<int64_t>() + r * n);
    });
    return shaped();
  }
  const auto u = uniform_doubles(rows * (replacement ? n : classes));
  for (int64_t r = 0; r < rows; ++r) {
    const double* w = weights.data() + r * classes;
    int64_t* to = out.data<int64_t>() + r * n;
    if (replacement) {
      auto upto = host_vector<double>(classes);
      std::partial_sum(w, w + classes, upto.begin());
      // Where the running sum first exceeds the draw, which is never at a class of weight 0.
      const double below = std::nextafter(upto.back(), 0.0);  // subnormal products may round up
      for (int64_t i = 0; i < n; ++i) {
        const double draw = std::min(u(r * n + i) * upto.back(), below);
        to[i] = std::upper_bound(upto.begin(), upto.end(), draw) - upto.begin();
      }
    } else {
      // The n earliest of exponential clocks at these rates: Efraimidis & Spirakis 2006.
      using Clocks = std::vector<std::pair<double, int64_t>>;
      auto clock = host_room<Clocks>(static_cast<uint64_t>(classes));
      for (int64_t c = 0; c < classes; ++c)
        if (w[c] > 0) clock.emplace_back(-std::log(u(r * classes + c)) / w[c], c);
      std::partial_sort(clock.begin(), clock.begin() + n, clock.end());
      for (int64_t i = 0; i < n; ++i) to[i] = clock[static_cast<size_t>(i)].second;
    }
  }
  return shaped();
}

namespace {
/// rrelu's slopes as PyTorch's CPU draws them: one for each element ≤ 0, none for the others.
Tensor slopes_as_torch(const Tensor& x, double lower, double upper, Mt19937& mt) {
  visit(x.dtype(), [&](auto t) {  // the bounds as numbers of x's dtype
    using T = typename decltype(t)::type;
    lower = convert<double>(convert<T>(lower));
    upper = convert<double>(convert<T>(upper));
  });
  auto slopes = host_room<std::vector<double>>(static_cast<uint64_t>(x.numel()));
  for (const double v : x.detach().to_vector())
    slopes.push_back(v <= 0 ? mt.uniform() * (upper - lower) + lower : 1);
  return tensor(slopes, TensorOptions(kFloat64).device(kCPU)).reshape(x.sizes());
}
}  // namespace

Tensor rrelu(const Tensor& x, double lower, double upper, bool training) {
  const ErrorScope scope("rrelu", x);
  HALFTAPE_CHECK(lower <= upper, "rrelu: lower ", lower, " is above upper ", upper);
  if (!training) return leaky_relu(x, (lower + upper) / 2);
  check_floating("rrelu", x);
  const Dtype wide = compute_dtype(x.dtype());
  const TensorOptions o = TensorOptions(wide).device(x.device());
  const Tensor slope = [&] {
    if (const LockedMt19937 mt(x.device()); mt)
      return slopes_as_torch(x, lower, upper, *mt).to(wide);
    return drawn(x.sizes(), Distribution::Uniform, lower, upper, wide, o);
  }();
  return (x.to(wide) * where(x.detach() <= 0, slope, 1)).to(x.dtype());
}

Tensor gumbel_softmax(const Tensor& in, double tau, bool hard, int64_t dim) {
  const ErrorScope scope("gumbel_softmax", in);
  const auto [logits] = cast_inputs(cast_list::softmax, in);
  HALFTAPE_CHECK(tau > 0, "gumbel_softmax: tau ", tau, " must be positive");
  check_floating("gumbel_softmax", logits);
  const Dtype wide = compute_dtype(logits.dtype());
  const Tensor clock = exponential(logits.sizes(), TensorOptions(wide).device(logits.device()));
  const Tensor soft = softmax((logits.to(wide) - log(clock)) / tau, dim);
  if (!hard) return soft.to(logits.dtype());
  const Tensor best = argmax(soft.detach(), dim, true);
  const Tensor one = zeros_like(soft.detach()).scatter_(dim, best, 1);
  return (one + (soft - soft.detach())).to(logits.dtype());  // exactly 0 or 1
}

}  // namespace halftape
