// Convolutions and windows in plain loops over doubles, for any number of dimensions.
#pragma once
#include "halftape/core/contract/windows.h"
#include "halftape/tests/support/ops.h"

namespace halftape::testing {

/// (leading…, last…)
inline Shape shape_of(const Shape& leading, const Shape& last) {
  Shape s = leading;
  for (int64_t n : last) s.push_back(n);
  return s;
}
inline Shape last_of(const Shape& s, int n) {
  return Dims(std::span(s.end() - n, static_cast<size_t>(n)));
}
inline Shape first_of(const Shape& s, int n) {
  return Dims(std::span(s.begin(), static_cast<size_t>(n)));
}

/// f(k, position) for the positions of window l that lie inside lengths.
template <class F>
void each_in_window(const Windows& w, const Shape& lengths, const Dims& l, const F& f) {
  each_index(w.size, [&](const Dims& k) {
    Dims at;
    for (int i = 0; i < w.dims(); ++i) {
      const int64_t s = l[i] * w.stride[i] + k[i] * w.dilation[i] - w.padding[i];
      if (s < 0 || s >= lengths[i]) return;
      at.push_back(s);
    }
    f(k, at);
  });
}

/// How many windows fit; the definition, by counting.
inline Shape count_windows(const Windows& w, const Shape& lengths) {
  Shape count;
  for (int i = 0; i < w.dims(); ++i) {
    int64_t n = 0;
    while (n * w.stride[i] + (w.size[i] - 1) * w.dilation[i] < lengths[i] + 2 * w.padding[i]) ++n;
    count.push_back(n);
  }
  return count;
}

/// x (N, C, lengths…), weight (O, C/groups, size…), bias (O) or nothing → (N, O, count…).
inline std::vector<double> conv_reference(const Values& x, const Values& weight,
                                          const std::vector<double>& bias, const Windows& w,
                                          int64_t groups, const Shape& count) {
  const Shape lengths = last_of(x.shape, w.dims());
  const int64_t out = weight.shape[0] / groups, in = weight.shape[1];
  std::vector<double> y;
  each_index(shape_of({x.shape[0], weight.shape[0]}, count), [&](const Dims& at) {
    double sum = bias.empty() ? 0 : bias[static_cast<size_t>(at[1])];
    for (int64_t c = 0; c < in; ++c)
      each_in_window(w, lengths, last_of(at, w.dims()), [&](const Dims& k, const Dims& s) {
        sum += weight.v[position(weight.shape, shape_of({at[1], c}, k))] *
               x.v[position(x.shape, shape_of({at[0], at[1] / out * in + c}, s))];
      });
    y.push_back(sum);
  });
  return y;
}

/// The derivative by the weight for an incoming gradient y (N, O, count…).
inline std::vector<double> conv_weight_reference(const Values& x, const Values& y,
                                                 const Shape& weight, const Windows& w,
                                                 int64_t groups) {
  const Shape lengths = last_of(x.shape, w.dims());
  const int64_t out = weight[0] / groups, in = weight[1];
  std::vector<double> d(static_cast<size_t>(numel(weight)), 0);
  each_index(y.shape, [&](const Dims& at) {
    for (int64_t c = 0; c < in; ++c)
      each_in_window(w, lengths, last_of(at, w.dims()), [&](const Dims& k, const Dims& s) {
        d[position(weight, shape_of({at[1], c}, k))] +=
            y.v[position(y.shape, at)] *
            x.v[position(x.shape, shape_of({at[0], at[1] / out * in + c}, s))];
      });
  });
  return d;
}

/// x (N, C, count…), weight (C, O/groups, size…), bias (O) or nothing → (N, O, lengths…).
inline std::vector<double> conv_transpose_reference(const Values& x, const Values& weight,
                                                    const std::vector<double>& bias,
                                                    const Windows& w, int64_t groups,
                                                    const Shape& lengths) {
  const int64_t out = weight.shape[1], in = weight.shape[0] / groups;
  const Shape shape = shape_of({x.shape[0], out * groups}, lengths);
  std::vector<double> y;
  each_index(shape, [&](const Dims& at) {
    y.push_back(bias.empty() ? 0 : bias[static_cast<size_t>(at[1])]);
  });
  each_index(x.shape, [&](const Dims& at) {
    for (int64_t o = 0; o < out; ++o)
      each_in_window(w, lengths, last_of(at, w.dims()), [&](const Dims& k, const Dims& s) {
        y[position(shape, shape_of({at[0], at[1] / in * out + o}, s))] +=
            weight.v[position(weight.shape, shape_of({at[1], o}, k))] * x.v[position(x.shape, at)];
      });
  });
  return y;
}

/// f of the elements of each window of x (…, lengths…), `count` windows in each dimension.
template <class F>
std::vector<double> pool_reference(const Values& x, const Windows& w, const Shape& count,
                                   const F& f) {
  const int lead = x.shape.size() - w.dims();
  const Shape lengths = last_of(x.shape, w.dims());
  std::vector<double> y;
  each_index(shape_of(first_of(x.shape, lead), count), [&](const Dims& at) {
    std::vector<double> seen;
    each_in_window(w, lengths, last_of(at, w.dims()), [&](const Dims&, const Dims& s) {
      seen.push_back(x.v[position(x.shape, shape_of(first_of(at, lead), s))]);
    });
    y.push_back(f(seen));
  });
  return y;
}

}  // namespace halftape::testing
