// Pooling as modules. Computed by autograd/ops/image/pool.h.
#pragma once
#include "halftape/nn/functional/pooling.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

template <size_t D>
class MaxPoolImpl : public CloneableModule {
 public:
  MaxPoolImpl(ExpandingArray<D> kernel_size)  // NOLINT: as LibTorch, here and below
      : MaxPoolImpl(MaxPoolOptions<D>(kernel_size)) {}
  explicit MaxPoolImpl(const MaxPoolOptions<D>& o) : options(o) {}
  Tensor forward(const Tensor& x) const { return std::get<0>(forward_with_indices(x)); }
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  MaxPoolOptions<D> options;
};

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

/// The output's lengths; std::nullopt keeps the length of the input.
template <size_t D>
using AdaptiveLengths =
    std::conditional_t<D == 1, ExpandingArray<1>, ExpandingArrayWithOptionalElem<D>>;

template <size_t D>
class AdaptiveMaxPoolImpl : public CloneableModule {
 public:
  using Options = AdaptivePoolOptions<AdaptiveLengths<D>>;
  AdaptiveMaxPoolImpl(AdaptiveLengths<D> output_size)  // NOLINT
      : AdaptiveMaxPoolImpl(Options(output_size)) {}
  explicit AdaptiveMaxPoolImpl(const Options& o) : options(o) {}
  Tensor forward(const Tensor& x) const { return std::get<0>(forward_with_indices(x)); }
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  Options options;
};

template <size_t D>
class AdaptiveAvgPoolImpl : public CloneableModule {
 public:
  using Options = AdaptivePoolOptions<AdaptiveLengths<D>>;
  AdaptiveAvgPoolImpl(AdaptiveLengths<D> output_size)  // NOLINT
      : AdaptiveAvgPoolImpl(Options(output_size)) {}
  explicit AdaptiveAvgPoolImpl(const Options& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  Options options;
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
  Tensor forward(const Tensor& x) const { return std::get<0>(forward_with_indices(x)); }
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
