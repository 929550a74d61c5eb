// Pooling: options, functions and modules. x is (N, C, lengths…) or without N; others throw. The
// stride is the kernel's size unless given. Computed by autograd/ops/image/pool.h.
#pragma once
#include <optional>
#include <vector>

#include "halftape/autograd/ops/creation/random.h"
#include "halftape/autograd/ops/image/pool.h"
#include "halftape/autograd/tensor.h"
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

template <size_t D>
struct AvgPoolOptions {
  AvgPoolOptions(ExpandingArray<D> kernel_size)  // NOLINT: as LibTorch, here and below
      : kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(bool, ceil_mode) = false;
  HALFTAPE_ARG(bool, count_include_pad) = true;
  HALFTAPE_ARG(std::optional<int64_t>, divisor_override) = {};  // of two and three dimensions
};
HALFTAPE_RANKED_OPTIONS(AvgPool, AvgPoolOptions);

template <size_t D>
struct MaxPoolOptions {
  MaxPoolOptions(ExpandingArray<D> kernel_size)  // NOLINT
      : kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<D>, dilation) = 1;
  HALFTAPE_ARG(bool, ceil_mode) = false;
};
HALFTAPE_RANKED_OPTIONS(MaxPool, MaxPoolOptions);

template <size_t D>
struct MaxUnpoolOptions {
  MaxUnpoolOptions(ExpandingArray<D> kernel_size)  // NOLINT
      : kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
};
HALFTAPE_RANKED_OPTIONS(MaxUnpool, MaxUnpoolOptions);

/// The output's lengths; std::nullopt keeps the length of the input.
template <size_t D>
using AdaptiveLengths =
    std::conditional_t<D == 1, ExpandingArray<1>, ExpandingArrayWithOptionalElem<D>>;
template <size_t D>
struct AdaptivePoolOptions {
  AdaptivePoolOptions(AdaptiveLengths<D> output_size) : output_size_(output_size) {}  // NOLINT
  HALFTAPE_ARG(AdaptiveLengths<D>, output_size);
};
HALFTAPE_RANKED_OPTIONS(AdaptiveMaxPool, AdaptivePoolOptions);
HALFTAPE_RANKED_OPTIONS(AdaptiveAvgPool, AdaptivePoolOptions);

/// Either output_size or output_ratio, a part of the input's lengths between 0 and 1.
/// `_random_samples`: where the windows lie, (N, C, D) in [0, 1); drawn unless given.
template <size_t D>
struct FractionalMaxPoolOptions {
  FractionalMaxPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size) {}  // NOLINT
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(std::optional<ExpandingArray<D>>, output_size) = {};
  using ExpandingArrayDouble = ExpandingArray<D, double>;
  HALFTAPE_ARG(std::optional<ExpandingArrayDouble>, output_ratio) = {};
  HALFTAPE_ARG(Tensor, _random_samples) = {};
};
using FractionalMaxPool2dOptions = FractionalMaxPoolOptions<2>;
using FractionalMaxPool3dOptions = FractionalMaxPoolOptions<3>;

template <size_t D>
struct LPPoolOptions {
  LPPoolOptions(double norm_type, ExpandingArray<D> kernel_size)
      : norm_type_(norm_type), kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(double, norm_type);
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(bool, ceil_mode) = false;
};
HALFTAPE_RANKED_OPTIONS(LPPool, LPPoolOptions);

namespace functional {

/// `output_size`: lengths, or all sizes, where several are possible.
template <size_t D>
struct MaxUnpoolFuncOptions {
  MaxUnpoolFuncOptions(ExpandingArray<D> kernel_size)  // NOLINT
      : kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(std::optional<std::vector<int64_t>>, output_size) = {};
};

namespace detail {

/// The output lengths of adaptive pooling; those left out are the lengths of x.
template <size_t D>
Dims adaptive_lengths(const Tensor& x, const ExpandingArrayWithOptionalElem<D>& wanted) {
  Dims lengths;
  for (size_t i = 0; i < D; ++i) {
    const int64_t dim = static_cast<int64_t>(i) - static_cast<int64_t>(D);
    lengths.push_back((*wanted)[i] ? *(*wanted)[i] : x.dim() + dim >= 0 ? x.size(dim) : 1);
  }
  return lengths;
}
inline Dims adaptive_lengths(const Tensor&, const ExpandingArray<1>& wanted) { return wanted; }

/// The lengths before max pooling: output_size if given, else the usual ones of those possible.
template <size_t D>
Dims unpooled_lengths(const Tensor& x, const MaxUnpoolFuncOptions<D>& o) {
  constexpr int n = D;
  HALFTAPE_CHECK(x.dim() == n + 1 || x.dim() == n + 2, "max_unpool", n, "d: input ", x.sizes(),
                 " has ", x.dim(), " dimensions; expected ", n + 2, ", or ", n + 1,
                 " without a batch");
  nn::detail::check_positive("max_unpool", "kernel_size", o.kernel_size(), "stride", o.stride());
  Dims lengths;
  for (int i = 0; i < n; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t padded =
        checked_add(checked_mul(x.size(i - n) - 1, (*o.stride())[k]), (*o.kernel_size())[k]);
    lengths.push_back(checked_add(padded, -checked_mul(2, (*o.padding())[k])));
  }
  if (!o.output_size()) return lengths;
  const Dims given(*o.output_size());
  HALFTAPE_CHECK(given.size() == n || given.size() == x.dim(), "max_unpool", n, "d: output_size ",
                 given, "; expected ", n, " lengths, or all ", x.dim(), " sizes");
  for (int i = 0; i < n; ++i) {
    const int64_t wanted = given[given.size() - n + i],
                  stride = (*o.stride())[static_cast<size_t>(i)];
    HALFTAPE_CHECK(wanted >= lengths[i] - stride && wanted <= lengths[i] + stride, "max_unpool", n,
                   "d: output_size ", given, ": length ", wanted, " of dimension ", i,
                   " must be from ", lengths[i] - stride, " to ", lengths[i] + stride);
    lengths[i] = wanted;
  }
  return lengths;
}

/// Throws unless just one of output_size and output_ratio is given.
template <size_t D>
void check_fraction(const FractionalMaxPoolOptions<D>& o) {
  HALFTAPE_CHECK(o.output_size() || o.output_ratio(), "FractionalMaxPool", D,
                 "d requires specifying either an output_size, or a output_ratio");
  HALFTAPE_CHECK(!o.output_size() || !o.output_ratio(),
                 "only one of output_size and output_ratio may be specified");
  if (!o.output_ratio()) return;
  for (const double ratio : **o.output_ratio())
    HALFTAPE_CHECK(ratio > 0 && ratio < 1, "output_ratio must be between 0 and 1 (got ", ratio,
                   ")");
}
template <size_t D>
std::tuple<Tensor, Tensor> fractional_max_pool(const Tensor& x,
                                               const FractionalMaxPoolOptions<D>& o) {
  check_fraction(o);
  constexpr int n = D;
  HALFTAPE_CHECK(x.dim() == n + 1 || x.dim() == n + 2, "fractional_max_pool", n, "d: input ",
                 x.sizes(), " has ", x.dim(), " dimensions; expected ", n + 2, ", or ", n + 1,
                 " without a batch");
  Dims lengths;
  for (int i = 0; i < n; ++i) {
    const auto k = static_cast<size_t>(i);
    lengths.push_back(o.output_size() ? (**o.output_size())[k]
                                      : static_cast<int64_t>(static_cast<double>(x.size(i - n)) *
                                                             (**o.output_ratio())[k]));
  }
  const Tensor samples =
      o._random_samples().defined()
          ? o._random_samples()
          : rand({x.dim() == n + 2 ? x.size(0) : 1, x.size(-n - 1), n},
                 TensorOptions(x.is_floating_point() ? x.dtype() : kFloat32).device(x.device()));
  if constexpr (D == 2)
    return halftape::fractional_max_pool2d(x, o.kernel_size(), lengths, samples);
  else
    return halftape::fractional_max_pool3d(x, o.kernel_size(), lengths, samples);
}

}  // namespace detail

using FractionalMaxPool2dFuncOptions = FractionalMaxPool2dOptions;
using FractionalMaxPool3dFuncOptions = FractionalMaxPool3dOptions;
/// Max pooling of windows at random places, to output_size or output_ratio of the lengths.
/// Graham 2014, arXiv:1412.6071. Throws unless just one of the two is given.
inline std::tuple<Tensor, Tensor> fractional_max_pool2d_with_indices(
    const Tensor& x, const FractionalMaxPool2dFuncOptions& o) {
  return detail::fractional_max_pool(x, o);
}
inline std::tuple<Tensor, Tensor> fractional_max_pool3d_with_indices(
    const Tensor& x, const FractionalMaxPool3dFuncOptions& o) {
  return detail::fractional_max_pool(x, o);
}
inline Tensor fractional_max_pool2d(const Tensor& x, const FractionalMaxPool2dFuncOptions& o) {
  return std::get<0>(fractional_max_pool2d_with_indices(x, o));
}
inline Tensor fractional_max_pool3d(const Tensor& x, const FractionalMaxPool3dFuncOptions& o) {
  return std::get<0>(fractional_max_pool3d_with_indices(x, o));
}

// max_pool: the largest of each window; _with_indices gives its place in the plane, too, as
// max_unpool takes it. adaptive_…: windows for an output of given lengths. lp_pool: (Σ|x|ᵖ)^(1/p)
// of a window.
#define HALFTAPE_POOL_FUNCTIONS(D)                                                                \
  using AvgPool##D##dFuncOptions = AvgPool##D##dOptions;                                          \
  using MaxPool##D##dFuncOptions = MaxPool##D##dOptions;                                          \
  using MaxUnpool##D##dFuncOptions = MaxUnpoolFuncOptions<D>;                                     \
  using AdaptiveMaxPool##D##dFuncOptions = AdaptiveMaxPool##D##dOptions;                          \
  using AdaptiveAvgPool##D##dFuncOptions = AdaptiveAvgPool##D##dOptions;                          \
  using LPPool##D##dFuncOptions = LPPool##D##dOptions;                                            \
  inline Tensor max_pool##D##d(const Tensor& x, const MaxPool##D##dFuncOptions& o) {              \
    return halftape::max_pool##D##d(x, o.kernel_size(), o.stride(), o.padding(), o.dilation(),    \
                                    o.ceil_mode());                                               \
  }                                                                                               \
  inline std::tuple<Tensor, Tensor> max_pool##D##d_with_indices(                                  \
      const Tensor& x, const MaxPool##D##dFuncOptions& o) {                                       \
    return halftape::max_pool##D##d_with_indices(x, o.kernel_size(), o.stride(), o.padding(),     \
                                                 o.dilation(), o.ceil_mode());                    \
  }                                                                                               \
  inline Tensor max_unpool##D##d(const Tensor& x, const Tensor& indices,                          \
                                 const MaxUnpool##D##dFuncOptions& o) {                           \
    return halftape::max_unpool##D##d(x, indices, detail::unpooled_lengths<D>(x, o));             \
  }                                                                                               \
  inline std::tuple<Tensor, Tensor> adaptive_max_pool##D##d_with_indices(                         \
      const Tensor& x, const AdaptiveMaxPool##D##dFuncOptions& o) {                               \
    return halftape::adaptive_max_pool##D##d(x, detail::adaptive_lengths(x, o.output_size()));    \
  }                                                                                               \
  inline Tensor adaptive_max_pool##D##d(const Tensor& x,                                          \
                                        const AdaptiveMaxPool##D##dFuncOptions& o) {              \
    return std::get<0>(adaptive_max_pool##D##d_with_indices(x, o));                               \
  }                                                                                               \
  inline Tensor adaptive_avg_pool##D##d(const Tensor& x,                                          \
                                        const AdaptiveAvgPool##D##dFuncOptions& o) {              \
    return halftape::adaptive_avg_pool##D##d(x, detail::adaptive_lengths(x, o.output_size()));    \
  }                                                                                               \
  inline Tensor lp_pool##D##d(const Tensor& x, const LPPool##D##dFuncOptions& o) {                \
    return halftape::lp_pool##D##d(x, o.norm_type(), o.kernel_size(), o.stride(), o.ceil_mode()); \
  }
HALFTAPE_POOL_FUNCTIONS(1)
HALFTAPE_POOL_FUNCTIONS(2)
HALFTAPE_POOL_FUNCTIONS(3)
#undef HALFTAPE_POOL_FUNCTIONS

/// The mean of each window, with the padding unless count_include_pad is off.
inline Tensor avg_pool1d(const Tensor& x, const AvgPool1dFuncOptions& o) {
  return halftape::avg_pool1d(x, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(),
                              o.count_include_pad());
}
inline Tensor avg_pool2d(const Tensor& x, const AvgPool2dFuncOptions& o) {
  return halftape::avg_pool2d(x, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(),
                              o.count_include_pad(), o.divisor_override());
}
inline Tensor avg_pool3d(const Tensor& x, const AvgPool3dFuncOptions& o) {
  return halftape::avg_pool3d(x, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(),
                              o.count_include_pad(), o.divisor_override());
}

}  // namespace functional

/// The maximum of each window. x: (N, C, …) or (C, …).
template <size_t D>
class MaxPoolImpl : public CloneableModule {
 public:
  MaxPoolImpl(ExpandingArray<D> kernel_size)  // NOLINT: as LibTorch, here and below
      : MaxPoolImpl(MaxPoolOptions<D>(kernel_size)) {}
  explicit MaxPoolImpl(const MaxPoolOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x) const {
    const Module::PlaceScope scope(*this);
    return scope.result(std::get<0>(forward_with_indices(x)));
  }
  /// Also where each maximum lies: its index within the plane, int64.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  MaxPoolOptions<D> options;
};

/// The mean of each window. x: (N, C, …) or (C, …).
template <size_t D>
class AvgPoolImpl : public CloneableModule {
 public:
  AvgPoolImpl(ExpandingArray<D> kernel_size)
      : AvgPoolImpl(AvgPoolOptions<D>(kernel_size)) {}  // NOLINT
  explicit AvgPoolImpl(const AvgPoolOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  AvgPoolOptions<D> options;
};

/// `output_size`: the lengths before max pooling, where several are possible.
template <size_t D>
class MaxUnpoolImpl : public CloneableModule {
 public:
  MaxUnpoolImpl(ExpandingArray<D> kernel_size)  // NOLINT
      : MaxUnpoolImpl(MaxUnpoolOptions<D>(kernel_size)) {}
  explicit MaxUnpoolImpl(const MaxUnpoolOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x, const Tensor& indices,
                 const std::optional<std::vector<int64_t>>& output_size = {}) const;
  void pretty_print(std::ostream& out) const override;
  FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(std::optional<std::vector<int64_t>>())})
  MaxUnpoolOptions<D> options;
};

/// (Σ xᵖ)^(1/p) of each window, with p = norm_type. x: (N, C, …) or (C, …).
template <size_t D>
class LPPoolImpl : public CloneableModule {
 public:
  LPPoolImpl(double norm_type, ExpandingArray<D> kernel_size)
      : LPPoolImpl(LPPoolOptions<D>(norm_type, kernel_size)) {}
  explicit LPPoolImpl(const LPPoolOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  LPPoolOptions<D> options;
};

/// Max pooling with windows that give the output this size.
template <size_t D>
class AdaptiveMaxPoolImpl : public CloneableModule {
 public:
  AdaptiveMaxPoolImpl(AdaptiveLengths<D> output_size)  // NOLINT
      : AdaptiveMaxPoolImpl(AdaptivePoolOptions<D>(output_size)) {}
  explicit AdaptiveMaxPoolImpl(const AdaptivePoolOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x) const {
    const Module::PlaceScope scope(*this);
    return scope.result(std::get<0>(forward_with_indices(x)));
  }
  /// Also where each maximum lies: its index within the plane, int64.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  AdaptivePoolOptions<D> options;
};

/// The means of windows that give the output this size.
template <size_t D>
class AdaptiveAvgPoolImpl : public CloneableModule {
 public:
  AdaptiveAvgPoolImpl(AdaptiveLengths<D> output_size)  // NOLINT
      : AdaptiveAvgPoolImpl(AdaptivePoolOptions<D>(output_size)) {}
  explicit AdaptiveAvgPoolImpl(const AdaptivePoolOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  AdaptivePoolOptions<D> options;
};

/// Max pooling of windows that begin at random places. Throws unless just one of output_size and
/// output_ratio is given.
template <size_t D>
class FractionalMaxPoolImpl : public CloneableModule {
 public:
  FractionalMaxPoolImpl(ExpandingArray<D> kernel_size)  // NOLINT
      : FractionalMaxPoolImpl(FractionalMaxPoolOptions<D>(kernel_size)) {}
  explicit FractionalMaxPoolImpl(const FractionalMaxPoolOptions<D>& o) : options(o) {
    functional::detail::check_fraction(o);
  }
  Tensor forward(const Tensor& x) const {
    const Module::PlaceScope scope(*this);
    return scope.result(std::get<0>(forward_with_indices(x)));
  }
  /// Also where each maximum lies: its index within the plane, int64.
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  FractionalMaxPoolOptions<D> options;
};

HALFTAPE_RANKED_MODULE(MaxPool);
HALFTAPE_RANKED_MODULE(AvgPool);
HALFTAPE_RANKED_MODULE(MaxUnpool);
HALFTAPE_RANKED_MODULE(LPPool);
HALFTAPE_RANKED_MODULE(AdaptiveMaxPool);
HALFTAPE_RANKED_MODULE(AdaptiveAvgPool);
HALFTAPE_RANK_MODULE(FractionalMaxPool, 2);
HALFTAPE_RANK_MODULE(FractionalMaxPool, 3);

}  // namespace halftape::nn
