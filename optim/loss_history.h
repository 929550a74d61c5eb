// The losses of the last steps, kept on the device until somebody looks.
#pragma once
#include <cstdint>
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape::optim {

/// The last `capacity` losses (or any other numbers) of a training, on the device: a step pushes
/// without waiting, and whoever wants to plot or print them reads all of them at once, later. Works
/// in a Graph, too, which pushes at every replay; there it is a kernel of one thread. Push at the
/// end of the step: between a loss and its scale(), it keeps a graph from making one kernel of the
/// two.
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
  /// Throws unless capacity > 0.
  explicit LossHistory(int64_t capacity);
  LossHistory(LossHistory&&) = default;  // a copy would share the numbers
  LossHistory& operator=(LossHistory&&) = default;

  /// One floating-point number of any dtype, of which its value is kept. The first one decides on
  /// the device. Throws for a tensor of more elements, of another kind or on another device.
  void push(const Tensor& loss);
  /// Those that are still there, in the order in which they came. Waits for the device.
  std::vector<double> to_vector() const;
  /// How many have been pushed. Waits for the device.
  int64_t count() const;
  int64_t capacity() const { return capacity_; }

 private:
  int64_t capacity_;
  Array all_;           // float64: eight bytes for the count, and the ring; undefined before push()
  Array count_, ring_;  // its parts
};

}  // namespace halftape::optim
