// Losses with their gradients, and a product that is checked for what is not finite.
#pragma once
#include <optional>
#include <vector>

#include "halftape/core/array.h"
#include "halftape/core/formula/ops.h"

namespace halftape {

/// Cross-entropy of rows of logits x with class numbers, and its gradient, in one pass: with
/// q = weight·((1 − smoothing)·[class is target] + smoothing/C), the loss of a row is
/// −Σ q·log softmax(x). Targets are checked like indices, except that a row whose target is
/// `ignored` has loss 0. All arrays but x are contiguous, and all but x and the target are float32
/// (float64 if x is). x has any floating dtype.
struct CrossEntropy {
  Array x;            // (…, C), C > 0
  Array target;       // (…) int64
  Array weight = {};  // (C); undefined: 1
  int64_t ignored = -100;
  double smoothing = 0;
  // Results. Undefined ones are not computed.
  Array loss;          // (…), always defined
  Array counted = {};  // (…): the weight of the target, 0 for an ignored row
  Array grad = {};     // (…, C): of the row's loss with respect to the row
  // One element each. Both or neither are defined, and counted with them.
  Array total = {};  // Σ counted
  Array mean = {};   // Σ loss / total
};

/// dx = slopes·(g / total): the gradient of a CrossEntropy's mean. slopes is its grad; g and total
/// have one element. dx has any floating dtype.
struct CrossEntropyGrad {
  Array dx, slopes, g, total;
};

/// The mean loss of an MLP and its gradients, forward and backward in one call. A layer is
/// h ← activation(h·wᵀ + b); the last layer has no activation. The loss is the mean of
/// (output − target)² over all outputs, or the mean cross-entropy over the rows, whose classes are
/// checked like indices.
///
/// All products are of one dtype. x, weights and biases are rounded to it when they are read.
/// Outputs of hidden layers and gradients of layers' outputs are rounded to it when they are made:
/// the activation and its derivative see the sums before that. The last outputs are not rounded.
struct MlpLoss {
  Array x;                               // (rows, in), rows > 0, of any floating dtype
  std::optional<Dtype> multiplied = {};  // the dtype of the products; none: x's
  Array target;                          // (rows, out) floating, or (rows) int64: classes
  std::vector<Array> weights;            // (width, in), …, (out, width), of any floating dtypes
  std::vector<Array> biases = {};        // one for each weight, each may be undefined; or empty
  std::optional<OpId> activation = {};   // of UnaryOps, without parameters; none: identity
  // Results. Undefined ones are not computed. Gradients are those of g·loss.
  Array loss = {};                                 // (), float32 (float64 if dtype() is)
  Array g = {};                                    // of loss's shape and dtype; undefined: 1
  Array dx = {};                                   // of x's shape, of any floating dtype
  std::vector<Array> dweights = {}, dbiases = {};  // empty or one each, of any floating dtypes

  Dtype dtype() const { return multiplied.value_or(x.dtype()); }
};

/// Whether a backend may compute the whole loss at once: 16 bits, with few and narrow layers. For
/// others the calls are better made one by one, so that backward finds what forward has computed.
bool is_small(const MlpLoss& m);
inline constexpr int64_t kSmallWidth = 128;
inline constexpr size_t kFewLayers = 8;

/// y = x·scale, and nonfinite ← 1 if an element of x is infinite or NaN. All arrays but x and y
/// have one element.
struct CheckedScale {
  Array x = {};         // of any floating dtype and shape
  Array y = {};         // of x's shape
  Array scale;          // float32
  Array nonfinite;      // float32; keeps its value if x is finite
  bool begins = false;  // nonfinite counts as 0 before, whatever it holds
  // What a GradientCheck of the gradients of y starts from: all four are defined, or none.
  Array factor = {}, inverse = {};   // float32 ← scale, 1 / scale
  Array found_inf = {}, first = {};  // float32 ← nonfinite, int64 ← −1
};

}  // namespace halftape
