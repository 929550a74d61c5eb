// The layers of a transformer, with the norm after each sum, as LibTorch's: options and modules.
#pragma once
#include <concepts>
#include <functional>
#include <utility>

#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/core/options.h"
#include "halftape/nn/any_module.h"
#include "halftape/nn/init.h"
#include "halftape/nn/modules/dropout.h"
#include "halftape/nn/modules/linear.h"
#include "halftape/nn/modules/norm.h"
#include "halftape/nn/modules/sequence/attention.h"

namespace halftape {
struct GELUActivation {};
/// The activation x·Φ(x) of a transformer layer.
inline constexpr GELUActivation kGELU;
}  // namespace halftape

namespace halftape::nn {

/// The activation between the two linear layers: kReLU, kGELU, or a function of a tensor.
class activation_t {
 public:
  activation_t(init::Nonlinearity word)  // NOLINT: as LibTorch, one is the other
      : call_([](const Tensor& x) { return relu(x); }) {
    HALFTAPE_CHECK(word == kReLU, "activation has to be kReLU, kGELU or a function of a tensor");
  }
  activation_t(GELUActivation)  // NOLINT: the same
      : call_([](const Tensor& x) { return gelu(x); }) {}
  template <class F>
  requires(std::is_invocable_r_v<Tensor, F, const Tensor&> &&
           !std::same_as<std::decay_t<F>, activation_t>) activation_t(F f)  // NOLINT: the same
      : call_(std::move(f)) {
    HALFTAPE_CHECK(call_,
                   "activation has to be kReLU, kGELU or a function of a tensor, got an "
                   "empty std::function or a null pointer");
  }
  Tensor operator()(const Tensor& x) const { return call_(x); }

 private:
  std::function<Tensor(const Tensor&)> call_;
};

struct TransformerEncoderLayerOptions {
  TransformerEncoderLayerOptions(int64_t d_model, int64_t nhead)
      : d_model_(d_model), nhead_(nhead) {}
  HALFTAPE_ARG(int64_t, d_model);  // features of a token
  HALFTAPE_ARG(int64_t, nhead);
  HALFTAPE_ARG(int64_t, dim_feedforward) = 2048;
  HALFTAPE_ARG(double, dropout) = 0.1;
  HALFTAPE_ARG(activation_t, activation) = kReLU;
};
using TransformerDecoderLayerOptions = TransformerEncoderLayerOptions;

/// Attention of a sequence to itself and two linear layers; the result of each is added to its
/// input and normalised. src: (S, N, d_model) → the same; src_mask (S, S) and src_key_padding_mask
/// (N, S) as in MultiheadAttention.  Vaswani et al. 2017, arXiv:1706.03762.
class TransformerEncoderLayerImpl : public Cloneable<TransformerEncoderLayerImpl> {
 public:
  TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerEncoderLayerImpl(TransformerEncoderLayerOptions(d_model, nhead)) {}
  explicit TransformerEncoderLayerImpl(const TransformerEncoderLayerOptions& o) : options(o) {
    TransformerEncoderLayerImpl::reset();
  }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& src, const Tensor& src_mask = {},
                 const Tensor& src_key_padding_mask = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(Tensor())}, {2, AnyValue(Tensor())})

  TransformerEncoderLayerOptions options;
  MultiheadAttention self_attn{nullptr};
  Linear linear1{nullptr};
  Dropout dropout{nullptr};
  Linear linear2{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};
  Dropout dropout1{nullptr}, dropout2{nullptr};
};
HALFTAPE_MODULE(TransformerEncoderLayer);

/// The same with attention to the encoder's result, memory, between the two. tgt: (T, N, d_model),
/// memory: (S, N, d_model) → as tgt.
class TransformerDecoderLayerImpl : public Cloneable<TransformerDecoderLayerImpl> {
 public:
  TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerDecoderLayerImpl(TransformerDecoderLayerOptions(d_model, nhead)) {}
  explicit TransformerDecoderLayerImpl(const TransformerDecoderLayerOptions& o) : options(o) {
    TransformerDecoderLayerImpl::reset();
  }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {}) const;
  FORWARD_HAS_DEFAULT_ARGS({2, AnyValue(Tensor())}, {3, AnyValue(Tensor())},
                           {4, AnyValue(Tensor())}, {5, AnyValue(Tensor())})

  TransformerDecoderLayerOptions options;
  MultiheadAttention self_attn{nullptr};
  Dropout dropout1{nullptr};
  LayerNorm norm1{nullptr};
  MultiheadAttention multihead_attn{nullptr};
  Dropout dropout2{nullptr};
  LayerNorm norm2{nullptr};
  Linear linear1{nullptr};
  Dropout dropout{nullptr};
  Linear linear2{nullptr};
  Dropout dropout3{nullptr};
  LayerNorm norm3{nullptr};
};
HALFTAPE_MODULE(TransformerDecoderLayer);

}  // namespace halftape::nn
