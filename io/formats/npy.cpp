// The format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "halftape/io/formats/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/buffer.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/file_kind.h"
#include "halftape/io/file/json.h"
#include "halftape/io/file/zip.h"
#include "halftape/io/formats/tensor_bytes.h"

namespace halftape::npy {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxHeader = 1 << 16;
constexpr std::string_view kSuffix = ".npy";

struct Name {
  Dtype dtype;
  std::string_view kind;  // without the byte order
};
constexpr Name kNames[] = {{kBool, "b1"},    {kUInt8, "u1"},   {kInt8, "i1"},
                           {kInt16, "i2"},   {kInt32, "i4"},   {kInt64, "i8"},
                           {kFloat16, "f2"}, {kFloat32, "f4"}, {kFloat64, "f8"}};

/// Where an array is read from: a file, or a member of an archive.
struct Source {
  uint64_t size;
  std::function<void(uint64_t at, void* out, size_t n)> read;
  const InputFile& file;
  std::string member = "";  // how its errors begin
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    file.fail(member, parts...);
  }
};

struct Header {
  Dtype dtype = kFloat32;
  bool big_endian = false, column_major = false;
  Shape shape;
};

/// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class Reader {
 public:
  Reader(std::string_view text, const Source& source) : text_(text), source_(source) {}

  Header read() {
    constexpr std::string_view kKeys[] = {"descr", "fortran_order", "shape"};
    Header h;
    bool has[std::size(kKeys)] = {};
    expect('{');
    while (!take('}')) {
      const std::string_view key = string();
      expect(':');
      const auto* const known = std::find(std::begin(kKeys), std::end(kKeys), key);
      if (known == std::end(kKeys) || std::exchange(has[known - kKeys], true))
        fail("expected 'descr', 'fortran_order' and 'shape', once each, found ", json_quoted(key));
      if (known == &kKeys[0])
        read_dtype(h);
      else if (known == &kKeys[1])
        h.column_major = boolean();
      else
        read_shape(h);
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (std::count(std::begin(has), std::end(has), false) > 0)
      fail("expected 'descr', 'fortran_order' and 'shape', found fewer");
    skip_space();
    if (at_ != text_.size()) fail("expected the end");
    return h;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    source_.fail("header, character ", at_, ": ", parts...);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail("expected '", c, "'");
  }
  std::string_view string() {
    const char quote = take('\'') ? '\'' : '"';
    if (quote == '"') expect('"');
    const size_t end = text_.find(quote, at_);
    if (end == text_.npos || text_.substr(at_, end - at_).find('\\') != text_.npos)
      fail("expected a string without escapes");
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }
  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    fail("expected True or False");
  }
  void read_dtype(Header& h) {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      fail("expected one dtype for all elements, found a record of several");
    const std::string_view descr = string();
    const char order = descr.empty() ? ' ' : descr[0];
    const std::string_view kind = std::string_view(descr).substr(descr.empty() ? 0 : 1);
    const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                     [&](const Name& n) { return n.kind == kind; });
    const bool one_byte = known != std::end(kNames) && element_size(known->dtype) == 1;
    if (known == std::end(kNames) || !(order == '<' || order == '>' || (order == '|' && one_byte)))
      fail(
          "expected one of |b1, |u1, |i1, <i2, <i4, <i8, <f2, <f4, <f8 or their big-endian forms, "
          "found ",
          json_quoted(descr),
          (descr.find('O') != descr.npos ? ": Python objects, which are never read" : ""));
    h.dtype = known->dtype;
    h.big_endian = order == '>' && !one_byte;
  }
  void read_shape(Header& h) {
    expect('(');
    bool comma = true;
    while (!take(')')) {
      if (!comma) fail("expected ',' or ')'");
      if (h.shape.size() == kMaxDims) fail("expected at most 10 dimensions");
      skip_space();
      int64_t size = -1;
      const char* const begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0 || *begin == '-' || (*begin == '0' && end - begin > 1))
        fail("expected a whole number from 0 to 2^63 - 1");
      at_ += static_cast<size_t>(end - begin);
      h.shape.push_back(size);
      comma = take(',');
    }
    if (h.shape.size() == 1 && !comma) fail("expected (n,), found (n), which is no tuple");
  }

  std::string_view text_;
  const Source& source_;
  size_t at_ = 0;
};

void swap_bytes(void* data, size_t count, size_t size) {
  for (char* p = static_cast<char*>(data); count > 0; --count, p += size) std::reverse(p, p + size);
}

Tensor read_array(const Source& source) {
  char head[12];
  if (source.size < 10) source.fail("expected at least 10 bytes, found ", source.size);
  source.read(0, head, 8);
  if (std::string_view(head, 6) != kMagic)
    source.fail("expected the magic string \\x93NUMPY: this is no .npy file");
  const int version = static_cast<uint8_t>(head[6]), minor = static_cast<uint8_t>(head[7]);
  if (version < 1 || version > 3 || minor != 0)
    source.fail("expected format 1.0, 2.0 or 3.0, found ", version, '.', minor);
  const size_t width = version == 1 ? 2 : 4;  // of the header's length
  if (source.size < 8 + width) source.fail("expected the length of the header, found the end");
  source.read(8, head + 8, width);
  const uint64_t length = from_little_endian({head + 8, width});
  const uint64_t begin = 8 + width + length;
  if (length > kMaxHeader || begin > source.size)
    source.fail("expected a header of at most ", kMaxHeader,
                " bytes within the file, found the length ", length);
  std::string text = host_string(length);
  source.read(8 + width, text.data(), length);
  const Header h = Reader(text, source).read();
  const std::optional<uint64_t> bytes = byte_count(h.dtype, h.shape);
  if (!bytes) source.fail("header: expected fewer than 2^63 bytes in all");
  const uint64_t there = source.size - begin;
  if (*bytes != there)
    source.fail("expected ", *bytes, " bytes of data, found ", there,
                *bytes > there ? ": the file is truncated" : ": bytes follow the data");

  Dims order;  // column-major is row-major with the dimensions in reverse
  Shape in_file;
  for (int i = 0; i < h.shape.size(); ++i) {
    order.push_back(h.shape.size() - 1 - i);
    in_file.push_back(h.shape[h.column_major ? h.shape.size() - 1 - i : i]);
  }
  const Array a(in_file, h.dtype, kCPU);
  if (*bytes > 0) source.read(begin, a.raw(), *bytes);
  if (h.big_endian) swap_bytes(a.raw(), static_cast<size_t>(a.numel()), element_size(h.dtype));
  if (find_damaged_bool(a)) source.fail("expected bools of the bytes 0 and 1, found others");
  return Tensor(h.column_major ? a.permute(order).to_contiguous() : a);
}

/// What stands before the row-major bytes.
std::string header_of(const Array& a) {
  const auto* known = std::find_if(std::begin(kNames), std::end(kNames),
                                   [&](const Name& n) { return n.dtype == a.dtype(); });
  HALFTAPE_CHECK(known != std::end(kNames), "npy: NumPy has no ", a.dtype(),
                 "; save x.to(kFloat32), or use safetensors");
  std::string text = "{'descr': '";
  text += element_size(a.dtype()) == 1 ? '|' : '<';
  text += known->kind;
  text += "', 'fortran_order': False, 'shape': (";
  for (int i = 0; i < a.dim(); ++i) text += (i ? ", " : "") + std::to_string(a.size(i));
  text += a.dim() == 1 ? ",), }" : "), }";
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');  // the data begin at k·64
  text += '\n';
  std::string out(kMagic);
  out += {'\1', '\0'};
  return out + little_endian(text.size(), 2) + text;
}

Array on_the_host(const Tensor& tensor) {
  HALFTAPE_CHECK(tensor.defined(), "npy: the tensor is undefined");
  const NoGradGuard no_grad;
  return tensor.detach().contiguous().cpu().array();
}

void save_archive(const std::filesystem::path& path, const Tensors& tensors, bool deflate) {
  for (const auto& item : tensors)
    HALFTAPE_CHECK(
        !item.key().empty() && is_utf8(item.key()) && item.key().find('\0') == std::string::npos,
        "npz: the name ", json_quoted(item.key()), " is empty or not UTF-8 text");
  OutputFile file("npz", path);
  ZipWriter zip(file);
  for (const auto& item : tensors) {
    const Array a = on_the_host(item.value());
    const std::string header = header_of(a);
    auto member = host_room<std::string>(header.size() + bytes_of(a).size());
    member.append(header).append(bytes_of(a));
    zip.add(item.key() + std::string(kSuffix), member, deflate);
  }
  zip.finish();
  file.commit();
}

}  // namespace

void save(const std::filesystem::path& path, const Tensor& tensor) {
  const Array a = on_the_host(tensor);
  const std::string header = header_of(a);
  OutputFile file("npy", path);
  file.write(header.data(), header.size());
  file.write(bytes_of(a).data(), bytes_of(a).size());
  file.commit();
}

Tensor load(const std::filesystem::path& path) {
  InputFile file("npy", path);
  expect_kind(file, FileKind::Npy, "a NumPy .npy file");
  return read_array(
      {file.size(),
       [&](uint64_t at, void* out, size_t n) { file.read_at(at, out, n, "the array"); }, file});
}

void savez(const std::filesystem::path& path, const Tensors& tensors) {
  save_archive(path, tensors, false);
}
void savez_compressed(const std::filesystem::path& path, const Tensors& tensors) {
  save_archive(path, tensors, true);
}

Tensors load_npz(const std::filesystem::path& path) {
  InputFile file("npz", path);
  expect_kind(file, FileKind::Npz, "a NumPy .npz archive");
  std::vector<Tensors::Item> items;
  for (const ZipMember& member : zip_members(file)) {
    const std::string prefix = "member " + json_quoted(member.name) + ": ";
    if (!member.name.ends_with(kSuffix) || !is_utf8(member.name))
      file.fail(prefix, "expected a name ending in .npy");
    const std::string bytes = zip_read(file, member);
    items.emplace_back(
        member.name.substr(0, member.name.size() - kSuffix.size()),
        read_array({bytes.size(),
                    [&](uint64_t at, void* out, size_t n) { std::memcpy(out, &bytes[at], n); },
                    file, prefix}));
  }
  return Tensors(std::move(items));
}

}  // namespace halftape::npy
