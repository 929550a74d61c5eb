// NumPy's files: one array (.npy), or several by name (.npz). The functions are called as NumPy's.
#pragma once
#include <filesystem>

#include "halftape/io/formats/safetensors.h"

namespace halftape::npy {

using safetensors::Tensors;

/// Writes one array, row-major and little-endian; the file is whole or not there. Throws for
/// bfloat16, which NumPy does not have: save x.to(kFloat32), or use safetensors.
void save(const std::filesystem::path& path, const Tensor& tensor);
/// Reads one array: format 1.0, 2.0 or 3.0, row- or column-major, either byte order, in the dtypes
/// bool, uint8, int8, int16, int32, int64, float16, float32 and float64. The result is a row-major
/// CPU tensor. Throws FileError for anything else; Python objects are never read.
Tensor load(const std::filesystem::path& path);

/// Writes named arrays as they are, or deflated.
void savez(const std::filesystem::path& path, const Tensors& tensors);
void savez_compressed(const std::filesystem::path& path, const Tensors& tensors);
/// All arrays of an archive, in its order; the CRC of each is checked. Throws FileError for
/// anything else, and beyond set_unpack_limit().
Tensors load_npz(const std::filesystem::path& path);

}  // namespace halftape::npy
