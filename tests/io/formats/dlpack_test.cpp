// Tensors lent to and borrowed from other libraries without a copy.
#include "halftape/io/formats/dlpack.h"

#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/io/file/files.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::has;
using testing::message;

namespace {

/// Another library's tensor: two rows of three floats, four apart.
struct Theirs {
  float values[8] = {0, 1, 2, -1, 3, 4, 5, -1};
  int64_t shape[2] = {2, 3}, strides[2] = {4, 1};
  int deleted = 0;
  DLManagedTensor managed{};
  Theirs() {
    managed.dl_tensor = {values, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Theirs*>(self->manager_ctx)->deleted;
    };
  }
};

}  // namespace

TEST_CASE(
    "every dtype and odd shape goes through DLPack without a copy and lives as long as needed") {
  for (const Dtype dtype : testing::kAllDtypes) {
    for (const Shape& shape : testing::kOddShapes) {
      CAPTURE(dtype);
      CAPTURE(shape);
      const int64_t live = Buffer::live_count();
      {
        Tensor back;
        const void* address = nullptr;
        std::string bytes;
        {
          const Tensor lent = testing::bytes_of_all_kinds(dtype, shape).cpu();
          address = lent.const_data_ptr();
          bytes.assign(static_cast<const char*>(address), lent.nbytes());
          DLManagedTensor* const plain = to_dlpack(lent);
          back = from_dlpack(plain);
          CHECK(testing::same_bits(back, lent));
          const Tensor versioned = from_dlpack(to_dlpack_versioned(lent));
          CHECK(testing::same_bits(versioned, lent));
          CHECK(versioned.const_data_ptr() == address);
        }
        CHECK(back.const_data_ptr() == address);
        CHECK(back.dtype() == dtype);
        CHECK(std::string(static_cast<const char*>(back.const_data_ptr()), back.nbytes()) == bytes);
      }
      CHECK(Buffer::live_count() == live);
    }
  }
}

TEST_CASE("strides and offsets go along, and writes are seen on both sides") {
  const Tensor base = arange(24, TensorOptions(kFloat32).device(kCPU)).reshape({4, 6});
  const Tensor view = base.slice(1, 1, 6, 2).t().slice(0, 1);
  const Tensor other = from_dlpack(to_dlpack(view));
  CHECK(other.sizes() == view.sizes());
  CHECK(other.strides() == view.strides());
  CHECK(other.equal(view));
  other.fill_(-7);
  CHECK(view.eq(-7).all().item<bool>());
  CHECK(base[0][0].item<float>() == 0);
}

TEST_CASE("another library's tensor is read where it lies and given back once") {
  Theirs theirs;
  {
    const Tensor t = from_dlpack(&theirs.managed);
    CHECK(t.const_data_ptr() == theirs.values);
    CHECK(t.to_vector() == std::vector<double>{0, 1, 2, 3, 4, 5});
    const Tensor row = t[1];
    CHECK(row.sum().item<float>() == 12);
    CHECK(theirs.deleted == 0);
  }
  CHECK(theirs.deleted == 1);
  theirs.managed.dl_tensor.strides = nullptr;  // row-major
  theirs.managed.dl_tensor.byte_offset = 4;
  theirs.managed.deleter = nullptr;  // nobody minds
  CHECK(from_dlpack(&theirs.managed).to_vector() == std::vector<double>{1, 2, -1, 3, 4, 5});
}

TEST_CASE("what cannot be taken or lent is refused, and stays with its owner") {
  Theirs theirs;
  DLTensor& t = theirs.managed.dl_tensor;
  const DLTensor right = t;
  const auto said = [&] {
    const std::string text = message([&] { (void)from_dlpack(&theirs.managed); });
    t = right;
    return text;
  };
  t.dtype = {kDLUInt, 32, 1};
  CHECK(has(said(), "the dtype of code 1, 32 bits and 1 lanes is none of ours"));
  t.dtype = {kDLFloat, 32, 4};
  CHECK(has(said(), "4 lanes"));
  t.device = {static_cast<DLDeviceType>(10), 0};
  CHECK(has(said(), "the device type 10 is neither"));
  t.device = {kDLCUDA, -1};
  CHECK(has(said(), "there is no GPU number -1"));
  t.ndim = 11;
  CHECK(has(said(), "11 dimensions"));
  t.ndim = -1;
  CHECK(has(said(), "-1 dimensions"));
  t.byte_offset = 2;
  CHECK(has(said(), "not aligned"));
  t.data = nullptr;
  CHECK(has(said(), "null"));
  theirs.strides[0] = -4;
  CHECK(has(said(), "go backwards"));
  theirs.strides[0] = int64_t{1} << 62;
  theirs.shape[0] = 5;
  CHECK(has(said(), "size"));
  theirs.shape[0] = -1;
  CHECK(has(said(), "size"));
  theirs.shape[0] = 2;
  theirs.strides[0] = 4;
  t.shape = nullptr;
  CHECK(has(said(), "2 dimensions without a shape"));
  // Bools may be the bytes 0 and 1 only, also where strides skip bytes.
  uint8_t bools[8] = {1, 0, 1, 7, 1, 0, 0, 255};
  t.data = bools;
  t.dtype = {kDLBool, 8, 1};
  const DLTensor of_bools = t;
  CHECK(from_dlpack(&theirs.managed).sum().item<int64_t>() == 3);
  CHECK(theirs.deleted == 1);
  theirs.shape[1] = 4;
  t = of_bools;
  CHECK(has(said(), "expected bools of the bytes 0 and 1"));
  bools[3] = 1;
  t = of_bools;
  CHECK(has(said(), "expected bools of the bytes 0 and 1"));
  theirs.shape[1] = 3;
  t.byte_offset = ~uint64_t{0} - 7;  // before the data, not aligned to anything there is
  t.data = nullptr;
  CHECK(has(said(), "null"));
  CHECK(theirs.deleted == 1);
  DLManagedTensorVersioned versioned{{2, 0}, nullptr, nullptr, 0, right};
  CHECK(has(message([&] { (void)from_dlpack(&versioned); }), "version 2 of the interface"));
  versioned.version.major = 1;
  versioned.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  CHECK(has(message([&] { (void)from_dlpack(&versioned); }), "must not be written"));
  CHECK(has(message([] { (void)from_dlpack(static_cast<DLManagedTensor*>(nullptr)); }),
            "null pointer"));
  CHECK(has(message([] { (void)to_dlpack(Tensor()); }), "undefined"));
  CHECK(has(message([] { (void)to_dlpack(ones({1}).requires_grad_()); }), "detach() it"));
}

TEST_CASE("what another library writes is what autocast computes with next") {
  const Tensor w = ones({8, 8}).requires_grad_(), x = ones({8, 8});
  const auto run = [&](const Tensor& weight) {
    const amp::autocast region(kCPU, kBFloat16);
    return linear(x, weight)[0][0].item<double>();
  };
  CHECK(run(w) == 8);
  DLManagedTensor* const lent = to_dlpack(w.detach());
  CHECK(run(w) == 8);
  std::fill_n(static_cast<float*>(lent->dl_tensor.data), 64, 2.f);
  CHECK(run(w) == 16);
  lent->deleter(lent);
  Theirs theirs;
  const Tensor borrowed = from_dlpack(&theirs.managed).requires_grad_();
  const auto first = [&] {
    const amp::autocast region(kCPU, kBFloat16);
    return linear(ones({1, 3}), borrowed)[0][0].item<double>();
  };
  CHECK(first() == 3);
  theirs.values[0] = 4;
  CHECK(first() == 7);
}
