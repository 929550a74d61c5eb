// Embeddings: options, functions, which take the indices first, and modules. Computed by
// autograd/ops/indexing/embedding.h.
#pragma once
#include <optional>

#include "halftape/autograd/ops/indexing/embedding.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"
#include "halftape/nn/modules/loss/loss.h"

namespace halftape::nn {

/// kSum, kMean or kMax; the first two are also Reductions of losses.
class EmbeddingBagMode {
 public:
  EmbeddingBagMode(BagMode mode) : mode_(mode) {}  // NOLINT: one is the other
  EmbeddingBagMode(Reduction mode)                 // NOLINT: the same
      : mode_(mode == kSum ? BagMode::Sum : BagMode::Mean) {
    HALFTAPE_CHECK(mode == kSum || mode == kMean,
                   "embedding_bag: mode has to be kSum, kMean or kMax");
  }
  operator BagMode() const { return mode_; }  // NOLINT

 private:
  BagMode mode_;
};

/// `sparse` gradients do not exist here: true throws. A leaf `_weight` is the module's parameter
/// itself, as in LibTorch, and requires grad from then on: two modules may share it. Of a tensor
/// that an operation made, the parameter is a detach(). clone() of the module has a weight of its
/// own.
struct EmbeddingOptions {
  EmbeddingOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  HALFTAPE_ARG(int64_t, num_embeddings);
  HALFTAPE_ARG(int64_t, embedding_dim);
  HALFTAPE_ARG(std::optional<int64_t>, padding_idx) = std::nullopt;
  HALFTAPE_ARG(std::optional<double>, max_norm) = std::nullopt;
  HALFTAPE_ARG(double, norm_type) = 2;
  HALFTAPE_ARG(bool, scale_grad_by_freq) = false;
  HALFTAPE_ARG(bool, sparse) = false;
  HALFTAPE_ARG(Tensor, _weight) = {};
};
struct EmbeddingFromPretrainedOptions {
  HALFTAPE_ARG(bool, freeze) = true;
  HALFTAPE_ARG(std::optional<int64_t>, padding_idx) = std::nullopt;
  HALFTAPE_ARG(std::optional<double>, max_norm) = std::nullopt;
  HALFTAPE_ARG(double, norm_type) = 2;
  HALFTAPE_ARG(bool, scale_grad_by_freq) = false;
  HALFTAPE_ARG(bool, sparse) = false;
};

struct EmbeddingBagOptions {
  EmbeddingBagOptions(int64_t num_embeddings, int64_t embedding_dim)
      : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {}
  HALFTAPE_ARG(int64_t, num_embeddings);
  HALFTAPE_ARG(int64_t, embedding_dim);
  HALFTAPE_ARG(std::optional<double>, max_norm) = std::nullopt;
  HALFTAPE_ARG(double, norm_type) = 2;
  HALFTAPE_ARG(bool, scale_grad_by_freq) = false;
  HALFTAPE_ARG(EmbeddingBagMode, mode) = kMean;
  HALFTAPE_ARG(bool, sparse) = false;
  HALFTAPE_ARG(Tensor, _weight) = {};
  HALFTAPE_ARG(bool, include_last_offset) = false;
  HALFTAPE_ARG(std::optional<int64_t>, padding_idx) = std::nullopt;
};
struct EmbeddingBagFromPretrainedOptions {
  HALFTAPE_ARG(bool, freeze) = true;
  HALFTAPE_ARG(std::optional<double>, max_norm) = std::nullopt;
  HALFTAPE_ARG(double, norm_type) = 2;
  HALFTAPE_ARG(bool, scale_grad_by_freq) = false;
  HALFTAPE_ARG(EmbeddingBagMode, mode) = kMean;
  HALFTAPE_ARG(bool, sparse) = false;
  HALFTAPE_ARG(bool, include_last_offset) = false;
  HALFTAPE_ARG(std::optional<int64_t>, padding_idx) = std::nullopt;
};

namespace functional {

struct EmbeddingFuncOptions {
  HALFTAPE_ARG(std::optional<int64_t>, padding_idx) = std::nullopt;
  HALFTAPE_ARG(std::optional<double>, max_norm) = std::nullopt;
  HALFTAPE_ARG(double, norm_type) = 2;
  HALFTAPE_ARG(bool, scale_grad_by_freq) = false;
  HALFTAPE_ARG(bool, sparse) = false;
};
struct EmbeddingBagFuncOptions {
  HALFTAPE_ARG(Tensor, offsets) = {};
  HALFTAPE_ARG(std::optional<double>, max_norm) = std::nullopt;
  HALFTAPE_ARG(double, norm_type) = 2;
  HALFTAPE_ARG(bool, scale_grad_by_freq) = false;
  HALFTAPE_ARG(EmbeddingBagMode, mode) = kMean;
  HALFTAPE_ARG(bool, sparse) = false;
  HALFTAPE_ARG(Tensor, per_sample_weights) = {};
  HALFTAPE_ARG(bool, include_last_offset) = false;
  HALFTAPE_ARG(std::optional<int64_t>, padding_idx) = std::nullopt;
};

namespace detail {
inline void before_lookup(const char* op, const Tensor& indices, const Tensor& weight, bool sparse,
                          const std::optional<double>& max_norm, double norm_type) {
  HALFTAPE_CHECK(!sparse, op, ": sparse gradients (sparse=1) do not exist here; leave it false");
  if (max_norm && !nn::detail::result_watcher)  // summary() changes no weight
    embedding_renorm_(weight, indices, *max_norm, norm_type);
}
}  // namespace detail

/// Rows of weight (num, C) by index: (…) → (…, C). With max_norm, the rows looked up are first
/// shortened to it in the weight itself.
inline Tensor embedding(const Tensor& indices, const Tensor& weight,
                        const EmbeddingFuncOptions& o = {}) {
  detail::before_lookup("embedding", indices, weight, o.sparse(), o.max_norm(), o.norm_type());
  return halftape::embedding(weight, indices, o.padding_idx(), o.scale_grad_by_freq());
}
/// Sums, means or maxima of bags of rows: (bags, length), or (n) with offsets → (bags, C).
inline Tensor embedding_bag(const Tensor& indices, const Tensor& weight,
                            const EmbeddingBagFuncOptions& o = {}) {
  detail::before_lookup("embedding_bag", indices, weight, o.sparse(), o.max_norm(), o.norm_type());
  return halftape::embedding_bag(weight, indices, o.offsets(), o.mode(), o.per_sample_weights(),
                                 o.include_last_offset(), o.padding_idx(), o.scale_grad_by_freq());
}

}  // namespace functional

/// A row of weight (num_embeddings, embedding_dim) for each index: (…) → (…, embedding_dim). The
/// weight starts in N(0, 1). The row padding_idx starts at 0 and gets no gradient.
class EmbeddingImpl : public Cloneable<EmbeddingImpl> {
 public:
  EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim)
      : EmbeddingImpl(EmbeddingOptions(num_embeddings, embedding_dim)) {}
  explicit EmbeddingImpl(const EmbeddingOptions& o) : options(o) { EmbeddingImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& indices) const;
  void pretty_print(std::ostream& out) const override;

  EmbeddingOptions options;
  Tensor weight;
};

class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder<EmbeddingImpl>::ModuleHolder;
  using Impl = EmbeddingImpl;
  /// With this tensor (num, dim) as its weight, which is not trained unless freeze is off.
  static Embedding from_pretrained(const Tensor& embeddings,
                                   const EmbeddingFromPretrainedOptions& options = {});
};

/// The mean, sum or maximum of the rows of each bag. indices: (bags, length), or (n) with the
/// offsets where bags begin → (bags, embedding_dim).
class EmbeddingBagImpl : public Cloneable<EmbeddingBagImpl> {
 public:
  EmbeddingBagImpl(int64_t num_embeddings, int64_t embedding_dim)
      : EmbeddingBagImpl(EmbeddingBagOptions(num_embeddings, embedding_dim)) {}
  explicit EmbeddingBagImpl(const EmbeddingBagOptions& o) : options(o) {
    EmbeddingBagImpl::reset();
  }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& indices, const Tensor& offsets = {},
                 const Tensor& per_sample_weights = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())}, {2, AnyValue(Tensor())})
  void pretty_print(std::ostream& out) const override;

  EmbeddingBagOptions options;
  Tensor weight;  // (num_embeddings, embedding_dim)
};

class EmbeddingBag : public ModuleHolder<EmbeddingBagImpl> {
 public:
  using ModuleHolder<EmbeddingBagImpl>::ModuleHolder;
  using Impl = EmbeddingBagImpl;
  /// With this tensor (num, dim) as its weight, which is not trained unless freeze is off.
  static EmbeddingBag from_pretrained(const Tensor& embeddings,
                                      const EmbeddingBagFromPretrainedOptions& options = {});
};

}  // namespace halftape::nn
