// Memory that runs out, and device calls that fail, when a test says so.
#pragma once
#include <cstdint>
#include <new>
#include <string>

#include "halftape/autograd/tensor_options.h"
#include "halftape/core/contract/forwarding_backend.h"

namespace halftape::testing {

/// The n-th operator new of this thread from now on throws std::bad_alloc, once; 0: none does.
/// Returns how many were left before the one that the former call asked for, 0 if it has failed.
int64_t fail_new(int64_t nth);

/// False under the thread sanitizer, whose operator new cannot be replaced: none fails then.
bool can_fail_new();

/// Every operator new of this thread of more than so many bytes throws std::bad_alloc; 0: none
/// does.
void fail_large_new(size_t bytes);

/// The default device's backend, of which one call or allocation throws std::bad_alloc.
class FailingBackend final : public ForwardingBackend {
 public:
  explicit FailingBackend(int64_t nth)
      : ForwardingBackend(backend(get_default_device())),
        left_(nth),
        type_(get_default_device().type()),
        former_(swap_backend(type_, this)) {}
  ~FailingBackend() override { swap_backend(type_, former_); }
  BufferPtr allocate(size_t bytes, bool pinned) override {
    return count(), to().allocate(bytes, pinned);
  }

 private:
  void before(const std::string&, const Touched&) override { count(); }
  void count() {
    if (left_-- == 1) throw std::bad_alloc();
  }
  int64_t left_;
  DeviceType type_;
  Backend* former_;
};

}  // namespace halftape::testing
