// Datasets, which give an example or a batch for an index. Spelled as torch::data::datasets.
//
//     struct Squares : datasets::Dataset<Squares> {
//       Example<> get(size_t i) override { … }
//       std::optional<size_t> size() const override { return 100; }
//     };
//     auto batches = Squares().map(transforms::Stack<>());
#pragma once
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/core/array_ref.h"
#include "halftape/core/check.h"
#include "halftape/io/data/example.h"
#include "halftape/io/formats/archive.h"

namespace halftape::data::datasets {

template <class Source, class Transform>
class MapDataset;

namespace detail {
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
}  // namespace detail

/// Gives a batch for a request: a list of indices, a number of examples, or a type of your own.
/// `Self` is the derived class. A Batch that is an optional makes the dataset stateful: it says
/// itself when it is at its end.
///
/// A DataLoader with workers copies the dataset once for each of them, and calls get_batch() of
/// different copies at the same time, so data that copies share must be safe to read from several
/// threads, as tensors are while nobody writes to them. Of a stateful dataset there is no copy: the
/// workers call it one at a time.
template <class Self, class Batch = std::vector<Example<>>, class BatchRequest = ArrayRef<size_t>>
class BatchDataset {
 public:
  using SelfType = Self;
  using BatchType = Batch;
  using BatchRequestType = BatchRequest;
  static constexpr bool is_stateful = detail::is_optional<Batch>;

  virtual ~BatchDataset() = default;

  /// The batch that a request names.
  virtual Batch get_batch(BatchRequest request) = 0;
  /// The number of examples, if it is known.
  virtual std::optional<size_t> size() const = 0;

  /// This dataset with `transform` applied to its batches.
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) & {
    return {static_cast<Self&>(*this), std::move(transform)};
  }
  template <class Transform>
  MapDataset<Self, Transform> map(Transform transform) && {
    return {std::move(static_cast<Self&>(*this)), std::move(transform)};
  }
};

/// Gives one example for an index; a batch is a vector of them.
template <class Self, class SingleExample = Example<>>
class Dataset : public BatchDataset<Self, std::vector<SingleExample>> {
 public:
  using ExampleType = SingleExample;
  /// One example.
  virtual ExampleType get(size_t index) = 0;
  std::vector<ExampleType> get_batch(ArrayRef<size_t> indices) override {
    std::vector<ExampleType> batch;
    batch.reserve(indices.size());
    for (const size_t i : indices) batch.push_back(get(i));
    return batch;
  }
};

/// Returns the next n examples.
template <class Self, class Batch = std::vector<Example<>>>
using StreamDataset = BatchDataset<Self, Batch, size_t>;

/// Chooses the next examples itself and returns nothing at its end, until reset().
template <class Self, class Batch = std::vector<Example<>>, class BatchRequest = size_t>
class StatefulDataset : public BatchDataset<Self, std::optional<Batch>, BatchRequest> {
 public:
  virtual void reset() = 0;
  /// Writes, and reads, where the dataset stands.
  virtual void save(serialize::OutputArchive& archive) const = 0;
  /// Goes on where save() was called.
  virtual void load(serialize::InputArchive& archive) = 0;
};

/// A shared dataset: copies, also those of a loader's workers, are the same dataset.
template <class Underlying>
class SharedBatchDataset
    : public BatchDataset<SharedBatchDataset<Underlying>, typename Underlying::BatchType,
                          typename Underlying::BatchRequestType> {
 public:
  using BatchType = typename Underlying::BatchType;
  using BatchRequestType = typename Underlying::BatchRequestType;
  SharedBatchDataset(std::shared_ptr<Underlying> shared) : shared_(std::move(shared)) {}  // NOLINT

  BatchType get_batch(BatchRequestType request) override {
    return shared_->get_batch(std::move(request));
  }
  std::optional<size_t> size() const override { return shared_->size(); }
  void reset() { shared_->reset(); }

  Underlying& operator*() { return *shared_; }
  const Underlying& operator*() const { return *shared_; }
  Underlying* operator->() { return shared_.get(); }
  const Underlying* operator->() const { return shared_.get(); }

 private:
  std::shared_ptr<Underlying> shared_;
};

template <class Underlying, class... Args>
SharedBatchDataset<Underlying> make_shared_dataset(Args&&... args) {
  return std::make_shared<Underlying>(std::forward<Args>(args)...);
}

namespace detail {
/// Whether copies of a dataset are the same dataset.
template <class Dataset>
inline constexpr bool is_shared = false;
template <class Underlying>
inline constexpr bool is_shared<SharedBatchDataset<Underlying>> = true;
template <class Source, class Transform>
inline constexpr bool is_shared<MapDataset<Source, Transform>> = is_shared<Source>;
/// Batch, or an optional one if `Source` is stateful.
template <class Source, class Batch>
using BatchAs = std::conditional_t<Source::is_stateful, std::optional<Batch>, Batch>;
}  // namespace detail

/// The result of map().
template <class Source, class Transform>
class MapDataset : public BatchDataset<MapDataset<Source, Transform>,
                                       detail::BatchAs<Source, typename Transform::OutputBatchType>,
                                       typename Source::BatchRequestType> {
 public:
  using DatasetType = Source;
  using TransformType = Transform;
  using BatchRequestType = typename Source::BatchRequestType;
  using OutputBatchType = detail::BatchAs<Source, typename Transform::OutputBatchType>;
  static_assert(std::is_same_v<typename Source::BatchType,
                               detail::BatchAs<Source, typename Transform::InputBatchType>>,
                "map: the transform must take the batches that the dataset gives");

  MapDataset(Source dataset, Transform transform)
      : dataset_(std::move(dataset)), transform_(std::move(transform)) {}

  OutputBatchType get_batch(BatchRequestType request) override {
    auto batch = dataset_.get_batch(std::move(request));
    if constexpr (Source::is_stateful) {
      if (!batch) return std::nullopt;
      return transform_.apply_batch(*std::move(batch));
    } else {
      return transform_.apply_batch(std::move(batch));
    }
  }
  std::optional<size_t> size() const override { return dataset_.size(); }
  /// For stateful datasets.
  void reset() { dataset_.reset(); }
  const Source& dataset() const { return dataset_; }
  const Transform& transform() const { return transform_; }

 private:
  Source dataset_;
  Transform transform_;
};

/// The rows of one tensor, or of a stack of tensors.
struct TensorDataset : public Dataset<TensorDataset, TensorExample> {
  explicit TensorDataset(const std::vector<Tensor>& tensors) : TensorDataset(stack(tensors)) {}
  explicit TensorDataset(Tensor t) : tensor(std::move(t)) {}
  TensorExample get(size_t index) override { return tensor[static_cast<int64_t>(index)]; }
  std::optional<size_t> size() const override { return static_cast<size_t>(tensor.size(0)); }
  Tensor tensor;
};

/// Rows of one tensor, each with its row of another.
template <class Self>
class LabelledDataset : public Dataset<Self> {
 public:
  /// data: (count, …), targets: (count, …). Throws when the counts differ.
  LabelledDataset(Tensor data, Tensor targets)
      : data_(std::move(data)), targets_(std::move(targets)) {
    HALFTAPE_CHECK(data_.dim() > 0 && targets_.dim() > 0 && data_.size(0) == targets_.size(0),
                   "dataset: data ", data_.sizes(), " and targets ", targets_.sizes(),
                   " must have the same first dimension");
  }
  Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {data_[i], targets_[i]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(data_.size(0)); }
  /// All rows.
  const Tensor& data() const { return data_; }
  const Tensor& targets() const { return targets_; }

 private:
  Tensor data_, targets_;
};

/// Two tensors of your own: LabelledTensors(x, y).
struct LabelledTensors : public LabelledDataset<LabelledTensors> {
  using LabelledDataset::LabelledDataset;
};

}  // namespace halftape::data::datasets
