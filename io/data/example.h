// One element of a dataset: data with a target, or alone. Spelled as LibTorch's.
#pragma once
#include <utility>

#include "halftape/autograd/tensor.h"

namespace halftape::data {

namespace example {
using NoTarget = void;
}  // namespace example

/// An element of a dataset, or a batch of them once they are collated.
template <class Data = Tensor, class Target = Tensor>
struct Example {
  using DataType = Data;
  using TargetType = Target;
  Example() = default;
  Example(Data d, Target t) : data(std::move(d)), target(std::move(t)) {}
  Data data;      // the input
  Target target;  // what the network is to answer
};

/// Without a target, an example is its data.
template <class Data>
struct Example<Data, example::NoTarget> {
  using DataType = Data;
  using TargetType = example::NoTarget;
  Example() = default;
  Example(Data d) : data(std::move(d)) {}  // NOLINT: implicit, as the way back
  operator Data&() { return data; }
  operator const Data&() const { return data; }
  Data data;
};

using TensorExample = Example<Tensor, example::NoTarget>;

}  // namespace halftape::data
