// Files made to deceive: each is refused with its reason, and costs no memory.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>

#include <halftape/halftape.h>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::has;
using testing::TempFolder;

namespace {

std::string little_endian(uint64_t n) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &n, 8);
  return bytes;
}

std::string file(const std::string& header, size_t data = 0) {
  return little_endian(header.size()) + header + std::string(data, '\0');
}

/// A file of one tensor "x" with these fields.
std::string fields(const std::string& inside, size_t data = 4) {
  return file("{\"x\":{" + inside + "}}", data);
}
std::string shape(const std::string& list, const std::string& offsets = "[0,4]", size_t data = 4) {
  return fields("\"dtype\":\"F32\",\"shape\":" + list + ",\"data_offsets\":" + offsets, data);
}
std::string dtype(const std::string& value) {
  return fields("\"dtype\":" + value + ",\"shape\":[1],\"data_offsets\":[0,4]");
}
std::string offsets(const std::string& list, size_t data = 4) { return shape("[1]", list, data); }
/// One U8 tensor for each name, with its offsets.
std::string tensors(const std::vector<std::pair<std::string, std::pair<int, int>>>& all,
                    size_t data) {
  std::string header = "{";
  for (const auto& [name, at] : all)
    header += (header.size() > 1 ? ",\"" : "\"") + name + "\":{\"dtype\":\"U8\",\"shape\":[" +
              std::to_string(at.second - at.first) + "],\"data_offsets\":[" +
              std::to_string(at.first) + "," + std::to_string(at.second) + "]}";
  return file(header + "}", data);
}
std::string named(const std::string& name_in_json) {
  return file("{\"" + name_in_json + "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
              1);
}
std::string metadata(const std::string& value) { return file("{\"__metadata__\":" + value + "}"); }

struct Bad {
  std::string what, bytes, reason;
};

std::vector<Bad> bad_json() {
  using namespace std::string_literals;
  return {
      {"no header", file(""), "expected '{' as its first byte"},
      {"a list", file("[]"), "expected '{' as its first byte, found \"[\""},
      {"a number", file("1"), "expected '{' as its first byte"},
      {"a space first", file(" {}"), "expected '{' as its first byte"},
      {"a byte-order mark", file("\xEF\xBB\xBF{}"), "expected '{' as its first byte"},
      {"a zero at the end", file("{}\0"s), "byte 2: expected the end, found \"\\u0000\""},
      {"a second object", file("{}{}"), "byte 2: expected the end, found \"{\""},
      {"text after it", file("{} x"), "expected the end"},
      {"an end too early", file("{"), "expected the name of a tensor ('\"'), found the end"},
      {"a comma at the end",
       file("{\"x\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},}", 1),
       "expected the name of a tensor"},
      {"a comment", file("{/**/}"), "expected the name of a tensor"},
      {"single quotes", file("{'x':1}"), "expected the name of a tensor"},
      {"a name without quotes", file("{x:1}"), "expected the name of a tensor"},
      {"no colon", file("{\"x\" 1}"), "expected a colon"},
      {"invalid UTF-8 in a name", named("\xff"),
       "byte 2: expected UTF-8, found other bytes in the string that begins here"},
      {"an overlong form", named("\xc0\xaf"), "expected UTF-8"},
      {"an encoded surrogate", named("\xed\xa0\x80"), "expected UTF-8"},
      {"a lone high surrogate", named("\\ud800"), "expected a surrogate pair, found one half"},
      {"a lone low surrogate", named("\\udc00"), "expected a surrogate pair, found one half"},
      {"two high surrogates", named("\\ud800\\ud800"), "expected the second half"},
      {"a high surrogate and what follows the low ones", named("\\ud800\\ue000"),
       "expected the second half"},
      {"an escape that is none", named("\\x"), "expected an escape, found \"x\""},
      {"an escape cut short", named("\\u12"), "expected four hexadecimal digits"},
      {"an escape with other digits", named("\\u12g0"),
       "expected four hexadecimal digits, found \"g\""},
      {"an escape with a sign", named("\\u+123"), "expected four hexadecimal digits"},
      {"a string without end", file("{\"x"), "expected the end of a string"},
      {"a string ending in a backslash", file("{\"x\\"), "expected an escape, found the end"},
      {"a control character in a name", named("a\nb"), "expected no control character"},
      {"a zero byte in a name", named("a\0b"s), "expected no control character"},
      {"an escaped zero in a name", named("a\\u0000b"), "expected a name without the character 0"},
      {"an empty name", named(""), "expected a name of 1 to 4096 bytes, found 0"},
      {"a name of 5 KiB", named(std::string(5120, 'n')),
       "expected a name of 1 to 4096 bytes, found 5120"},
  };
}

std::vector<Bad> bad_fields() {
  using namespace std::string_literals;
  return {
      {"a tensor twice", tensors({{"x", {0, 1}}, {"x", {1, 2}}}, 2),
       "tensor \"x\": expected each name once"},
      {"a tensor twice, once escaped", tensors({{"x", {0, 1}}, {"\\u0078", {1, 2}}}, 2),
       "expected each name once"},
      {"a field twice",
       fields("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"),
       "tensor \"x\", \"dtype\": is there twice"},
      {"a shape twice",
       fields("\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]"),
       "\"shape\": is there twice"},
      {"no dtype", fields("\"shape\":[1],\"data_offsets\":[0,4]"),
       "expected the field \"dtype\", found none"},
      {"no shape", fields("\"dtype\":\"F32\",\"data_offsets\":[0,4]"),
       "expected the field \"shape\""},
      {"no offsets", fields("\"dtype\":\"F32\",\"shape\":[1]"),
       "expected the field \"data_offsets\""},
      {"no fields", fields(""), "expected the field \"dtype\""},
      {"a field too many",
       fields("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"strides\":[1]"),
       "\"strides\": expected one of \"dtype\", \"shape\", \"data_offsets\""},
      {"a tensor that is null", file("{\"x\":null}"),
       "tensor \"x\": expected an object ('{'), found \"n\""},
      {"a tensor that is a list", file("{\"x\":[]}"), "expected an object"},
      {"an unknown dtype", dtype("\"X32\""), "expected one of BOOL, U8, I32"},
      {"a dtype in lower case", dtype("\"f32\""), "found \"f32\""},
      {"a dtype that is a number", dtype("32"), "expected a string"},
      {"an empty dtype", dtype("\"\""), "found \"\""},
      {"a dtype of 8 bits", dtype("\"F8_E4M3\""), "found \"F8_E4M3\""},
      {"a dtype of 4 bits", dtype("\"F4\""), "found \"F4\""},
  };
}

std::vector<Bad> bad_shapes() {
  using namespace std::string_literals;
  return {
      {"a shape that is null", shape("null"), "\"shape\": expected a list ('['), found \"n\""},
      {"a shape that is a number", shape("1"), "expected a list"},
      {"a size below 0", shape("[-1]"), "expected a whole number from 0 on, found \"-\""},
      {"a size of -0", shape("[-0]"), "expected a whole number from 0 on"},
      {"two sizes of -1, whose bytes are 4 modulo 2^64", shape("[-1,-1]"),
       "expected a whole number"},
      {"two sizes of 2^64 - 1", shape("[18446744073709551615,18446744073709551615]"),
       "expected a number below 2^63"},
      {"a size with a fraction", shape("[1.0]"),
       "expected a comma or the end of the list (']'), found \".\""},
      {"a size with an exponent", shape("[1e0]"), "expected a comma or the end of the list"},
      {"a size with a leading 0", shape("[01]"), "found a leading 0"},
      {"a size with a plus", shape("[+1]"), "expected a whole number"},
      {"a size in hexadecimal", shape("[0x1]"), "expected a comma or the end of the list"},
      {"a size that is a string", shape("[\"1\"]"), "expected a whole number"},
      {"a size that is true", shape("[true]"), "expected a whole number"},
      {"a size that is NaN", shape("[NaN]"), "expected a whole number"},
      {"a size of 2^64", shape("[18446744073709551616]"), "found 18446744073709551616"},
      {"a size of 2^63", shape("[9223372036854775808]"), "expected a number below 2^63"},
      {"a size of 100 digits", shape("[" + std::string(100, '9') + "]"),
       "expected a number below 2^63"},
      {"a nested shape", shape("[[1]]"), "expected a whole number from 0 on, found \"[\""},
      {"a comma at the end of a shape", shape("[1,]"),
       "expected a whole number from 0 on, found \"]\""},
      {"11 dimensions", shape("[1,1,1,1,1,1,1,1,1,1,1]"), "expected at most 10 dimensions"},
      {"2^32 x 2^32", shape("[4294967296,4294967296]"), "expected fewer than 2^63 bytes"},
      {"2^62 x 4", shape("[4611686018427387904,4]"), "expected fewer than 2^63 bytes"},
      {"2^31 x 2^31 floats", shape("[2147483648,2147483648]"), "expected fewer than 2^63 bytes"},
      {"no elements, but strides beyond 2^63", shape("[0,9223372036854775807,2]", "[0,0]", 0),
       "expected fewer than 2^63 bytes, found the shape [0, 9223372036854775807, 2]"},
      {"no elements, and strides that come round to 0 modulo 2^64",
       shape("[0,4611686018427387904,4]", "[0,0]", 0), "expected fewer than 2^63 bytes"},
      {"2^31 + 1 elements that are not there", shape("[2147483649]", "[0,8589934596]"),
       "expected 8589934596 bytes of data, as the header says, found 4: the file is truncated"},
      {"2^60 bytes that are not there", shape("[288230376151711744]", "[0,1152921504606846976]"),
       "the file is truncated"},
  };
}

std::vector<Bad> bad_data_and_metadata() {
  using namespace std::string_literals;
  return {
      {"one offset", offsets("[0]"), "\"data_offsets\": expected two numbers, found 1"},
      {"no offset", offsets("[]"), "expected two numbers, found 0"},
      {"three offsets", offsets("[0,4,4]"), "expected two numbers, found 3"},
      {"offsets that are null", offsets("null"), "expected a list"},
      {"an offset below 0", offsets("[-4,0]"), "expected a whole number"},
      {"an offset of 2^64", offsets("[0,18446744073709551620]"), "expected a number below 2^63"},
      {"an end before the begin", offsets("[4,0]"), "expected data_offsets 4 bytes apart"},
      {"offsets that are too few bytes", offsets("[0,3]"),
       "expected data_offsets 4 bytes apart, as float32 of shape [1] takes, found [0, 3]"},
      {"offsets that are too many bytes", offsets("[0,8]", 8), "found [0, 8]"},
      {"a first byte that no tensor has", offsets("[4,8]", 8),
       "tensor \"x\": expected its data at byte 0, where the tensor before it ends, found byte 4"},
      {"a gap", tensors({{"x", {0, 1}}, {"y", {2, 3}}}, 3), "a gap lies between them"},
      {"an overlap", tensors({{"x", {0, 2}}, {"y", {1, 3}}}, 3), "they overlap"},
      {"a tensor within another", tensors({{"x", {0, 4}}, {"y", {1, 2}}}, 4), "they overlap"},
      {"two tensors of the same bytes", tensors({{"x", {0, 2}}, {"y", {0, 2}}}, 2), "they overlap"},
      {"data too short", offsets("[0,4]", 3),
       "expected 4 bytes of data, as the header says, found 3"},
      {"data too long", offsets("[0,4]", 5), "found 5: bytes follow the data"},
      {"data without tensors", file("{}", 1), "expected 0 bytes of data"},
      {"an archive after the data", offsets("[0,4]", 4) + "PK\x03\x04", "bytes follow the data"},
      {"metadata that is null", metadata("null"), "\"__metadata__\": expected an object"},
      {"metadata that is a list", metadata("[]"), "expected an object"},
      {"metadata with a number", metadata("{\"a\":1}"),
       "\"__metadata__\", \"a\": expected a string"},
      {"metadata with null", metadata("{\"a\":null}"), "expected a string"},
      {"nested metadata", metadata("{\"a\":{}}"), "expected a string ('\"'), found \"{\""},
      {"a key of metadata twice", metadata("{\"a\":\"\",\"a\":\"\"}"), "\"a\": is there twice"},
      {"metadata twice", file("{\"__metadata__\":{},\"__metadata__\":{}}"),
       "\"__metadata__\": is there twice"},
      {"invalid UTF-8 in metadata", metadata("{\"a\":\"\x80\"}"), "expected UTF-8"},
      {"metadata in a tensor's form",
       file("{\"__metadata__\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1),
       "expected a string"},
      {"objects 100,000 deep", file("{\"x\":" + std::string(100'000, '{')), "expected a field"},
      {"lists 100,000 deep", shape(std::string(100'000, '[')),
       "expected a whole number from 0 on, found \"[\""},
      {"a list 100,000 deep for a tensor", file("{\"x\":" + std::string(100'000, '[')),
       "expected an object"},
      {"our mark without a sum", metadata("{\"halftape.version\":\"1\"}"), "expected eight digits"},
      {"a sum too short", metadata("{\"halftape.crc32c\":\"0\"}"), "expected eight digits"},
      {"a wrong sum", metadata("{\"halftape.crc32c\":\"00000000\"}"),
       "expected the check sum 00000000, found"},
      {"a sum with a space before it", metadata("{\"halftape.crc32c\": \"00000000\"}"),
       "expected eight digits"},
      {"a sum with an escape", metadata("{\"halftape.crc32c\":\"\\u0030000\"}"),
       "expected eight digits"},
      {"a bool of 2",
       file("{\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}") + "\1\0\2"s,
       "tensor \"b\": expected bools of the bytes 0 and 1, found 2 at position 2"},
      {"a web page", "<!DOCTYPE html><html><body>404</body></html>",
       "found a web page: the download"},
      {"a zip archive", "PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0"s, "found a zip archive"},
  };
}

std::vector<Bad> table() {
  std::vector<Bad> all;
  for (size_t n = 0; n < 8; ++n)
    all.push_back(
        {"a file of " + std::to_string(n) + " bytes", std::string(n, '\0'),
         "expected at least 8 bytes, the length of the header, found " + std::to_string(n)});
  for (const uint64_t n : {uint64_t{3}, uint64_t{1} << 63, ~uint64_t{0}, uint64_t{100'000'001}})
    all.push_back({"a header length of " + std::to_string(n), little_endian(n) + "{}",
                   "expected a header of at most 2 bytes, as many as follow, found the length"});
  for (const auto& family : {bad_json(), bad_fields(), bad_shapes(), bad_data_and_metadata()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

}  // namespace

TEST_CASE("each malicious or broken safetensors file is refused with file, place and reason") {
  TempFolder folder;
  const std::string path = (folder / "bad.safetensors").string();
  int refused = 0;
  for (const Bad& bad : table()) {
    CAPTURE(bad.what);
    testing::write_bytes(path, bad.bytes);
    const int64_t live = Buffer::live_bytes();
    const std::string said =
        testing::message<FileError>([&] { (void)safetensors::load_file(path); });
    CHECK_MESSAGE(has(said, bad.reason), said);
    CHECK_MESSAGE(has(said, "safetensors: " + path + ": "), said);
    CHECK(Buffer::live_bytes() == live);
    ++refused;
  }
  MESSAGE(refused, " malicious or broken files, each refused with its reason");
  CHECK(refused >= 100);
}

TEST_CASE("100,000 tensors over the same bytes are refused, and as many sound ones are read") {
  TempFolder folder;
  std::vector<std::pair<std::string, std::pair<int, int>>> same, sound;
  for (int i = 0; i < 100'000; ++i) {
    same.push_back({std::to_string(i), {0, 1000}});
    sound.push_back({std::to_string(i), {i, i + 1}});
  }
  testing::write_bytes(folder / "same", tensors(same, 1000));
  CHECK(has(testing::message([&] { (void)safetensors::load_file(folder / "same"); }),
            "they overlap"));
  testing::write_bytes(folder / "sound", tensors(sound, 100'000));
  CHECK(safetensors::load_file(folder / "sound").size() == 100'000);
}

TEST_CASE("a header beyond 100 MB is refused before it is read") {
  TempFolder folder;
  testing::write_bytes(folder / "x", little_endian(100'000'001) + "{}");
  std::filesystem::resize_file(folder / "x", 100'000'100);  // of zeros that take no room
  CHECK(has(testing::message([&] { (void)safetensors::load_file(folder / "x"); }),
            "expected a header of at most 100000000 bytes, found the length 100000001"));
}
