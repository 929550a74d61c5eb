// The plain meaning of a call that a device may do at once: by other calls of the contract.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape {

void unfused(Backend& on, const CrossEntropyGrad& c);
void unfused(Backend& on, const MlpLoss& m);  // mlp_loss_unfused.cpp
void unfused(Backend& on, const CheckedScale& s);
void unfused(Backend& on, const Push& p);
void unfused(Backend& on, const DropoutTask& d);
void unfused(Backend& on, const Attention& a);      // attention_unfused.cpp
void unfused(Backend& on, const AttentionGrad& d);  // attention_unfused.cpp

/// Computes `total` and `mean` of a CrossEntropy whose `loss` and `counted` are computed.
void mean_unfused(Backend& on, const CrossEntropy& c);

/// The device's own steps of an epilogue.
struct EpilogueSteps {
  /// In place on a contiguous d: relu, which writes the mask; or its gradient, 0 where the mask has
  /// no bit.
  void (*masked_relu)(const Array& d, const Array& mask, bool gradient);
  /// d ← GELU of v, aux ← v, both rounded; null: by two calls.
  void (*gelu)(const Array& d, const Array& aux, const Array& v) = nullptr;
};

/// Calls on.gemm() with a part of g, and does the rest of g's epilogue and bias_grad by other
/// calls.
void gemm_unfused(Backend& on, const Gemm& g, const EpilogueSteps& steps);

}  // namespace halftape
