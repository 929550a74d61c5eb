// backward() and grad(): one iterative walk over the tape, youngest node first.
#pragma once
#include <functional>

#include "halftape/autograd/tensor.h"

namespace halftape::autograd {

/// Accumulates the gradients of `outputs` into every leaf that requires grad; with `inputs` (leaves
/// or not), into their grad() alone. grad_outputs: one per output, in its shape; may be left out
/// (or undefined) for one-element outputs. retain_graph defaults to create_graph. Throws when an
/// output has no history, or the graph was already released or is being released by another thread.
void backward(const TensorList& outputs, const TensorList& grad_outputs = {},
              std::optional<bool> retain_graph = {}, bool create_graph = false,
              const std::optional<TensorList>& inputs = {});

/// d(outputs)/d(inputs), without touching any grad(). An input that the outputs do not depend on
/// throws, or gives an undefined tensor with allow_unused.
TensorList grad(const TensorList& outputs, const TensorList& inputs,
                const TensorList& grad_outputs = {}, std::optional<bool> retain_graph = {},
                bool create_graph = false, bool allow_unused = false);

/// For hooks: calls f when the backward() that runs in this thread has ended well, of nested ones
/// the outermost; in the order of these calls, on the thread of that backward(), which throws what
/// f throws. If the pass fails, f is destroyed. Outside of backward(), f is called at once.
void queue_callback(std::function<void()> f);

/// Tells the backward() that runs in this thread, of nested ones the outermost, from those of other
/// threads; null outside of backward().
const void* current_backward();

}  // namespace halftape::autograd
