#include "halftape/io/file/file_kind.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/json.h"
#include "halftape/io/file/zip.h"

namespace halftape {
namespace {

using namespace std::string_view_literals;

struct Magic {
  FileKind kind;
  std::string_view bytes;
};
constexpr Magic kMagics[] = {
    {FileKind::Npy, "\x93NUMPY"sv},
    {FileKind::Gzip, "\x1f\x8b"sv},
    {FileKind::HDF5, "\x89HDF\r\n\x1a\n"sv},
    {FileKind::GGUF, "GGUF"sv},
    {FileKind::Picture, "\x89PNG"sv},
    {FileKind::Picture, "\xff\xd8\xff"sv},
    {FileKind::Picture, "GIF8"sv},
    {FileKind::Compressed, "\xfd\x37zXZ\0"sv},
    {FileKind::Compressed, "BZh"sv},
    {FileKind::Compressed, "\x28\xb5\x2f\xfd"sv},
    {FileKind::LFSPointer, "version https://git-lfs"sv},
    {FileKind::WebPage, "<!DOCTYPE html"sv},
    {FileKind::WebPage, "<!doctype html"sv},
    {FileKind::WebPage, "<html"sv},
};

/// By the name of the first member.
FileKind kind_of_zip(std::string_view head) {
  if (head.size() < 30) return FileKind::Zip;
  const std::string_view name = head.substr(30, from_little_endian(head.substr(26, 2)));
  if (name.ends_with(".npy")) return FileKind::Npz;
  return name.ends_with("/data.pkl") || name.ends_with("/byteorder") || name.ends_with("/version")
             ? FileKind::Pt
             : FileKind::Zip;
}

/// A safetensors file begins with the length of its header, below 100 MB, and the header with '{'.
bool is_safetensors(std::string_view head) {
  return head.size() > 8 && head[8] == '{' && from_little_endian(head.substr(0, 8)) <= 100'000'000;
}
/// Protobuf: the number 1, a small version, and the name of the program or a graph.
bool is_onnx(std::string_view head) {
  return head.size() > 4 && head[0] == '\x08' && head[1] > 0 && head[1] < 32 &&
         (head[2] == '\x12' || head[2] == '\x3a');
}
bool is_text(std::string_view head) {
  if (head.empty()) return false;
  while (!head.empty()) {
    const size_t n = utf8_length(head);
    const auto c = static_cast<unsigned char>(head[0]);
    if (n == 0) return head.size() < 4 && c >= 0xc0;  // a character that is cut
    if (c < ' ' && "\t\n\r\f"sv.find(head[0]) == std::string_view::npos) return false;
    head.remove_prefix(n);
  }
  return true;
}

}  // namespace

size_t legacy_pt_mark(std::string_view head) {
  if (head.size() < 3 || head[0] != '\x80' || head[1] < 2 || head[1] > 5) return 0;
  const size_t at = head[2] == '\x95' ? 11 : 2;  // behind the frame that protocols 4 and 5 have
  constexpr auto kNumber = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."sv;
  return head.substr(std::min(at, head.size())).starts_with(kNumber) ? at + kNumber.size() : 0;
}

FileKind kind_of(std::string_view head) {
  // First, as the length may begin with the bytes of any other kind.
  if (is_safetensors(head)) return FileKind::Safetensors;
  const auto* const magic = std::find_if(std::begin(kMagics), std::end(kMagics),
                                         [&](const Magic& m) { return head.starts_with(m.bytes); });
  if (magic != std::end(kMagics)) return magic->kind;
  if (legacy_pt_mark(head) > 0) return FileKind::LegacyPt;
  if (head.starts_with("PK\3\4"sv)) return kind_of_zip(head);
  if (head.starts_with("PK\5\6"sv)) return FileKind::Zip;
  if (head.size() > 262 && head.substr(257, 5) == "ustar"sv) return FileKind::Tar;
  if (head.size() > 1 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5) return FileKind::Pickle;
  if (is_onnx(head)) return FileKind::ONNX;
  return is_text(head) ? FileKind::Text : FileKind::Unknown;
}

FileKind kind_of(InputFile& file) {
  std::string head(std::min<uint64_t>(file.size(), kKindBytes), '\0');
  file.read_at(0, head.data(), head.size(), "the first bytes");
  const FileKind kind = kind_of(std::string_view(head));
  if (kind != FileKind::Zip) return kind;
  // A program that packs an archive again gives it another first member, or a folder.
  try {
    const std::vector<ZipMember> members = zip_members(file);
    const auto ends = [](std::string_view end) {
      return [end](const ZipMember& m) { return m.name.ends_with(end); };
    };
    if (std::any_of(members.begin(), members.end(), ends("/data.pkl"))) return FileKind::Pt;
    if (std::all_of(members.begin(), members.end(), ends(".npy"))) return FileKind::Npz;
  } catch (const FileError&) {  // whoever reads it finds the damage
  }
  return kind;
}

std::string_view described(FileKind kind) {
  switch (kind) {
    case FileKind::Unknown:
      return "";
    case FileKind::Safetensors:
      return "a safetensors file; read it with safetensors::load_file";
    case FileKind::Npy:
      return "a NumPy .npy file; read it with npy::load";
    case FileKind::Npz:
      return "a NumPy .npz archive; read it with npy::load_npz";
    case FileKind::Pt:
    case FileKind::LegacyPt:
      return "a PyTorch .pt file; read it with pt::load_file, or convert it with halftape-convert";
    case FileKind::Zip:
      return "a zip archive of other files; unpack it";
    case FileKind::Tar:
      return "a tar archive; unpack it with tar -xf";
    case FileKind::Gzip:
      return "a gzip file; unpack it with gunzip";
    case FileKind::Compressed:
      return "a compressed file; unpack it";
    case FileKind::Pickle:
      return "a Python pickle, which may run code and is never read; in Python, save its tensors "
             "with safetensors.torch.save_file or torch.save";
    case FileKind::GGUF:
      return "a GGUF file, whose tensors are quantized; save the model as safetensors where it "
             "comes from";
    case FileKind::HDF5:
      return "an HDF5 file; in Python, save its arrays with numpy.savez";
    case FileKind::ONNX:
      return "an ONNX file, which holds a graph; in Python, save its initializers with "
             "safetensors.numpy.save_file";
    case FileKind::Picture:
      return "a picture; image::load reads PNG, PPM and PGM";
    case FileKind::WebPage:
      return "a web page: the download has failed; open the address in a browser to see why";
    case FileKind::LFSPointer:
      return "a pointer of Git LFS; fetch the file itself with git lfs pull";
    case FileKind::Text:
      return "text; check that this is the right file";
  }
  return "";
}

void expect_kind(InputFile& file, FileKind kind, std::string_view name) {
  const FileKind found = kind_of(file);
  const bool open = found == FileKind::Unknown || found == kind ||
                    (found == FileKind::Zip && (kind == FileKind::Npz || kind == FileKind::Pt));
  if (!open) file.fail("expected ", name, ", found ", described(found));
}

}  // namespace halftape
