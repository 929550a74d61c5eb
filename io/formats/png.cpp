#include "halftape/io/formats/png.h"

#include <cstdlib>

#include "halftape/core/buffer.h"
#include "halftape/core/check.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/crc.h"
#include "halftape/io/file/deflate.h"
#include "halftape/io/file/file.h"

namespace halftape {
namespace {

std::string chunk(const std::string& type, const std::string& data) {
  const std::string summed = type + data;
  return big_endian(data.size(), 4) + summed + big_endian(crc32(summed.data(), summed.size()), 4);
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

/// RFC 1950: a two-byte header, deflate data, and the Adler-32 sum.
std::string zlib_stream(std::string_view bytes) {
  return "\x78\x01" + deflated(bytes) + big_endian(adler32(bytes), 4);
}

constexpr std::string_view kSignature{"\x89PNG\r\n\x1a\n", 8};

}  // namespace

std::string png(std::span<const uint8_t> pixels, uint32_t height, uint32_t width,
                uint32_t channels) {
  const bool known = channels == 1 || channels == 3 || channels == 4;
  const size_t row = size_t{width} * channels;
  HALFTAPE_CHECK(known && height > 0 && width > 0 && pixels.size() == row * height,
                 "png: ", pixels.size(), " bytes are no picture of ", height, " x ", width,
                 " pixels of ", channels, " channels (1, 3 or 4)");
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // this row is not filtered
    rows.append(reinterpret_cast<const char*>(&pixels[y * row]), row);
  }
  const std::string data = zlib_stream(rows);
  HALFTAPE_CHECK(data.size() < uint64_t{1} << 31, "png: ", data.size(),
                 " compressed bytes; the format allows 2^31 - 1");
  const char color = channels == 1 ? 0 : channels == 3 ? 2 : 6;
  return std::string(kSignature) +
         chunk("IHDR",
               big_endian(width, 4) + big_endian(height, 4) + '\x08' + color + '\0' + '\0' + '\0') +
         chunk("IDAT", data) + chunk("IEND", "");
}

// --- Reading.

namespace {

class Reader {
 public:
  Reader(std::string_view file, const std::string& name) : rest_(file), name_(name) {}

  Pixels read() {
    check(can_inflate(), "this build has no zlib, which PNG needs; build with it, or use a .ppm");
    check(rest_.starts_with(kSignature), "expected a PNG, found other bytes at its beginning");
    rest_.remove_prefix(kSignature.size());
    for (std::string_view type; type != "IEND";) {
      const std::string_view data = next_chunk(type);
      check((type == "IHDR") == (color_ < 0), "expected one IHDR, and it at the beginning");
      if (type == "IHDR") header(data);
      if (type == "PLTE") palette(data);
      if (type == "IDAT") host_grow(stream_, data.size()), stream_ += data;
      const bool critical = (type[0] & 0x20) == 0;
      check(!critical || type == "IHDR" || type == "PLTE" || type == "IDAT" || type == "IEND",
            "the critical chunk '", type, "' is not known here");
    }
    pixels_.bytes = unfiltered(inflated());
    if (color_ == 3) look_up();
    return std::move(pixels_);
  }

 private:
  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    if (!holds) fail_file("png", name_, parts...);
  }

  std::string_view take(size_t n) {
    check(n <= rest_.size(), "expected ", n, " more bytes, found ", rest_.size(),
          "; the file is truncated");
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  uint32_t number() { return static_cast<uint32_t>(from_big_endian(take(4))); }

  std::string_view next_chunk(std::string_view& type) {
    const uint32_t size = number();
    const std::string_view summed = rest_.substr(0, size_t{size} + 4);
    type = take(4);
    const std::string_view data = take(size);
    const uint32_t crc = number();
    check(crc == crc32(summed.data(), summed.size()), "the check sum of '", type, "' is wrong");
    return data;
  }

  void header(std::string_view data) {
    check(data.size() == 13, "IHDR has ", data.size(), " bytes, expected 13");
    Reader numbers(data, name_);
    pixels_.width = numbers.number();
    pixels_.height = numbers.number();
    const auto byte = [&](size_t i) { return int{static_cast<uint8_t>(data[i])}; };
    const int depth = byte(8), interlaced = byte(12);
    color_ = byte(9);
    constexpr uint32_t most = 1 << 24;
    check(pixels_.width - 1 < most && pixels_.height - 1 < most, "a picture of ", pixels_.height,
          " x ", pixels_.width, " pixels; expected 1 to ", most, " each way");
    check(color_ == 0 || color_ == 2 || color_ == 3 || color_ == 4 || color_ == 6, "colour type ",
          color_, " is none of 0, 2, 3, 4, 6");
    check(depth == 8, depth, " bits a channel; save it with 8");
    check(byte(10) == 0 && byte(11) == 0, "an unknown compression or filter method");
    check(interlaced == 0, "an interlaced picture; save it without");
    pixels_.channels = color_ == 2 ? 3 : color_ == 4 ? 2 : color_ == 6 ? 4 : 1;
  }

  void palette(std::string_view data) {
    check(data.size() % 3 == 0 && data.size() <= 768, "PLTE has ", data.size(), " bytes");
    palette_ = data;
  }

  /// The rows, each after the number of its filter.
  std::string inflated() const {
    const uint64_t row = uint64_t{pixels_.width} * pixels_.channels + 1;
    const uint64_t bytes = color_ == 3 ? 3 : 1;  // that become of one in the file
    const std::string why = unpacking_refused(stream_.size() * bytes, row * pixels_.height * bytes);
    check(why.empty(), "expected ", pixels_.height, " x ", pixels_.width, " pixels, found ", why);
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(stream_[i]); };
    check(stream_.size() > 6 && (byte(0) & 15) == 8 && (byte(0) << 8 | byte(1)) % 31 == 0 &&
              (byte(1) & 32) == 0,
          "the data are no zlib stream");
    std::string rows = host_string(row * pixels_.height);
    check(inflate_into(rows.data(), rows.size(),
                       std::string_view(stream_).substr(2, stream_.size() - 6)),
          "the data do not inflate to ", pixels_.height, " x ", pixels_.width, " pixels");
    check(Reader(std::string_view(stream_).substr(stream_.size() - 4), name_).number() ==
              adler32(rows),
          "the check sum of the data is wrong");
    return rows;
  }

  /// Undoes the filters: each byte is the difference from a prediction. RFC 2083, section 6.
  std::vector<uint8_t> unfiltered(const std::string& rows) const {
    const size_t width = size_t{pixels_.width} * pixels_.channels, step = pixels_.channels;
    auto out = host_vector<uint8_t>(static_cast<int64_t>(width * pixels_.height));
    for (size_t y = 0; y < pixels_.height; ++y) {
      const char* in = &rows[y * (width + 1)];
      const int filter = static_cast<uint8_t>(*in++);
      check(filter <= 4, "row ", y, " has the unknown filter ", filter);
      uint8_t* row = &out[y * width];
      const uint8_t* former = y == 0 ? nullptr : &out[(y - 1) * width];
      for (size_t x = 0; x < width; ++x) {
        const int left = x < step ? 0 : row[x - step];
        const int above = former ? former[x] : 0;
        const int corner = former && x >= step ? former[x - step] : 0;
        const int guess = filter == 0   ? 0
                          : filter == 1 ? left
                          : filter == 2 ? above
                          : filter == 3 ? (left + above) / 2
                                        : paeth(left, above, corner);
        row[x] = static_cast<uint8_t>(in[x] + guess);
      }
    }
    return out;
  }
  static int paeth(int left, int above, int corner) {
    const int a = std::abs(above - corner), b = std::abs(left - corner),
              c = std::abs(left + above - 2 * corner);
    return a <= b && a <= c ? left : b <= c ? above : corner;
  }

  void look_up() {
    auto out = host_room<std::vector<uint8_t>>(pixels_.bytes.size() * 3);
    for (const size_t i : pixels_.bytes) {
      check(3 * i < palette_.size(), "colour ", i, " of a palette with ", palette_.size() / 3);
      out.insert(out.end(), palette_.begin() + static_cast<std::ptrdiff_t>(3 * i),
                 palette_.begin() + static_cast<std::ptrdiff_t>(3 * i + 3));
    }
    pixels_.channels = 3;
    pixels_.bytes = std::move(out);
  }

  std::string_view rest_;
  const std::string& name_;
  Pixels pixels_;
  int color_ = -1;  // IHDR has not been read
  std::string palette_, stream_;
};

}  // namespace

Pixels read_png(std::string_view file, const std::string& name) {
  return Reader(file, name).read();
}

}  // namespace halftape
