// Files of another kind than the reader's: named, with what reads them.
#include "halftape/io/file/file_kind.h"

#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/io/file/zip.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace std::string_literals;
using testing::has;
using testing::message;
using testing::read_bytes;
using testing::TempFolder;

TEST_CASE("the kinds of files that are given by mistake are known by their first bytes") {
  const auto zip_of = [](const std::string& name) {
    return "PK\3\4"s + std::string(22, '\0') + static_cast<char>(name.size()) + "\0\0\0"s + name;
  };
  const std::string tar = std::string(257, 'n') + "ustar\0"s + std::string(60, '\0');
  const std::pair<std::string, FileKind> known[] = {
      {"\x1f\x8b\x08\0\0\0\0\0\0\3"s, FileKind::Gzip},
      {"\x89HDF\r\n\x1a\n"s, FileKind::HDF5},
      {"GGUF\3\0\0\0"s, FileKind::GGUF},
      {"\x08\x07\x12\x07pytorch", FileKind::ONNX},
      {"\x89PNG\r\n\x1a\n", FileKind::Picture},
      {"\xff\xd8\xff\xe0", FileKind::Picture},
      {"BZh91AY", FileKind::Compressed},
      {"\xfd\x37zXZ\0"s, FileKind::Compressed},
      {"\x28\xb5\x2f\xfd", FileKind::Compressed},
      {"\x80\4\x95", FileKind::Pickle},
      {"\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\2M\xe9\3.", FileKind::LegacyPt},
      {"<!DOCTYPE html><html>", FileKind::WebPage},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:1", FileKind::LFSPointer},
      {"{\"weights\": [1, 2]}\n", FileKind::Text},
      {"a,b\n1,\xc3\xa4\n", FileKind::Text},
      {std::string(510, 'a').append("\xc3"), FileKind::Text},
      {"\x93NUMPY\1\0", FileKind::Npy},
      {zip_of("a.npy"), FileKind::Npz},
      {zip_of("net/data.pkl"), FileKind::Pt},
      {zip_of("net/byteorder"), FileKind::Pt},
      {zip_of("net/version"), FileKind::Pt},
      {"\x08\x07\x3a\x05graph", FileKind::ONNX},
      {"\x08\x07\x13\x07pytorch", FileKind::Unknown},
      {"\x08\x20\x12\x07pytorch", FileKind::Unknown},
      {zip_of("word/document.xml"), FileKind::Zip},
      {"PK\3\4", FileKind::Zip},
      {"PK\5\6", FileKind::Zip},
      {tar, FileKind::Tar},
      {"\x10\0\0\0\0\0\0\0{}"s, FileKind::Safetensors},
      // Lengths of safetensors' headers that begin like gzip, a pickle and ONNX.
      {"\x1f\x8b\x08\0\0\0\0\0{\"a"s, FileKind::Safetensors},
      {"\x80\2\0\0\0\0\0\0{\"a"s, FileKind::Safetensors},
      {"\x08\7\x12\0\0\0\0\0{\"a"s, FileKind::Safetensors},
      {"", FileKind::Unknown},
      {"\0"s, FileKind::Unknown},
      {"\xc3", FileKind::Text},
      {"\xff\xfe\0\1"s, FileKind::Unknown}};
  for (const auto& row : known) {
    CAPTURE(row.first);
    CHECK(kind_of(std::string_view(row.first)) == row.second);
    CHECK(described(row.second).empty() == (row.second == FileKind::Unknown));
  }
}

TEST_CASE("an archive is known in which any member comes first") {
  const TempFolder folder;
  const auto pack = [&](std::initializer_list<const char*> names) {
    OutputFile file("zip", folder / "x");
    ZipWriter zip(file);
    for (const std::string name : names) zip.add(name, "", false);
    zip.finish();
    file.commit();
    InputFile packed("zip", folder / "x");
    return kind_of(packed);
  };
  CHECK(pack({"net/", "net/data/0", "net/data.pkl"}) == FileKind::Pt);
  CHECK(pack({"a.npy", "b"}) == FileKind::Npz);
  CHECK(pack({"b", "a.npy"}) == FileKind::Zip);
  const std::string long_name(600, 'n');
  for (const safetensors::Tensors& arrays :
       {safetensors::Tensors(), safetensors::Tensors{{long_name, ones({1})}}}) {
    npy::savez(folder / "npz", arrays);
    CHECK(load_tensors(folder / "npz").size() == arrays.size());
  }
  testing::write_bytes(folder / "cut", read_bytes(folder / "npz").substr(0, 700));
  InputFile cut("zip", folder / "cut");
  CHECK(kind_of(cut) == FileKind::Zip);
}

TEST_CASE("each reader names the kind of a file that is not its own, and what reads it") {
  TempFolder folder;
  const safetensors::Tensors one = {{"a", ones({1})}};
  safetensors::save_file(one, folder / "safetensors");
  npy::save(folder / "npy", ones({1}));
  npy::savez(folder / "npz", one);
  pt::save_file(one, folder / "pt");
  testing::write_bytes(folder / "gguf", "GGUF\3\0\0\0"s);
  const auto said = [&](auto read, const char* name) {
    return message<FileError>([&] { (void)read(folder / name); });
  };
  const auto safetensors = [](const auto& path) { return safetensors::load_file(path); };
  const auto npy = [](const auto& path) { return npy::load(path); };
  const auto npz = [](const auto& path) { return npy::load_npz(path); };
  const auto pt = [](const auto& path) { return pt::load_file(path); };
  CHECK(has(said(safetensors, "pt"),
            "expected a safetensors file, found a PyTorch .pt file; read it with pt::load_file"));
  CHECK(has(said(safetensors, "npz"), "found a NumPy .npz archive; read it with npy::load_npz"));
  CHECK(has(said(safetensors, "npy"), "found a NumPy .npy file; read it with npy::load"));
  CHECK(has(said(safetensors, "gguf"), "found a GGUF file"));
  CHECK(has(said(npy, "safetensors"), "expected a NumPy .npy file, found a safetensors file"));
  CHECK(has(said(npy, "npz"), "found a NumPy .npz archive"));
  CHECK(has(said(npz, "npy"), "expected a NumPy .npz archive, found a NumPy .npy file"));
  CHECK(has(said(npz, "pt"), "found a PyTorch .pt file"));
  CHECK(has(said(pt, "safetensors"), "expected a PyTorch .pt file, found a safetensors file"));
  CHECK(has(said(pt, "gguf"), "found a GGUF file"));
}
