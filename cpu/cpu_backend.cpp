#include "halftape/cpu/cpu_backend.h"

#include <cstring>

#include "halftape/cpu/runtime/allocator.h"

namespace halftape::cpu {

BufferPtr CpuBackend::allocate(size_t bytes, bool pinned) {
  HALFTAPE_CHECK(!pinned, "pin_memory: pinned memory belongs to a GPU; this device is the CPU");
  return cpu::allocate(bytes);
}

void CpuBackend::copy_across(const Array& to, const Array& from, bool) { cpu::copy(to, from); }

void CpuBackend::read(void* host, const Array& from) {
  std::memcpy(host, from.raw(), byte_count(from.shape(), from.dtype()));
}

void CpuBackend::synchronize() {}  // calls are done when they return

}  // namespace halftape::cpu

/// The only symbol of a level's kernels that others see.
extern "C" halftape::Backend* HALFTAPE_CPU_BACKEND() {
  static auto* instance = new halftape::cpu::CpuBackend;  // NOLINT: outlives every static tensor
  return instance;
}
