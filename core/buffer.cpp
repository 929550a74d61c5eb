#include "halftape/core/buffer.h"

#include <new>

#include "halftape/core/per_thread.h"

namespace halftape {
namespace {
using LiveBuffers = Counter<struct OfBuffers>;
using LiveBytes = Counter<struct OfBytes>;
}  // namespace

Buffer::Buffer(void* bytes, size_t size, Device device, GiveBack give_back, void* context,
               bool pinned)
    : bytes_(bytes),
      size_(size),
      device_(device),
      pinned_(pinned),
      give_back_(give_back),
      context_(context) {
  LiveBuffers::add(1);
  LiveBytes::add(static_cast<int64_t>(size));
}

Ref<Buffer> Buffer::in_block(void* block, size_t size, Device device, GiveBack give_back) {
  static_assert(sizeof(Buffer) <= kHead);
  return Ref<Buffer>(
      new (block) Buffer(static_cast<char*>(block) + kHead, size, device, give_back));  // NOLINT
}

Buffer::~Buffer() {
  LiveBuffers::add(-1);
  LiveBytes::add(-static_cast<int64_t>(size_));
}

void dispose(Buffer* b) noexcept {
  void *const bytes = b->bytes_, *const context = b->context_;
  const size_t size = b->size_;
  const Buffer::GiveBack give_back = b->give_back_;
  if (bytes == reinterpret_cast<char*>(b) + Buffer::kHead) {
    b->~Buffer();
    give_back(b, size + Buffer::kHead, context);
  } else {
    delete b;  // NOLINT: the counterpart of make_ref
    if (give_back) give_back(bytes, size, context);
  }
}

int64_t Buffer::live_count() { return LiveBuffers::total(); }
int64_t Buffer::live_bytes() { return LiveBytes::total(); }

}  // namespace halftape
