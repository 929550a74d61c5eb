#include "halftape/io/formats/image.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/buffer.h"
#include "halftape/io/file/file.h"

namespace halftape::image {
namespace {

/// P5 or P6, then width, height and the largest value in decimal, with comments from # to the end
/// of a line; one blank; the pixels.
Pixels read_pnm(const std::string& file, const std::string& name) {
  const auto check = [&](bool holds, const auto&... parts) {
    if (!holds) fail_file("pnm", name, parts...);
  };
  size_t at = 2;
  const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  const auto number = [&](const char* what, uint32_t most) {
    while (at < file.size() && (blank(file[at]) || file[at] == '#'))
      at = file[at] == '#' ? std::min(file.find('\n', at), file.size()) : at + 1;
    uint64_t n = 0;
    const size_t begin = at;
    for (; at < file.size() && file[at] >= '0' && file[at] <= '9' && n <= most; ++at)
      n = 10 * n + static_cast<uint64_t>(file[at] - '0');
    check(at > begin && n > 0 && n <= most, "expected the ", what, ", a number from 1 to ", most);
    return static_cast<uint32_t>(n);
  };
  Pixels p;
  p.channels = file[1] == '6' ? 3 : 1;
  p.width = number("width", 1 << 24);
  p.height = number("height", 1 << 24);
  const uint32_t levels = number("largest value", 255);
  check(at < file.size() && blank(file[at]), "expected a blank before the pixels");
  ++at;
  const uint64_t size = uint64_t{p.width} * p.height * p.channels;
  check(file.size() - at >= size, "expected ", size, " bytes of pixels, found ", file.size() - at);
  p.bytes = host_room<std::vector<uint8_t>>(size);
  for (uint64_t i = 0; i < size; ++i) {
    const auto v = static_cast<uint8_t>(file[at + i]);
    check(v <= levels, "a pixel of ", int{v}, ", above ", levels);
    p.bytes.push_back(static_cast<uint8_t>((v * 255 + levels / 2) / levels));
  }
  return p;
}

/// The pixels of (C, H, W) or (H, W).
Pixels checked_pixels(const Tensor& image) {
  HALFTAPE_CHECK(image.defined() && (image.dim() == 2 || image.dim() == 3) && image.numel() > 0,
                 "image: ", image.defined() ? image.sizes() : Shape(),
                 " is no picture (C, H, W) or (H, W)");
  const Tensor plain = image.detach();
  return detail::pixels_of("image",
                           image.dim() == 2 ? plain.unsqueeze(2) : plain.permute({1, 2, 0}),
                           [](double v) { return std::round(v); });
}

}  // namespace

Pixels detail::pixels_of(const char* op, const Tensor& rows, double (*rounded)(double)) {
  HALFTAPE_CHECK(rows.is_floating_point() || rows.dtype() == kUInt8, op, ": ", rows.dtype(),
                 " is neither uint8 (0 to 255) nor floating-point (0 to 1)");
  const double scale = rows.dtype() == kUInt8 ? 1 : 255;
  Pixels p{static_cast<uint32_t>(rows.size(0)), static_cast<uint32_t>(rows.size(1)),
           static_cast<uint32_t>(rows.size(2)),
           host_room<std::vector<uint8_t>>(static_cast<uint64_t>(rows.numel()))};
  for (const double v : rows.to_vector())  // NaN is not above 0
    p.bytes.push_back(v > 0 ? static_cast<uint8_t>(std::min(rounded(v * scale), 255.0)) : 0);
  return p;
}

Tensor load(const std::filesystem::path& path) {
  const std::string file = read_file("image", path);
  const bool pnm = file.starts_with("P5") || file.starts_with("P6");
  if (!pnm && !file.starts_with("\x89PNG"))
    fail_file("image", path, "expected a PNG, or a binary PPM or PGM");
  const Pixels p = pnm ? read_pnm(file, path.string()) : read_png(file, path.string());
  Tensor image = empty({p.channels, p.height, p.width}, TensorOptions(kFloat32).device(kCPU));
  auto* to = image.data_ptr<float>();
  for (size_t c = 0; c < p.channels; ++c)
    for (size_t i = c; i < p.bytes.size(); i += p.channels)
      *to++ = static_cast<float>(p.bytes[i]) / 255;
  return image;
}

void save(const std::filesystem::path& path, const Tensor& image) {
  const Pixels p = checked_pixels(image);
  const std::string kind = path.extension().string();
  const std::string file = on_host(p.bytes.size(), [&] {
    if (kind == ".png") return png(p.bytes, p.height, p.width, p.channels);
    HALFTAPE_CHECK(kind == ".ppm" || kind == ".pgm", "image: ", path.string(),
                   " ends in none of .png, .ppm and .pgm");
    HALFTAPE_CHECK(p.channels == (kind == ".ppm" ? 3 : 1), "image: ", image.sizes(), " is not for ",
                   kind, ", which has ", kind == ".ppm" ? 3 : 1, " channels");
    return (kind == ".ppm" ? "P6\n" : "P5\n") + std::to_string(p.width) + ' ' +
           std::to_string(p.height) + "\n255\n" + std::string(p.bytes.begin(), p.bytes.end());
  });
  write_file("image", path, file);
}

Tensor grid(const Tensor& images, int64_t columns, int64_t padding) {
  HALFTAPE_CHECK(images.defined() && images.dim() == 4 && images.numel() > 0,
                 "image::grid: ", images.defined() ? images.sizes() : Shape(),
                 " are no pictures (N, C, H, W)");
  HALFTAPE_CHECK(columns > 0 && padding >= 0, "image::grid: ", columns, " columns with ", padding,
                 " pixels between them");
  const NoGradGuard no_grad;
  const int64_t n = images.size(0), h = checked_add(images.size(2), padding),
                w = checked_add(images.size(3), padding);
  columns = std::min(columns, n);
  Tensor all =
      zeros({images.size(1), checked_add(checked_mul((n + columns - 1) / columns, h), padding),
             checked_add(checked_mul(columns, w), padding)},
            images.options());
  for (int64_t i = 0; i < n; ++i)
    all.slice(1, i / columns * h + padding, i / columns * h + h)
        .slice(2, i % columns * w + padding, i % columns * w + w)
        .copy_(images[i]);
  return all;
}

}  // namespace halftape::image
