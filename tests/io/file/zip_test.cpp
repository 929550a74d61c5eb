// Zip archives in the form ZIP64, which PyTorch always writes and others do beyond 4 GiB.
#include "halftape/io/file/zip.h"

#include <doctest/doctest.h>

#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/deflate.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace std::string_literals;
using testing::has;
using testing::message;
using testing::TempFolder;

namespace {

std::string eight(uint64_t n) { return little_endian(n, 8); }
std::string four(uint64_t n) { return little_endian(n, 4); }

/// The bytes of an archive of two members.
std::string small_archive(const TempFolder& folder) {
  OutputFile file("zip", folder / "small");
  ZipWriter zip(file);
  zip.add("a", "one", false);
  zip.add("b", "three", false, 64);
  zip.finish();
  file.commit();
  return testing::read_bytes(folder / "small");
}

/// The same with ZIP64's records, and sizes and offset of the last member in ZIP64's field.
std::string as_zip64(std::string bytes) {
  const size_t end = bytes.rfind("PK\5\6"), entry = bytes.rfind("PK\1\2");
  const uint64_t directory = from_little_endian(bytes.substr(end + 16, 4));
  const uint64_t offset = from_little_endian(bytes.substr(entry + 42, 4));
  bytes.resize(end);
  bytes.replace(entry + 20, 8, 8, '\xff');  // both sizes
  bytes.replace(entry + 42, 4, 4, '\xff');
  bytes.replace(entry + 30, 2, "\x1c\0"s, 0, 2);  // 28 bytes of extra fields
  bytes += "\1\0\x18\0"s + eight(5) + eight(5) + eight(offset);
  const uint64_t at = bytes.size();
  bytes += "PK\6\6" + eight(44) + "\x2d\0\x2d\0"s + four(0) + four(0) + eight(2) + eight(2) +
           eight(at - directory) + eight(directory);
  bytes += "PK\6\7" + four(0) + eight(at) + four(1);
  return bytes + "PK\5\6" + four(0) + "\xff\xff\xff\xff"s + four(~0u) + four(~0u) + "\0\0"s;
}

/// The same with the offset of the last member alone in ZIP64's field.
std::string with_offset64(std::string bytes) {
  const size_t end = bytes.rfind("PK\5\6"), entry = bytes.rfind("PK\1\2");
  const std::string field = "\1\0\x08\0"s + eight(from_little_endian(bytes.substr(entry + 42, 4)));
  bytes.replace(entry + 42, 4, 4, '\xff');
  bytes[entry + 30] = 12;
  bytes[end + 12] = static_cast<char>(bytes[end + 12] + 12);
  return bytes.insert(end, field);
}

}  // namespace

TEST_CASE("archives with and without ZIP64's records hold the same") {
  const TempFolder folder;
  const std::string small = small_archive(folder);
  for (const std::string& bytes : {small, as_zip64(small), with_offset64(small)}) {
    testing::write_bytes(folder / "x", bytes);
    InputFile file("zip", folder / "x");
    const std::vector<ZipMember> members = zip_members(file);
    REQUIRE(members.size() == 2);
    CHECK(members[0].name == "a");
    CHECK(zip_read(file, members[0]) == "one");
    CHECK(zip_read(file, members[1]) == "three");
    CHECK(members[1].offset % 64 == 0);
  }
}

TEST_CASE("ZIP64's records that contradict the archive are refused") {
  const TempFolder folder;
  const std::string whole = as_zip64(small_archive(folder));
  const auto said = [&](const std::string& bytes) {
    testing::write_bytes(folder / "bad", bytes);
    return message<FileError>([&] {
      InputFile file("zip", folder / "bad");
      for (const ZipMember& member : zip_members(file)) (void)zip_read(file, member);
    });
  };
  CHECK(said(whole).empty());
  const size_t record = whole.find("PK\6\6"), field = record - 28;
  for (size_t i = 0; i < 76; ++i) {
    if (i >= 12 && i < 16) continue;  // the versions of the programs that made it and that it needs
    std::string bad = whole;
    bad[record + i] = static_cast<char>(bad[record + i] ^ 0x40);
    CHECK_MESSAGE(!said(bad).empty(), "byte ", i);
  }
  std::string far = whole;
  far.replace(field + 4, 16, 16, '\xff');
  CHECK(has(said(far), "expected fewer than the file's"));
  far = whole;
  far.replace(field + 20, 8, 8, '\x7f');
  CHECK(has(said(far), "expected fewer than the file's"));
  far = whole;
  far[field + 2] = 20;  // too short for the offset
  CHECK(has(said(far), "expected fewer than the file's"));
  // The end record may leave its numbers to the other one, but not have others.
  const size_t end = whole.rfind("PK\5\6");
  for (const auto& [at, bytes] : {std::pair(8, "\1\0\1\0"s), {12, four(1)}, {16, four(1)}}) {
    std::string other = whole;
    other.replace(end + static_cast<size_t>(at), 4, bytes);
    CHECK(has(said(other), "expected ZIP64's end record"));
  }
  std::string none = whole;  // the field is of another kind: the numbers stay at 2^32 - 1
  none[field] = 2;
  CHECK(has(said(none), "expected fewer than the file's"));
}

TEST_CASE("an encrypted member, and one that is packed in another way, are refused") {
  const TempFolder folder;
  const std::string whole = small_archive(folder);
  const auto said = [&](size_t at, char value) {  // of the directory's entry of "a"
    std::string bad = whole;
    bad[bad.find("PK\1\2") + at] = value;
    testing::write_bytes(folder / "bad", bad);
    return message<FileError>([&] {
      InputFile file("zip", folder / "bad");
      (void)zip_members(file);
    });
  };
  CHECK(has(said(8, 1), "member \"a\": expected it unencrypted"));
  for (const int method : {1, 9, 12})
    CHECK(has(said(10, static_cast<char>(method)),
              "member \"a\": expected it stored (0) or deflated (8), found method " +
                  std::to_string(method)));
}

TEST_CASE("an archive has more members than 16 bits count") {
  const TempFolder folder;
  constexpr size_t kMany = 70'000;
  OutputFile out("zip", folder / "x");
  ZipWriter zip(out);
  for (size_t i = 0; i < kMany; ++i) zip.add(std::to_string(i), "", false);
  zip.finish();
  out.commit();
  InputFile file("zip", folder / "x");
  const std::vector<ZipMember> members = zip_members(file);
  REQUIRE(members.size() == kMany);
  CHECK(members.back().name == std::to_string(kMany - 1));
}

TEST_CASE("sizes whose sum has more than 64 bits unpack to too much") {
  if (!can_inflate()) return;
  const TempFolder folder;
  {
    OutputFile file("zip", folder / "x");
    ZipWriter zip(file);
    zip.add("a", std::string(40'000, 'a'), true);
    zip.add("b", "", false);
    zip.finish();
    file.commit();
  }
  // In the directory the second member unpacks to so much that both have nothing together.
  std::string bytes = testing::read_bytes(folder / "x");
  const size_t end = bytes.rfind("PK\5\6"), entry = bytes.rfind("PK\1\2");
  bytes[bytes.rfind("PK\3\4") + 8] = bytes[entry + 10] = 8;  // deflated
  bytes.replace(entry + 24, 4, 4, '\xff');
  bytes[entry + 30] = 12;
  bytes[end + 12] = static_cast<char>(bytes[end + 12] + 12);
  bytes.insert(end, "\1\0\x08\0"s + eight(~uint64_t{0} - 39'999));
  testing::write_bytes(folder / "bad", bytes);
  CHECK(has(message<FileError>([&] {
              InputFile file("zip", folder / "bad");
              (void)zip_members(file);
            }),
            "member \"b\": expected 18446744073709551615 bytes after unpacking it"));
}
