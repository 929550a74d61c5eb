// The IDX reader: finds the files, sees through gzip, and believes no header before checking it.
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
constexpr uint64_t kMaxRatio = 1032;               // deflate's own limit, zlib.net/zlib_tech.html
constexpr const char* kFetchAgain = "; fetch or copy the file again";

[[noreturn]] void fail(const fs::path& file, const std::string& what) {
  throw DataError("idx: " + file.string() + ": " + what);
}

std::string hex(const uint8_t* bytes, size_t n) {
  std::string text = "0x";
  for (size_t i = 0; i < n; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
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
        fail(file_.path(), "expected the end of the gzip data, found the end of the file after " +
                               std::to_string(consumed_) + " bytes: it is truncated" + kFetchAgain);
      }
      if (member_done_) {  // a gzip file may be several, one after the other
        if (*z_.next_in != 0x1f) {
          fail(file_.path(), "expected the end of the file after the gzip data, found other bytes" +
                                 std::string(kFetchAgain));
        }
        inflateReset(&z_);
        member_done_ = false;
      }
      const int status = inflate(&z_, Z_NO_FLUSH);  // checks CRC and ISIZE at a member's end
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status == Z_STREAM_END) {
        member_done_ = true;
      } else if (status != Z_OK) {
        fail(file_.path(), std::string("expected sound gzip data, found damage before byte ") +
                               std::to_string(consumed_ - z_.avail_in) + " (zlib: " +
                               (z_.msg ? z_.msg : "dictionary needed") + ")" + kFetchAgain);
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

template <class Source>
Idx parse(Source& source, const InputFile& file, size_t rank, bool gzip) {
  const fs::path& path = file.path();
  const size_t header_size = 4 + 4 * rank;
  std::array<uint8_t, 16> header{};
  const size_t got = source.read(header.data(), header_size);
  refuse_html(path, {reinterpret_cast<const char*>(header.data()), got});

  const std::array<uint8_t, 4> magic = {0, 0, 8, static_cast<uint8_t>(rank)};
  if (got >= 4 && !std::equal(magic.begin(), magic.end(), header.begin())) {
    const std::array<uint8_t, 4> other = {0, 0, 8, static_cast<uint8_t>(4 - rank)};
    const bool swapped = std::equal(other.begin(), other.end(), header.begin());
    const std::string kind = rank == 3 ? "images" : "labels";
    fail(path, "expected the magic number " + hex(magic.data(), 4) + " (IDX " + kind + "), found " +
                   hex(header.data(), 4) +
                   (swapped ? std::string(" (IDX ") + (rank == 3 ? "labels" : "images") +
                                  "); images and labels seem to have swapped names"
                            : "; this is another file or format: fetch the IDX file again"));
  }
  if (got < header_size) {
    fail(path, "expected a header of " + std::to_string(header_size) + " bytes, found " +
                   std::to_string(got) + (got ? ": the file is truncated" : ": the file is empty") +
                   kFetchAgain);
  }

  Idx idx;
  uint64_t payload = 1;
  std::string shape;
  bool too_large = false;
  for (size_t d = 0; d < rank; ++d) {
    const uint8_t* p = &header[4 + 4 * d];
    const uint64_t n = uint64_t{p[0]} << 24 | uint64_t{p[1]} << 16 | uint64_t{p[2]} << 8 | p[3];
    idx.dims.push_back(static_cast<int64_t>(n));
    shape += (d ? " x " : "") + std::to_string(n);
    if (n > 0 && payload > kMaxBytes / n) too_large = true;
    if (!too_large) payload *= n;
  }
  if (std::find(idx.dims.begin(), idx.dims.end(), 0) != idx.dims.end()) {
    fail(path,
         "expected at least one value, found the size " + shape + " in the header" + kFetchAgain);
  }
  if (too_large) {
    fail(path, "expected at most " + std::to_string(kMaxBytes) + " bytes, found the size " + shape +
                   " in the header: it is damaged, or the set too large for this reader" +
                   kFetchAgain);
  }
  const uint64_t total = header_size + payload;
  const std::string expected = "expected " + std::to_string(total) + " bytes (" +
                               std::to_string(header_size) + " of header + " + shape + ")" +
                               (gzip ? " after unpacking" : "");
  const auto mismatch = [&](const std::string& found, bool truncated) {
    fail(path, expected + ", found " + found +
                   (truncated ? ": the file is truncated" : ": bytes follow the data") +
                   kFetchAgain);
  };
  if (!gzip && file.size() != total) mismatch(std::to_string(file.size()), file.size() < total);
  if (gzip && total / kMaxRatio > file.size()) {
    fail(path, expected + ", found only " + std::to_string(file.size()) +
                   " bytes of gzip data, which cannot hold them" + kFetchAgain);
  }

  // Grows with what truly arrives, so that a false header costs no memory.
  for (size_t have = 0; have < payload;) {
    const size_t step = std::min<size_t>(payload - have, std::max<size_t>(have, 1 << 20));
    idx.bytes.resize(have + step);
    const size_t n = source.read(idx.bytes.data() + have, step);
    have += n;
    if (n < step) mismatch(std::to_string(header_size + have), true);
  }
  uint8_t extra;  // reading past the end also makes gzip check its CRC and length
  if (source.read(&extra, 1) != 0) mismatch("more", false);
  return idx;
}

Idx read_file(const fs::path& path, size_t rank) {
  InputFile file("idx", path);
  std::array<uint8_t, 64> head{};
  const size_t n = file.read(head.data(), head.size());
  file.seek(0);
  refuse_html(path, {reinterpret_cast<const char*>(head.data()), n});
  if (n < 2 || head[0] != 0x1f || head[1] != 0x8b) {
    if (path.extension() == ".gz" && n > 0 && head[0] != 0) {  // unpacked IDX begins with 0
      fail(path, "expected gzip data (0x1f8b), found " + hex(head.data(), std::min<size_t>(n, 2)) +
                     kFetchAgain);
    }
    return parse(file, file, rank, false);
  }
#if HALFTAPE_HAVE_ZLIB
  Gunzip gunzip(file);
  return parse(gunzip, file, rank, true);
#else
  fail(
      path,
      "expected a plain IDX file, found gzip data, which this build cannot read; run gunzip on the "
      "file, or rebuild with zlib");
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

constexpr const char* kWithoutData = "or run without --data to use the embedded digits";

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
  if (!directory.empty()) return directory;  // and InputFile says what is wrong with it
  throw DataError("mnist: " + folder.string() + ": expected one of " + tried + "; found " +
                  listing(folder) + "; put the four files of MNIST or Fashion-MNIST there, " +
                  kWithoutData);
}

}  // namespace

bool reads_gzip() { return HALFTAPE_HAVE_ZLIB != 0; }

Images read_idx(const fs::path& images, const fs::path& labels) {
  Idx x = read_file(images, 3);
  Idx y = read_file(labels, 1);
  if (x.dims[0] != y.dims[0]) {
    fail(labels, "expected " + std::to_string(x.dims[0]) + " labels, one for each image of " +
                     images.string() + ", found " + std::to_string(y.dims[0]) +
                     "; take both files from the same set");
  }
  for (size_t i = 0; i < y.bytes.size(); ++i) {
    if (y.bytes[i] > 9) {
      fail(labels, "expected labels 0..9, found " + std::to_string(y.bytes[i]) + " at index " +
                       std::to_string(i) + "; the file is damaged or of a set with more classes");
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
    throw DataError("mnist: " + where.string() + ": expected a folder, found " +
                    (nothing ? "nothing"
                     : error ? error.message()
                             : std::string("a file")) +
                    "; name the folder that holds the four IDX files, " + kWithoutData);
  }
  // All four are found before the first is read: a missing one is told at once.
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
    fail(test_images, "expected images of " + size(split.train) + " as in " +
                          train_images.string() + ", found " + size(split.test) +
                          "; take all four files from the same set");
  }
  const fs::path last = where.has_filename() ? where.filename() : where.parent_path().filename();
  split.train.name = last.string() + " train";
  split.test.name = last.string() + " test";
  return split;
}

}  // namespace halftape::data
