#include "halftape/io/formats/dlpack.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "halftape/io/formats/tensor_bytes.h"

namespace halftape {
namespace {

struct Code {
  Dtype dtype;
  uint8_t code;
};
constexpr Code kCodes[] = {{kBool, kDLBool},     {kUInt8, kDLUInt},      {kInt8, kDLInt},
                           {kInt16, kDLInt},     {kInt32, kDLInt},       {kInt64, kDLInt},
                           {kFloat16, kDLFloat}, {kBFloat16, kDLBfloat}, {kFloat32, kDLFloat},
                           {kFloat64, kDLFloat}};

/// A managed tensor with the sizes it points to and the array that owns the bytes.
template <class Managed>
struct Lent {
  Managed managed{};
  Array array;
  Shape shape;
  Strides strides;
};

template <class Managed>
Managed* lend(const Tensor& tensor) {
  HALFTAPE_CHECK(tensor.defined(), "to_dlpack: the tensor is undefined");
  HALFTAPE_CHECK(!tensor.requires_grad(),
                 "to_dlpack: the tensor requires grad, and history cannot go along; detach() it");
  auto lent = std::make_unique<Lent<Managed>>();
  const Array& a = lent->array = tensor.array();
  a.buffer()->expose();
  lent->shape = a.shape();
  lent->strides = a.strides();
  const auto* known = std::find_if(std::begin(kCodes), std::end(kCodes),
                                   [&](const Code& c) { return c.dtype == a.dtype(); });
  DLTensor& t = lent->managed.dl_tensor;
  t.data = a.raw();
  t.device = {a.device().is_cuda() ? kDLCUDA : kDLCPU,
              a.device().is_cuda() ? a.device().index() : 0};
  t.ndim = a.dim();
  t.dtype = {known->code, static_cast<uint8_t>(8 * element_size(a.dtype())), 1};
  t.shape = lent->shape.begin();
  t.strides = lent->strides.begin();
  t.byte_offset = 0;
  lent->managed.manager_ctx = lent.get();
  lent->managed.deleter = [](Managed* self) {
    delete static_cast<Lent<Managed>*>(self->manager_ctx);  // NOLINT: as the interface wants it
  };
  return &lent.release()->managed;
}

Dtype dtype_from(const DLDataType& type) {
  const auto* known = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& c) {
    return c.code == type.code && 8 * element_size(c.dtype) == type.bits;
  });
  HALFTAPE_CHECK(
      known != std::end(kCodes) && type.lanes == 1, "from_dlpack: the dtype of code ",
      int{type.code}, ", ", int{type.bits}, " bits and ", type.lanes,
      " lanes is none of ours (bool, uint8, int8, int16, int32, int64, float16, bfloat16, ",
      "float32, float64)");
  return known->dtype;
}

Device device_from(const DLDevice& device) {
  HALFTAPE_CHECK(device.device_type == kDLCPU || device.device_type == kDLCUDAHost ||
                     device.device_type == kDLCUDA,
                 "from_dlpack: the device type ", static_cast<int>(device.device_type),
                 " is neither the CPU (1, 3) nor CUDA (2)");
  const bool cuda = device.device_type == kDLCUDA;
  HALFTAPE_CHECK(!cuda || (device.device_id >= 0 &&
                           device.device_id <= std::numeric_limits<DeviceIndex>::max()),
                 "from_dlpack: there is no GPU number ", device.device_id);
  return cuda ? Device(kCUDA, static_cast<DeviceIndex>(device.device_id)) : Device(kCPU);
}

template <class Managed>
Tensor borrow(Managed* managed) {
  HALFTAPE_CHECK(managed, "from_dlpack: got a null pointer");
  const DLTensor& t = managed->dl_tensor;
  const Dtype dtype = dtype_from(t.dtype);
  const Device device = device_from(t.device);
  HALFTAPE_CHECK(t.ndim >= 0 && t.ndim <= kMaxDims, "from_dlpack: ", t.ndim,
                 " dimensions; at most ", kMaxDims, " are possible");
  HALFTAPE_CHECK(t.ndim == 0 || t.shape, "from_dlpack: ", t.ndim, " dimensions without a shape");
  const auto n = static_cast<size_t>(t.ndim);
  const Shape shape(std::span<const int64_t>(t.shape, n));
  const int64_t elements = numel(shape);  // throws for sizes that cannot be
  const Strides strides = t.strides && elements > 0
                              ? Strides(std::span<const int64_t>(t.strides, n))
                              : contiguous_strides(shape);
  // From the first to the last byte: strides below 0 would lead before the buffer.
  int64_t last = elements > 0 ? 1 : 0;
  for (int i = 0; i < shape.size() && elements > 0; ++i) {
    HALFTAPE_CHECK(strides[i] >= 0 || shape[i] == 1, "from_dlpack: the strides ", strides,
                   " go backwards; pass a copy");
    last = checked_add(last, checked_mul(std::max<int64_t>(strides[i], 0), shape[i] - 1));
  }
  const int64_t bytes = checked_mul(last, static_cast<int64_t>(element_size(dtype)));
  const uintptr_t address = reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  HALFTAPE_CHECK(elements == 0 || (t.data && address % element_size(dtype) == 0),
                 "from_dlpack: the data are null, or not aligned to elements of ",
                 element_size(dtype), " bytes; pass a copy");
  const auto array_of = [&](Dtype as, Buffer::GiveBack give_back) {
    const BufferPtr buffer(new Buffer(reinterpret_cast<void*>(address), static_cast<size_t>(bytes),
                                      device, give_back, managed));
    buffer->expose();
    return Array(buffer, shape, strides, 0, as);
  };
  if (dtype == kBool) {
    const Array seen =
        array_of(kUInt8, [](void*, size_t, void*) noexcept {}).to(kCPU).to_contiguous();
    HALFTAPE_CHECK(!find_no_bool(bytes_of(seen)),
                   "from_dlpack: expected bools of the bytes 0 and 1, found others; pass a copy "
                   "that compares the elements with 0");
  }
  // The last step that may throw: once it succeeds, the deleter will be called.
  return Tensor(array_of(dtype, [](void*, size_t, void* context) noexcept {
    auto* const self = static_cast<Managed*>(context);
    if (self->deleter) self->deleter(self);
  }));
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& tensor) { return lend<DLManagedTensor>(tensor); }

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor) {
  auto* const managed = lend<DLManagedTensorVersioned>(tensor);
  managed->version = {1, 0};
  return managed;
}

Tensor from_dlpack(DLManagedTensor* managed) { return borrow(managed); }

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  HALFTAPE_CHECK(managed && managed->version.major == 1, "from_dlpack: version ",
                 managed ? managed->version.major : 0, " of the interface is not known here, 1 is");
  HALFTAPE_CHECK(
      !(managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY),
      "from_dlpack: the bytes must not be written, and tensors here can be; pass a copy");
  return borrow(managed);
}

}  // namespace halftape
