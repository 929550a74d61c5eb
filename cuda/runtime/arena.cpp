#include "halftape/cuda/runtime/arena.h"

#include <algorithm>

namespace halftape::cuda {
namespace {

constexpr size_t kAligned = 512;              // bytes, as the pool's blocks are
constexpr size_t kSegment = size_t{2} << 20;  // bytes; the least taken from the pool at a time

size_t rounded(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kAligned - 1) / kAligned * kAligned;
}

}  // namespace

Arena::Arena(Context& context) : context_(context), stream_(context.borrow_stream()) {}

Arena::~Arena() {
  (void)cudaSetDevice(context_.index());
  const RelaxedCapture relaxed;
  (void)context_.wait();
  for (const Segment& s : segments_) (void)cudaFreeAsync(s.bytes, stream_);
  for (const Deferred& l : deferred_) context_.release(l.bytes, l.stream);
  context_.return_stream(stream_);
}

BufferPtr Arena::allocate(size_t bytes) {
  const size_t size = rounded(bytes);
  auto holder = std::make_unique<std::shared_ptr<Arena>>(shared_from_this());
  void* block = cut(size);
  try {
    BufferPtr buffer =
        make_ref<Buffer>(block, bytes, Device(kCUDA, context_.index()), &give_back, holder.get());
    static_cast<void>(holder.release());  // the buffer's from here on
    return buffer;
  } catch (const std::bad_alloc&) {
    give_back(block, bytes, holder.release());
    out_of_memory(sizeof(Buffer));
  }
}

/// Cuts from the smallest free piece that is large enough, or from a new segment.
void* Arena::cut(size_t size) {
  const std::lock_guard lock(mutex_);
  auto best = free_.end();
  for (auto i = free_.begin(); i != free_.end(); ++i)
    if (i->second >= size && (best == free_.end() || i->second < best->second)) best = i;
  if (best == free_.end()) {
    const size_t taken = std::max(size, kSegment);
    const RelaxedCapture relaxed;
    void* const segment = context_.from_pool(taken, stream_);
    segments_.push_back({segment, taken});
    best = free_.emplace(static_cast<char*>(segment), taken).first;
  }
  const auto [at, length] = *best;
  free_.erase(best);
  if (length > size) free_.emplace(at + size, length - size);
  return at;
}

void Arena::give_back(void* bytes, size_t size, void* holder) noexcept {
  const std::unique_ptr<std::shared_ptr<Arena>> arena(static_cast<std::shared_ptr<Arena>*>(holder));
  (*arena)->put(static_cast<char*>(bytes), rounded(size));
}

void Arena::put(char* bytes, size_t size) {
  const std::lock_guard lock(mutex_);
  auto after = free_.upper_bound(bytes);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == bytes) {
      bytes = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (after != free_.end() && bytes + size == after->first) {
    size += after->second;
    free_.erase(after);
  }
  free_.emplace(bytes, size);
}

void Arena::free_later(void* bytes, void* stream) noexcept {
  const std::lock_guard lock(mutex_);
  deferred_.push_back({bytes, static_cast<cudaStream_t>(stream)});
}

void Arena::settle() {
  const std::lock_guard lock(mutex_);
  for (const Deferred& l : deferred_) context_.release(l.bytes, l.stream);
  deferred_.clear();
  check(cudaStreamSynchronize(stream_), "allocating memory for a graph");
}

size_t Arena::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t sum = 0;
  for (const Segment& s : segments_) sum += s.size;
  return sum;
}

}  // namespace halftape::cuda
