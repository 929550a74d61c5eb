// Options of embeddings, for functions (nn/functional/embedding.h) and modules
// (nn/modules/sequence/embedding.h).
#pragma once
#include <optional>

#include "halftape/autograd/ops/indexing/embedding.h"
#include "halftape/core/options.h"
#include "halftape/nn/options/loss.h"

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

/// `sparse` gradients do not exist here: true throws.
class EmbeddingOptions {
 public:
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
class EmbeddingFromPretrainedOptions {
 public:
  HALFTAPE_ARG(bool, freeze) = true;
  HALFTAPE_ARG(std::optional<int64_t>, padding_idx) = std::nullopt;
  HALFTAPE_ARG(std::optional<double>, max_norm) = std::nullopt;
  HALFTAPE_ARG(double, norm_type) = 2;
  HALFTAPE_ARG(bool, scale_grad_by_freq) = false;
  HALFTAPE_ARG(bool, sparse) = false;
};

class EmbeddingBagOptions {
 public:
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
class EmbeddingBagFromPretrainedOptions {
 public:
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

class EmbeddingFuncOptions {
 public:
  HALFTAPE_ARG(std::optional<int64_t>, padding_idx) = std::nullopt;
  HALFTAPE_ARG(std::optional<double>, max_norm) = std::nullopt;
  HALFTAPE_ARG(double, norm_type) = 2;
  HALFTAPE_ARG(bool, scale_grad_by_freq) = false;
  HALFTAPE_ARG(bool, sparse) = false;
};
class EmbeddingBagFuncOptions {
 public:
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

}  // namespace functional

}  // namespace halftape::nn
