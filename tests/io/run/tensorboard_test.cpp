// Event files: the frame of each record, and its contents. scripts/compare_files_with_python
// has TensorBoard itself read them.
#include "halftape/io/run/tensorboard.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include <halftape/halftape.h>

#include "halftape/io/file/crc.h"
#include "halftape/io/file/deflate.h"
#include "halftape/io/formats/png.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace std::string_literals;
using testing::has;
using testing::message;
using testing::TempFolder;

namespace {

uint32_t masked(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}
template <class T>
T number(const std::string& bytes, size_t at) {
  T value;
  REQUIRE(at + sizeof(T) <= bytes.size());
  std::memcpy(&value, &bytes[at], sizeof(T));
  return value;
}
/// The events of a file whose frames are right.
std::vector<std::string> events(const std::filesystem::path& path) {
  const std::string bytes = testing::read_bytes(path);
  std::vector<std::string> all;
  for (size_t at = 0; at < bytes.size();) {
    const auto n = static_cast<size_t>(number<uint64_t>(bytes, at));
    CHECK(number<uint32_t>(bytes, at + 8) == masked(bytes.substr(at, 8)));
    all.push_back(bytes.substr(at + 12, n));
    CHECK(number<uint32_t>(bytes, at + 12 + n) == masked(all.back()));
    at += n + 16;
  }
  return all;
}
std::string bytes_of(double x) { return {reinterpret_cast<const char*>(&x), 8}; }

}  // namespace

TEST_CASE("scalars and text are written as TensorFlow's messages, in frames with check sums") {
  TempFolder folder;
  tensorboard::SummaryWriter writer(folder / "a/run");
  writer.add_scalar("loss", 0.5, 300, 2.0);
  writer.add_scalar("loss", tensor(0.25f), -1, 3.0);
  writer.add_text("note", "hi", 1, 2.0);
  writer.flush();
  CHECK(has(writer.path().filename().string(), "events.out.tfevents."));
  const std::vector<std::string> all = events(writer.path());
  REQUIRE(all.size() == 4);
  CHECK(has(all[0],
            "\x1a\x0d"
            "brain.Event:2"s));
  CHECK(all[1] == "\x09" + bytes_of(2) + "\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"s);
  CHECK(all[2] == "\x09" + bytes_of(3) +
                      "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                      "\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\x80\x3e"s);
  CHECK(all[3] == "\x09" + bytes_of(2) +
                      "\x10\x01\x2a\x2d\x0a\x2b\x0a\x11note/text_summary"
                      "\x42\x0c\x08\x07\x12\x04\x12\x02\x08\x01\x42\x02hi"
                      "\x4a\x08\x0a\x06\x0a\x04text"s);
  writer.close();
  writer.close();
  CHECK(has(message([&] { writer.add_scalar("loss", 1); }), "was closed"));
  CHECK(has(message([&] { tensorboard::SummaryWriter w(writer.path()); }), "expected a folder"));
}

TEST_CASE("each record is in the file as soon as it is added") {
  TempFolder folder;
  tensorboard::SummaryWriter writer(folder.path());
  for (size_t added = 1; added < 40; ++added) {
    CHECK(events(writer.path()).size() == added);
    writer.add_scalar("loss", 1);
  }
}

TEST_CASE("a histogram counts finite values in its buckets, and two writers have two files") {
  TempFolder folder;
  tensorboard::SummaryWriter writer(folder.path()), other(folder.path());
  CHECK(writer.path() != other.path());
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  writer.add_histogram("one", tensor({2.0f}), 0, 2.0);
  writer.add_histogram("h", tensor({-1.0, 0.0, 2.0, 2.0, inf, -inf, nan, 1e300}, kFloat64), 1, 2.0);
  writer.close();
  // One value takes two buckets: TensorBoard takes a left limit from the bucket before it.
  const std::string two = "\x3a\x10" + bytes_of(0) + bytes_of(1);
  CHECK(events(writer.path())[1].ends_with(two));
  const std::string event = events(writer.path())[2];
  const size_t at = event.find("\x2a", event.find("h")) + 1;  // field 5, the histogram
  const std::string body = event.substr(event.find("\x09", at));
  CHECK(number<double>(body, 1) == -1);      // the smallest
  CHECK(number<double>(body, 10) == 1e300);  // the largest
  CHECK(number<double>(body, 19) == 5);      // how many
  CHECK(number<double>(body, 28) == 1e300);  // their sum
  CHECK(number<double>(body, 37) == inf);    // of the squares
  // The counts come last, as many as there are limits, and add up to how many there are.
  double counted = 0;
  for (size_t i = body.size() - 8; counted < 5; i -= 8) counted += number<double>(body, i);
  CHECK(counted == 5);
  CHECK(has(message([&] { other.add_histogram("h", tensor({nan})); }),
            "\"h\" has no finite value among 1"));
  CHECK(has(message([&] { other.add_histogram("h", empty({0})); }), "no finite value among 0"));
}

TEST_CASE("a picture becomes a PNG of its bytes, from any of the three orders") {
  TempFolder folder;
  const Tensor chw = tensor({{{0, 51}, {102, 255}}, {{1, 2}, {3, 4}}, {{9, 8}, {7, 6}}}, kUInt8);
  tensorboard::SummaryWriter writer(folder.path());
  writer.add_image("i", chw, 1, 2.0);
  writer.add_image("i", chw.permute({1, 2, 0}), 1, 2.0, "HWC");
  writer.add_image("i", chw.select(0, 0), 1, 2.0, "HW");
  writer.add_image("i", chw.select(0, 0).to(kFloat32) / 255 * 2 - tensor(0.4f), 1, 2.0, "HW");
  writer.close();
  const auto all = events(writer.path());
  CHECK(all[1] == all[2]);
  const std::vector<uint8_t> pixels = {0, 1, 9, 51, 2, 8, 102, 3, 7, 255, 4, 6};
  const std::string file = png(pixels, 2, 2, 3);
  CHECK(has(all[1], file));
  CHECK(has(all[3], png(std::vector<uint8_t>{0, 51, 102, 255}, 2, 2, 1)));
  CHECK(has(all[4], png(std::vector<uint8_t>{0, 0, 102, 255}, 2, 2, 1)));  // clamped to 0 … 1
  CHECK(file.starts_with("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\2\0\0\0\2\x08\2\0\0\0"s));
  CHECK(file.ends_with("\0\0\0\0IEND\xae\x42\x60\x82"s));
  const size_t data = file.find("IDAT") + 4, end = file.find("IEND") - 8;
  std::string rows(14, '\0');
  if (can_inflate()) {
    CHECK(inflate_into(rows.data(), rows.size(), file.substr(data + 2, end - data - 6)));
    CHECK(rows == "\0\0\1\x09\x33\2\x08\0\x66\3\7\xff\4\6"s);
  }
  CHECK(has(message([&] { writer.add_image("i", chw, 1, {}, "XY"); }), "is none of CHW, HWC, HW"));
  CHECK(
      has(message([&] { writer.add_image("i", chw.select(0, 0)); }), "an image [2, 2] is not CHW"));
  CHECK(has(message([&] { writer.add_image("i", ones({2, 3, 3})); }), "2 channels (1, 3 or 4)"));
  CHECK(has(message([&] { writer.add_image("i", ones({3, 3, 3}, kInt32)); }), "neither uint8"));
}
