// What the rig's own tests share.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/device.h"
#include "simt.h"
#include "threads/sanitizers.h"

namespace simt_tests {

/// Every case: a device as new, quiet, and nothing left behind.
struct Fresh {
  Fresh() : with_({.quiet = true}) { simt::reset(); }
  ~Fresh() { simt::reset(); }
  simt::With with_;
};

template <class T>
T* to_device(const std::vector<T>& values) {
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, values.size() * sizeof(T)) == cudaSuccess);
  REQUIRE(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice) ==
          cudaSuccess);
  return static_cast<T*>(p);
}
template <class T>
std::vector<T> to_host(const T* values, std::size_t count) {
  std::vector<T> host(count);
  const auto e = cudaMemcpy(host.data(), values, count * sizeof(T), cudaMemcpyDeviceToHost);
  CHECK(e == cudaSuccess);
  return host;
}

inline bool reported(const std::string& text) {
  for (const std::string& report : simt::reports())
    if (report.find(text) != std::string::npos) return true;
  return false;
}

}  // namespace simt_tests
