// Named tensors in PyTorch's .pt and .pth files: what torch.save(model.state_dict(), path) writes.
// They hold a Python pickle, which may name any code; none of it is run here.
#pragma once
#include <filesystem>
#include <string>

#include "halftape/io/formats/safetensors.h"

namespace halftape::pt {

using safetensors::Metadata;
using safetensors::Tensors;

/// Writes the tensors' values as an OrderedDict, which torch.load(path, weights_only=True) reads;
/// the file is whole or not there (OutputFile). Names are UTF-8 and have 1 to 4096 bytes.
void save_file(const Tensors& tensors, const std::filesystem::path& path);

/// What a file holds, by names that lead through dicts and lists: {"model": {"fc.weight": w},
/// "epoch": 3} has the tensor "model.fc.weight" and the number "epoch". A single tensor is called
/// "tensor".
struct Contents {
  Tensors tensors;    // in the order of the file, leaves without gradients
  Metadata metadata;  // what is no tensor: numbers and text
};
/// Reads what PyTorch 1.6 and later write, and the form before it, of the dtypes bool, uint8, int8,
/// int16, int32, int64, float16, bfloat16, float32 and float64. Of {"model": …} the key "model"
/// gives what lies below it, under names that begin there; nothing else is then read. On the CPU
/// tensors share their storage and have the strides as they had when they were saved, as from
/// torch.load. Throws FileError for classes and functions other than those of plain tensors, by
/// name, for damage, and for tensors that claim more than set_unpack_limit() allows a file of that
/// size.
Contents read_file(const std::filesystem::path& path, Device device = kCPU,
                   const std::string& key = "");
/// Its tensors alone.
Tensors load_file(const std::filesystem::path& path, Device device = kCPU,
                  const std::string& key = "");

}  // namespace halftape::pt
