// Attention, and its gradients.
#pragma once
#include "halftape/core/array.h"
#include "halftape/core/random/random.h"

namespace halftape {

/// y = w·v with the weights w = softmax(scale·q·kᵀ + mask), along the keys, some of them dropped.
/// Scores, softmax and sums are float (double); weights and the gradients of scores are rounded to
/// q's dtype for the products that they enter. q, k, v and y have one floating dtype and any
/// strides. No size is 0.
struct Attention {
  Array q;              // (B, H, L, E)
  Array k;              // (B, H, S, E)
  Array v;              // (B, H, S, F)
  Array mask = {};      // (B, H, L, S): bool, true where a key takes part; or floating, added
  bool causal = false;  // query i sees the keys 0 … i; there is no mask
  double scale = 1;
  // A weight is 0 where random() with `key` gives 0 for a contiguous (B, H, L, S) of Bernoulli
  // numbers with probability 1 − dropout, and otherwise divided by 1 − dropout.
  double dropout = 0;  // in [0, 1)
  RandomKey key = {};
  Array live = {};  // what key.live leads to, if anything
  // Results.
  Array y = {};  // (B, H, L, F)
  // (B, H, L), contiguous, float32 (float64 of float64): the largest of a query's scores, and
  // Σ e^(score − largest). If a mask leaves a query no key, they are 0 and 1, and its y is 0.
  Array largest = {}, total = {};
};

/// The gradients of Σ g·y. Undefined ones are not computed.
struct AttentionGrad {
  Attention of;  // with its results
  Array g;       // (B, H, L, F)
  Array dq = {}, dk = {}, dv = {};
};

}  // namespace halftape
