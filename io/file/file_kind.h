// Which kind of file one is, by its first bytes: so that a reader given another kind says what it
// was given, and what reads that.
#pragma once
#include <cstdint>
#include <string_view>

#include "halftape/io/file/file.h"

namespace halftape {

enum class FileKind : uint8_t {
  Unknown,
  Safetensors,
  Npy,
  Npz,
  Pt,        // torch.save since PyTorch 1.6: a zip archive
  LegacyPt,  // torch.save before it
  Zip,       // another archive
  Tar,
  Gzip,
  Compressed,  // xz, bzip2, zstd
  Pickle,
  GGUF,
  HDF5,
  ONNX,
  Picture,
  WebPage,
  LFSPointer,
  Text,
};

/// How many bytes the number takes with which torch.save began its files before PyTorch 1.6, a
/// pickle of protocol 2 to 5; 0 if it is not there.
size_t legacy_pt_mark(std::string_view head);
/// How many bytes kind_of() looks at.
inline constexpr size_t kKindBytes = 512;
/// The kind of a file that begins with these bytes.
FileKind kind_of(std::string_view head);
/// The same of a file; for a zip archive whose first member does not tell, by the names of all. It
/// is read on from wherever the caller seeks.
FileKind kind_of(InputFile& file);
/// What that is, and what to do with it: "a NumPy .npy file; read it with npy::load". Empty for
/// Unknown.
std::string_view described(FileKind kind);

/// Throws FileError if the file is known to be of another kind: "expected a safetensors file, found
/// a NumPy .npy file; read it with npy::load". Any zip archive may be an .npz or a .pt file.
void expect_kind(InputFile& file, FileKind kind, std::string_view name);

}  // namespace halftape
