#include "halftape/nn/modules/sequence/embedding.h"

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/nn/init.h"

namespace halftape::nn {
namespace {

using detail::print;
using detail::unless;

/// Counts padding_idx from the start and returns the weight, given or new. `cloning`: this reset()
/// is one of a clone.
template <class Options>
Tensor table(const char* name, Options& o, bool cloning) {
  const int64_t rows = o.num_embeddings(), features = o.embedding_dim();
  detail::check_positive(name, "num_embeddings", rows, "embedding_dim", features);
  HALFTAPE_CHECK(!o.sparse(), name, ": sparse gradients do not exist here; leave sparse false");
  if (auto& padding = o.padding_idx()) {
    HALFTAPE_CHECK(*padding >= -rows && *padding < rows, name, ": padding_idx ", *padding,
                   " must be within num_embeddings ", rows);
    if (*padding < 0) *padding += rows;
  }
  if (!o._weight().defined()) return empty({rows, features});
  HALFTAPE_CHECK(o._weight().sizes() == (Shape{rows, features}), name, ": weight ",
                 o._weight().sizes(), " is not of num_embeddings ", rows, " and embedding_dim ",
                 features);
  // A clone must leave the given tensor as it is, and a parameter is a leaf.
  return cloning || !o._weight().is_leaf() ? o._weight().detach() : o._weight();
}

void start(const Tensor& weight, const std::optional<int64_t>& padding_idx) {
  init::normal_(weight);
  const NoGradGuard no_grad;
  if (padding_idx) select(weight, 0, *padding_idx).zero_();
}

/// `to` with the options that all classes of options here share.
template <class To, class From>
To shared_options(To to, const From& from) {
  return to.padding_idx(from.padding_idx())
      .max_norm(from.max_norm())
      .norm_type(from.norm_type())
      .scale_grad_by_freq(from.scale_grad_by_freq())
      .sparse(from.sparse());
}

template <class Holder, class Options, class Pretrained>
Holder pretrained(const Tensor& embeddings, const Pretrained& o, Options options) {
  Holder module(shared_options(options._weight(embeddings), o));
  module->weight.set_requires_grad(!o.freeze());
  return module;
}

/// One size of `embeddings`; throws unless it has two dimensions.
int64_t size_of(const Tensor& embeddings, int64_t dim) {
  HALFTAPE_CHECK(embeddings.defined() && embeddings.dim() == 2,
                 "from_pretrained: embeddings are expected to be 2-dimensional, (num, dim)");
  return embeddings.size(dim);
}

}  // namespace

void EmbeddingImpl::reset() {
  weight = register_parameter("weight", table("Embedding", options, weight.defined()));
  if (!options._weight().defined()) reset_parameters();
}

void EmbeddingImpl::reset_parameters() { start(weight, options.padding_idx()); }

Tensor EmbeddingImpl::forward(const Tensor& indices) const {
  const PlaceScope scope(*this);
  return scope.result(functional::embedding(
      indices, weight, shared_options(functional::EmbeddingFuncOptions(), options)));
}

void EmbeddingImpl::pretty_print(std::ostream& out) const {
  const auto& o = options;
  print(out, "Embedding", "num_embeddings", o.num_embeddings(), "embedding_dim", o.embedding_dim(),
        "padding_idx", unless(std::nullopt, o.padding_idx()), "max_norm",
        unless(std::nullopt, o.max_norm()), "norm_type", unless(2, o.norm_type()),
        "scale_grad_by_freq", unless(false, o.scale_grad_by_freq()), "sparse",
        unless(false, o.sparse()));
}

Embedding Embedding::from_pretrained(const Tensor& embeddings,
                                     const EmbeddingFromPretrainedOptions& o) {
  return pretrained<Embedding>(embeddings, o,
                               EmbeddingOptions(size_of(embeddings, 0), size_of(embeddings, 1)));
}

void EmbeddingBagImpl::reset() {
  weight = register_parameter("weight", table("EmbeddingBag", options, weight.defined()));
  if (!options._weight().defined()) reset_parameters();
}

void EmbeddingBagImpl::reset_parameters() { start(weight, options.padding_idx()); }

Tensor EmbeddingBagImpl::forward(const Tensor& indices, const Tensor& offsets,
                                 const Tensor& per_sample_weights) const {
  const PlaceScope scope(*this);
  return scope.result(
      functional::embedding_bag(indices, weight,
                                shared_options(functional::EmbeddingBagFuncOptions(), options)
                                    .offsets(offsets)
                                    .mode(options.mode())
                                    .per_sample_weights(per_sample_weights)
                                    .include_last_offset(options.include_last_offset())));
}

void EmbeddingBagImpl::pretty_print(std::ostream& out) const {
  const auto& o = options;
  const BagMode mode = o.mode();
  const std::string_view word = mode == BagMode::Sum ? "kSum" : mode == BagMode::Max ? "kMax" : "";
  print(out, "EmbeddingBag", "num_embeddings", o.num_embeddings(), "embedding_dim",
        o.embedding_dim(), "max_norm", unless(std::nullopt, o.max_norm()), "norm_type",
        unless(2, o.norm_type()), "scale_grad_by_freq", unless(false, o.scale_grad_by_freq()),
        "sparse", unless(false, o.sparse()), "mode", unless("", word), "include_last_offset",
        unless(false, o.include_last_offset()), "padding_idx",
        unless(std::nullopt, o.padding_idx()));
}

EmbeddingBag EmbeddingBag::from_pretrained(const Tensor& embeddings,
                                           const EmbeddingBagFromPretrainedOptions& o) {
  return pretrained<EmbeddingBag>(
      embeddings, o,
      EmbeddingBagOptions(size_of(embeddings, 0), size_of(embeddings, 1))
          .mode(o.mode())
          .include_last_offset(o.include_last_offset()));
}

}  // namespace halftape::nn
