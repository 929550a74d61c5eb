// Pictures in files, as tensors: PNG, and PPM and PGM.
#pragma once
#include <filesystem>

#include "halftape/autograd/tensor.h"
#include "halftape/io/formats/png.h"

namespace halftape::image {

/// A .png, .ppm or .pgm file, told apart by its content: (C, H, W) of float32 from 0 to 1, on the
/// CPU. C is 1 (grey), 2 (and alpha), 3 (red, green, blue) or 4 (and alpha). Reads the kinds of PNG
/// that io/formats/png.h names, and binary PPM and PGM (P5, P6) of up to 255 levels. Throws
/// FileError for anything else, for damage, and beyond set_unpack_limit().
Tensor load(const std::filesystem::path& path);

/// Writes (C, H, W) or (H, W): uint8 as it is, floating-point times 255, clamped and rounded, with
/// NaN as 0. The name ends in .png (C = 1, 3 or 4), .ppm (3) or
/// .pgm (1). Throws Error for other shapes and names, FileError when the file cannot be written.
void save(const std::filesystem::path& path, const Tensor& image);

/// Pictures (N, C, H, W) side by side in one, (C, …, …): `columns` in a row, with `padding` black
/// pixels around each. As torchvision's make_grid.
Tensor grid(const Tensor& images, int64_t columns = 8, int64_t padding = 2);

namespace detail {
/// The bytes of a picture (H, W, C): uint8 as they are, floating-point times 255, `rounded` and
/// clamped, with NaN as 0. Throws Error, which begins with `op`, for other dtypes.
Pixels pixels_of(const char* op, const Tensor& rows, double (*rounded)(double));
}  // namespace detail

}  // namespace halftape::image
