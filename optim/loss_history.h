// The losses of the last steps, kept on the device until they are read.
#pragma once
#include <cstdint>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape::optim {

/// The last `capacity` losses (or other numbers) of a training, on the device: push() does not
/// wait, and to_vector() reads all of them at once. In a Graph, every replay pushes, by a kernel of
/// one thread. Push at the end of the step: between a loss and its scale(), push() prevents the
/// graph from fusing the two into one kernel.
///
///     optim::LossHistory losses(1000);
///     Graph graph(kCUDA, [&] {
///       …
///       scaler.update();
///       losses.push(loss);
///     });
///     for (int i = 0; i < 1000; ++i) graph.replay();
///     plot(losses.to_vector());
class LossHistory {
 public:
  /// Throws unless capacity is in [1, 2^53).
  explicit LossHistory(int64_t capacity);
  LossHistory(LossHistory&&) = default;  // a copy would share the numbers
  LossHistory& operator=(LossHistory&&) = default;

  /// Stores the value of a one-element floating-point tensor. The first one chooses the device.
  /// Throws for more elements, another kind of dtype, or another device.
  void push(const Tensor& loss);
  /// The stored losses, oldest first. Waits for the device.
  std::vector<double> to_vector() const;
  /// The number of losses pushed so far. Waits for the device.
  int64_t count() const;
  int64_t capacity() const { return capacity_; }

 private:
  int64_t capacity_;
  Array all_;           // float64 (1 + capacity): the count's bytes, then the ring; see push()
  Array count_, ring_;  // views of all_
};

}  // namespace halftape::optim
