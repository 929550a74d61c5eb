#include "halftape/core/buffer.h"

namespace halftape {
namespace {
std::atomic<int64_t> live_buffers{0};
std::atomic<int64_t> live_buffer_bytes{0};
}  // namespace

Buffer::Buffer(void* bytes, size_t size, Device device, GiveBack give_back, void* context)
    : bytes_(bytes), size_(size), device_(device), give_back_(give_back), context_(context) {
  live_buffers.fetch_add(1, std::memory_order_relaxed);
  live_buffer_bytes.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed);
}

Buffer::~Buffer() {
  live_buffers.fetch_sub(1, std::memory_order_relaxed);
  live_buffer_bytes.fetch_sub(static_cast<int64_t>(size_), std::memory_order_relaxed);
  if (give_back_) give_back_(bytes_, size_, context_);
}

int64_t Buffer::live_count() { return live_buffers.load(std::memory_order_relaxed); }
int64_t Buffer::live_bytes() { return live_buffer_bytes.load(std::memory_order_relaxed); }

}  // namespace halftape
