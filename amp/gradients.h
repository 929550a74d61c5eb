// The gradients of one optimizer as a scaler takes them: collected, and checked before they are
// divided.
#pragma once
#include <span>
#include <vector>

#include "halftape/autograd/tape/grad_tag.h"

namespace halftape::amp {

struct Gradients {
  std::span<const Tensor> parameters;
  std::vector<Array> arrays;  // one per parameter; undefined where it has no gradient
  bool any = false, any_float16 = false;
};
Gradients collect_gradients(std::span<const Tensor> parameters);

/// Throws unless the scaler may divide every gradient by its scale: each must come from a loss
/// marked `scaled`, or have been assigned or changed by the user. float16 needs allow_fp16.
/// `call` begins the message.
void check_divisible(const Gradients& gradients, const char* call, const Ref<GradTag>& scaled,
                     bool allow_fp16);

/// The seam for tools: called with an optimizer's parameters after the check and before their
/// gradients are divided. Null unless a tool listens. May be called on any thread.
using GradientHook = void (*)(std::span<const Tensor> parameters);
void set_gradient_hook(GradientHook hook);
void call_gradient_hook(std::span<const Tensor> parameters);

}  // namespace halftape::amp
