// The IDX reader: finds the files, unpacks gzip, and checks every header before it allocates.
#include "halftape/io/formats/idx.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/deflate.h"

#ifndef HALFTAPE_HAVE_ZLIB
#define HALFTAPE_HAVE_ZLIB 0
#endif
#if HALFTAPE_HAVE_ZLIB
#include <zlib.h>
#endif

namespace halftape::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBytes = uint64_t{1} << 30;  // one file, unpacked; MNIST's largest has 47 MB
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

// --- Where the bytes come from: an InputFile as it is, or unpacked. Both have read(out, n), which
// returns less than n only at a sound end.

#if HALFTAPE_HAVE_ZLIB
class Gunzip {
 public:
  explicit Gunzip(InputFile& file) : file_(file) {
    if (inflateInit2(&z_, 15 + 16) != Z_OK) throw std::bad_alloc();  // + 16: expect a gzip header
  }
  ~Gunzip() { inflateEnd(&z_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  size_t read(uint8_t* out, size_t n) {
    z_.next_out = out;
    z_.avail_out = static_cast<uInt>(n);  // n <= kMaxBytes
    while (z_.avail_out > 0) {
      if (z_.avail_in == 0) {
        z_.next_in = input_.data();
        z_.avail_in = static_cast<uInt>(file_.read(input_.data(), input_.size()));
        consumed_ += z_.avail_in;
      }
      if (z_.avail_in == 0 && member_done_) break;
      if (z_.avail_in == 0) {
        file_.fail("expected the end of the gzip data, found the end of the file after ", consumed_,
                   " bytes: it is truncated", kFetchAgain);
      }
      if (member_done_) {  // a gzip file may be several, one after the other
        if (*z_.next_in != 0x1f) {
          file_.fail("expected the end of the file after the gzip data, found other bytes",
                     kFetchAgain);
        }
        inflateReset(&z_);
        member_done_ = false;
      }
      const int status = inflate(&z_, Z_NO_FLUSH);  // checks CRC and ISIZE at a member's end
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status == Z_STREAM_END) {
        member_done_ = true;
      } else if (status != Z_OK) {
        file_.fail("expected sound gzip data, found damage before byte ", consumed_ - z_.avail_in,
                   " (zlib: ", z_.msg ? z_.msg : "dictionary needed", ")", kFetchAgain);
      }
    }
    return n - z_.avail_out;
  }

 private:
  InputFile& file_;
  z_stream z_{};
  std::array<uint8_t, 1 << 14> input_;
  uint64_t consumed_ = 0;     // bytes taken from the file
  bool member_done_ = false;  // between two gzip members, or at the end
};
#endif

// --- IDX: magic 00 00 08 rank (08: unsigned byte), rank lengths of 32 bits, all big-endian; bytes.

struct Idx {
  std::vector<int64_t> dims;
  std::vector<uint8_t> bytes;
};

/// The lengths in a header of 4 + 4·rank bytes; only the first `got` bytes were read.
std::vector<int64_t> parse_dims(std::string_view header, size_t got, size_t rank,
                                const InputFile& file) {
  refuse_html(file.path(), header.substr(0, got));
  const auto magic = [](size_t r) { return std::string{'\0', '\0', '\x08', static_cast<char>(r)}; };
  if (got >= 4 && !header.starts_with(magic(rank))) {
    const char *kind = "images", *other = "labels";
    if (rank == 1) std::swap(kind, other);
    const std::string found = "0x" + hex(header.substr(0, 4));
    if (header.starts_with(magic(4 - rank)))
      file.fail("expected the magic number 0x", hex(magic(rank)), " (IDX ", kind, "), found ",
                found, " (IDX ", other, "); images and labels seem to have swapped names");
    file.fail("expected the magic number 0x", hex(magic(rank)), " (IDX ", kind, "), found ", found,
              "; this is another file or format: fetch the IDX file again");
  }
  if (got < header.size())
    file.fail("expected a header of ", header.size(), " bytes, found ", got,
              got ? ": the file is truncated" : ": the file is empty", kFetchAgain);
  std::vector<int64_t> dims;
  for (size_t d = 0; d < rank; ++d)
    dims.push_back(static_cast<int64_t>(from_big_endian(header.substr(4 + 4 * d, 4))));
  return dims;
}

/// The bytes of values of these lengths; throws when there are none, or too many for this reader.
uint64_t payload_of(const std::vector<int64_t>& dims, const std::string& shape,
                    const InputFile& file) {
  uint64_t payload = 1;
  bool too_large = false;
  for (const int64_t dim : dims) {
    const auto n = static_cast<uint64_t>(dim);
    if (n == 0)
      file.fail("expected at least one value, found the size ", shape, " in the header",
                kFetchAgain);
    too_large |= payload > kMaxBytes / n;
    if (!too_large) payload *= n;
  }
  if (too_large)
    file.fail("expected at most ", kMaxBytes, " bytes, found the size ", shape,
              " in the header: it is damaged, or the set too large for this reader", kFetchAgain);
  return payload;
}

template <class Source>
Idx parse(Source& source, const InputFile& file, size_t rank, bool gzip) {
  std::string header(4 + 4 * rank, '\0');
  const size_t got = source.read(reinterpret_cast<uint8_t*>(header.data()), header.size());
  Idx idx{parse_dims(header, got, rank, file), {}};
  std::string shape;
  for (const int64_t n : idx.dims) shape += (shape.empty() ? "" : " x ") + std::to_string(n);
  const uint64_t payload = payload_of(idx.dims, shape, file), total = header.size() + payload;
  const auto mismatch = [&](const auto&... found) {
    file.fail("expected ", total, " bytes (", header.size(), " of header + ", shape, ")",
              gzip ? " after unpacking" : "", ", found ", found..., kFetchAgain);
  };
  constexpr const char *kTruncated = ": the file is truncated", *kMore = ": bytes follow the data";
  if (!gzip && file.size() != total)
    mismatch(file.size(), file.size() < total ? kTruncated : kMore);
  if (gzip && total / kMaxDeflateRatio > file.size())
    mismatch("only ", file.size(), " bytes of gzip data, which cannot hold them");

  // Grows with what truly arrives, so that a false header costs no memory.
  for (size_t have = 0; have < payload;) {
    const size_t step = std::min<size_t>(payload - have, std::max<size_t>(have, 1 << 20));
    idx.bytes.resize(have + step);
    const size_t n = source.read(idx.bytes.data() + have, step);
    have += n;
    if (n < step) mismatch(header.size() + have, kTruncated);
  }
  uint8_t extra;  // reading past the end also makes gzip check its CRC and length
  if (source.read(&extra, 1) != 0) mismatch("more", kMore);
  return idx;
}

Idx read_idx_file(const fs::path& path, size_t rank) {
  InputFile file("idx", path);
  std::string head(64, '\0');
  head.resize(file.read(head.data(), head.size()));
  file.seek(0);
  refuse_html(path, head);
  if (!head.starts_with("\x1f\x8b")) {
    if (path.extension() == ".gz" && !head.empty() && head[0] != 0)  // unpacked IDX begins with 0
      fail(path, "expected gzip data (0x1f8b), found 0x", hex(head.substr(0, 2)), kFetchAgain);
    return parse(file, file, rank, false);
  }
#if HALFTAPE_HAVE_ZLIB
  Gunzip gunzip(file);
  return parse(gunzip, file, rank, true);
#else
  fail(path,
       "expected a plain IDX file, found gzip data, which this build cannot read; run gunzip ",
       "on the file, or rebuild with zlib");
#endif
}

// --- The folder.

std::vector<std::string> names_of(const std::string& stem, const std::string& idx) {
  return {stem + "-" + idx, stem + "." + idx, stem + "-" + idx + ".gz", stem + "." + idx + ".gz"};
}

std::string listing(const fs::path& folder) {
  constexpr size_t kShown = 10;
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    names.push_back(it->path().filename().string() + (it->is_directory(ignored) ? "/" : ""));
  }
  if (error) return "a folder that cannot be listed (" + error.message() + ")";
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
  for (const std::string& name : names_of(stem, idx)) {
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
  for (size_t i = 0; i < y.bytes.size(); ++i) {
    if (y.bytes[i] > 9) {
      fail(labels, "expected labels 0..9, found ", int{y.bytes[i]}, " at index ", i,
           "; the file is damaged or of a set with more classes");
    }
  }
  return {.name = images.filename().string(),
          .count = x.dims[0],
          .rows = x.dims[1],
          .cols = x.dims[2],
          .pixels = std::move(x.bytes),
          .labels = std::move(y.bytes)};
}

Split mnist(const fs::path& folder) {
  std::error_code error;
  const fs::path where = fs::absolute(folder, error).lexically_normal();
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
  const fs::path last = where.has_filename() ? where.filename() : where.parent_path().filename();
  split.train.name = last.string() + " train";
  split.test.name = last.string() + " test";
  return split;
}

}  // namespace halftape::data
