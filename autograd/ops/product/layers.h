// What linear(), mlp() and mlp_loss() share.
#pragma once
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/autograd/tape/error_scope.h"

namespace halftape::detail {

/// The op of an activation; none for None.
inline std::optional<OpId> op_of(Activation a) {
  switch (a) {
    case Activation::None:
      break;
    case Activation::Relu:
      return UnaryOps::index<formula::Relu>();
    case Activation::Gelu:
      return UnaryOps::index<formula::GeluTanh>();
    case Activation::Silu:
      return UnaryOps::index<formula::Silu>();
    case Activation::Tanh:
      return UnaryOps::index<formula::Tanh>();
    case Activation::Sigmoid:
      return UnaryOps::index<formula::Sigmoid>();
  }
  return {};
}

/// Where weight and bias of a layer stand among the inputs of an op of x and all layers.
inline size_t weight_input(size_t layer) { return 1 + 2 * layer; }
inline size_t bias_input(size_t layer) { return 2 + 2 * layer; }

inline void check_layers(const char* op, const TensorList& weights, const TensorList& biases) {
  HALFTAPE_CHECK(!weights.empty(), op, ": no weights");
  HALFTAPE_CHECK(biases.empty() || biases.size() == weights.size(), op, ": ", biases.size(),
                 " biases for ", weights.size(),
                 " weights; leave undefined those that there are not");
  check_defined(op, weights);
}

}  // namespace halftape::detail
