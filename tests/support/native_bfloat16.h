#pragma once
#include "halftape/core/machine/cpu_capability.h"

namespace halftape::testing {

/// set_native_bfloat16(on) until the end of its scope. Without them a product of bfloat16 is one
/// chain of fused multiply-adds, on every machine.
class [[nodiscard]] NativeBFloat16 {
 public:
  explicit NativeBFloat16(bool on) { set_native_bfloat16(on); }
  ~NativeBFloat16() { set_native_bfloat16(before_); }
  NativeBFloat16(const NativeBFloat16&) = delete;
  NativeBFloat16& operator=(const NativeBFloat16&) = delete;

 private:
  const bool before_ = uses_native_bfloat16();
};

}  // namespace halftape::testing
