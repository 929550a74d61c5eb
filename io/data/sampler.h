// Samplers: which examples make the next batch. Spelled as torch::data::samplers.
//
// A sampler's order depends on integers alone, so it is the same on every machine. Its position is
// a few numbers that save() writes and load() reads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/core/dtype.h"
#include "halftape/core/random/mt19937.h"
#include "halftape/io/formats/archive.h"

namespace halftape::data::samplers {

/// The base of requests for a batch that are neither a list of indices nor a number.
struct CustomBatchRequest {
  virtual ~CustomBatchRequest() = default;
  /// The number of examples.
  virtual size_t size() const = 0;
};

/// save() writes all that next() depends on, so that a loader can resume in the middle of an epoch.
template <class BatchRequest = std::vector<size_t>>
class Sampler {
 public:
  using BatchRequestType = BatchRequest;
  virtual ~Sampler() = default;
  /// Goes to the first example of an epoch, of `new_size` examples if that is given.
  virtual void reset(std::optional<size_t> new_size) = 0;
  /// Up to `batch_size` examples; nothing at the end of the epoch.
  virtual std::optional<BatchRequest> next(size_t batch_size) = 0;
  /// Writes where the sampler stands, for load().
  virtual void save(serialize::OutputArchive& archive) const = 0;
  /// Throws Error, changing nothing, for a state that belongs to another sampler.
  virtual void load(serialize::InputArchive& archive) = 0;
};

/// A random order of `count` numbers that depends on the seed and the epoch alone: Fisher and
/// Yates's shuffle with Philox's bits, without bias.
std::vector<size_t> permutation(size_t count, uint64_t seed, uint64_t epoch);

namespace detail {
/// The base of samplers without an order of their own: how many examples have been asked for.
template <class BatchRequest>
class Counter : public Sampler<BatchRequest> {
 public:
  void reset(std::optional<size_t> new_size = {}) override {
    size_ = new_size.value_or(size_);
    index_ = 0;
  }
  void save(serialize::OutputArchive& archive) const override { archive.write("index", index_); }
  void load(serialize::InputArchive& archive) override;

 protected:
  explicit Counter(size_t size) : size_(size) {}
  size_t size_, index_ = 0;
};
}  // namespace detail

/// 0, 1, 2, …
class SequentialSampler : public detail::Counter<std::vector<size_t>> {
 public:
  explicit SequentialSampler(size_t size) : Counter(size) {}
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  size_t index() const noexcept { return index_; }
};

/// Every index once, in the order permutation(size, seed, epoch()). reset() goes to the next epoch,
/// unless this one has not begun.
///
/// Without a seed, and while the CPU's engine is Mt19937, as LibTorch: construction and every
/// reset() draw a new order, torch::randperm's, from the CPU's default generator.
class RandomSampler : public Sampler<> {
 public:
  /// The seed is drawn from the CPU's default generator: manual_seed() decides the order. The dtype
  /// is there for LibTorch's signature and ignored.
  explicit RandomSampler(int64_t size, Dtype index_dtype = kInt64);
  RandomSampler(int64_t size, uint64_t seed);
  void reset(std::optional<size_t> new_size = {}) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  void save(serialize::OutputArchive& archive) const override;
  void load(serialize::InputArchive& archive) override;
  /// Goes to the beginning of that epoch.
  void set_epoch(size_t epoch);
  size_t epoch() const noexcept { return epoch_; }
  size_t index() const noexcept { return index_; }
  uint64_t seed() const noexcept { return seed_; }

 private:
  void draw_order();

  size_t size_, index_ = 0, epoch_ = 0;
  uint64_t seed_;
  bool own_seed_ = true;
  std::optional<Mt19937> drawn_from_;  // as it was before it gave this order
  std::vector<size_t> order_;          // of this epoch; empty before the first next()
};

/// A share of the examples for each of several processes, of equal size: `rank` has the rank-th
/// stretch of the epoch's order. With allow_duplicates the first examples fill up the last share;
/// without, the last examples, which do not fill the shares, are left out.
template <class BatchRequest = std::vector<size_t>>
class DistributedSampler : public Sampler<BatchRequest> {
 public:
  DistributedSampler(size_t size, size_t num_replicas, size_t rank, bool allow_duplicates)
      : size_(size), num_replicas_(num_replicas), rank_(rank), allow_duplicates_(allow_duplicates) {
    HALFTAPE_CHECK(rank < num_replicas, "sampler: rank ", rank, " of ", num_replicas,
                   " replicas; ranks are counted from 0");
    HALFTAPE_CHECK(std::max(size, num_replicas) < size_t{1} << (8 * sizeof(size_t) - 2),
                   "sampler: ", size, " examples for ", num_replicas,
                   " replicas are more than can be counted");
  }
  /// Goes to the beginning of that epoch. All ranks must be in the same epoch; they are also
  /// without a call, as reset() goes to the next.
  void set_epoch(size_t epoch) {
    epoch_ = epoch;
    rewind();
  }
  size_t epoch() const { return epoch_; }

 protected:
  /// Goes to the beginning of the epoch.
  virtual void rewind() = 0;
  size_t local_sample_count() const {
    return (size_ + (allow_duplicates_ ? num_replicas_ - 1 : 0)) / num_replicas_;
  }

  size_t size_, num_replicas_, rank_, epoch_ = 0;
  bool allow_duplicates_;
};

namespace detail {
/// The base of the two samplers below: the position in this rank's share.
class Share : public DistributedSampler<> {
 public:
  void reset(std::optional<size_t> new_size = {}) override;
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  void save(serialize::OutputArchive& archive) const override;
  /// The rank may differ: each process loads the state that one of them saved.
  void load(serialize::InputArchive& archive) override;
  /// The position of the next example in the order of all ranks.
  size_t index() const noexcept { return rank_ * local_sample_count() + index_; }

 protected:
  Share(size_t size, size_t num_replicas, size_t rank, bool allow_duplicates, uint64_t seed)
      : DistributedSampler(size, num_replicas, rank, allow_duplicates), seed_(seed) {}
  void rewind() override;
  /// The order of `count` positions in this epoch; empty for 0, 1, 2, …
  virtual std::vector<size_t> order(size_t count) const = 0;

  uint64_t seed_;

 private:
  size_t index_ = 0;
  std::vector<size_t> order_;
  bool ordered_ = false;
};
}  // namespace detail

/// In random order, which is the same on all ranks: give them the same seed.
class DistributedRandomSampler : public detail::Share {
 public:
  explicit DistributedRandomSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                                    bool allow_duplicates = true, uint64_t seed = 0)
      : Share(size, num_replicas, rank, allow_duplicates, seed) {}

 private:
  std::vector<size_t> order(size_t count) const override {
    return permutation(count, seed_, epoch_);
  }
};

/// In the order of the dataset.
class DistributedSequentialSampler : public detail::Share {
 public:
  explicit DistributedSequentialSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                                        bool allow_duplicates = true)
      : Share(size, num_replicas, rank, allow_duplicates, 0) {}

 private:
  std::vector<size_t> order(size_t) const override { return {}; }
};

namespace detail {
/// The rank-th of `num_replicas` equal parts of a batch; see DistributedBatchSampler.
std::vector<size_t> part_of(const std::vector<size_t>& batch, size_t num_replicas, size_t rank,
                            bool allow_duplicates);
}  // namespace detail

/// A part of every batch of another sampler, which is the same on all ranks, for each of several
/// processes. Batches and the saved position are those of one process, so a run may go on with
/// another number of ranks. The parts have equal sizes: with allow_duplicates the first examples
/// of a batch fill up its last part; without, the last ones, which do not fill the parts, are left
/// out.
template <class Inner = RandomSampler>
class DistributedBatchSampler : public Sampler<> {
 public:
  explicit DistributedBatchSampler(Inner sampler, size_t num_replicas = 1, size_t rank = 0,
                                   bool allow_duplicates = true)
      : sampler_(std::move(sampler)),
        num_replicas_(num_replicas),
        rank_(rank),
        allow_duplicates_(allow_duplicates) {
    HALFTAPE_CHECK(rank < num_replicas, "sampler: rank ", rank, " of ", num_replicas,
                   " replicas; ranks are counted from 0");
  }
  void reset(std::optional<size_t> new_size = {}) override { sampler_.reset(new_size); }
  /// Up to `batch_size` examples of a batch that has num_replicas times as many.
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    HALFTAPE_CHECK(batch_size <= ~size_t{0} / num_replicas_, "sampler: ", num_replicas_,
                   " replicas of ", batch_size, " examples are more than can be counted");
    const auto batch = sampler_.next(batch_size * num_replicas_);
    if (!batch) return std::nullopt;
    was_whole_ = batch->size() == batch_size * num_replicas_;
    if constexpr (requires { sampler_.was_whole(); }) was_whole_ &= sampler_.was_whole();
    auto part = detail::part_of(*batch, num_replicas_, rank_, allow_duplicates_);
    if (part.empty()) return std::nullopt;  // the epoch's last examples are too few
    return part;
  }
  /// As the other sampler does: each process loads the state that one of them saved.
  void save(serialize::OutputArchive& archive) const override { sampler_.save(archive); }
  void load(serialize::InputArchive& archive) override { sampler_.load(archive); }
  /// Whether the batch of which next() gave a part had as many examples as all ranks asked for:
  /// what drop_last asks for.
  bool was_whole() const noexcept { return was_whole_; }
  /// The one whose batches are shared.
  Inner& sampler() noexcept { return sampler_; }

 private:
  Inner sampler_;
  size_t num_replicas_, rank_;
  bool allow_duplicates_, was_whole_ = false;
};

/// A number of examples, the request of a StreamDataset.
struct BatchSize : public CustomBatchRequest {
  explicit BatchSize(size_t n) : size_(n) {}
  size_t size() const noexcept override { return size_; }
  operator size_t() const noexcept { return size_; }  // NOLINT: it is a number

  size_t size_;
};

/// Batch sizes, until an epoch's number of examples has been asked for. save() does not write how
/// far the stream is: a run that goes on has to bring it there.
class StreamSampler : public detail::Counter<BatchSize> {
 public:
  explicit StreamSampler(size_t epoch_size) : Counter(epoch_size) {}
  std::optional<BatchSize> next(size_t batch_size) override;
};

}  // namespace halftape::data::samplers
