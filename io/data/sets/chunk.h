// ChunkDataset: data in chunks, such as the files of a set too large for memory, read ahead by its
// own threads. Spelled as torch::data::datasets.
//
//     struct Files : datasets::ChunkDataReader<Example<>> {
//       std::vector<Example<>> read_chunk(size_t i) override { … }
//       size_t chunk_count() override { return 100; }
//       void reset() override {}
//     };
//     auto dataset = datasets::make_shared_dataset<datasets::ChunkDataset<Files>>(
//         Files(), samplers::RandomSampler(100), samplers::RandomSampler(0),
//         datasets::ChunkDatasetOptions(/*preloader_count=*/2, /*batch_size=*/64));
//     auto loader = make_data_loader(dataset, DataLoaderOptions(64));
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halftape/core/options.h"
#include "halftape/io/data/dataset.h"
#include "halftape/io/data/queue.h"
#include "halftape/io/data/sampler.h"

namespace halftape::data::datasets {

/// Reads one chunk: a list of examples. read_chunk() is called by several threads at a time, on the
/// one reader that the dataset has.
template <class Example, class Chunk = std::vector<Example>>
class ChunkDataReader {
 public:
  using ChunkType = Chunk;
  using ExampleType = Example;
  virtual ~ChunkDataReader() = default;
  /// The examples of one chunk.
  virtual ChunkType read_chunk(size_t chunk_index) = 0;
  /// How many chunks there are.
  virtual size_t chunk_count() = 0;
  /// Called before each epoch.
  virtual void reset() = 0;
};

/// `cache_size`: no further chunk is begun while this many examples are in memory.
/// `cross_chunk_shuffle_count`: how many chunks are shuffled as one.
class ChunkDatasetOptions {
 public:
  ChunkDatasetOptions(size_t preloader_count, size_t batch_size, size_t cache_size = 2048,
                      size_t cross_chunk_shuffle_count = 1)
      : preloader_count_(preloader_count),
        batch_size_(batch_size),
        cache_size_(cache_size),
        cross_chunk_shuffle_count_(cross_chunk_shuffle_count) {
    HALFTAPE_CHECK(preloader_count > 0,
                   "Preloader count is 0. At least one preloader needs to be specified.");
    data::detail::check_threads("ChunkDataset: preloader_count", preloader_count);
    HALFTAPE_CHECK(batch_size > 0, "Batch size is 0. A positive batch size needs to be specified.");
    HALFTAPE_CHECK(cache_size > 0, "Cache size is 0. A positive cache size needs to be specified.");
    HALFTAPE_CHECK(cache_size >= batch_size,
                   "Cache size is less than batch size. Cache needs to be large enough to hold at "
                   "least one batch.");
    HALFTAPE_CHECK(cross_chunk_shuffle_count > 0,
                   "cross_chunk_shuffle_count needs to be greater than 0.");
  }
  HALFTAPE_ARG(size_t, preloader_count);
  HALFTAPE_ARG(size_t, batch_size);
  HALFTAPE_ARG(size_t, cache_size);
  HALFTAPE_ARG(size_t, cross_chunk_shuffle_count);
};

/// The examples of all chunks, in the order of a sampler of chunks, and within a chunk (or several
/// that are shuffled as one) in that of a sampler of examples. Batches run over the ends of chunks;
/// the last one may be smaller. The order depends on the samplers alone, not on the threads that
/// read. Make it with make_shared_dataset(), as workers cannot copy it.
///
/// `preprocessing`: called with each chunk by the thread that read it. An exception of the reader
/// is thrown by a get_batch() of its own, after a smaller batch of what was left before the chunk;
/// the chunk is then skipped.
template <class ChunkReader, class ChunkSampler = samplers::RandomSampler,
          class ExampleSampler = samplers::RandomSampler>
class ChunkDataset final
    : public StatefulDataset<ChunkDataset<ChunkReader, ChunkSampler, ExampleSampler>,
                             typename ChunkReader::ChunkType, size_t> {
 public:
  using ChunkType = typename ChunkReader::ChunkType;
  using BatchType = std::optional<ChunkType>;
  using ChunkSamplerType = ChunkSampler;
  using ExampleSamplerType = ExampleSampler;

  ChunkDataset(ChunkReader reader, ChunkSampler chunk_sampler, ExampleSampler example_sampler,
               ChunkDatasetOptions options, std::function<void(ChunkType&)> preprocessing = {})
      : reader_(std::move(reader)),
        chunk_sampler_(std::move(chunk_sampler)),
        example_sampler_(std::move(example_sampler)),
        opened_(example_sampler_),
        options_(std::move(options)),
        preprocessing_(std::move(preprocessing)) {}
  ~ChunkDataset() override { stop(); }

  /// The next examples; nothing at the end of the epoch. Throws unless it is asked for as many as
  /// options().batch_size().
  BatchType get_batch(size_t batch_size) override {
    HALFTAPE_CHECK(batch_size == options_.batch_size(),
                   "The requested batch size does not match with the initialized batch size.\n The "
                   "requested batch size is ",
                   batch_size, ", while the dataset is created with batch size equal to ",
                   options_.batch_size());
    return get_batch();
  }
  BatchType get_batch() {
    const std::lock_guard one_at_a_time(asking_);
    if (!started_) start();
    const std::lock_guard lock(gate_);
    ChunkType batch;
    while (batch.size() < options_.batch_size()) {
      if (!open_) {
        gate_.wait([this] { return groups_.empty() ? named_all_ : groups_.front().read; }, {});
        const std::exception_ptr error = groups_.empty() ? failure_ : groups_.front().error;
        if (error && batch.empty()) skip_broken(), std::rethrow_exception(error);
        if (error || groups_.empty()) break;
        open_next();
      }
      const auto which = example_sampler_.next(options_.batch_size() - batch.size());
      if (!which || which->empty()) {
        close();
        continue;
      }
      for (const size_t i : *which) batch.push_back(std::move(groups_.front().data[i]));
      taken_ += which->size();
      cached_ -= which->size();
      gate_.notify_all();
    }
    ended_ = batch.empty();
    if (ended_) return std::nullopt;
    return batch;
  }

  /// To the beginning of an epoch; after load(), to the saved position.
  void reset() override {
    const std::lock_guard one_at_a_time(asking_);
    start();
  }
  /// Not known before all chunks are read.
  std::optional<size_t> size() const override { return std::nullopt; }
  const ChunkDatasetOptions& options() const { return options_; }
  /// It runs ahead of get_batch(). Do not use it while chunks are being read.
  ChunkSampler& chunk_sampler() { return chunk_sampler_; }

  /// Where get_batch() stands, exactly: the samplers' states, and how many examples of the chunk
  /// were given. After get_batch() has told of an epoch's end, it is the beginning of the next
  /// one. A loader's workers ask ahead: saved in its loop, the position lies beyond batches that
  /// the loop has yet to get; with workers(0) it is exact. The entries of the chunk sampler keep
  /// their own names.
  void save(serialize::OutputArchive& archive) const override {
    const std::lock_guard one_at_a_time(asking_);
    write_position(archive);
  }
  /// Throws Error for a state that the samplers cannot take; the position is then the former one.
  void load(serialize::InputArchive& archive) override {
    const std::lock_guard one_at_a_time(asking_);
    serialize::OutputArchive former;
    write_position(former);
    stop();
    try {
      take_position(archive);
    } catch (...) {
      serialize::InputArchive back(former.numbers());
      take_position(back);
      throw;
    }
  }

 private:
  /// Chunks that are shuffled as one.
  struct Group {
    ChunkSampler before;  // the sampler that named them
    std::vector<size_t> chunks;
    bool read = false;
    ChunkType data = {};
    std::exception_ptr error = {};
  };

  void write_position(serialize::OutputArchive& archive) const {
    const std::lock_guard lock(gate_);
    (groups_.empty() ? chunk_sampler_ : groups_.front().before).save(archive);
    serialize::OutputArchive examples;
    (open_ ? opened_ : example_sampler_).save(examples);
    for (const auto& [name, value] : examples.numbers()) archive.write("example_" + name, value);
    archive.write("chunk_examples", examples_);
    archive.write("chunk_taken", open_ ? taken_ : skip_);
    archive.write("chunk_open", open_ || has_order_ ? 1 : 0);
    // After the end of an epoch reset() begins the next one, also where this state is loaded.
    archive.write("chunk_started", (started_ && !ended_) || loaded_ ? 1 : 0);
  }
  void take_position(serialize::InputArchive& archive) {
    ChunkSampler chunks = chunk_sampler_;
    ExampleSampler examples = example_sampler_;
    chunks.reset(reader_.chunk_count());
    chunks.load(archive);
    uint64_t taken = 0, in_chunk = examples_;
    const auto flag = [&archive](const char* name, bool unsaid) {
      return archive.numbers().contains(name) ? archive.read(name) != 0 : unsaid;
    };
    if (archive.numbers().contains("chunk_taken")) {  // else a sampler's own state
      std::map<std::string, uint64_t> own;
      for (const auto& [name, value] : archive.numbers())
        if (name.starts_with("example_")) own[name.substr(8)] = value;
      in_chunk = archive.read("chunk_examples");
      taken = archive.read("chunk_taken");
      examples.reset(in_chunk);
      serialize::InputArchive of_examples(std::move(own));
      examples.load(of_examples);
    }
    chunk_sampler_ = std::move(chunks);
    example_sampler_ = std::move(examples);
    examples_ = in_chunk;
    skip_ = taken;
    has_order_ = flag("chunk_open", false);
    loaded_ = flag("chunk_started", true);
  }

  void start() {
    stop();
    reader_.reset();
    if (!loaded_) {
      chunk_sampler_.reset(reader_.chunk_count());
      skip_ = 0;
      has_order_ = false;
    }
    const ChunkSampler first = chunk_sampler_;
    threads_ = std::make_unique<data::detail::Threads>();
    try {
      for (size_t i = 0; i < options_.preloader_count(); ++i)
        threads_->start([this] { preload(); });
    } catch (...) {
      stop();
      chunk_sampler_ = first;
      throw;
    }
    started_ = true;
    loaded_ = false;
  }
  void stop() {
    started_ = ended_ = false;
    if (!threads_) return;
    {
      const std::lock_guard lock(gate_);
      stopping_ = true;
    }
    gate_.notify_all();
    threads_->join();
    threads_ = nullptr;
    groups_.clear();
    cached_ = taken_ = 0;
    failure_ = nullptr;
    stopping_ = named_all_ = open_ = false;
  }

  void preload() {
    const std::lock_guard lock(gate_);
    try {
      while (read_group()) {
      }
    } catch (...) {  // the sampler's, or there is no memory for a group
      failure_ = std::current_exception();
      named_all_ = true;
    }
    gate_.notify_all();
  }
  /// With the lock: waits until there is room, and reads the group of chunks whose turn it is;
  /// false if there is none.
  bool read_group() {
    gate_.wait(
        [this] {
          return stopping_ || named_all_ || groups_.empty() || cached_ < options_.cache_size();
        },
        {});
    if (stopping_ || named_all_) return false;
    ChunkSampler before = chunk_sampler_;
    auto chunks = chunk_sampler_.next(options_.cross_chunk_shuffle_count());
    if (!chunks || chunks->empty()) {
      named_all_ = true;
      return false;
    }
    Group& group = groups_.emplace_back(Group{std::move(before), *std::move(chunks)});
    gate_.unlock();
    ChunkType data;
    std::exception_ptr error;
    try {
      for (const size_t i : group.chunks) {
        ChunkType chunk = reader_.read_chunk(i);
        for (auto& example : chunk) data.push_back(std::move(example));
      }
      if (preprocessing_) preprocessing_(data);
    } catch (...) {
      error = std::current_exception();
    }
    gate_.lock();
    group.data = std::move(data);
    group.error = error;
    group.read = true;
    cached_ += group.data.size();
    gate_.notify_all();
    return true;
  }

  /// With the lock: passes over a group that could not be read, or over the end of all.
  void skip_broken() {
    skip_ = 0;
    has_order_ = false;
    if (groups_.empty())
      failure_ = nullptr;
    else
      close();
  }
  /// With the lock: begins the next group, which was read.
  void open_next() {
    Group& group = groups_.front();
    // The saved state of an open chunk holds its order; a reset could draw another one.
    if (!std::exchange(has_order_, false) || examples_ != group.data.size()) {
      examples_ = group.data.size();
      example_sampler_.reset(examples_);
    }
    opened_ = example_sampler_;
    open_ = true;
    taken_ = 0;
    if (const size_t given = std::min(std::exchange(skip_, 0), examples_)) {
      example_sampler_.next(given);
      taken_ = given;
      cached_ -= given;
    }
  }
  void close() {
    cached_ -= groups_.front().data.size() - (open_ ? taken_ : 0);
    groups_.pop_front();
    open_ = false;
    gate_.notify_all();
  }

  ChunkReader reader_;
  ChunkSampler chunk_sampler_;
  ExampleSampler example_sampler_, opened_;  // the latter as it was when the chunk was opened
  ChunkDatasetOptions options_;
  std::function<void(ChunkType&)> preprocessing_;

  mutable std::mutex asking_;        // one get_batch() at a time
  mutable data::detail::Gate gate_;  // guards all that follows
  std::deque<Group> groups_;         // in order; the front one is given out
  std::exception_ptr failure_;       // after all groups
  size_t cached_ = 0;                // examples in memory
  size_t taken_ = 0, examples_ = 0;  // of the front group, while it is open
  size_t skip_ = 0;                  // of the first group after load()
  bool has_order_ = false;           // of that one the sampler of examples has the order
  bool open_ = false, named_all_ = false, stopping_ = false, started_ = false, loaded_ = false;
  bool ended_ = false;  // get_batch() has told of the epoch's end
  std::unique_ptr<data::detail::Threads> threads_;
};

}  // namespace halftape::data::datasets
