// Whether a weight has been written since an optimizer last looked.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape::optim {

/// Remembers which bytes a weight had, and their version.
class SeenWeight {
 public:
  SeenWeight() = default;
  explicit SeenWeight(const Tensor& weight);
  /// False after a write by any name, and after set_data(). A write through a plain pointer into
  /// the bytes goes unseen.
  bool is(const Tensor& weight) const;
  /// The same, and no such pointer was given out.
  bool is_surely(const Tensor& weight) const;

 private:
  const Buffer* buffer_ = nullptr;
  uint64_t version_ = 0;
  uint32_t times_set_ = 0;  // another buffer may get the address of one that is gone
};

}  // namespace halftape::optim
