// Attention of the contract, by the device's own kernels and by other calls, against plain loops.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <sstream>

#include "halftape/autograd/tensor.h"
#include "halftape/core/contract/unfused.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/placed.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

enum class Mask { None, Causal, Bool, Added };  // Added: some −∞, and of another dtype than q's
enum class Repeated { Nothing, HeadsOfKeys, Mask, Everything };
struct Case {
  int64_t B, H, L, S, E, F;
  Mask mask = Mask::None;
  double dropout = 0;
  Repeated repeated = Repeated::Nothing;  // along dimensions of stride 0
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.B << ' ' << c.H << ' ' << c.L << ' ' << c.S << ' ' << c.E << ' ' << c.F
             << ", mask " << static_cast<int>(c.mask) << ", dropout " << c.dropout << ", repeated "
             << static_cast<int>(c.repeated);
}

/// Evenly in [−2, 2), on the tested device; along these dimensions the same.
Array some(Shape shape, Dtype dtype, uint32_t seed, const Dims& repeated = {}) {
  const Shape whole = shape;
  for (const int d : repeated) shape[d] = 1;
  const Array x = numbers(shape, kFloat32, seed, false);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] /= 4;
  return there(x.to(dtype)).expand(whole);
}
Array unwritten(const Shape& shape, Dtype dtype) {
  return full(shape, kNaN, dtype, get_default_device());
}

Array mask_of(const Case& c, Dtype dtype) {
  const bool repeats = c.repeated == Repeated::Mask || c.repeated == Repeated::Everything;
  const Shape whole{c.B, c.H, c.L, c.S}, own{repeats ? 1 : c.B, repeats ? 1 : c.H, c.L, c.S};
  const Array x = numbers(own, kFloat32, 9, false), hides(own, kBool, kCPU);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t query = i / c.S % c.L;
    // Some queries see no key, and some only the last ones.
    const bool hidden = query % 7 == 3 || (query % 7 == 4 && i % c.S < c.S - 2) || i % 3 == 1;
    x.data<float>()[i] = hidden ? -std::numeric_limits<float>::infinity() : x.data<float>()[i] / 4;
    hides.data<bool>()[i] = !hidden;
  }
  const Dtype other = dtype == kFloat16 ? kFloat32 : dtype == kBFloat16 ? kFloat16 : dtype;
  const Array mask = c.mask == Mask::Bool ? hides : x.to(other);
  return there(mask).expand(whole);
}

Attention task_of(const Case& c, Dtype dtype) {
  const bool heads = c.repeated == Repeated::HeadsOfKeys, all = c.repeated == Repeated::Everything;
  const Dims of_keys = heads ? Dims{1} : all ? Dims{0, 1, 2} : Dims{};
  Attention a{.q = some({c.B, c.H, c.L, c.E}, dtype, 1, all ? Dims{0, 2} : Dims{}),
              .k = some({c.B, c.H, c.S, c.E}, dtype, 2, of_keys),
              .v = some({c.B, c.H, c.S, c.F}, dtype, 3, of_keys)};
  if (c.mask == Mask::Bool || c.mask == Mask::Added) a.mask = mask_of(c, dtype);
  a.causal = c.mask == Mask::Causal;
  a.scale = 1.25 / std::sqrt(static_cast<double>(c.E));
  a.dropout = c.dropout;
  a.key = {.seed = 77, .offset = 1234567};
  a.y = unwritten({c.B, c.H, c.L, c.F}, dtype);
  a.largest = unwritten({c.B, c.H, c.L}, compute_dtype(dtype));
  a.total = unwritten({c.B, c.H, c.L}, compute_dtype(dtype));
  return a;
}
AttentionGrad gradients_of(const Attention& a) {
  const Dtype dtype = a.q.dtype();
  return {.of = a,
          .g = some(a.y.shape(), dtype, 4),
          .dq = unwritten(a.q.shape(), dtype),
          .dk = unwritten(a.k.shape(), dtype),
          .dv = unwritten(a.v.shape(), dtype)};
}

/// What random() gives with the task's key: 1 where a weight stays.
std::vector<double> kept(const Attention& a) {
  const Array drawn({a.q.size(0), a.q.size(1), a.q.size(2), a.k.size(2)}, kFloat32,
                    get_default_device());
  tested().random(drawn, Distribution::Bernoulli, 1 - a.dropout, 0, a.key);
  return values(drawn);
}

/// A result in doubles, and for each element the sum of the absolute terms of which it is made.
struct Expected {
  std::vector<double> value, size;
  explicit Expected(const Array& a)
      : value(static_cast<size_t>(a.numel()), 0), size(value.size(), 0) {}
  void add(size_t at, double term, double weight) {
    value[at] += term, size[at] += std::abs(weight);
  }
};

/// Attention and its gradients, in loops over doubles. Weights and slopes are rounded to 16 bits:
/// that error is relative to them, or to the smallest normal number.
struct Reference {
  Expected y, largest, total, dq, dk, dv;
  const Attention& a;
  const std::vector<double> q = values(a.q), k = values(a.k), v = values(a.v), g;
  const std::vector<double> mask = a.mask.defined() ? values(a.mask) : std::vector<double>(),
                            keeps = kept(a);
  const size_t L = size(a.q), S = size(a.k), E = width(a.q), F = width(a.v);
  const double least = a.q.dtype() == kFloat16 ? 0x1p-14 : 0;

  explicit Reference(const AttentionGrad& d)
      : y(d.of.y),
        largest(d.of.largest),
        total(d.of.total),
        dq(d.dq),
        dk(d.dk),
        dv(d.dv),
        a(d.of),
        g(values(d.g)) {
    const auto heads = static_cast<size_t>(a.q.size(0) * a.q.size(1));
    for (size_t head = 0; head < heads; ++head)
      for (size_t i = 0; i < L; ++i) row(head, i);
  }

 private:
  static size_t size(const Array& x) { return static_cast<size_t>(x.size(2)); }
  static size_t width(const Array& x) { return static_cast<size_t>(x.size(3)); }
  double rounding(double x) const { return std::max(std::abs(x), least); }

  double score(size_t head, size_t i, size_t j) const {
    double s = 0;
    for (size_t e = 0; e < E; ++e) s += q[(head * L + i) * E + e] * k[(head * S + j) * E + e];
    s *= a.scale;
    if (a.causal) return j > i ? -kInf : s;
    if (mask.empty()) return s;
    const double m = mask[(head * L + i) * S + j];
    return a.mask.dtype() != kBool ? s + m : m == 1 ? s : -kInf;
  }

  void row(size_t head, size_t i) {
    const size_t at = head * L + i;
    std::vector<double> w(S);
    double& most = largest.value[at] = -kInf;
    for (size_t j = 0; j < S; ++j) most = std::max(most, w[j] = score(head, i, j));
    if (most == -kInf) most = 0;
    for (double& x : w) total.value[at] += x = std::exp(x - most);
    if (total.value[at] == 0) total.value[at] = 1;
    largest.size[at] = std::max(1.0, std::abs(most)), total.size[at] = total.value[at];
    for (double& x : w) x /= total.value[at];
    const auto drop = [&](size_t j) { return keeps[at * S + j] / (1 - a.dropout); };
    for (size_t f = 0; f < F; ++f)
      for (size_t j = 0; j < S; ++j) {
        const double x = v[(head * S + j) * F + f], kept_weight = w[j] * drop(j);
        y.add(at * F + f, kept_weight * x, rounding(kept_weight) * x);
      }
    gradients(head, i, w, drop);
  }

  template <class Drop>
  void gradients(size_t head, size_t i, const std::vector<double>& w, const Drop& drop) {
    const size_t at = head * L + i;
    double delta = 0, delta_size = 0;
    for (size_t f = 0; f < F; ++f) {
      delta += g[at * F + f] * y.value[at * F + f];
      delta_size += std::abs(g[at * F + f]) * rounding(y.value[at * F + f]);
    }
    for (size_t j = 0; j < S; ++j) {
      double slope = 0;
      for (size_t f = 0; f < F; ++f) {
        const double x = g[at * F + f], kept_weight = w[j] * drop(j);
        slope += x * v[(head * S + j) * F + f];
        dv.add((head * S + j) * F + f, kept_weight * x, rounding(kept_weight) * x);
      }
      const double ds = w[j] * (slope * drop(j) - delta),
                   ds_size = rounding(w[j] * (std::abs(slope * drop(j)) + delta_size));
      for (size_t e = 0; e < E; ++e) {
        const double of_q = a.scale * q[at * E + e], of_k = a.scale * k[(head * S + j) * E + e];
        dq.add(at * E + e, ds * of_k, ds_size * of_k);
        dk.add((head * S + j) * E + e, ds * of_q, ds_size * of_q);
      }
    }
  }
};

/// Empty if each element is right within `allowed` times epsilon of its terms' sizes.
std::string wrong(const char* name, const Array& got, const Expected& expected, double allowed) {
  const std::vector<double> x = values(got);
  const double eps = epsilon(got.dtype());
  for (size_t i = 0; i < x.size(); ++i) {
    const double right = expected.value[i];
    if (std::abs(x[i] - right) <=
        allowed * eps * (expected.size[i] + std::abs(right)) + ulp(0, got.dtype()))
      continue;
    std::ostringstream out;
    out << name << ' ' << i << " is " << x[i] << ", expected " << right << ", off by "
        << std::abs(x[i] - right) / eps / (expected.size[i] + std::abs(right)) << " epsilon";
    return out.str();
  }
  return "";
}

void check_values(const Case& c, Dtype dtype, bool fused) {
  CAPTURE(c);
  CAPTURE(dtype);
  CAPTURE(fused);
  const AttentionGrad d = gradients_of(task_of(c, dtype));
  if (fused) {
    tested().run(d.of);
    tested().run(d);
  } else {
    unfused(tested(), d.of);
    unfused(tested(), d);
  }
  const Reference right(d);
  // Of 16 bits a weight, a slope and the result are rounded, by half an epsilon each. In the others
  // the scores, of up to some tens, and their exponentials count.
  const double allowed = is_16bit(dtype) ? 0.6 : 40;
  CHECK(wrong("y", d.of.y, right.y, allowed) == "");
  CHECK(wrong("largest", d.of.largest, right.largest, 40) == "");
  CHECK(wrong("total", d.of.total, right.total, 40) == "");
  CHECK(wrong("dq", d.dq, right.dq, allowed) == "");
  CHECK(wrong("dk", d.dk, right.dk, allowed) == "");
  CHECK(wrong("dv", d.dv, right.dv, allowed) == "");
}

}  // namespace

TEST_CASE("attention and its gradients are the formula's") {
  const std::vector<Case> cases = {
      {1, 1, 1, 1, 1, 1},
      {1, 1, 1, 1, 1, 1, Mask::Causal},
      {1, 2, 3, 5, 8, 4},
      {2, 1, 5, 3, 7, 9, Mask::Added},
      {1, 1, 64, 64, 16, 16, Mask::Causal},
      {2, 2, 17, 33, 24, 40, Mask::Bool, 0.3},
      {1, 1, 65, 31, 64, 64, Mask::Causal, 0.5},
      {1, 1, 31, 129, 64, 32, Mask::Causal},
      {1, 1, 63, 65, 33, 64},
      {1, 1, 66, 130, 20, 5, Mask::Added, 0.1},
      {1, 1, 130, 66, 5, 20, Mask::Bool},
      {1, 1, 70, 70, 80, 128, Mask::Causal, 0.2},
      {1, 1, 33, 97, 128, 72, Mask::Bool},
      {1, 1, 97, 34, 128, 128, Mask::Added},
      {1, 3, 9, 40, 32, 32, Mask::None, 0.9},
      {2, 3, 10, 21, 16, 16, Mask::None, 0, Repeated::HeadsOfKeys},
      {2, 3, 10, 21, 16, 16, Mask::Bool, 0, Repeated::Mask},
      {2, 2, 20, 37, 12, 24, Mask::Added, 0.25, Repeated::Everything},
      {1, 1, 200, 199, 40, 3, Mask::Causal},
      {1, 1, 1, 200, 64, 64, Mask::None, 0.5},
      {1, 1, 200, 1, 64, 64, Mask::Bool},
      {1, 1, 3, 200, 1, 128, Mask::Causal, 0.5},
      {1, 1, 5, 4096, 16, 16, Mask::Bool, 0.1},
      {1, 1, 4096, 5, 16, 16, Mask::Causal},
  };
  for (const Case& c : cases)
    for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      if (c.E * c.F > 4096 && !is_16bit(dtype)) continue;
      check_values(c, dtype, true);
      check_values(c, dtype, false);
    }
}

TEST_CASE("attention and its gradients give the same bits in every layout") {
  const std::vector<Case> cases = {{2, 2, 5, 7, 8, 16, Mask::Bool, 0.25},
                                   {2, 1, 17, 3, 9, 4, Mask::Added},
                                   {1, 2, 3, 66, 16, 72, Mask::None, 0.5},
                                   {1, 2, 18, 18, 7, 8, Mask::Causal}};
  for (const Case& c : cases)
    // A GPU multiplies float32 and float64 by a library.
    for (const Dtype dtype : floats) {
      if (!is_16bit(dtype) && !get_default_device().is_cpu()) continue;
      const Attention a = task_of(c, dtype);
      const auto on_cpu = [](const Array& x) { return x.to(kCPU).clone(); };
      Arrays in = {on_cpu(a.q), on_cpu(a.k), on_cpu(a.v), on_cpu(some(a.y.shape(), dtype, 4))};
      if (a.mask.defined()) in.push_back(on_cpu(a.mask));
      check(
          {"attention",
           {on_cpu(a.y), on_cpu(a.q), on_cpu(a.k), on_cpu(a.v), on_cpu(a.largest), on_cpu(a.total)},
           in,
           [&](const Arrays& y, const Arrays& x) {
             AttentionGrad d{.of = a, .g = x[3], .dq = y[1], .dk = y[2], .dv = y[3]};
             Attention& of = d.of;
             of.q = x[0], of.k = x[1], of.v = x[2], of.y = y[0];
             if (a.mask.defined()) of.mask = x[4];
             tested().run(of);
             tested().run(d);
             tested().copy(y[4], of.largest);
             tested().copy(y[5], of.total);
           }});
    }
}

TEST_CASE("attention drops the weights that random() says") {
  // With q of 0 all weights are 1 / S, and v has a one for each key.
  for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32})
    for (const double dropout : {0.0, 0.1, 0.5, 1 - 0x1p-23}) {
      const Case c{2, 2, 19, 67, 4, 67, Mask::None, dropout};
      CAPTURE(dtype);
      CAPTURE(dropout);
      Attention a = task_of(c, dtype);
      tested().fill(a.q, 0);
      const Array ones = full({67}, 1, dtype, get_default_device());
      a.v = full({67, 67}, 0, dtype, get_default_device());
      tested().copy(a.v.as_strided({67}, {68}, 0), ones);
      a.v = a.v.expand({2, 2, 67, 67});
      tested().run(a);
      const std::vector<double> keeps = kept(a), y = values(a.y);
      size_t differ = 0;
      for (size_t i = 0; i < y.size(); ++i) differ += (y[i] != 0) != (keeps[i] != 0);
      CHECK(differ == 0);
      CHECK(std::all_of(y.begin(), y.end(), [&](double w) {
        const double right = 1 / 67.0 / (1 - dropout);
        return w == 0 || std::abs(w - right) <= 1.5 * epsilon(dtype) * right || std::isinf(w);
      }));
    }
}

TEST_CASE("attention drops a weight whose random number is the probability of staying") {
  Attention a = task_of({1, 1, 2, 8, 4, 8}, kFloat16);
  tested().fill(a.q, 0);
  tested().fill(a.v, 0);
  for (int64_t j = 0; j < 8; ++j) tested().fill(a.v.slice(2, j, j + 1).slice(3, j, j + 1), 1);
  const Array u({2, 8}, kFloat32, get_default_device());
  tested().random(u, Distribution::Uniform, 0, 1, a.key);
  for (size_t i = 0; i < 16; ++i) {
    CAPTURE(i);
    a.dropout = 1 - values(u)[i];
    tested().run(a);
    CHECK(values(a.y)[i] == 0);
    a.dropout = 1 - (values(u)[i] + 0x1p-24);
    tested().run(a);
    CHECK(values(a.y)[i] != 0);
  }
}

TEST_CASE("attention reads and writes nothing beside rows that lie in wider ones") {
  for (const Dtype dtype : {kFloat16, kBFloat16}) {
    const AttentionGrad d = gradients_of(task_of({2, 1, 5, 7, 12, 20}, dtype));
    Arrays all;
    const auto in_wider = [&](const Array& x) {
      Shape wide = x.shape();
      wide[3] = 32;
      all.push_back(full(wide, kNaN, dtype, get_default_device()));
      const Array y = all.back().slice(3, 0, x.size(3));
      tested().copy(y, x);
      return y;
    };
    AttentionGrad wider = d;
    for (Array* x : {&wider.of.q, &wider.of.k, &wider.of.v, &wider.of.y, &wider.g, &wider.dq,
                     &wider.dk, &wider.dv})
      *x = in_wider(*x);
    tested().run(d.of);
    tested().run(d);
    tested().run(wider.of);
    tested().run(wider);
    CHECK(same_bits(Tensor(wider.of.y), Tensor(d.of.y)));
    CHECK(same_bits(Tensor(wider.dq), Tensor(d.dq)));
    CHECK(same_bits(Tensor(wider.dk), Tensor(d.dk)));
    CHECK(same_bits(Tensor(wider.dv), Tensor(d.dv)));
    const Array used[] = {wider.of.q, wider.of.k, wider.of.v, wider.of.y,
                          wider.g,    wider.dq,   wider.dk,   wider.dv};
    for (size_t i = 0; i < all.size(); ++i) {
      CAPTURE(i);
      const std::vector<double> beside = values(all[i].slice(3, used[i].size(3), 32));
      CHECK(std::all_of(beside.begin(), beside.end(), [](double x) { return std::isnan(x); }));
    }
  }
}

TEST_CASE("attention of scores beyond float16 takes the largest") {
  for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32}) {
    const Attention a = task_of({1, 1, 6, 70, 3, 2}, dtype);
    const AttentionGrad d = gradients_of(a);
    tested().fill(a.q, 512);
    tested().fill(a.k, 0);
    for (int64_t j = 0; j < 70; ++j)  // the scores are exact
      tested().fill(a.k.slice(2, j, j + 1).slice(3, 0, 1), 512 * static_cast<double>(j % 64));
    AttentionGrad scaled = d;
    scaled.of.scale = 1;
    tested().run(scaled.of);
    tested().run(scaled);
    const std::vector<double> y = values(a.y), v = values(a.v), g = values(d.g), dv = values(d.dv);
    for (size_t i = 0; i < 6; ++i) {
      CHECK(y[2 * i] == v[2 * 63]);
      CHECK(values(a.largest)[i] == 512.0 * 512 * 63);
      CHECK(values(a.total)[i] == 1);
    }
    for (size_t j = 0; j < 70; ++j)
      if (j != 63) CHECK(dv[2 * j] == 0);
    CHECK(dv[2 * 63] ==
          doctest::Approx(g[0] + g[2] + g[4] + g[6] + g[8] + g[10]).epsilon(4 * epsilon(dtype)));
    // 0; on a GPU but for the roundings of two sums that are subtracted, times the largest k.
    const double most = get_default_device().is_cpu() ? 0 : 4 * epsilon(kFloat32) * 512 * 63;
    for (const double x : values(d.dq)) CHECK(std::abs(x) <= most);
  }
}

TEST_CASE("NaN and infinite scores come out of attention as out of other calls") {
  // Keys that a causal mask hides enter the plain products with weights of 0, and 0·NaN is NaN; a
  // kernel that skips them has numbers there.
  const auto same = [](const Array& fused, const Array& plain, bool skips = false) {
    const std::vector<double> x = values(fused), y = values(plain);
    for (size_t i = 0; i < x.size(); ++i) {
      if (skips && std::isnan(y[i])) continue;
      CHECK(std::isnan(x[i]) == std::isnan(y[i]));
      if (!std::isnan(x[i]) && x[i] != y[i])
        CHECK(x[i] == doctest::Approx(y[i]).epsilon(0.02).scale(1));
    }
  };
  for (const Dtype dtype : {kFloat16, kBFloat16})
    for (const double bad : {kNaN, kInf, -kInf})
      for (const int64_t key : {0, 40, 69, -1})  // −1: all of them
        for (const Mask mask : {Mask::None, Mask::Causal, Mask::Bool}) {
          if (key == 69 && mask == Mask::Causal) continue;  // no query sees it
          CAPTURE(dtype);
          CAPTURE(bad);
          CAPTURE(key);
          CAPTURE(static_cast<int>(mask));
          const AttentionGrad d = gradients_of(task_of({1, 1, 66, 70, 3, 2, mask}, dtype));
          const Array column = d.of.k.slice(3, 0, 1);
          tested().fill(key < 0 ? column : column.slice(2, key, key + 1), bad);
          for (int64_t i = 0; i < 66; ++i)  // bad·1, bad·−1, and bad·0 = NaN
            tested().fill(d.of.q.slice(2, i, i + 1).slice(3, 0, 1), static_cast<double>(i % 3 - 1));
          AttentionGrad plain = gradients_of(d.of);
          plain.of.y = unwritten(d.of.y.shape(), dtype);
          plain.of.largest = unwritten(d.of.largest.shape(), kFloat32);
          plain.of.total = unwritten(d.of.total.shape(), kFloat32);
          tested().run(d.of);
          tested().run(d);
          unfused(tested(), plain.of);
          unfused(tested(), plain);
          same(d.of.y, plain.of.y);
          same(d.of.largest, plain.of.largest);
          same(d.of.total, plain.of.total);
          const bool skips = mask == Mask::Causal;
          same(d.dq, plain.dq, skips);
          same(d.dk, plain.dk, skips);
          same(d.dv, plain.dv, skips);
          const std::vector<double> y = values(d.of.y), dq = values(d.dq);
          for (size_t i = 0; i < 66; ++i)
            if (std::isnan(y[2 * i])) CHECK(std::isnan(dq[3 * i]));
        }
}
