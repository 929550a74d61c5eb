// NumPy's files: every dtype and shape comes back, every form that NumPy writes is read, and wrong
// files are refused.
#include "halftape/io/formats/npy.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include <halftape/halftape.h>

#include "halftape/io/file/deflate.h"
#include "halftape/tests/io/file/files.h"
#include "halftape/tests/support/close.h"
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

std::string npy_file(const std::string& header, const std::string& data, char version = 1) {
  std::string length;
  for (size_t i = 0; i < (version == 1 ? 2 : 4); ++i)
    length += static_cast<char>(header.size() >> 8 * i);
  return "\x93NUMPY"s + version + '\0' + length + header + data;
}
std::string header(const std::string& descr, const std::string& shape, bool column_major = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (column_major ? "True" : "False") +
         ", 'shape': " + shape + ", }\n";
}

}  // namespace

TEST_CASE("every dtype of NumPy's and odd shape comes back from .npy and .npz files") {
  TempFolder folder;
  npy::Tensors all;
  for (const Dtype dtype : testing::kAllDtypes) {
    if (dtype == kBFloat16) continue;
    for (const Shape& shape : testing::kOddShapes) {
      const Tensor saved = testing::bytes_of_all_kinds(dtype, shape);
      npy::save(folder / "x", saved);
      CHECK(testing::same_bits(npy::load(folder / "x"), saved));
      CHECK((read_bytes(folder / "x").size() - saved.nbytes()) % 64 == 0);
      all.insert(std::string(name(dtype)) + "/\xc3\xa4" + std::to_string(all.size()), saved);
    }
  }
  all.insert("large", arange(100'000, kInt32));
  for (const auto& save : {npy::savez, npy::savez_compressed}) {
    save(folder / "x", all);
    const npy::Tensors loaded = npy::load_npz(folder / "x");
    REQUIRE(loaded.keys() == all.keys());
    for (const auto& item : all) CHECK(testing::same_bits(loaded[item.key()], item.value()));
  }
  npy::savez(folder / "none", npy::Tensors());
  CHECK(npy::load_npz(folder / "none").is_empty());
  const Tensor view = arange(12, kFloat32).reshape({3, 4}).t().requires_grad_();
  npy::save(folder / "view", view);
  CHECK(testing::same_bits(npy::load(folder / "view"), view));
}

TEST_CASE("the bytes of a .npy file are those that NumPy writes") {
  TempFolder folder;
  npy::save(folder / "x", tensor({1.0f, -2.0f}));
  std::string expected = header("<f4", "(2,)");
  expected.pop_back();
  expected.resize(117, ' ');
  CHECK(read_bytes(folder / "x") == npy_file(expected + '\n', "\0\0\x80\x3f\0\0\0\xc0"s));
}

TEST_CASE("versions, byte orders, column-major arrays and other spellings are read") {
  TempFolder folder;
  const auto read = [&](const std::string& bytes) {
    write_bytes(folder / "x", bytes);
    return npy::load(folder / "x");
  };
  const Tensor expected = tensor({{1, 2, 3}, {4, 5, 6}}, kInt32);
  const std::string rows = "\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0"s;
  const std::string columns = "\1\0\0\0\4\0\0\0\2\0\0\0\5\0\0\0\3\0\0\0\6\0\0\0"s;
  std::string big = rows;
  for (size_t i = 0; i < big.size(); i += 4) std::reverse(&big[i], &big[i] + 4);
  for (const char version : {1, 2, 3}) {
    CHECK(read(npy_file(header("<i4", "(2, 3)"), rows, version)).equal(expected));
    CHECK(read(npy_file(header(">i4", "(2, 3)"), big, version)).equal(expected));
    const Tensor turned = read(npy_file(header("<i4", "(2, 3)", true), columns, version));
    CHECK(turned.equal(expected));
    CHECK(turned.is_contiguous());
  }
  CHECK(read(npy_file("{\"shape\":(2,3),\"descr\":\"<i4\",\"fortran_order\":False}", rows))
            .equal(expected));
  CHECK(read(npy_file(header("<i4", "(2, 3,)"), rows)).equal(expected));
  CHECK(read(npy_file(header(">f2", "()"), "\x3c\0"s)).item<float>() == 1);
  CHECK(read(npy_file(header(">f8", "(1,)"), "\x3f\xf0\0\0\0\0\0\0"s)).item<double>() == 1);
  for (const char* descr : {"|u1", "<u1", ">u1"})
    CHECK(read(npy_file(header(descr, "(2,)", true), "\1\2")).equal(tensor({1, 2}, kUInt8)));
}

TEST_CASE("each broken .npy file is refused with its reason") {
  TempFolder folder;
  const std::string path = (folder / "bad.npy").string(), four(4, '\1');
  const auto said = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    const std::string text = message<FileError>([&] { (void)npy::load(path); });
    CHECK(has(text, "npy: " + path + ": "));
    return text;
  };
  const auto refused = [&](const std::string& h, const std::string& data, const char* reason) {
    const std::string text = said(npy_file(h, data));
    CHECK_MESSAGE(has(text, reason), h, text);
  };
  CHECK(has(said(""), "expected at least 10 bytes, found 0"));
  CHECK(has(said("PK\3\4 something else"), "found a zip archive of other files"));
  CHECK(has(said(npy_file(header("<f4", "(1,)"), four, 4)),
            "expected format 1.0, 2.0 or 3.0, found 4.0"));
  CHECK(has(said(npy_file(header("<f4", "(1,)"), four, '\xff')), "found 255.0"));
  CHECK(has(said("\x93NUMPY\1\0\xff\xff{}"s), "found the length 65535"));
  CHECK(has(said("\x93NUMPY\2\0\xff\xff\xff\xff{}"s), "found the length 4294967295"));
  CHECK(has(said("\x93NUMPY\2\0\1\0"s), "expected the length of the header"));
  for (const char* object : {"|O", "O", "<O8"}) refused(header(object, "(1,)"), four, "never read");
  for (const char* other :
       {"", "<", "<f3", "<u2", "<u4", "<c8", "|S4", "=f4", "f4", "|f4", "<m8[ns]"})
    refused(header(other, "(1,)"), four, "expected one of |b1, |u1, |i1, <i2, <i4");
  refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", four,
          "found a record");
  refused("{'descr': '<f4', 'fortran_order': False}", four, "found fewer");
  refused("{}", "", "found fewer");
  refused("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", four,
          "once each");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", four, "found \"x\"");
  refused("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", four, "expected True or False");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", four, "expected the end");
  refused("['<f4']", four, "expected '{'");
  refused("{'descr", four, "expected a string");
  refused("{'descr': __import__('os')", four, "expected '\"'");
  refused("{'descr':", four, "expected '\"'");
  for (const char* shape :
       {"(-1,)", "(-0,)", "(1.0,)", "(1e0,)", "(01,)", "('1',)", "(9223372036854775808,)", "(1,,)"})
    refused(header("<f4", shape), four, "expected ");
  refused(header("<f4", "(1)"), four, "which is no tuple");
  refused(header("<f4", "(1,1,1,1,1,1,1,1,1,1,1)"), four, "at most 10 dimensions");
  refused(header("<f4", "(4611686018427387904, 4)"), four, "expected fewer than 2^63 bytes");
  refused(header("<f4", "(0, 9223372036854775807, 2)"), "", "expected fewer than 2^63 bytes");
  refused(header("<f4", "(4294967296, 4294967296)"), four, "expected fewer than 2^63 bytes");
  refused(header("<f4", "(2147483649,)"), four,
          "expected 8589934596 bytes of data, found 4: the file is truncated");
  refused(header("<f4", "(1,)"), four + "x", "found 5: bytes follow the data");
  refused(header("|b1", "(1,)"), "\2", "expected bools of the bytes 0 and 1");
  npy::save(path, ones({3}));
  const std::string whole = read_bytes(path);
  for (size_t n = 0; n < whole.size(); ++n) (void)said(whole.substr(0, n));
  CHECK(has(message([&] { npy::save(path, ones({1}, kBFloat16)); }), "npy: NumPy has no bfloat16"));
}

TEST_CASE("a damaged .npz file is refused, or the damage is where no array is") {
  TempFolder folder;
  const npy::Tensors saved = {{"a", arange(40, kInt32)}, {"b", ones({2, 2})}};
  for (const auto& save : {npy::savez, npy::savez_compressed}) {
    save(folder / "x", saved);
    const std::string whole = read_bytes(folder / "x");
    for (size_t n = 0; n < whole.size(); ++n) {
      write_bytes(folder / "cut", whole.substr(0, n));
      CHECK(!message<FileError>([&] { (void)npy::load_npz(folder / "cut"); }).empty());
    }
    size_t refused = 0, harmless = 0;
    for (size_t i = 0; i < whole.size() * 8; ++i) {
      std::string damaged = whole;
      damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << i % 8));
      write_bytes(folder / "flipped", damaged);
      try {
        const npy::Tensors loaded = npy::load_npz(folder / "flipped");  // a date, a version …
        ++harmless;
        CHECK(loaded.keys() == saved.keys());
        for (const auto& item : saved) CHECK(testing::same_bits(loaded[item.key()], item.value()));
      } catch (const FileError&) {
        ++refused;
      }
    }
    CHECK(refused > harmless);
    MESSAGE(refused, " of ", whole.size() * 8, " flips of one bit refused, ", harmless,
            " harmless");
    write_bytes(folder / "x", whole + "x");
    CHECK(!message<FileError>([&] { (void)npy::load_npz(folder / "x"); }).empty());
    write_bytes(folder / "x", "x" + whole);
    CHECK(!message<FileError>([&] { (void)npy::load_npz(folder / "x"); }).empty());
  }
  CHECK(has(message([&] {
              npy::savez(folder / "x", {{"", ones({1})}});
            }),
            "the name \"\" is empty"));
  write_bytes(folder / "x", npy_file(header("<f4", "(1,)"), "1234"));
  CHECK(has(message([&] { (void)npy::load_npz(folder / "x"); }),
            "found a NumPy .npy file; read it with npy::load"));
}

TEST_CASE("an archive with room in which something could hide is refused") {
  TempFolder folder;
  npy::savez(folder / "x", {{"a", ones({2})}, {"b", ones({3})}});
  const std::string whole = read_bytes(folder / "x");
  // Both headers say that names are UTF-8.
  CHECK(whole.substr(whole.find("PK\3\4") + 6, 2) == "\0\x08"s);
  CHECK(whole.substr(whole.find("PK\1\2") + 8, 2) == "\0\x08"s);
  const auto raise = [](std::string& bytes, size_t at, uint32_t by) {
    uint32_t n = 0;
    std::memcpy(&n, &bytes[at], 4);
    n += by;
    std::memcpy(&bytes[at], &n, 4);
  };
  const auto said = [&](const std::string& bytes) {
    write_bytes(folder / "bad", bytes);
    return message<FileError>([&] { (void)npy::load_npz(folder / "bad"); });
  };
  std::string gap = whole;  // 40 bytes before the second member, and all offsets to suit
  gap.insert(gap.find("PK\3\4", 1), std::string(40, 'g'));
  raise(gap, gap.rfind("PK\1\2") + 42, 40);
  raise(gap, gap.rfind("PK\5\6") + 16, 40);
  CHECK(has(said(gap), "a gap lies between them"));
  for (const size_t at : {whole.find("PK\1\2"), whole.rfind("PK\1\2")}) {
    std::string longer = whole;  // a member reaches into what follows it
    raise(longer, at + 20, 1);
    raise(longer, at + 24, 1);
    CHECK(has(said(longer), "they overlap"));
  }
  std::string behind = whole;  // between the directory and its end
  behind.insert(behind.rfind("PK\5\6"), "g");
  CHECK(has(said(behind), "expected the directory"));
  raise(behind, behind.rfind("PK\5\6") + 12, 1);  // or as a part of it
  CHECK(has(said(behind), "the directory: expected its end after the last member"));
  for (const auto& [from, to] : {std::pair("a.npy", "a.txt"), {"b.npy", "b.txt"}, {"b", "\xff"}}) {
    std::string renamed = whole;
    for (size_t at; (at = renamed.find(from)) != renamed.npos;)
      renamed.replace(at, std::strlen(to), to);
    CHECK(has(said(renamed), "expected a name ending in .npy"));
  }
  std::string other = whole;  // deflated, says the local header alone
  other[other.find("PK\3\4") + 8] = 8;
  CHECK(has(said(other), "does not agree with the directory"));
  std::string shared = whole;  // the second member is the first one again, under its name
  std::memcpy(&shared[shared.rfind("PK\1\2") + 42], "\0\0\0\0", 4);
  CHECK(has(said(shared), "does not agree with the directory"));
}

TEST_CASE("the members of an archive may together unpack to as much as set_unpack_limit() allows") {
  if (!can_inflate()) return;
  TempFolder folder;
  npy::savez_compressed(folder / "x", {{"a", zeros({10'000})}, {"b", zeros({10'000})}});
  npy::savez(folder / "stored", {{"a", zeros({10'000})}});
  CHECK(npy::load_npz(folder / "x").size() == 2);
  set_unpack_limit(50'000);
  CHECK(has(message<FileError>([&] { (void)npy::load_npz(folder / "x"); }),
            "member \"b.npy\": expected 80256 bytes after unpacking it and those before it"));
  CHECK(npy::load_npz(folder / "stored").size() == 1);  // takes what the file has
  set_unpack_limit(uint64_t{256} << 20);
}

TEST_CASE("deflated bytes are inflated to just as many") {
  if (!can_inflate()) return;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{1000}, size_t{300'000}}) {
    std::string bytes(n, '\0'), out(n, '\0');
    for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * i >> 7);
    const std::string data = deflated(bytes);
    CHECK(inflate_into(out.data(), n, data));
    CHECK(out == bytes);
    CHECK(!inflate_into(out.data(), n, data + '\0'));
    CHECK(!inflate_into(out.data(), n, data.substr(0, data.size() - 1)));
    if (n == 0) continue;
    CHECK(!inflate_into(out.data(), n - 1, data));
    std::string longer(n + 1, '\0');
    CHECK(!inflate_into(longer.data(), n + 1, data));
  }
}
