// A whole step as one thing that a GPU does by itself.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "halftape/core/device.h"

namespace halftape {

/// A step of training (or any other work on one device), captured once and replayed without the
/// host: no op is called, no kernel launched one by one. Results are those of calling the step, bit
/// for bit.
///
///     Tensor loss;
///     Graph graph(device, [&] {
///       optimizer.zero_grad();
///       {
///         amp::autocast region(device.type());
///         loss = F::cross_entropy(model->forward(x), y);
///       }
///       scaler.scale(loss).backward();
///       scaler.step(optimizer);
///       scaler.update();
///     });
///     for (…) {
///       x.copy_(…), y.copy_(…);  // the tensors that the step reads stay the same
///       graph.replay();
///     }
///
/// The constructor calls the step twice on a GPU: once for real, whereupon everything that it wrote
/// on the device, and the device's random stream, is put back as it was; and once to capture it.
/// What the step does besides, on the host (counters, schedulers, random numbers of the CPU), is
/// done then and never again. From one replay to the next may change: the contents of tensors, the
/// options of optimizers as far as they need no other state, random numbers. Shapes, which ops are
/// called, and other numbers that the host hands over (of clip_grad_norm_, dropout, a GradScaler's
/// law) may not. Tensors that the step makes, gradients and the loss among them, are written again
/// by each replay; those that the step refers to must outlive the graph.
///
/// A graph is of one device and replayed in one stream. The step clears its gradients itself, and a
/// GradScaler's scale(), step() and update() are all in it or none.
///
/// Throws where the step does what a replay could not repeat, naming it: a value that the host
/// reads (item()), a wait, a copy from or to memory of the host that is not pinned, checkpoint(),
/// gradients that go on from what the trial left. What the step made is then undefined.
///
/// On the CPU replay() calls the step.
class Graph {
 public:
  Graph(Device device, std::function<void()> step);
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// The step, in the current stream. Returns before it is done.
  void replay();
  /// Kernels and copies of a replay; 0 on the CPU.
  int64_t size() const;

 private:
  class Captured;
  std::function<void()> step_;
  std::unique_ptr<Captured> captured_;
};

}  // namespace halftape
