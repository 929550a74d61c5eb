// A step of training that a GPU repeats by itself.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "halftape/core/device.h"

namespace halftape {

/// A step of training, or other work on one device, that is captured once and replayed without the
/// host: a replay calls no op and launches no single kernel. The results are bit for bit those of
/// calling the step.
///
///     Tensor loss;
///     Graph graph(device, [&] {
///       optimizer.zero_grad();
///       loss = F::cross_entropy(model->forward(x), y);
///       loss.backward();
///       optimizer.step();
///     });
///     for (…) {
///       x.copy_(…), y.copy_(…);  // the tensors that the step reads stay the same
///       graph.replay();
///     }
///
/// On a GPU the constructor calls the step twice: first for real, after which everything that it
/// wrote on the device, and the device's random stream, is restored; then to capture it. What the
/// step does on the host (counters, schedulers, random numbers of the CPU) happens then and never
/// again. Between replays these may change: the contents of tensors, options of optimizers that
/// need no other state, random numbers. These may not: shapes, the sequence of ops, and other
/// numbers from the host (arguments of clip_grad_norm_ and dropout). Each replay writes again the
/// tensors that the step makes, such as gradients and the loss. Tensors that the step refers to
/// must outlive the graph.
///
/// A graph is of one device and replayed in one stream. The step clears its gradients itself.
///
/// Throws if the step does something that a replay could not repeat, and names it: a value that the
/// host reads (item()), a wait, a copy from or to host memory that is not pinned, gradients that
/// are added to those of the first call. Tensors that the step made are then undefined.
///
/// On the CPU replay() calls the step.
class Graph {
 public:
  Graph(Device device, std::function<void()> step);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Puts the step into the current stream, and returns before it is done.
  void replay();
  /// The number of kernels and copies of a replay; 0 on the CPU.
  int64_t size() const;

 private:
  class Captured;
  std::function<void()> step_;
  std::unique_ptr<Captured> captured_;
};

}  // namespace halftape
