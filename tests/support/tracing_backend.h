// A backend that notes every call and passes it on to the default device's: what a machine without
// a GPU can say about launches, host reads and allocations.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "halftape/autograd/tensor_options.h"
#include "halftape/core/contract/forwarding_backend.h"

namespace halftape::testing {

class TracingBackend final : public ForwardingBackend {
 public:
  TracingBackend()
      : ForwardingBackend(backend(get_default_device())),
        type_(get_default_device().type()),
        former_(swap_backend(type_, this)) {}
  ~TracingBackend() override { swap_backend(type_, former_); }

  std::vector<std::string> calls;
  std::vector<size_t> allocations;
  std::vector<const void*> lowered;  // where that lies which was cast to 16 bits
  int64_t count(const std::string& call) const {
    return std::count(calls.begin(), calls.end(), call);
  }
  void clear() { calls.clear(), allocations.clear(), lowered.clear(); }

  BufferPtr allocate(size_t bytes, bool pinned) override {
    if (!pinned) allocations.push_back(bytes);
    return to().allocate(bytes, pinned);
  }

 private:
  void before(const std::string& call, const Touched& touched) override {
    calls.push_back(call);
    if (call == "cast" && is_16bit(touched.writes[0]->dtype()))
      lowered.push_back(touched.reads[0]->raw());
  }
  DeviceType type_;
  Backend* former_;
};

}  // namespace halftape::testing
