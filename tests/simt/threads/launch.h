// Launching a kernel on the rig. Included by simt.h.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <tuple>
#include <utility>

namespace simt {

/// Checks the configuration as the real runtime does, then hands the kernel to the stream. `kernel`
/// is the address of the function, body() calls it with its arguments. In runtime.cpp.
cudaError_t enqueue_kernel(const void* kernel, bool cooperative, dim3 blocks, dim3 threads,
                           std::size_t shared_bytes, cudaStream_t stream,
                           std::function<void()> body);

/// kernel<<<blocks, threads, shared_bytes, stream>>>(arguments...). The arguments are copied now.
template <class... Parameters, class... Arguments>
cudaError_t launch(bool cooperative, void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                   std::size_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
  return enqueue_kernel(
      reinterpret_cast<const void*>(kernel), cooperative, blocks, threads, shared_bytes, stream,
      [kernel, values = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
        std::apply(kernel, values);
      });
}

}  // namespace simt
