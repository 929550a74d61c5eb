// Transforms of examples and batches between dataset and model. Spelled as torch::data::transforms.
//
// Each worker of a loader calls its own copy of a transform, at the same time as the others.
// Numbers from the default random generator then depend on which worker is faster; for the same
// batches with any number of workers, draw from a generator seeded by the example.
#pragma once
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/core/array_ref.h"
#include "halftape/io/data/example.h"

namespace halftape::data::transforms {

/// Maps a batch to another.
template <class InputBatch, class OutputBatch>
class BatchTransform {
 public:
  using InputBatchType = InputBatch;
  using OutputBatchType = OutputBatch;
  virtual ~BatchTransform() = default;
  /// The batch that comes out.
  virtual OutputBatch apply_batch(InputBatch batch) = 0;
};

/// Maps each example of a batch.
template <class Input, class Output>
class Transform : public BatchTransform<std::vector<Input>, std::vector<Output>> {
 public:
  using InputType = Input;
  using OutputType = Output;
  /// The example that comes out.
  virtual OutputType apply(InputType input) = 0;
  std::vector<Output> apply_batch(std::vector<Input> batch) override {
    std::vector<Output> result;
    result.reserve(batch.size());
    for (auto&& input : batch) result.push_back(apply(std::move(input)));
    return result;
  }
};

/// Applies a function to a batch.
template <class Input, class Output = Input>
class BatchLambda : public BatchTransform<Input, Output> {
 public:
  using FunctionType = std::function<Output(Input)>;
  explicit BatchLambda(FunctionType function) : function_(std::move(function)) {}
  Output apply_batch(Input batch) override { return function_(std::move(batch)); }

 private:
  FunctionType function_;
};

/// Applies a function to each example.
template <class Input, class Output = Input>
class Lambda : public Transform<Input, Output> {
 public:
  using FunctionType = std::function<Output(Input)>;
  explicit Lambda(FunctionType function) : function_(std::move(function)) {}
  Output apply(Input input) override { return function_(std::move(input)); }

 private:
  FunctionType function_;
};

/// Makes one example of many.
template <class T, class Batch = std::vector<T>>
using Collation = BatchTransform<Batch, T>;
template <class T, class Batch = std::vector<T>>
using Collate = BatchLambda<Batch, T>;

namespace detail {
template <class Member, class E>
TensorList stackable(std::vector<E>& examples, Member E::*member) {
  TensorList parts;
  parts.reserve(examples.size());
  for (E& e : examples) parts.push_back(std::move(e.*member));
  return parts;
}
}  // namespace detail

/// Stacks the tensors of a batch along a new first dimension: B examples of (…) give (B, …).
/// Throws when they differ in shape. Targets that are numbers become a tensor (B,) of their type,
/// or of int64 or float64 where tensors have no such type.
template <class T = Example<>>
struct Stack;

template <>
struct Stack<Example<>> : public Collation<Example<>> {
  Example<> apply_batch(std::vector<Example<>> examples) override {
    return {stack(detail::stackable(examples, &Example<>::data)),
            stack(detail::stackable(examples, &Example<>::target))};
  }
};

template <>
struct Stack<TensorExample> : public Collation<TensorExample> {
  TensorExample apply_batch(std::vector<TensorExample> examples) override {
    return stack(detail::stackable(examples, &TensorExample::data));
  }
};

template <class Number>
requires std::is_arithmetic_v<Number>
struct Stack<Example<Tensor, Number>>
    : public BatchTransform<std::vector<Example<Tensor, Number>>, Example<>> {
  using E = Example<Tensor, Number>;
  Example<> apply_batch(std::vector<E> examples) override {
    std::vector<Number> targets;
    for (const E& e : examples) targets.push_back(e.target);
    return {stack(detail::stackable(examples, &E::data)),
            tensor(targets, halftape::detail::number_dtype<Number>())};
  }
};

/// Maps the data of an example and keeps the target.
template <class Target = Tensor>
class TensorTransform : public Transform<Example<Tensor, Target>, Example<Tensor, Target>> {
 public:
  using E = Example<Tensor, Target>;
  virtual Tensor operator()(Tensor input) = 0;
  E apply(E input) override {
    input.data = (*this)(std::move(input.data));
    return input;
  }
};

/// A TensorTransform that calls a function.
template <class Target = Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  using FunctionType = std::function<Tensor(Tensor)>;
  explicit TensorLambda(FunctionType function) : function_(std::move(function)) {}
  Tensor operator()(Tensor input) override { return function_(std::move(input)); }

 private:
  FunctionType function_;
};

/// (x − mean) / stddev, one number for all or one per channel. Input: (C, H, W) in a floating
/// dtype; (H, W) counts as one channel.
template <class Target = Tensor>
struct Normalize : public TensorTransform<Target> {
  Normalize(ArrayRef<double> means, ArrayRef<double> stddevs)
      : mean(per_channel(means)), stddev(per_channel(stddevs)) {}
  Tensor operator()(Tensor input) override {
    return input.sub(mean.to(input.device())).div(stddev.to(input.device()));
  }
  Tensor mean, stddev;  // (C, 1, 1), on the CPU

 private:
  static Tensor per_channel(ArrayRef<double> values) {
    const TensorOptions on_host = TensorOptions(kFloat32).device(kCPU);
    return halftape::tensor(values.vec(), on_host).unsqueeze(1).unsqueeze(2);
  }
};

}  // namespace halftape::data::transforms
