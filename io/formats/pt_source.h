// The two forms of .pt files, told apart: where the pickle is, and where the storages are.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "halftape/core/dtype.h"
#include "halftape/io/file/file.h"
#include "halftape/io/formats/pickle.h"

namespace halftape::pt {

struct DtypeName {
  Dtype dtype;
  std::string_view storage;  // the class of its storages
};
inline constexpr DtypeName kDtypes[] = {
    {kBool, "torch.BoolStorage"},     {kUInt8, "torch.ByteStorage"},
    {kInt8, "torch.CharStorage"},     {kInt16, "torch.ShortStorage"},
    {kInt32, "torch.IntStorage"},     {kInt64, "torch.LongStorage"},
    {kFloat16, "torch.HalfStorage"},  {kBFloat16, "torch.BFloat16Storage"},
    {kFloat32, "torch.FloatStorage"}, {kFloat64, "torch.DoubleStorage"}};

/// The elements that tensors share, in one piece of the file.
struct Storage {
  std::string_view key;
  Dtype dtype = kFloat32;
  uint64_t numel = 0, bytes = 0;
};

/// A file that has been understood as far as its storages: each of them is there with its bytes.
struct Source {
  std::unique_ptr<std::string> stream;  // `pickle` points into it, also when the source is moved
  pickle::Pickle pickle;
  std::unordered_map<std::string_view, Storage> storages;  // by key
  bool big_endian = false;
  std::function<void(const Storage&, void* out)> read;
  /// What the value stands for, which is of Kind::Persistent.
  const Storage& storage(const pickle::Value& value) const;
};
/// Throws FileError for a file of another kind, or one that breaks a rule of the format.
Source open_source(InputFile& file);

}  // namespace halftape::pt
