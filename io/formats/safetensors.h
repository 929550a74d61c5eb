// Named tensors in a safetensors file: plain data that cannot run code, checked before it is
// believed. The functions are called as those of safetensors.torch.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "halftape/autograd/tensor.h"
#include "halftape/nn/ordered_dict.h"

namespace halftape::safetensors {

using Tensors = OrderedDict<std::string, Tensor>;
using Metadata = std::map<std::string, std::string>;

/// Writes the tensors' values, from any device and layout; the file is whole or not there
/// (OutputFile). Names and metadata are UTF-8; a name has 1 to 4096 bytes. Keys of metadata that
/// begin with "halftape." are reserved, and "format" becomes "pt", as in Python's
/// safetensors.torch. The file holds a CRC-32C of all its bytes. Throws Error for an invalid name
/// or key, FileError when the file cannot be written.
void save_file(const Tensors& tensors, const std::filesystem::path& path,
               const Metadata& metadata = {});

/// The bytes that save_file() writes.
std::string save(const Tensors& tensors, const Metadata& metadata = {});

/// What a file holds.
struct Contents {
  Tensors tensors;            // in the order in which they were saved, leaves without gradients
  Metadata metadata;          // without the keys of the library
  bool has_checksum = false;  // and it was right; files written by others have none
};
/// Reads a file onto a device. Throws FileError for a file that breaks a rule of the format
/// (README.md of its repository) or of docs/files.md. Allocates only what the size of the file
/// confirms.
Contents read_file(const std::filesystem::path& path, Device device = kCPU);
/// The same from the bytes of a file; messages call them `name`.
Contents read(std::string_view bytes, Device device = kCPU, const std::string& name = "bytes");
/// Its tensors alone.
Tensors load_file(const std::filesystem::path& path, Device device = kCPU);

}  // namespace halftape::safetensors
