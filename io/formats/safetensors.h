// Named tensors in a safetensors file: plain data that cannot run code, checked before it is
// believed. The functions are called as those of safetensors.torch.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "halftape/autograd/tensor.h"
#include "halftape/nn/ordered_dict.h"

namespace halftape::safetensors {

using Tensors = OrderedDict<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

/// Writes the tensors' values, whatever their device and layout, so that the file stands there
/// whole or not at all (OutputFile). Names and metadata are UTF-8; a name has 1 to 4096 bytes. Keys
/// of metadata beginning with "halftape." are kept for the library, and "format" is "pt", as
/// Python's safetensors.torch has it. The file holds a CRC-32C of all its bytes. Throws Error for a
/// name or key that cannot be, FileError when the file cannot be written.
void save_file(const Tensors& tensors, const std::filesystem::path& path,
               const Metadata& metadata = {});

struct Contents {
  Tensors tensors;            // in the order in which they were saved, leaves without gradients
  Metadata metadata;          // what the library keeps for itself is left out
  bool has_checksum = false;  // and it was right; files written by others have none
};
/// Reads a file onto a device. Throws FileError for one that is not sound in every byte: README.md
/// of the format's repository has the rules, docs/files.md those that are added here. No memory is
/// asked for on the word of the file before its size has confirmed it.
Contents read_file(const std::filesystem::path& path, Device device = kCPU);
/// Its tensors alone.
Tensors load_file(const std::filesystem::path& path, Device device = kCPU);

}  // namespace halftape::safetensors
