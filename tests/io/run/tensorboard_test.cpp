// Event files: the frame of each record, and its contents. scripts/compare_files_with_python
// has TensorBoard itself read them.
#include "halftape/io/run/tensorboard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <halftape/halftape.h>

#include "halftape/io/file/deflate.h"
#include "halftape/io/formats/png.h"
#include "halftape/tests/support/event_file.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace std::string_literals;
using testing::has;
using testing::message;
using testing::TempFolder;

namespace {

template <class T>
T number(const std::string& bytes, size_t at) {
  T value;
  REQUIRE(at + sizeof(T) <= bytes.size());
  std::memcpy(&value, &bytes[at], sizeof(T));
  return value;
}
/// The events of a file whose frames are right.
std::vector<std::string> events(const std::filesystem::path& path) {
  const testing::EventFile file = testing::read_events(testing::read_bytes(path));
  CHECK(file.whole);
  return file.events;
}
std::string bytes_of(double x) { return {reinterpret_cast<const char*>(&x), 8}; }

/// The value of a message's field: of a number without a fixed size its text, of others the bytes.
std::string field(const std::string& message, uint32_t wanted) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t n = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = number<uint8_t>(message, at++);
      n |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return n;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint(), kind = key & 7;
    const std::string text = kind == 0 ? std::to_string(varint()) : "";
    const size_t size = kind == 0 ? 0 : kind == 1 ? 8 : kind == 5 ? 4 : varint();
    REQUIRE((kind == 0 || kind == 1 || kind == 2 || kind == 5));
    REQUIRE(size <= message.size() - at);
    if (key >> 3 == wanted) return kind == 0 ? text : message.substr(at, size);
    at += size;
  }
  FAIL("no field ", wanted);
  return {};
}
/// The value in the summary of an event.
std::string value_of(const std::string& event) { return field(field(event, 5), 1); }
std::vector<double> doubles(const std::string& bytes) {
  REQUIRE(bytes.size() % 8 == 0);
  std::vector<double> all;
  for (size_t at = 0; at < bytes.size(); at += 8) all.push_back(number<double>(bytes, at));
  return all;
}

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
  CHECK(has(message([&] { writer.add_scalar("", 1); }), "the tag \"\" is empty or not UTF-8"));
  CHECK(has(message([&] { writer.add_scalar("a\xff", 1); }),
            "the tag \"a\xEF\xBF\xBD\" is empty or not UTF-8"));
  CHECK(has(message([&] { writer.add_text("note", "\xff"); }), "of \"note\" is not UTF-8"));
  CHECK(events(writer.path()) == all);
  writer.close();
  writer.close();
  CHECK(has(message([&] { writer.add_scalar("loss", 1); }), "was closed"));
  CHECK(has(message([&] { tensorboard::SummaryWriter w(writer.path()); }), "expected a folder"));
}

TEST_CASE("an event file is a new one, and follows no link that was planted for it") {
  const TempFolder folder;
  const std::string name = tensorboard::SummaryWriter(folder.path()).path().filename().string();
  // events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER, of which the seconds and the number go on.
  const size_t seconds = std::string("events.out.tfevents.").size(), rest = name.find('.', seconds),
               number = name.rfind('.') + 1;
  const int64_t now = std::stoll(name.substr(seconds)), last = std::stoll(name.substr(number));
  testing::write_bytes(folder / "precious", "as it was");
  for (int64_t later = 0; later < 30; ++later) {
    std::string next = name.substr(0, seconds) + std::to_string(now + later) +
                       name.substr(rest, number - rest) + std::to_string(last + 1);
    std::filesystem::create_symlink(folder / "precious", folder / next);
  }
  tensorboard::SummaryWriter writer(folder.path());
  writer.add_scalar("loss", 1, 0);
  CHECK(writer.path().filename().string().ends_with("." + std::to_string(last + 2)));
  CHECK(events(writer.path()).size() == 2);
  CHECK(testing::read_bytes(folder / "precious") == "as it was");
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
  const auto all = events(writer.path());
  // One value takes two buckets: TensorBoard takes a left limit from the bucket before it.
  const std::string one = field(value_of(all[1]), 5);
  CHECK(doubles(field(one, 7)) == std::vector<double>{0, 1});
  const std::vector<double> around = doubles(field(one, 6));
  REQUIRE(around.size() == 2);
  CHECK((around[0] <= 2 && around[1] > 2));

  const std::string many = field(value_of(all[2]), 5);
  CHECK(doubles(field(many, 1)) == std::vector<double>{-1});     // the smallest
  CHECK(doubles(field(many, 2)) == std::vector<double>{1e300});  // the largest
  CHECK(doubles(field(many, 3)) == std::vector<double>{5});      // how many
  CHECK(doubles(field(many, 4)) == std::vector<double>{1e300});  // their sum
  CHECK(doubles(field(many, 5)) == std::vector<double>{inf});    // of the squares
  const std::vector<double> limits = doubles(field(many, 6)), counts = doubles(field(many, 7));
  REQUIRE(limits.size() == counts.size());
  for (size_t i = 1; i < limits.size(); ++i) CHECK(limits[i - 1] < limits[i]);
  for (size_t i = 1; i + 1 < limits.size(); ++i)  // the last one is open
    if (limits[i - 1] > 0) CHECK(std::abs(limits[i] / limits[i - 1] - 1.1) < 1e-9);
  std::vector<double> expected(counts.size());
  for (const double v : {-1.0, 0.0, 2.0, 2.0, 1e300}) {
    const auto right = std::upper_bound(limits.begin(), limits.end(), v);  // limits[i - 1] <= v
    REQUIRE(right != limits.begin());
    REQUIRE(right != limits.end());
    ++expected[static_cast<size_t>(right - limits.begin())];
  }
  CHECK(counts == expected);
  CHECK(has(message([&] { other.add_histogram("h", tensor({nan})); }),
            "\"h\" has no finite value among 1"));
  CHECK(has(message([&] { other.add_histogram("h", empty({0})); }), "no finite value among 0"));
}

TEST_CASE("a picture becomes a PNG of its bytes, from any of the three orders") {
  TempFolder folder;
  const Tensor chw =
      tensor({{{0, 51, 5}, {102, 255, 6}}, {{1, 2, 3}, {4, 5, 6}}, {{9, 8, 7}, {6, 5, 4}}}, kUInt8);
  tensorboard::SummaryWriter writer(folder.path());
  writer.add_image("i", chw, 1, 2.0);
  writer.add_image("i", chw.permute({1, 2, 0}), 1, 2.0, "HWC");
  writer.add_image("i", chw.select(0, 0), 1, 2.0, "HW");
  writer.add_image("i", chw.select(0, 0).to(kFloat32) / 255 * 2 - tensor(0.4f), 1, 2.0, "HW");
  writer.close();
  const auto all = events(writer.path());
  CHECK(all[1] == all[2]);
  for (size_t i = 1; i <= 4; ++i) {
    CAPTURE(i);
    const std::string picture = field(value_of(all[i]), 4), file = field(picture, 4);
    CHECK(field(picture, 1) == "2");  // the height
    CHECK(field(picture, 2) == "3");
    CHECK(field(picture, 3) == (i < 3 ? "3" : "1"));  // channels
    // IHDR has the width first.
    CHECK(file.starts_with("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\3\0\0\0\2\x08"s +
                           (i < 3 ? '\2' : '\0') + "\0\0\0"s));
  }
  const std::vector<uint8_t> pixels = {0,   1, 9, 51,  2, 8, 5, 3, 7,  //
                                       102, 4, 6, 255, 5, 5, 6, 6, 4};
  const std::string file = png(pixels, 2, 3, 3);
  CHECK(has(all[1], file));
  CHECK(has(all[3], png(std::vector<uint8_t>{0, 51, 5, 102, 255, 6}, 2, 3, 1)));
  // Clamped to 0 … 1.
  CHECK(has(all[4], png(std::vector<uint8_t>{0, 0, 0, 102, 255, 0}, 2, 3, 1)));
  CHECK(file.ends_with("\0\0\0\0IEND\xae\x42\x60\x82"s));
  const size_t data = file.find("IDAT") + 4, end = file.find("IEND") - 8;
  std::string rows(20, '\0');
  if (can_inflate()) {
    CHECK(inflate_into(rows.data(), rows.size(), file.substr(data + 2, end - data - 6)));
    CHECK(rows == "\0\0\1\x09\x33\2\x08\5\3\7\0\x66\4\6\xff\5\5\6\6\4"s);
  }
  CHECK(has(message([&] { writer.add_image("i", chw, 1, {}, "XY"); }), "is none of CHW, HWC, HW"));
  CHECK(
      has(message([&] { writer.add_image("i", chw.select(0, 0)); }), "an image [2, 3] is not CHW"));
  CHECK(has(message([&] { writer.add_image("i", ones({2, 3, 3})); }), "2 channels (1, 3 or 4)"));
  CHECK(has(message([&] { writer.add_image("i", ones({3, 3, 3}, kInt32)); }), "neither uint8"));
}
