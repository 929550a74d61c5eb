#include "halftape/core/buffer.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "halftape/core/machine/free_list.h"
#include "halftape/core/machine/per_thread.h"

namespace halftape {
namespace {
using Live = Counter<struct OfBuffers, 2>;  // buffers and their bytes

// Given back when memory ends: the error needs some, too.
constexpr size_t kReserve = 16'384;
std::atomic<void*> reserve{std::malloc(kReserve)};  // NOLINT
[[maybe_unused]] const bool free_lists_know = (
    FreeListed::out_of_memory = [](size_t bytes) { out_of_memory(bytes); }, true);
}  // namespace

Buffer::Buffer(void* bytes, size_t size, Device device, GiveBack give_back, void* context,
               bool pinned)
    : bytes_(bytes),
      size_(size),
      device_(device),
      pinned_(pinned),
      give_back_(give_back),
      context_(context) {
  Live::add(1, static_cast<int64_t>(size));
}

Ref<Buffer> Buffer::in_block(void* block, size_t size, Device device, GiveBack give_back) {
  static_assert(sizeof(Buffer) <= kHead);
  return Ref<Buffer>(
      new (block) Buffer(static_cast<char*>(block) + kHead, size, device, give_back));  // NOLINT
}

Ref<Buffer> Buffer::part_of(const Ref<Buffer>& whole, size_t at, size_t size) {
  HALFTAPE_CHECK(!whole->has(kPart), "buffer: a part cannot have parts");
  HALFTAPE_CHECK(at <= whole->size_ && size <= whole->size_ - at, "buffer: ", size,
                 " bytes from byte ", at, " on reach outside of the ", whole->size_,
                 " of the whole");
  if (!whole->has(kWhole)) {
    const uint64_t writes = whole->version_.load(std::memory_order_relaxed);
    whole->version_.store(writes << kOwnWrites, std::memory_order_relaxed);
    whole->set(kWhole);
  }
  constexpr GiveBack let_go = [](void*, size_t, void* of) noexcept {
    Ref<Buffer>::adopt(static_cast<Buffer*>(of));
  };
  auto part = make_ref<Buffer>(static_cast<char*>(whole->bytes_) + at, size, whole->device_, let_go,
                               whole.get(), whole->pinned_);
  static_cast<void>(Ref(whole).leak());  // the part's from here on
  part->set(kPart);
  Live::add(0, -static_cast<int64_t>(size));  // they are counted already
  return part;
}

Buffer::~Buffer() { Live::add(-1, has(kPart) ? 0 : -static_cast<int64_t>(size_)); }

uint64_t Buffer::joined_version(uint64_t count) const {
  if (const Buffer* of = whole())
    return count + (of->version_.load(std::memory_order_relaxed) >> kOwnWrites);
  return (count >> kOwnWrites) + (count & ((uint64_t{1} << kOwnWrites) - 1));
}

void Buffer::bump_joined() {
  Buffer* const of = whole();
  version_.fetch_add(of ? 1 : uint64_t{1} << kOwnWrites, std::memory_order_relaxed);
  if (of) of->version_.fetch_add(1, std::memory_order_relaxed);
}

void dispose(Buffer* b) noexcept {
  void *const bytes = b->bytes_, *const context = b->context_;
  const size_t size = b->size_;
  const Buffer::GiveBack give_back = b->give_back_;
  if (!b->whole() && bytes == reinterpret_cast<char*>(b) + Buffer::kHead) {
    b->~Buffer();
    give_back(b, size + Buffer::kHead, context);
  } else {
    delete b;  // NOLINT: the counterpart of make_ref
    if (give_back) give_back(bytes, size, context);
  }
}

int64_t Buffer::live_count() { return Live::total(0); }
int64_t Buffer::live_bytes() { return Live::total(1); }

void out_of_memory(uint64_t bytes, Device device) {
  std::free(reserve.exchange(nullptr));  // NOLINT
  const OutOfMemoryError error(detail::in_its_name(
      detail::str("out of memory: ", bytes, " bytes asked for on ", device, ", ",
                  Buffer::live_bytes(), " bytes live in ", Buffer::live_count(), " buffers")));
  std::free(reserve.exchange(std::malloc(kReserve)));  // NOLINT
  throw error;
}

}  // namespace halftape
