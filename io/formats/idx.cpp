// The IDX reader: finds the files, unpacks gzip, and checks every header before it allocates.
#include "halftape/io/formats/idx.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "halftape/core/buffer.h"
#include "halftape/core/machine/os.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/deflate.h"
#include "halftape/io/formats/tensor_bytes.h"

namespace halftape::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFetchAgain = "; fetch or copy the file again";

template <class... Parts>
[[noreturn]] void fail(const fs::path& file, const Parts&... parts) {
  fail_file("idx", file, parts...);
}

// A failed download often leaves the server's error page under the name of the file.
void refuse_html(const fs::path& path, std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || head[first] != '<') return;
  fail(path,
       "expected an IDX file, found text beginning with '<': this looks like an HTML page, such as "
       "a server's error message saved under the file's name; fetch the file again");
}

// --- IDX: magic 00 00 08 rank (08: unsigned byte), rank lengths of 32 bits, all big-endian; bytes.

struct Idx {
  Shape dims;
  std::vector<uint8_t> bytes;
};

/// The lengths in a header for `rank` of them; `header` is shorter when the file is.
Shape parse_dims(std::string_view header, size_t rank, const InputFile& file) {
  refuse_html(file.path(), header);
  const auto magic = [](size_t r) { return std::string{'\0', '\0', '\x08', static_cast<char>(r)}; };
  if (header.size() >= 4 && !header.starts_with(magic(rank))) {
    const char *kind = "images", *other = "labels";
    if (rank == 1) std::swap(kind, other);
    const std::string found = "0x" + hex(header.substr(0, 4));
    if (header.starts_with(magic(4 - rank)))
      file.fail("expected the magic number 0x", hex(magic(rank)), " (IDX ", kind, "), found ",
                found, " (IDX ", other, "); images and labels seem to have swapped names");
    file.fail("expected the magic number 0x", hex(magic(rank)), " (IDX ", kind, "), found ", found,
              "; this is another file or format: fetch the IDX file again");
  }
  if (header.size() < 4 + 4 * rank)
    file.fail("expected a header of ", 4 + 4 * rank, " bytes, found ", header.size(),
              header.empty() ? ": the file is empty" : ": the file is truncated", kFetchAgain);
  Shape dims;
  for (size_t d = 0; d < rank; ++d)
    dims.push_back(static_cast<int64_t>(from_big_endian(header.substr(4 + 4 * d, 4))));
  return dims;
}

Idx read_idx_file(const fs::path& path, size_t rank) {
  InputFile file("idx", path);
  std::string head(64, '\0'), packed;
  head.resize(file.read(head.data(), head.size()));
  refuse_html(path, head);
  const bool gzip = head.starts_with("\x1f\x8b");
  if (!gzip && path.extension() == ".gz" && !head.empty() && head[0] != 0)  // IDX begins with 0
    file.fail("expected gzip data (0x1f8b), found 0x", hex(head.substr(0, 2)), kFetchAgain);
  const size_t header = 4 + 4 * rank;
  if (gzip) {
    packed = read_file("idx", path);
    head = gunzip(packed, header, file);
  }
  head.resize(std::min(head.size(), header));

  Idx idx{parse_dims(head, rank, file), {}};
  std::string shape;
  for (const int64_t n : idx.dims) shape += (shape.empty() ? "" : " x ") + std::to_string(n);
  if (std::count(idx.dims.begin(), idx.dims.end(), 0) > 0)
    file.fail("expected at least one value, found the size ", shape, " in the header", kFetchAgain);
  const std::optional<uint64_t> payload = byte_count(kUInt8, idx.dims);
  if (!payload)
    file.fail("expected fewer than 2^63 bytes, found the size ", shape,
              " in the header: it is damaged", kFetchAgain);
  const uint64_t total = header + *payload;
  const auto mismatch = [&](const auto&... found) {
    file.fail("expected ", total, " bytes (", header, " of header + ", shape, ")",
              gzip ? " after unpacking" : "", ", found ", found..., kFetchAgain);
  };
  constexpr const char *kTruncated = ": the file is truncated", *kMore = ": bytes follow the data";
  if (!gzip) {
    if (file.size() != total) mismatch(file.size(), file.size() < total ? kTruncated : kMore);
    idx.bytes = host_vector<uint8_t>(static_cast<int64_t>(*payload));
    file.read_at(header, idx.bytes.data(), *payload, "the data");
    return idx;
  }
  const std::string why = unpacking_refused(packed.size(), total);
  if (!why.empty()) mismatch(why);
  const std::string all = gunzip(packed, total + 1, file);  // to the end, with its check sum
  if (all.size() < total) mismatch(all.size(), kTruncated);
  if (all.size() > total) mismatch("more", kMore);
  idx.bytes = host_room<std::vector<uint8_t>>(*payload);
  idx.bytes.assign(all.begin() + static_cast<std::ptrdiff_t>(header), all.end());
  return idx;
}

// --- The folder.

std::string listing(const fs::path& folder) {
  constexpr size_t kShown = 10;
  int error = 0;
  std::vector<std::string> names = os::names_in(folder, error);
  if (error != 0)
    return "a folder that cannot be listed (" + std::generic_category().message(error) + ")";
  std::error_code ignored;
  for (std::string& name : names)
    if (fs::is_directory(folder / name, ignored)) name += '/';
  if (names.empty()) return "an empty folder";
  std::sort(names.begin(), names.end());
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kShown) text += ", … (" + std::to_string(names.size()) + " in all)";
  return text;
}

constexpr const char* kEmbedded = "or use datasets::Digits, which needs no files";

fs::path find(const fs::path& folder, const std::string& stem, const std::string& idx) {
  fs::path directory;
  std::string tried;
  for (const auto& end : {"-" + idx, "." + idx, "-" + idx + ".gz", "." + idx + ".gz"}) {
    const std::string name = stem + end;
    std::error_code error;
    const fs::file_status status = fs::status(folder / name, error);
    // A folder of that name, as some archives unpack to, must not hide the file beside it.
    if (fs::is_directory(status)) {
      directory = folder / name;
    } else if (status.type() != fs::file_type::not_found) {
      return folder / name;
    }
    tried += (tried.empty() ? "" : ", ") + name;
  }
  if (!directory.empty()) return directory;  // InputFile reports it as a folder
  fail_file("mnist", folder, "expected one of ", tried, "; found ", listing(folder),
            "; put the four files of MNIST or Fashion-MNIST there, ", kEmbedded);
}

}  // namespace

bool reads_gzip() { return can_inflate(); }

Images read_idx(const fs::path& images, const fs::path& labels) {
  Idx x = read_idx_file(images, 3);
  Idx y = read_idx_file(labels, 1);
  if (x.dims[0] != y.dims[0]) {
    fail(labels, "expected ", x.dims[0], " labels, one for each image of ", images.string(),
         ", found ", y.dims[0], "; take both files from the same set");
  }
  const auto wrong =
      std::find_if(y.bytes.begin(), y.bytes.end(), [](uint8_t label) { return label > 9; });
  if (wrong != y.bytes.end())
    fail(labels, "expected labels 0..9, found ", int{*wrong}, " at index ", wrong - y.bytes.begin(),
         "; the file is damaged or of a set with more classes");
  return {.name = images.filename().string(),
          .count = x.dims[0],
          .rows = x.dims[1],
          .cols = x.dims[2],
          .pixels = std::move(x.bytes),
          .labels = std::move(y.bytes)};
}

Split mnist(const fs::path& folder) {
  std::error_code error;
  const fs::path where = fs::absolute(folder, error);
  const fs::file_status status = fs::status(where, error);
  if (!fs::is_directory(status)) {
    const bool nothing = status.type() == fs::file_type::not_found;
    fail_file("mnist", where, "expected a folder, found ",
              nothing ? "nothing"
              : error ? error.message()
                      : std::string("a file"),
              "; name the folder that holds the four IDX files, ", kEmbedded);
  }
  // All four are found before the first is read, so that a missing one is reported at once.
  const fs::path train_images = find(where, "train-images", "idx3-ubyte");
  const fs::path train_labels = find(where, "train-labels", "idx1-ubyte");
  const fs::path test_images = find(where, "t10k-images", "idx3-ubyte");
  const fs::path test_labels = find(where, "t10k-labels", "idx1-ubyte");
  Split split{.train = read_idx(train_images, train_labels),
              .test = read_idx(test_images, test_labels)};
  const auto size = [](const Images& part) {
    return std::to_string(part.rows) + "x" + std::to_string(part.cols);
  };
  if (size(split.train) != size(split.test)) {
    fail(test_images, "expected images of ", size(split.train), " as in ", train_images.string(),
         ", found ", size(split.test), "; take all four files from the same set");
  }
  const fs::path name = where.lexically_normal();
  const fs::path last = name.has_filename() ? name.filename() : name.parent_path().filename();
  split.train.name = last.string() + " train";
  split.test.name = last.string() + " test";
  return split;
}

}  // namespace halftape::data
