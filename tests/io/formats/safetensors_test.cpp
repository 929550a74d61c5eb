// Named tensors go to a file and come back bit by bit.
#include "halftape/io/formats/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include <halftape/halftape.h>

#include "halftape/tests/io/file/files.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using testing::bytes_of_all_kinds;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

namespace {
std::string with_length(const std::string& header, const std::string& data) {
  const uint64_t n = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &n, 8);
  return file + header + data;
}
}  // namespace

TEST_CASE("every dtype and odd shape comes back from a safetensors file with its name and place") {
  TempFolder folder;
  safetensors::Tensors saved;
  for (const Dtype dtype : testing::kAllDtypes)
    for (const Shape& shape : testing::kOddShapes)
      saved.insert(std::string(name(dtype)) + std::to_string(saved.size()),
                   bytes_of_all_kinds(dtype, shape));
  safetensors::save_file(saved, folder / "x");
  const safetensors::Tensors loaded = safetensors::load_file(folder / "x");
  REQUIRE(loaded.keys() == saved.keys());
  for (const auto& item : saved) {
    CAPTURE(item.key());
    CHECK(testing::same_bits(loaded[item.key()], item.value()));
  }
  CHECK(!std::filesystem::exists(folder / "x.partial"));
}

TEST_CASE("a file without tensors, and names of any characters, are saved and loaded") {
  TempFolder folder;
  safetensors::save_file(safetensors::Tensors(), folder / "none");
  CHECK(safetensors::load_file(folder / "none").is_empty());
  const safetensors::Tensors odd = {{"../x", ones({1})},
                                    {"a\"b\\c\n\x01\x7f", ones({2})},
                                    {"\xc3\xa4\xf0\x9f\x98\x80", ones({3})},
                                    {" ", ones({4})},
                                    {std::string(4096, 'n'), ones({5})},
                                    {"halftape.crc32c", ones({6})},
                                    {"format", ones({})},
                                    {"\"halftape.crc32c\":\"", ones({})}};
  safetensors::save_file(odd, folder / "odd",
                         {{"", "\"halftape.crc32c\":\"00"}, {"k\n", "\t\xc3\xa4"}});
  const safetensors::Contents loaded = safetensors::read_file(folder / "odd");
  CHECK(loaded.tensors.keys() == odd.keys());
  CHECK(loaded.has_checksum);
  CHECK(loaded.metadata == safetensors::Metadata{{"", "\"halftape.crc32c\":\"00"},
                                                 {"format", "pt"},
                                                 {"k\n", "\t\xc3\xa4"}});
}

TEST_CASE("views are saved as what they show, and history stays behind") {
  TempFolder folder;
  const Tensor base = arange(24, kFloat32).reshape({4, 6}).requires_grad_();
  const safetensors::Tensors saved = {{"t", base.t()},
                                      {"column", base.select(1, 2)},
                                      {"steps", base.slice(1, 1, 6, 2)},
                                      {"expanded", base.select(0, 0).expand({3, 6})},
                                      {"computed", base * 2}};
  safetensors::save_file(saved, folder / "x");
  const safetensors::Tensors loaded = safetensors::load_file(folder / "x");
  for (const auto& item : saved) {
    CAPTURE(item.key());
    CHECK(testing::same_bits(loaded[item.key()], item.value()));
    CHECK(loaded[item.key()].is_contiguous());
    CHECK(!loaded[item.key()].requires_grad());
  }
}

TEST_CASE("the bytes of a safetensors file are those of the format") {
  TempFolder folder;
  safetensors::save_file({{"b", tensor({true, false})}, {"a", tensor({1.0f, -2.0f})}}, folder / "x",
                         {{"k", "v"}});
  const std::string bytes = read_bytes(folder / "x");
  const std::string sum = bytes.substr(bytes.find("crc32c\":\"") + 9, 8);
  std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"halftape.crc32c\":\"" + sum +
                       "\",\"halftape.version\":\"1\",\"k\":\"v\"},"
                       "\"b\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[8,10]},"
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  using namespace std::string_literals;
  CHECK(bytes == with_length(header, "\0\0\x80\x3f\0\0\0\xc0\1\0"s));
  for (size_t n = 1; n <= 8; ++n) {  // the data begin at a multiple of 8, however long the header
    safetensors::save_file({{std::string(n, 'n'), ones({1}, kFloat32)}}, folder / "x");
    CHECK(std::filesystem::file_size(folder / "x") % 8 == 4);
  }
}

TEST_CASE("a file of another program needs no check sum, and may order and space as JSON allows") {
  TempFolder folder;
  const std::string header =
      "{ \"x\\u00e4\\u20ac\\ue000\\ud83d\\ude00\\/\" : { \"data_offsets\" : [ 4 , 8 ] "
      ",\n\"shape\":[1],\r\t\"dtype\":\"F32\"}, "
      "\"y\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]}}  \n";
  write_bytes(folder / "x", with_length(header, std::string("\1\0\0\0\0\0\x80\x3f", 8)));
  const safetensors::Contents read = safetensors::read_file(folder / "x");
  CHECK(!read.has_checksum);
  CHECK(read.tensors.keys() ==
        std::vector<std::string>{"x\xc3\xa4\xe2\x82\xac\xee\x80\x80\xf0\x9f\x98\x80/", "y"});
  CHECK(read.tensors["y"].item<int64_t>() == 1);
  CHECK(read.tensors.front()->item<float>() == 1);
}

TEST_CASE("what cannot be saved is refused before a file is touched") {
  TempFolder folder;
  write_bytes(folder / "x", "former");
  const auto said = [&](const safetensors::Tensors& t, const safetensors::Metadata& m = {}) {
    return message([&] { safetensors::save_file(t, folder / "x", m); });
  };
  CHECK(has(said({{"", ones({1})}}), "a tensor cannot be called \"\""));
  CHECK(has(said({{"__metadata__", ones({1})}}), "cannot be called \"__metadata__\""));
  CHECK(has(said({{std::string(4097, 'n'), ones({1})}}), "names have 1 to 4096 bytes"));
  CHECK(has(said({{std::string("a\0b", 3), ones({1})}}), "cannot be called"));
  CHECK(has(said({{"a\xff", ones({1})}}), "is not UTF-8"));
  CHECK(has(said({{"a", Tensor()}}), "the tensor \"a\" is undefined"));
  CHECK(has(said(safetensors::Tensors(), {{"k", "\xff"}}),
            "the metadata value \"\xEF\xBF\xBD\" is not UTF-8"));
  CHECK(has(said(safetensors::Tensors(), {{"halftape.x", ""}}),
            "which the library keeps for itself"));
  CHECK(read_bytes(folder / "x") == "former");
}

TEST_CASE("a file without a name is refused before anything is written") {
  CHECK_THROWS_WITH_AS(safetensors::save_file({{"a", ones({1})}}, ""),
                       doctest::Contains("expected a path, found an empty one"), FileError);
}

TEST_CASE("a key that ends like the one of the check sum keeps its value") {
  TempFolder folder;
  const safetensors::Metadata keys{{"a\"halftape.crc32c", "note"},
                                   {"\\", "\"halftape.crc32c\":\""}};
  safetensors::save_file({{"x", ones({2})}}, folder / "x", keys);
  const safetensors::Contents read = safetensors::read_file(folder / "x");
  CHECK(read.has_checksum);
  for (const auto& [key, value] : keys) CHECK(read.metadata.at(key) == value);
}
