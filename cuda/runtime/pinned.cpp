// Host memory that the devices read and write by themselves. Blocks that nobody holds are kept for
// reuse: to get one takes long, and before one may be freed, all copies that use it must be done.
#include <algorithm>
#include <memory>
#include <utility>

#include "halftape/cuda/runtime/context.h"

namespace halftape::cuda {
namespace {

constexpr size_t kPage = 4096;  // bytes

struct Block {
  void* bytes = nullptr;
  size_t size = 0;
  struct Copies {
    cudaStream_t stream;
    cudaEvent_t done;  // behind the last one
  };
  std::vector<Copies> copies;  // from and to the block
  Block* next = nullptr;       // of those that nobody holds
};

struct Blocks {
  std::mutex mutex;  // of the list, and of the copies of all blocks
  Block* unused = nullptr;
};
Blocks& blocks() {
  static auto* all = new Blocks;  // NOLINT: outlives every static tensor
  return *all;
}

void give_back(void*, size_t, void* block) noexcept {
  const std::lock_guard lock(blocks().mutex);
  auto* const unused = static_cast<Block*>(block);
  unused->next = std::exchange(blocks().unused, unused);
}

/// True if no copy uses the block any more.
bool is_free(const Block& block) {
  return std::all_of(block.copies.begin(), block.copies.end(), [](const Block::Copies& c) {
    const cudaError_t result = cudaEventQuery(c.done);
    (void)cudaGetLastError();  // it is not ready
    return result == cudaSuccess;
  });
}

/// Takes the first unused block that `suits` and is free out of the list; null if there is none.
template <class F>
std::unique_ptr<Block> take(const F& suits) {
  const std::lock_guard lock(blocks().mutex);
  for (Block** at = &blocks().unused; *at; at = &(*at)->next)
    if (suits(**at) && is_free(**at))
      return std::unique_ptr<Block>(std::exchange(*at, (*at)->next));
  return nullptr;
}

/// Puts the event behind the last copy into the stream.
cudaError_t mark(Block& block, cudaStream_t stream) {
  auto& all = block.copies;
  auto copies = std::find_if(all.begin(), all.end(), [&](auto& c) { return c.stream == stream; });
  if (copies == all.end()) {
    cudaEvent_t made = nullptr;
    if (const auto e = cudaEventCreateWithFlags(&made, cudaEventDisableTiming); e != cudaSuccess)
      return e;
    copies = all.insert(all.end(), {stream, made});
  }
  return cudaEventRecord(copies->done, stream);
}

}  // namespace

BufferPtr Context::allocate_pinned(size_t bytes) {
  choose();
  const RelaxedCapture relaxed;
  std::unique_ptr<Block> block =
      take([&](const Block& b) { return b.size >= bytes && b.size / 2 <= std::max(bytes, kPage); });
  if (!block) {
    block = std::make_unique<Block>();
    block->size = (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
    cudaError_t made = cudaHostAlloc(&block->bytes, block->size, cudaHostAllocPortable);
    if (made == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      free_unused_pinned();
      made = cudaHostAlloc(&block->bytes, block->size, cudaHostAllocPortable);
    }
    check_earlier(made, detail::str("allocating ", bytes, " bytes of pinned memory").c_str());
  }
  try {
    BufferPtr buffer =
        make_ref<Buffer>(block->bytes, bytes, kCPU, &give_back, block.get(), /*pinned=*/true);
    static_cast<void>(block.release());  // the buffer's from here on
    return buffer;
  } catch (const std::bad_alloc&) {
    give_back(nullptr, 0, block.release());
    out_of_memory(sizeof(Buffer));
  }
}

void Context::used_by_copy(const Buffer& pinned, cudaStream_t stream) {
  auto* const block = static_cast<Block*>((pinned.whole() ? *pinned.whole() : pinned).context());
  const std::lock_guard lock(blocks().mutex);
  const cudaError_t marked = mark(*block, stream);
  if (marked == cudaSuccess) return;
  (void)cudaStreamSynchronize(stream);  // no event would tell when the copy is done
  check(marked, "recording an event");
}

void Context::free_unused_pinned() noexcept {
  while (const std::unique_ptr<Block> block = take([](const Block&) { return true; })) {
    for (const Block::Copies& c : block->copies) (void)cudaEventDestroy(c.done);
    (void)cudaFreeHost(block->bytes);
  }
}

bool Context::copies_late_from(const void* host) const {
  if (properties_.pageableMemoryAccess) return true;
  cudaPointerAttributes known{};
  if (cudaPointerGetAttributes(&known, host) == cudaSuccess)
    return known.type != cudaMemoryTypeUnregistered;
  (void)cudaGetLastError();
  return true;
}

}  // namespace halftape::cuda
