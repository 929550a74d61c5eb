// Tensors handed to other libraries and taken from them without a copy: DLPack.
#pragma once
#include <cstdint>

#include "halftape/autograd/tensor.h"

// The public binary interface of DLPack 1.0 (dmlc.github.io/dlpack), declared here under its names,
// unless the program has included that project's own header before.
#ifndef DLPACK_MAJOR_VERSION
extern "C" {
struct DLPackVersion {
  uint32_t major, minor;
};
enum DLDeviceType : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 };
struct DLDevice {
  DLDeviceType device_type;
  int32_t device_id;
};
enum DLDataTypeCode : uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 };
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
}
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0)
#define DLPACK_FLAG_BITMASK_IS_COPIED (1UL << 1)
#endif

namespace halftape {

/// The tensor's bytes for another library, which calls the deleter when it is done; they live until
/// then. The history stays here: throws for a tensor that requires grad (detach() it). What the
/// other library writes is not counted as an in-place change. A GPU's work on it must be done first
/// (cuda::synchronize()).
DLManagedTensor* to_dlpack(const Tensor& tensor);
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor);

/// A tensor over the other library's bytes, whose deleter is called when the last handle goes.
/// Strides and offsets are kept. When it throws, the deleter was not called. It throws for dtypes,
/// devices and strides that are not ours, for data that are not aligned to their elements, for
/// bytes that must not be written, and for bools of other bytes than 0 and 1.
Tensor from_dlpack(DLManagedTensor* managed);
Tensor from_dlpack(DLManagedTensorVersioned* managed);

}  // namespace halftape
