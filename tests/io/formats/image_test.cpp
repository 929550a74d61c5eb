// Pictures there and back, pictures of other programs, and files that are no pictures.
#include "halftape/io/formats/image.h"

#include <doctest/doctest.h>

#include <limits>

#include <halftape/halftape.h>

#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/crc.h"
#include "halftape/io/file/deflate.h"
#include "halftape/io/formats/png.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace std::string_literals;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

namespace {

std::string chunk(const std::string& type, const std::string& data) {
  const std::string summed = type + data;
  return big_endian(data.size(), 4) + summed + big_endian(crc32(summed.data(), summed.size()), 4);
}

/// A PNG of one row of 3 pixels, unless said otherwise.
struct Png {
  size_t height = 1, width = 3;
  char depth = 8, color = 0, interlaced = 0;
  std::string before = chunk("tEXt", "passed over"), zlib = "\x78\x01";
  std::string rows = "\0\x0a\x14\x1e"s;  // each after the number of its filter

  std::string file() const {
    size_t a = 1, b = 0;
    for (const char c : rows) {
      a = (a + static_cast<uint8_t>(c)) % 65521;
      b = (b + a) % 65521;
    }
    return "\x89PNG\r\n\x1a\n"s +
           chunk("IHDR", big_endian(width, 4) + big_endian(height, 4) + depth + color + '\0' +
                             '\0' + interlaced) +
           before + chunk("IDAT", zlib + deflated(rows) + big_endian(b << 16 | a, 4)) +
           chunk("IEND", "");
  }
};

std::vector<int64_t> bytes_of(const Tensor& image) {
  return (image * 255).round().to(kInt64).flatten().cpu().to_vector<int64_t>();
}

}  // namespace

TEST_CASE("a picture of each kind comes back from its file, float or byte") {
  TempFolder folder;
  manual_seed(3);
  for (const int64_t channels : {1, 3, 4}) {
    for (const char* kind : {".png", ".ppm", ".pgm"}) {
      if (kind != ".png"s && channels != (kind == ".ppm"s ? 3 : 1)) continue;
      if (kind == ".png"s && !can_inflate()) continue;
      CAPTURE(channels);
      CAPTURE(kind);
      const Tensor picture = randint(0, 256, {channels, 5, 7}).to(kUInt8);
      const auto path = folder / ("picture"s + kind);
      image::save(path, picture);
      const Tensor back = image::load(path);
      CHECK(back.dtype() == kFloat32);
      CHECK(back.sizes() == picture.sizes());
      CHECK(bytes_of(back) == picture.to(kInt64).flatten().cpu().to_vector<int64_t>());
      image::save(folder / ("again"s + kind), back);
      CHECK(read_bytes(folder / ("again"s + kind)) == read_bytes(path));
    }
  }
  // Rounded and clamped; NaN is black.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  image::save(folder / "edges.pgm", tensor({{-1.0, 0.5, 2.0, nan, 0.9999, 1 / 255.0}}));
  CHECK(read_bytes(folder / "edges.pgm") == "P5\n6 1\n255\n\x00\x80\xff\x00\xff\x01"s);
}

TEST_CASE("the five filters of PNG, palettes, and grey with alpha are read") {
  if (!can_inflate()) return;
  // The same row in each way, filtered by hand.
  const std::string rows =
      "\0\x0a\x14\x1e"s   // as it is
      "\x01\x0a\x0a\x0a"  // less the left one
      "\x02\0\0\0"s       // less the one above
      "\x03\x05\x05\x05"  // less the mean of both
      "\x04\0\0\0"s;      // less what Paeth's rule picks, here the one above
  const Pixels grey = read_png(Png{.height = 5, .rows = rows}.file(), "test");
  CHECK(grey.height == 5);
  CHECK(grey.width == 3);
  CHECK(grey.channels == 1);
  for (size_t i = 0; i < 15; ++i) CHECK(grey.bytes[i] == 10 * (i % 3 + 1));
  // Of the one above and the corner, when both are as near, Paeth's rule picks the one above.
  const Png tie{.height = 2, .width = 2, .rows = "\0\x0a\x0e\4\xfe\0"s};
  CHECK(read_png(tie.file(), "test").bytes == std::vector<uint8_t>{10, 14, 8, 14});
  // The corner where it lies between the other two, whichever of them is nearer.
  const Png between{.height = 3, .width = 2, .rows = "\0\x14\x0c\4\x0a\1\4\0\1"s};
  CHECK(read_png(between.file(), "test").bytes == std::vector<uint8_t>{20, 12, 30, 21, 30, 22});
  const Png other{.height = 2, .width = 2, .rows = "\0\x14\x1e\4\xf8\1"s};
  CHECK(read_png(other.file(), "test").bytes == std::vector<uint8_t>{20, 30, 12, 21});

  const Png palette{
      .color = 3, .before = chunk("PLTE", "\xff\0\0\0\xff\0\1\2\3"s), .rows = "\0\2\0\1"s};
  const Pixels colours = read_png(palette.file(), "test");
  CHECK(colours.channels == 3);
  CHECK(colours.bytes == std::vector<uint8_t>{1, 2, 3, 255, 0, 0, 0, 255, 0});

  // By Pillow 13: im = Image.new('LA', (2, 2)); im.putdata([(0,255),(10,20),(30,40),(255,0)])
  const std::string written =
      "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\2\0\0\0\2\x08\4\0\0\0\xd8\xbf\xc5\xaf\0\0\0\x12IDAT"
      "\x78\x9c\x63\x60\xf8\xcf\x25\xc2\x20\xa7\xf1\x9f\x01\0\x0b\xae\2\x63\xac\x88\x36\x30\0\0\0\0"
      "IEND"
      "\xae\x42\x60\x82"s;
  const Pixels alpha = read_png(written, "test");
  CHECK(alpha.channels == 2);
  CHECK(alpha.bytes == std::vector<uint8_t>{0, 255, 10, 20, 30, 40, 255, 0});
}

TEST_CASE("a damaged picture, or a kind that is not read, is refused with what is wrong") {
  TempFolder folder;
  const auto says = [&](const std::string& bytes) {
    write_bytes(folder / "picture", bytes);
    return message<FileError>([&] { image::load(folder / "picture"); });
  };
  CHECK(has(message<FileError>([&] { image::load(folder / "nowhere"); }), "found nothing"));
  CHECK(has(says("GIF89a"), "expected a PNG, or a binary PPM or PGM"));
  CHECK(has(says("P6\n2 # wide\n1\n255\n12345"), "expected 6 bytes of pixels, found 5"));
  CHECK(has(says("P5\n0 1\n255\n"), "expected the width, a number from 1"));
  CHECK(has(says("P5 1 1 65535\n\0\0"s), "expected the largest value, a number from 1 to 255"));
  CHECK(has(says("P5 1 1 7\n\x08"), "a pixel of 8, above 7"));
  if (!can_inflate()) return;
  CHECK(has(says(Png{.depth = 16}.file()), "16 bits a channel; save it with 8"));
  CHECK(has(says(Png{.interlaced = 1}.file()), "interlaced"));
  CHECK(has(says(Png{.color = 5}.file()), "colour type 5"));
  CHECK(has(says(Png{.width = 0}.file()), "0 pixels"));
  CHECK(has(says(Png{.width = 2}.file()), "do not inflate to 1 x 2"));
  CHECK(has(says(Png{.height = 1u << 24, .width = 1u << 24}.file()), "which cannot hold them"));
  CHECK(has(says(Png{.height = 1u << 31, .width = 1u << 31}.file()), "2147483648 pixels"));
  CHECK(has(says(Png{.before = chunk("BAD!", "")}.file()), "critical chunk 'BAD!'"));
  CHECK(has(says(Png{.before = chunk("IHDR", "")}.file()), "expected one IHDR"));
  CHECK(has(says(Png{.rows = "\5\1\1\1"}.file()), "unknown filter 5"));
  for (const size_t size : {4, 771})
    CHECK(has(says(Png{.before = chunk("PLTE", std::string(size, 'p'))}.file()),
              "PLTE has " + std::to_string(size) + " bytes"));
  CHECK(has(says(Png{.zlib = "\x78\x20"}.file()), "no zlib stream"));  // needs a dictionary
  CHECK(
      has(says(Png{.color = 3, .before = chunk("PLTE", "abc")}.file()), "colour 10 of a palette"));
  const std::string whole = Png().file();
  for (size_t size = 4; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(!says(whole.substr(0, size)).empty());
  }
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    CAPTURE(bit);
    std::string bad = whole;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
    CHECK(!says(bad).empty());
  }
}

TEST_CASE("a small PNG may unpack to as much as set_unpack_limit() allows") {
  if (!can_inflate()) return;
  const Png black{.height = 1000, .width = 999, .rows = std::string(1'000'000, '\0')};
  const std::string file = black.file();  // some 1,100 bytes
  CHECK(read_png(file, "test").bytes.size() == 999'000);
  set_unpack_limit(100'000);
  CHECK(has(message([&] { (void)read_png(file, "test"); }),
            "may unpack to 100000; if you trust the file, call set_unpack_limit(1000000)"));
  // Data that take a 64th of what they give are no bomb, whatever the limit.
  Png noise = black;
  for (size_t i = 0; i < noise.rows.size(); i += 10)
    if (i % 1000 != 0) noise.rows[i] = static_cast<char>(i * 2654435761u >> 13);
  CHECK(read_png(noise.file(), "test").width == 999);
  Png colours = black;  // each byte becomes three
  colours.color = 3;
  colours.before = chunk("PLTE", "\1\2\3");
  set_unpack_limit(1'000'000);
  CHECK(read_png(file, "test").height == 1000);
  CHECK(has(message([&] { (void)read_png(colours.file(), "test"); }), "set_unpack_limit(3000000)"));
  set_unpack_limit(uint64_t{256} << 20);
  CHECK(read_png(colours.file(), "test").bytes.size() == 2'997'000);
}

TEST_CASE("saving refuses what is no picture") {
  TempFolder folder;
  const auto says = [&](const char* name, const Tensor& t) {
    return message([&] { image::save(folder / name, t); });
  };
  CHECK(has(says("a.png", zeros({2})), "[2] is no picture"));
  CHECK(has(says("a.png", zeros({1, 0, 3})), "is no picture"));
  CHECK(has(says("a.png", zeros({2, 3, 3})), "2 channels"));
  CHECK(has(says("a.ppm", zeros({1, 3, 3})), "which has 3 channels"));
  CHECK(has(says("a.gif", zeros({3, 3})), "ends in none of"));
  CHECK(has(says("a.png", zeros({3, 3}, kInt64)), "neither uint8"));
  CHECK(has(message<FileError>([&] {
              image::save(folder / "no/a.pgm", zeros({3, 3}));
            }),
            "image: "));
}

TEST_CASE("a grid has the pictures in rows, apart by the padding") {
  const Tensor three = arange(1, 7).to(kFloat32).view({3, 1, 1, 2});
  const Tensor g = image::grid(three, 2, 1);
  const Tensor expected = tensor({{0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f},
                                  {0.f, 1.f, 2.f, 0.f, 3.f, 4.f, 0.f},
                                  {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f},
                                  {0.f, 5.f, 6.f, 0.f, 0.f, 0.f, 0.f},
                                  {0.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f}});
  CHECK(g.sizes() == Shape{1, 5, 7});
  CHECK((g[0] == expected).all().item<bool>());
  CHECK(image::grid(three, 8, 0).sizes() == Shape{1, 1, 6});
  CHECK(has(message([&] { image::grid(three[0]); }), "no pictures (N, C, H, W)"));
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(image::grid(three, most, 0).sizes() == Shape{1, 1, 6});
  CHECK(has(message([&] { image::grid(three, 8, most); }), "size"));
}
