// Kernels of one number, streams and events, for the tests of the simulated runtime.
#pragma once
#include <vector>

#include "support.h"

namespace simt_tests {

__global__ inline void add(float* x, float a) { *x += a; }
__global__ inline void scale(float* x, float a) { *x *= a; }
template <class T>
__global__ void set(T* x, T value) {
  *x = value;
}

inline cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t s = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&s, flags) == cudaSuccess);
  return s;
}
inline cudaEvent_t new_event() {
  cudaEvent_t e = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&e, cudaEventDisableTiming) == cudaSuccess);
  return e;
}

struct Both {  // two streams, an event, a number
  cudaStream_t a = new_stream(), b = new_stream();
  cudaEvent_t e = new_event();
  float* x = to_device(std::vector<float>{1.f});
  ~Both() {
    cudaFree(x);
    cudaEventDestroy(e);
    cudaStreamDestroy(a), cudaStreamDestroy(b);
  }
};

inline float pinned_read(float* x, cudaStream_t s, bool wait) {
  float* p;
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&p), sizeof(float)) == cudaSuccess);
  CHECK(cudaMemcpyAsync(p, x, sizeof(float), cudaMemcpyDeviceToHost, s) == cudaSuccess);
  if (wait) CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  const float value = *p;
  CHECK(cudaStreamSynchronize(s) == cudaSuccess);
  CHECK(cudaFreeHost(p) == cudaSuccess);
  return value;
}

}  // namespace simt_tests
