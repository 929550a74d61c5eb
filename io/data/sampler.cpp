// The samplers' orders and their positions.
#include "halftape/io/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "halftape/core/buffer.h"
#include "halftape/core/check.h"
#include "halftape/core/formula/philox.h"
#include "halftape/core/random/random.h"

namespace halftape::data::samplers {
namespace {

/// A stream of 64-bit numbers for each seed and epoch. The default generators use only the lower
/// half of the counter, so the streams never overlap with theirs.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t epoch) : seed_(seed), epoch_(epoch) {}
  uint64_t next() {
    if (used_ == 4) block_ = philox(seed_, counter_++, epoch_ + 1), used_ = 0;
    const uint64_t low = block_.v[used_], high = block_.v[used_ + 1];
    used_ += 2;
    return high << 32 | low;
  }
  /// Uniform in [0, n): the numbers at the end that would favour some remainders are drawn again.
  uint64_t below(uint64_t n) {
    const uint64_t unfair = (0 - n) % n;  // 2^64 mod n
    uint64_t x = next();
    while (x < unfair) x = next();
    return x % n;
  }

 private:
  uint64_t seed_, epoch_, counter_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

uint64_t drawn_seed() {
  const RandomKey key = random_reserve(kCPU, 2);
  return uint64_t{random_bits(key.seed, key.offset, 1)} << 32 |
         random_bits(key.seed, key.offset, 0);
}

/// first, first + 1, …
std::vector<size_t> numbers(size_t first, size_t count) {
  std::vector<size_t> all;
  try {
    all = host_vector<size_t>(static_cast<int64_t>(count));
  } catch (const Error&) {  // also for more than an int64_t counts
    throw OutOfMemoryError("sampler: no memory for the order of " + std::to_string(count) +
                           " examples, eight bytes each; give the dataset's own size");
  }
  std::iota(all.begin(), all.end(), first);
  return all;
}

std::vector<size_t> shuffled(size_t count, Mt19937& from) {
  std::vector<size_t> order = numbers(0, count);
  from.shuffle(std::span(order));
  return order;
}

// Two words of an Mt19937 are one number.
constexpr size_t kPairs = Mt19937::kWords / 2;
std::string pair_name(size_t i) { return "mt19937." + std::to_string(i); }

void save(const Mt19937& mt, serialize::OutputArchive& archive) {
  archive.write("mt19937.position", mt.position);
  for (size_t i = 0; i < kPairs; ++i)
    archive.write(pair_name(i), uint64_t{mt.words[2 * i + 1]} << 32 | mt.words[2 * i]);
}

/// None when none was saved.
std::optional<Mt19937> saved_mt19937(const serialize::InputArchive& archive) {
  if (!archive.numbers().contains("mt19937.position")) return std::nullopt;
  Mt19937 mt;
  mt.position = static_cast<uint32_t>(archive.read("mt19937.position"));
  for (size_t i = 0; i < kPairs; ++i) {
    const uint64_t pair = archive.read(pair_name(i));
    mt.words[2 * i] = static_cast<uint32_t>(pair);
    mt.words[2 * i + 1] = static_cast<uint32_t>(pair >> 32);
  }
  return mt;
}

size_t count_of(int64_t size) {
  HALFTAPE_CHECK(size >= 0, "RandomSampler: a size of ", size);
  return static_cast<size_t>(size);
}

/// How many examples are next: none at the end.
size_t step(size_t index, size_t end, size_t batch_size) {
  return std::min(batch_size, end - index);
}

/// A saved index that lies within the sampler.
size_t read_index(const serialize::InputArchive& archive, size_t end) {
  const uint64_t index = archive.read("index");
  HALFTAPE_CHECK(index <= end, "sampler: the saved position ", index,
                 " lies beyond this sampler's ", end, " examples");
  return index;
}

void same(const serialize::InputArchive& archive, const char* name, uint64_t mine) {
  const uint64_t saved = archive.read(name);
  HALFTAPE_CHECK(saved == mine, "sampler: saved with ", name, " = ", saved, ", this one has ", mine,
                 ": its order is another, and a position in it means nothing");
}

}  // namespace

std::vector<size_t> permutation(size_t count, uint64_t seed, uint64_t epoch) {
  std::vector<size_t> order = numbers(0, count);
  Draws draws(seed, epoch);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[draws.below(i)]);
  return order;
}

// --- One after the other

template <class BatchRequest>
void detail::Counter<BatchRequest>::load(serialize::InputArchive& archive) {
  index_ = read_index(archive, size_);
}
template class detail::Counter<std::vector<size_t>>;
template class detail::Counter<BatchSize>;

std::optional<std::vector<size_t>> SequentialSampler::next(size_t batch_size) {
  const size_t n = step(index_, size_, batch_size);
  if (n == 0) return std::nullopt;
  index_ += n;
  return numbers(index_ - n, n);
}

std::optional<BatchSize> StreamSampler::next(size_t batch_size) {
  const size_t n = step(index_, size_, batch_size);
  if (n == 0) return std::nullopt;
  index_ += n;
  return BatchSize(n);
}

// --- Random

RandomSampler::RandomSampler(int64_t size, Dtype)
    : size_(count_of(size)),
      seed_(cpu_random_engine() == RandomEngine::Mt19937 ? 0 : drawn_seed()),
      own_seed_(false) {
  draw_order();
}
RandomSampler::RandomSampler(int64_t size, uint64_t seed) : size_(count_of(size)), seed_(seed) {}

void RandomSampler::reset(std::optional<size_t> new_size) {
  const bool begun = index_ > 0;
  size_ = new_size.value_or(size_);
  set_epoch(epoch_ + (begun ? 1 : 0));
  draw_order();
}

void RandomSampler::draw_order() {
  if (own_seed_) return;
  if (const LockedMt19937 mt(kCPU); mt) {
    drawn_from_ = *mt;
    order_ = shuffled(size_, *mt);
  } else if (drawn_from_) {
    drawn_from_.reset();
    seed_ = drawn_seed();
  }
}

void RandomSampler::set_epoch(size_t epoch) {
  epoch_ = epoch;
  index_ = 0;
  order_.clear();
}

std::optional<std::vector<size_t>> RandomSampler::next(size_t batch_size) {
  const size_t n = step(index_, size_, batch_size);
  if (n == 0) return std::nullopt;
  if (order_.empty()) {
    auto from = drawn_from_;
    order_ = from ? shuffled(size_, *from) : permutation(size_, seed_, epoch_);
  }
  const auto from = order_.begin() + static_cast<std::ptrdiff_t>(index_);
  index_ += n;
  return std::vector<size_t>(from, from + static_cast<std::ptrdiff_t>(n));
}

void RandomSampler::save(serialize::OutputArchive& archive) const {
  archive.write("size", size_);
  archive.write("seed", seed_);
  archive.write("epoch", epoch_);
  archive.write("index", index_);
  if (drawn_from_) samplers::save(*drawn_from_, archive);
}

void RandomSampler::load(serialize::InputArchive& archive) {
  same(archive, "size", size_);
  const size_t index = read_index(archive, size_), epoch = archive.read("epoch");
  auto drawn_from = saved_mt19937(archive);
  seed_ = archive.read("seed");
  own_seed_ = !drawn_from;  // whatever this one was made with
  drawn_from_ = drawn_from;
  set_epoch(epoch);
  index_ = index;
}

// --- Distributed

namespace detail {

void Share::reset(std::optional<size_t> new_size) {
  const bool begun = index_ > 0;
  size_ = new_size.value_or(size_);
  set_epoch(epoch_ + (begun ? 1 : 0));
}

void Share::rewind() {
  index_ = 0;
  ordered_ = false;
}

std::optional<std::vector<size_t>> Share::next(size_t batch_size) {
  const size_t mine = local_sample_count(), n = step(index_, mine, batch_size);
  if (n == 0) return std::nullopt;
  if (!ordered_) {
    order_ = order(mine * num_replicas_);
    ordered_ = true;
  }
  std::vector<size_t> indices = numbers(0, n);
  for (size_t i = 0; i < n; ++i) {
    const size_t position = rank_ * mine + index_ + i;
    indices[i] = (order_.empty() ? position : order_[position]) % size_;
  }
  index_ += n;
  return indices;
}

void Share::save(serialize::OutputArchive& archive) const {
  archive.write("size", size_);
  archive.write("num_replicas", num_replicas_);
  archive.write("allow_duplicates", allow_duplicates_ ? 1 : 0);
  archive.write("seed", seed_);
  archive.write("epoch", epoch_);
  archive.write("index", index_);
}

void Share::load(serialize::InputArchive& archive) {
  same(archive, "size", size_);
  same(archive, "num_replicas", num_replicas_);
  same(archive, "allow_duplicates", allow_duplicates_);
  const size_t index = read_index(archive, local_sample_count()), epoch = archive.read("epoch");
  seed_ = archive.read("seed");
  set_epoch(epoch);
  index_ = index;
}

std::vector<size_t> part_of(const std::vector<size_t>& batch, size_t num_replicas, size_t rank,
                            bool allow_duplicates) {
  const size_t n = batch.size();
  std::vector<size_t> part(n / num_replicas + (allow_duplicates && n % num_replicas != 0 ? 1 : 0));
  for (size_t i = 0; i < part.size(); ++i) part[i] = batch[(rank * part.size() + i) % n];
  return part;
}

}  // namespace detail

}  // namespace halftape::data::samplers
