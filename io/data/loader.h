// DataLoader: batches of a dataset in a sampler's order, loaded ahead by threads. Spelled as
// torch::data's.
//
//     auto loader = make_data_loader(datasets::Digits().map(transforms::Stack<>()),
//                                    DataLoaderOptions(64).workers(2));
//     for (int epoch = 0; epoch < 10; ++epoch)
//       for (auto& batch : *loader) train(batch.data, batch.target);
#pragma once
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/core/check.h"
#include "halftape/core/machine/flush_denormal.h"
#include "halftape/io/data/dataset.h"
#include "halftape/io/data/iterator.h"
#include "halftape/io/data/loader_options.h"
#include "halftape/io/data/queue.h"
#include "halftape/io/data/sampler.h"
#include "halftape/io/formats/archive.h"

namespace halftape::data {

/// True if there is this GPU, for which memory can be pinned.
bool has_gpu(Device gpu = kCUDA);

namespace detail {
/// The batch with CPU tensors in pinned memory, also those inside examples and vectors.
template <class T>
T pinned(T batch, Device gpu) {
  if constexpr (std::is_same_v<T, Tensor>) {
    if (batch.defined() && batch.device().is_cpu()) return batch.pin_memory(gpu);
  } else if constexpr (requires { typename T::DataType; }) {
    batch.data = pinned(std::move(batch.data), gpu);
    if constexpr (requires { batch.target; }) batch.target = pinned(std::move(batch.target), gpu);
  } else if constexpr (requires { batch.push_back(*batch.begin()); }) {
    for (auto&& one : batch) one = pinned(std::move(one), gpu);
  }
  return batch;
}

/// A loader's state as numbers, and back. Integers that a double cannot hold are two of them.
struct LoaderState {
  uint64_t epoch;
  bool in_epoch;
  std::map<std::string, uint64_t> position;  // as the sampler saved it
};
std::map<std::string, double> to_dict(const LoaderState& state);
LoaderState from_dict(const std::map<std::string, double>& saved);
}  // namespace detail

/// An exception of a worker, thrown where its batch was asked for. The iterator stays usable: the
/// next batch is the one after the failed one.
struct WorkerException : public Error {
  explicit WorkerException(std::exception_ptr original);
  std::exception_ptr original_exception;  // as the worker threw it
};

/// The base of loaders: iteration, workers, and loading ahead. With enforce_ordering, batches and
/// their order are the same for any number of workers, unless these share a stateful dataset. The
/// dataset runs without the caller's autocast, and records operations if the caller does. Without
/// workers, its exceptions are not wrapped.
template <class Dataset, class Batch, class BatchRequest>
class DataLoaderBase {
 public:
  using BatchType = Batch;
  using BatchRequestType = BatchRequest;

  DataLoaderBase(const DataLoaderBase&) = delete;
  DataLoaderBase& operator=(const DataLoaderBase&) = delete;
  /// Waits for the batches that workers have begun.
  virtual ~DataLoaderBase() { join(); }

  /// Begins an epoch; after load_state_dict(), continues at the saved position. Drops the batches
  /// loaded ahead for a loop that was left early. With workers, throws while another
  /// iterator is in use.
  Iterator<Batch> begin() {
    HALFTAPE_CHECK(options_.workers == 0 || !in_use(),
                   "Attempted to get a new DataLoader iterator while another iterator is not yet "
                   "exhausted");
    drop_prefetched();
    if (!resumed_) {
      if (std::exchange(in_epoch_, false)) ++epoch_;
      rewind();
    }
    position_ = position();
    over_ = exhausted_ = joined_;
    auto cursor = std::make_shared<detail::Cursor<Batch>>(
        [this, alive = std::weak_ptr(alive_), loads = loads_]() -> std::optional<Batch> {
          HALFTAPE_CHECK(!alive.expired(), "DataLoader: the iterator's loader is no more");
          return loads == loads_ ? next() : std::nullopt;
        });
    cursor_ = cursor;
    return Iterator<Batch>(std::move(cursor));
  }
  Iterator<Batch> end() { return {}; }

  /// Ends the workers; the loader gives nothing more afterwards.
  void join() {
    if (std::exchange(joined_, true)) return;
    over_ = true;
    shuttle_.drain();
    for (size_t i = 0; i < threads_.size(); ++i) shuttle_.push_end({});
    threads_.join();
  }

  const FullDataLoaderOptions& options() const noexcept { return options_; }
  /// The current epoch, or the one that the next begin() starts; the first is 0. A loop that was
  /// left early counts as one.
  size_t epoch() const noexcept { return epoch_; }

 protected:
  /// The position of the source of requests, as its save() wrote it.
  using Position = std::map<std::string, uint64_t>;

  DataLoaderBase(Dataset dataset, const DataLoaderOptions& options)
      : options_(options),
        dataset_(std::move(dataset)),
        pin_(options_.pin_memory && has_gpu(options_.pin_memory_device)) {
    order_anew();
  }

  /// The derived class calls this once draw() works.
  void start_workers() {
    if constexpr (kTakesTurns || std::is_copy_constructible_v<Dataset>) {
      try {
        for (size_t i = 0; i < options_.workers; ++i)
          if constexpr (kTakesTurns)
            threads_.start([this] { work(dataset_); });
          else
            threads_.start(
                [this, dataset = Dataset(std::as_const(dataset_))]() mutable { work(dataset); });
      } catch (...) {
        join();
        throw;
      }
    } else {
      HALFTAPE_CHECK(options_.workers == 0,
                     "DataLoader: each worker needs a copy of the dataset, and this one cannot be "
                     "copied; use make_shared_dataset(), or workers(0)");
    }
  }

  /// The next request; nothing at the end.
  virtual std::optional<BatchRequest> draw() = 0;
  /// To the beginning of the epoch.
  virtual void rewind() = 0;
  virtual Position position() const { return {}; }

  /// Forgets the batches that are prepared, and draws anew from here.
  void drop_prefetched() {
    shuttle_.drain();
    positions_.clear();
    failed_ = nullptr;
    order_anew();
  }

  /// The iterators that there are give nothing more.
  void end_iterators() {
    ++loads_;
    cursor_.reset();
  }

  FullDataLoaderOptions options_;
  Dataset dataset_;
  Position position_;  // after the batch that was passed on last
  size_t epoch_ = 0;
  bool in_epoch_ = false;  // a batch of it has been asked for, and its end not been seen
  bool resumed_ = false;   // begin() continues an epoch, of which no batch has been asked for
  bool over_ = false;      // nothing more before begin()

 private:
  /// Copies of a stateful dataset would give each example several times.
  static constexpr bool kTakesTurns = Dataset::is_stateful && !datasets::detail::is_shared<Dataset>;

  struct Job {
    size_t sequence_number = 0;
    std::optional<BatchRequest> request;  // without: the worker ends
    // Of the thread that draws it:
    uint32_t flush = halftape::detail::flush_bits();
    bool inference = InferenceMode::is_enabled(), grad = GradMode::is_enabled();
  };
  struct Result {
    size_t sequence_number = 0;
    std::optional<Batch> batch;  // without: a stateful dataset has no more
    std::exception_ptr exception;
  };

  bool in_use() const {
    const auto cursor = cursor_.lock();
    return cursor && !cursor->known_over();
  }

  std::optional<Batch> load(Dataset& dataset, BatchRequest request) const {
    const PolicyScope plain(nullptr);
    std::optional<Batch> batch = dataset.get_batch(std::move(request));
    if (pin_ && batch) return detail::pinned(*std::move(batch), options_.pin_memory_device);
    return batch;
  }

  void work(Dataset& dataset) {
    for (;;) {
      std::unique_lock<std::mutex> turn(turn_, std::defer_lock);
      if constexpr (kTakesTurns) turn.lock();  // before the job, so that turns come in their order
      Job job = shuttle_.pop_job();
      if (!job.request) return;
      Result result{.sequence_number = job.sequence_number, .batch = {}, .exception = {}};
      try {
        const halftape::detail::FlushAs caller(job.flush);
        const InferenceMode inference(job.inference);
        const AutoGradMode grad(job.grad);
        result.batch = load(dataset, *std::move(job.request));
      } catch (...) {
        result.exception = std::current_exception();
      }
      if constexpr (kTakesTurns) turn.unlock();
      shuttle_.push_result(std::move(result));
    }
  }

  std::optional<Batch> next() {
    if (over_) return std::nullopt;
    in_epoch_ = true;
    resumed_ = false;
    std::optional<Batch> batch = options_.workers == 0 ? load_now() : await();
    if (!batch) {
      over_ = true;
      in_epoch_ = false;
      ++epoch_;
      position_ = position();
    }
    return batch;
  }

  std::optional<Batch> load_now() {
    std::optional<BatchRequest> request = draw();
    if (!request) return std::nullopt;
    Position after = position();
    std::optional<Batch> batch = load(dataset_, *std::move(request));
    position_ = std::move(after);
    return batch;
  }

  std::optional<Batch> await() {
    for (;;) {
      prefetch();
      if (failed_ && positions_.empty()) std::rethrow_exception(std::exchange(failed_, nullptr));
      const auto pop = [this] { return shuttle_.pop_result(options_.timeout); };
      std::optional<Result> result = options_.enforce_ordering ? sequencer_.next(pop) : pop();
      if (!result) return std::nullopt;
      Position after = std::move(positions_.front());
      positions_.pop_front();
      if (result->exception) throw WorkerException(result->exception);
      if (!result->batch) {
        exhausted_ = true;
        continue;
      }
      position_ = std::move(after);
      prefetch();  // so that workers are busy while the caller is
      return std::move(result->batch);
    }
  }

  /// What the sampler throws comes after the batches before it.
  void prefetch() {
    while (!exhausted_ && !failed_ && positions_.size() < options_.max_jobs) {
      Job job;
      job.sequence_number = issued_;
      try {
        job.request = draw();
      } catch (...) {
        failed_ = std::current_exception();
        return;
      }
      if (!job.request) {
        exhausted_ = true;
        return;
      }
      positions_.push_back(position());
      shuttle_.push_job(std::move(job));
      ++issued_;
    }
  }

  void order_anew() {
    issued_ = 0;
    sequencer_ = {};
  }

  bool pin_;
  bool exhausted_ = false;               // nothing more to draw
  std::exception_ptr failed_ = nullptr;  // what drawing threw
  bool joined_ = false;
  size_t loads_ = 0;                // of states; an iterator gives batches until the next one
  size_t issued_ = 0;               // jobs
  std::deque<Position> positions_;  // after each job that has been issued and not passed on
  detail::Sequencer<Result> sequencer_;
  std::weak_ptr<detail::Cursor<Batch>> cursor_;  // of the latest begin()
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
  detail::DataShuttle<Job, Result> shuttle_;
  std::mutex turn_;  // of the workers that have one dataset
  detail::Threads threads_;
};

/// A loader whose sampler chooses the next examples.
template <class Dataset, class Sampler>
class StatelessDataLoader : public DataLoaderBase<Dataset, typename Dataset::BatchType,
                                                  typename Sampler::BatchRequestType> {
  using Base =
      DataLoaderBase<Dataset, typename Dataset::BatchType, typename Sampler::BatchRequestType>;

 public:
  using StateDict = std::map<std::string, double>;

  StatelessDataLoader(Dataset dataset, Sampler sampler, const DataLoaderOptions& options)
      : Base(std::move(dataset), options), sampler_(std::move(sampler)) {
    this->position_ = position();
    this->start_workers();
  }
  ~StatelessDataLoader() override { this->join(); }

  /// For set_epoch(), before begin(). During a loop it runs ahead of the batches.
  Sampler& sampler() noexcept { return sampler_; }

  /// The position of the loop: after the last batch that it got, whatever was loaded ahead. A
  /// loader with the same dataset and sampler continues with the next batch, with any number of
  /// workers; a state that was saved with an epoch's last batch gives an epoch without any more,
  /// and one that was saved after a loop was left early the rest of that epoch. Throws in an epoch
  /// whose batches several workers pass on out of order, and in one of a StreamDataset, which alone
  /// knows where it stands.
  StateDict state_dict() const {
    constexpr bool of_stream = std::is_convertible_v<typename Base::BatchRequestType, size_t>;
    HALFTAPE_CHECK(!this->in_epoch_ || !of_stream,
                   "state_dict: this loader asks its dataset for numbers of examples, and how far "
                   "these have come is not known here; save between epochs, or have a sampler of "
                   "indices");
    HALFTAPE_CHECK(
        !this->in_epoch_ || this->options_.enforce_ordering || this->options_.workers < 2,
        "state_dict: with enforce_ordering(false) the batches so far are not the first "
        "ones of the order; save between epochs, or enforce the order");
    // The sampler runs ahead within a loop alone; elsewhere the caller may have moved it.
    const bool looping = this->in_epoch_ && !this->resumed_;
    return detail::to_dict({this->epoch_, this->in_epoch_, looping ? this->position_ : position()});
  }
  /// Throws Error, changing nothing, for a state that the sampler cannot take. Earlier iterators
  /// give nothing more, also after the next begin(): ++ brings them to the end.
  void load_state_dict(const StateDict& saved) {
    const detail::LoaderState state = detail::from_dict(saved);
    serialize::InputArchive archive(state.position);
    sampler_.load(archive);
    this->drop_prefetched();
    this->position_ = position();
    this->epoch_ = static_cast<size_t>(state.epoch);
    this->in_epoch_ = this->resumed_ = state.in_epoch;
    this->end_iterators();
  }

 private:
  std::optional<typename Base::BatchRequestType> draw() override {
    auto request = sampler_.next(this->options_.batch_size);
    if (!request || !this->options_.drop_last) return request;
    bool whole = request->size() == this->options_.batch_size;
    if constexpr (requires { sampler_.was_whole(); }) whole = sampler_.was_whole();
    return whole ? std::move(request) : std::nullopt;
  }
  void rewind() override { sampler_.reset(std::nullopt); }
  typename Base::Position position() const override {
    serialize::OutputArchive archive;
    sampler_.save(archive);
    return archive.numbers();
  }

  Sampler sampler_;
};

/// A loader whose dataset chooses the next examples. All workers have the same dataset, one at a
/// time; with one of make_shared_dataset(), which must allow for that, all at once, and batches
/// come in any order.
template <class Dataset>
class StatefulDataLoader : public DataLoaderBase<Dataset, typename Dataset::BatchType::value_type,
                                                 typename Dataset::BatchRequestType> {
  using Base = DataLoaderBase<Dataset, typename Dataset::BatchType::value_type,
                              typename Dataset::BatchRequestType>;

 public:
  StatefulDataLoader(Dataset dataset, const DataLoaderOptions& options)
      : Base(std::move(dataset), options) {
    HALFTAPE_CHECK(!this->options_.drop_last,
                   "DataLoader: drop_last is for datasets with a sampler; a stateful dataset "
                   "chooses its batches itself: let its get_batch() leave out a last, short one");
    this->start_workers();
  }
  ~StatefulDataLoader() override { this->join(); }

 private:
  std::optional<typename Base::BatchRequestType> draw() override {
    return this->options_.batch_size;
  }
  void rewind() override { this->dataset_.reset(); }
};

/// Batches of `dataset` as `sampler` asks for them.
template <class Dataset, class Sampler>
requires(!Dataset::is_stateful)
    std::unique_ptr<StatelessDataLoader<Dataset, Sampler>> make_data_loader(
        Dataset dataset, Sampler sampler, const DataLoaderOptions& options) {
  return std::make_unique<StatelessDataLoader<Dataset, Sampler>>(std::move(dataset),
                                                                 std::move(sampler), options);
}

/// The same with a sampler made from the dataset's size. Throws when the dataset has none.
template <class Sampler = samplers::RandomSampler, class Dataset>
requires(!Dataset::is_stateful && std::is_constructible_v<Sampler, size_t>)
    std::unique_ptr<StatelessDataLoader<Dataset, Sampler>> make_data_loader(
        Dataset dataset, const DataLoaderOptions& options = {}) {
  const std::optional<size_t> size = dataset.size();
  HALFTAPE_CHECK(size, "Expected the dataset to be sized in order to construct the Sampler");
  return make_data_loader(std::move(dataset), Sampler(*size), options);
}

/// A loader of a stateful dataset.
template <class Dataset>
requires(Dataset::is_stateful) std::unique_ptr<StatefulDataLoader<Dataset>> make_data_loader(
    Dataset dataset, const DataLoaderOptions& options = {}) {
  return std::make_unique<StatefulDataLoader<Dataset>>(std::move(dataset), options);
}

}  // namespace halftape::data
