// The IDX reader: what it accepts, and its plain words for each way in which a download goes wrong.
#include "halftape/io/formats/idx.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "halftape/io/file/deflate.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

namespace fs = std::filesystem;
namespace data = halftape::data;

namespace {

using Bytes = std::vector<uint8_t>;
using halftape::testing::TempFolder;

void write(const fs::path& path, const Bytes& bytes) {
  halftape::testing::write_bytes(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Bytes as_bytes(std::string_view s) { return {s.begin(), s.end()}; }

void append32(Bytes& out, uint32_t v, bool big_endian) {
  for (int i = 0; i < 4; ++i) {
    out.push_back(static_cast<uint8_t>(v >> 8 * (big_endian ? 3 - i : i)));
  }
}

Bytes idx(const std::vector<uint32_t>& dims, const Bytes& payload) {
  Bytes out = {0, 0, 8, static_cast<uint8_t>(dims.size())};
  for (uint32_t n : dims) append32(out, n, true);
  out.insert(out.end(), payload.begin(), payload.end());
  return out;
}

// gzip with stored blocks, so that the tests need no zlib.
Bytes gzip(const Bytes& in) {
  Bytes out = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255};
  size_t at = 0;
  do {
    const size_t n = std::min<size_t>(in.size() - at, 0xffff);
    out.push_back(at + n == in.size());  // the last block
    for (size_t v : {n, ~n}) {
      out.push_back(static_cast<uint8_t>(v & 255));
      out.push_back(static_cast<uint8_t>(v >> 8 & 255));
    }
    out.insert(out.end(), in.begin() + static_cast<std::ptrdiff_t>(at),
               in.begin() + static_cast<std::ptrdiff_t>(at + n));
    at += n;
  } while (at < in.size());
  uint32_t crc = ~0u;
  for (uint8_t byte : in) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  append32(out, ~crc, false);
  append32(out, static_cast<uint32_t>(in.size()), false);
  return out;
}

Bytes from_hex(std::string_view s) {
  Bytes out;
  for (size_t i = 0; i < s.size(); i += 2) {
    out.push_back(static_cast<uint8_t>(std::stoi(std::string(s.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

const Bytes kPixels = {0, 1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255};  // 2 images of 2x3
const Bytes kLabels = {9, 0};
const Bytes kImageFile = idx({2, 2, 3}, kPixels);
const Bytes kLabelFile = idx({2}, kLabels);

std::string data_error(const std::function<void()>& f) {
  return halftape::testing::message<data::DataError>(f);
}

// Empty if `text` contains `part`; otherwise both, for doctest to print.
std::string lacks(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return "";
  return "\"" + text + "\" lacks \"" + part + "\"";
}

#define CHECK_SAYS(text, part) CHECK(lacks(text, part) == "")

// Writes one images file beside sound labels and returns what read_idx says of it.
std::string images_message(const TempFolder& folder, const Bytes& bytes,
                           const std::string& name = "images") {
  write(folder / name, bytes);
  write(folder / "labels", kLabelFile);
  const std::string said =
      data_error([&] { (void)data::read_idx(folder / name, folder / "labels"); });
  if (!said.empty()) CHECK_SAYS(said, (folder / name).string());  // every message names the file
  return said;
}

void write_set(const TempFolder& folder, const std::string& separator, bool zipped) {
  const auto put = [&](const std::string& stem, const std::string& kind, const Bytes& bytes) {
    write(folder / (stem + separator + kind + (zipped ? ".gz" : "")), zipped ? gzip(bytes) : bytes);
  };
  put("train-images", "idx3-ubyte", kImageFile);
  put("train-labels", "idx1-ubyte", kLabelFile);
  put("t10k-images", "idx3-ubyte", idx({1, 2, 3}, {6, 5, 4, 3, 2, 1}));
  put("t10k-labels", "idx1-ubyte", idx({1}, {7}));
}

void check_set(const data::Split& split) {
  CHECK(split.train.count == 2);
  CHECK(split.train.rows == 2);
  CHECK(split.train.cols == 3);
  CHECK(split.train.classes == 10);
  CHECK(split.train.max_value == 255);
  CHECK(split.train.pixels == kPixels);
  CHECK(split.train.labels == kLabels);
  CHECK(split.test.count == 1);
  CHECK(split.test.pixels == Bytes{6, 5, 4, 3, 2, 1});
  CHECK(split.test.labels == Bytes{7});
}

bool without_gzip() {
  if (!data::reads_gzip()) MESSAGE("built without zlib: the gzip half of this case did not run");
  return !data::reads_gzip();
}

}  // namespace

TEST_CASE("an MNIST folder reads the same with dash or dot and plain or gzipped") {
  for (const std::string separator : {"-", "."}) {
    for (bool zipped : {false, true}) {
      CAPTURE(separator);
      CAPTURE(zipped);
      if (zipped && without_gzip()) continue;
      TempFolder folder;
      write_set(folder, separator, zipped);
      const data::Split split = data::mnist(folder.path());
      check_set(split);
      CHECK(split.train.name == folder.path().filename().string() + " train");
      CHECK(split.test.name == folder.path().filename().string() + " test");
      check_set(data::mnist(folder / ""));  // a trailing slash
      size_t files = 0;
      for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder.path())) ++files;
      CHECK(files == 4);  // nothing was written
#if !defined(_WIN32)
      const TempFolder here;
      fs::create_directory(folder / "run");
      fs::create_symlink(folder / "run", here / "link");
      check_set(data::mnist(here / "link/.."));  // the folder that the system means
#endif
    }
  }
}

TEST_CASE("plain files are preferred to gzipped ones and a folder of the name hides no file") {
  TempFolder folder;
  write_set(folder, ".", false);
  write(folder / "train-images-idx3-ubyte.gz", as_bytes("not looked at"));
  fs::create_directory(folder / "train-images-idx3-ubyte");
  check_set(data::mnist(folder.path()));
}

TEST_CASE("a file named .gz that was unpacked on the way is read as it is") {
  TempFolder folder;
  CHECK(images_message(folder, kImageFile, "images.gz") == "");
}

TEST_CASE("compressed gzip data of one or several members is read") {
  if (without_gzip()) return;
  TempFolder folder;
  // python3 -c 'import gzip; print(gzip.compress(bytes([0,0,8,3,0,0,0,2,0,0,0,8,0,0,0,8] +
  //             [i % 7 for i in range(128)]), 9, mtime=0).hex())'
  const Bytes file =
      from_hex("1f8b08000000000002036360e0606660606002620e306664626661651b300a00bf3fa47890000000");
  write(folder / "images", file);
  write(folder / "labels", kLabelFile);
  Bytes pixels;
  for (int i = 0; i < 128; ++i) pixels.push_back(static_cast<uint8_t>(i % 7));
  CHECK(data::read_idx(folder / "images", folder / "labels").pixels == pixels);

  const Bytes whole = kImageFile;
  Bytes members = gzip(Bytes(whole.begin(), whole.begin() + 9));
  const Bytes second = gzip(Bytes(whole.begin() + 9, whole.end()));
  members.insert(members.end(), second.begin(), second.end());
  write(folder / "images", members);
  CHECK(data::read_idx(folder / "images", folder / "labels").pixels == kPixels);

  // Every truncation, and every byte after the 10 of the gzip header flipped.
  for (size_t n = 0; n < file.size(); ++n) {
    CAPTURE(n);
    CHECK(images_message(folder, Bytes(file.begin(), file.begin() + static_cast<long>(n))) != "");
  }
  for (size_t i = 10; i < file.size(); ++i) {
    CAPTURE(i);
    Bytes damaged = file;
    damaged[i] ^= 0x55;
    CHECK(images_message(folder, damaged) != "");
  }
}

TEST_CASE("every truncation of a plain file is refused") {
  TempFolder folder;
  for (size_t n = 0; n < kImageFile.size(); ++n) {
    CAPTURE(n);
    const std::string said = images_message(
        folder, Bytes(kImageFile.begin(), kImageFile.begin() + static_cast<long>(n)));
    CHECK_SAYS(said, n == 0 ? "the file is empty" : "the file is truncated");
    CHECK_SAYS(said, "found " + std::to_string(n));
    CHECK_SAYS(said, n < 16 ? "expected a header of 16 bytes"
                            : "expected 28 bytes (16 of header + 2 x 2 x 3)");
    CHECK_SAYS(said, "fetch or copy the file again");
  }
  for (size_t n = 0; n < kLabelFile.size(); ++n) {
    CAPTURE(n);
    write(folder / "images", kImageFile);
    write(folder / "labels", Bytes(kLabelFile.begin(), kLabelFile.begin() + static_cast<long>(n)));
    CHECK(data_error([&] { (void)data::read_idx(folder / "images", folder / "labels"); }) != "");
  }
}

TEST_CASE("every truncation of a gzipped file is refused") {
  if (without_gzip()) return;
  TempFolder folder;
  const Bytes file = gzip(kImageFile);
  for (size_t n = 2; n < file.size(); ++n) {
    CAPTURE(n);
    const std::string said =
        images_message(folder, Bytes(file.begin(), file.begin() + static_cast<long>(n)));
    CHECK_SAYS(said, "found the end of the file after " + std::to_string(n) + " bytes");
    CHECK_SAYS(said, "it is truncated; fetch or copy the file again");
  }
  CHECK_SAYS(images_message(folder, {}, "images.gz"), "the file is empty");
  CHECK(images_message(folder, {0x1f}, "images.gz") != "");
  // Sound data that are too few.
  CHECK_SAYS(images_message(folder, gzip(Bytes(kImageFile.begin(), kImageFile.end() - 1))),
             "after unpacking, found " + std::to_string(kImageFile.size() - 1) +
                 ": the file is truncated");
}

TEST_CASE("bytes after the data are refused") {
  TempFolder folder;
  Bytes longer = kImageFile;
  longer.push_back(0);
  CHECK_SAYS(images_message(folder, longer), "expected 28 bytes");
  CHECK_SAYS(images_message(folder, longer), "found 29: bytes follow the data");
  if (without_gzip()) return;
  CHECK_SAYS(images_message(folder, gzip(longer)), "found more: bytes follow the data");
  Bytes after = gzip(kImageFile);
  after.insert(after.end(), {'j', 'u', 'n', 'k'});
  CHECK_SAYS(images_message(folder, after), "expected the end of the file after the gzip data");
}

TEST_CASE("gzip's check sum and length are verified") {
  if (without_gzip()) return;
  TempFolder folder;
  const Bytes file = gzip(kImageFile);
  for (size_t back = 1; back <= 8; ++back) {
    CAPTURE(back);
    Bytes damaged = file;
    damaged[file.size() - back] ^= 1;
    CHECK_SAYS(images_message(folder, damaged),
               back <= 4 ? "zlib: incorrect length check" : "zlib: incorrect data check");
    CHECK_SAYS(images_message(folder, damaged),
               "expected sound gzip data, found damage before byte");
  }
  Bytes pixel = file;
  pixel[pixel.size() - 9] ^= 1;  // the last pixel
  CHECK_SAYS(images_message(folder, pixel), "zlib: incorrect data check");
}

TEST_CASE("a gzip file that unpacks to more than its header says is stopped at once") {
  if (without_gzip()) return;
  TempFolder folder;
  Bytes bomb = kImageFile;
  bomb.resize(10'000'000);
  CHECK_SAYS(images_message(folder, gzip(bomb)), "expected 28 bytes");
  CHECK_SAYS(images_message(folder, gzip(bomb)), "found more: bytes follow the data");
  // A short file cannot unpack to half a gigabyte, whatever its header says.
  CHECK_SAYS(images_message(folder, gzip(idx({1 << 19, 32, 32}, kPixels))),
             "which cannot hold them");
}

TEST_CASE("an IDX file may unpack to as much as set_unpack_limit() allows") {
  if (without_gzip()) return;
  TempFolder folder;
  const Bytes images = idx({1000, 10, 10}, Bytes(100'000));
  const std::string packed =
      halftape::deflated({reinterpret_cast<const char*>(images.data()), images.size()});
  Bytes file = gzip(images);  // for its check sum and length
  const Bytes end(file.end() - 8, file.end());
  file.resize(10);
  file.insert(file.end(), packed.begin(), packed.end());
  file.insert(file.end(), end.begin(), end.end());
  CHECK_SAYS(images_message(folder, file), "expected 1000 labels");  // the images were read
  halftape::set_unpack_limit(50'000);
  CHECK_SAYS(images_message(folder, file),
             "may unpack to 50000; if you trust the file, call "
             "set_unpack_limit(100016)");
  halftape::set_unpack_limit(uint64_t{256} << 20);
}

TEST_CASE("header sizes that are absurd, overflow or are zero are refused before any allocation") {
  TempFolder folder;
  const uint32_t most = 0xffffffff;
  CHECK_SAYS(images_message(folder, idx({most, most, most}, kPixels)),
             "expected fewer than 2^63 bytes, found the size 4294967295 x 4294967295 x 4294967295");
  // 2^22 · 2^21 · 2^21 = 2^64, which is 0 in 64 bits.
  CHECK_SAYS(images_message(folder, idx({1u << 22, 1u << 21, 1u << 21}, {})), "expected fewer");
  CHECK_SAYS(images_message(folder, idx({1u << 20, 32, 33}, {})),
             "found 16: the file is truncated");
  CHECK_SAYS(images_message(folder, idx({1u << 20, 32, 32}, {})),
             "found 16: the file is truncated");
  for (size_t d = 0; d < 3; ++d) {
    std::vector<uint32_t> dims = {most, most, most};
    dims[d] = 0;
    CHECK_SAYS(images_message(folder, idx(dims, {})),
               "expected at least one value, found the size");
  }
}

TEST_CASE("a wrong magic number is shown, and swapped names are recognised") {
  TempFolder folder;
  std::string said = images_message(folder, kLabelFile);
  CHECK_SAYS(said,
             "expected the magic number 0x00000803 (IDX images), found 0x00000801 (IDX labels)");
  CHECK_SAYS(said, "images and labels seem to have swapped names");
  Bytes floats = kImageFile;
  floats[2] = 0x0d;
  said = images_message(folder, floats);
  CHECK_SAYS(said, "found 0x00000d03; this is another file or format: fetch the IDX file again");
  write(folder / "images", kImageFile);
  write(folder / "labels", kImageFile);
  said = data_error([&] { (void)data::read_idx(folder / "images", folder / "labels"); });
  CHECK_SAYS(said,
             "expected the magic number 0x00000801 (IDX labels), found 0x00000803 (IDX images)");
  CHECK_SAYS(images_message(folder, as_bytes("PK\x03\x04 a zip"), "images.gz"),
             "expected gzip data (0x1f8b), found 0x504b");
}

TEST_CASE("an HTML page under the name of a data file is recognised") {
  TempFolder folder;
  for (const std::string page : {"<!DOCTYPE html>\n<html>", "\xEF\xBB\xBF \r\n\t<html>404", "<"}) {
    for (const std::string name : {"images", "images.gz"}) {
      CAPTURE(page);
      CAPTURE(name);
      const std::string said = images_message(folder, as_bytes(page), name);
      CHECK_SAYS(said, "this looks like an HTML page");
      CHECK_SAYS(said, "fetch the file again");
    }
  }
  if (without_gzip()) return;
  CHECK_SAYS(images_message(folder, gzip(as_bytes("<html>not found</html>"))),
             "this looks like an HTML page");
}

TEST_CASE("without zlib a gzipped file is refused with the way out") {
  if (data::reads_gzip()) {
    MESSAGE("built with zlib: the refusal of gzip was not run");
    return;
  }
  TempFolder folder;
  const std::string said = images_message(folder, gzip(kImageFile), "images.gz");
  CHECK_SAYS(said, "found gzip data, which this build cannot read");
  CHECK_SAYS(said, "run gunzip on the file, or rebuild with zlib");
}

TEST_CASE("images and labels must agree in number and labels lie in 0 to 9") {
  TempFolder folder;
  write(folder / "images", kImageFile);
  const auto labels_message = [&](const Bytes& labels) {
    write(folder / "labels", labels);
    const std::string said =
        data_error([&] { (void)data::read_idx(folder / "images", folder / "labels"); });
    CHECK_SAYS(said, (folder / "labels").string());
    return said;
  };
  CHECK_SAYS(labels_message(idx({3}, {1, 2, 3})), "expected 2 labels, one for each image of ");
  CHECK_SAYS(labels_message(idx({3}, {1, 2, 3})), "found 3; take both files from the same set");
  CHECK_SAYS(labels_message(idx({2}, {9, 10})), "expected labels 0..9, found 10 at index 1");
}

TEST_CASE("training and test images must have one size") {
  TempFolder folder;
  write_set(folder, "-", false);
  write(folder / "t10k-images-idx3-ubyte", idx({1, 3, 2}, {6, 5, 4, 3, 2, 1}));
  const std::string said = data_error([&] { (void)data::mnist(folder.path()); });
  CHECK_SAYS(said, (folder / "t10k-images-idx3-ubyte").string());
  CHECK_SAYS(said, "expected images of 2x3");
  CHECK_SAYS(said, "found 3x2; take all four files from the same set");
}

TEST_CASE("a missing file is told with the names tried, what is there and the way out") {
  TempFolder folder;
  const auto said = [&] { return data_error([&] { (void)data::mnist(folder.path()); }); };
  CHECK_SAYS(said(), "found an empty folder");

  write_set(folder, "-", false);
  fs::remove(folder / "t10k-labels-idx1-ubyte");
  fs::create_directory(folder / "raw");
  CHECK_SAYS(said(), folder.path().string() +
                         ": expected one of t10k-labels-idx1-ubyte, t10k-labels.idx1-ubyte, "
                         "t10k-labels-idx1-ubyte.gz, t10k-labels.idx1-ubyte.gz; found "
                         "raw/, t10k-images-idx3-ubyte, train-images-idx3-ubyte, "
                         "train-labels-idx1-ubyte; put the four files");
  CHECK_SAYS(said(), "or use datasets::Digits, which needs no files");

  for (int i = 0; i < 8; ++i) write(folder / ("a" + std::to_string(i)), {});
  CHECK_SAYS(said(),
             "found a0, a1, a2, a3, a4, a5, a6, a7, raw/, t10k-images-idx3-ubyte, … "
             "(12 in all)");

  const std::string relative = data_error([] { (void)data::mnist("halftape/no/such/../folder"); });
  CHECK_SAYS(relative, (fs::current_path() / "halftape/no/such/../folder").string());  // absolute
}

TEST_CASE("a folder for a file, a file for a folder and nothing at all are told apart") {
  TempFolder folder;
  const auto said = [](const fs::path& path) {
    return data_error([&] { (void)data::mnist(path); });
  };
  CHECK_SAYS(said(folder / "none"),
             (folder / "none").string() + ": expected a folder, found nothing");
  CHECK_SAYS(said(folder / "none"), "or use datasets::Digits, which needs no files");
  CHECK_SAYS(said(""), "expected a folder");
  write(folder / "file", kImageFile);
  CHECK_SAYS(said(folder / "file"), "expected a folder, found a file");
  CHECK_SAYS(said(folder / std::string(300, 'n')), "expected a folder, found File name too long");

  write_set(folder, "-", false);
  fs::remove(folder / "train-images-idx3-ubyte");
  fs::create_directory(folder / "train-images-idx3-ubyte");
  CHECK_SAYS(said(folder.path()), (folder / "train-images-idx3-ubyte").string() +
                                      ": expected a file, found a folder; if the file lies inside "
                                      "it, move it up");
  CHECK_SAYS(data_error([&] { (void)data::read_idx(folder / "none", folder / "file"); }),
             (folder / "none").string() + ": expected a file, found nothing");
  if (fs::exists("/dev/zero")) {
    CHECK_SAYS(data_error([&] { (void)data::read_idx("/dev/zero", folder / "file"); }),
               "expected a regular file");
  }
}
