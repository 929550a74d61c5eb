#include "halftape/io/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/io/file/crc.h"
#include "halftape/io/file/file.h"
#include "halftape/io/formats/safetensors_header.h"

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace halftape::safetensors {
namespace {

// The sum is that of the whole file with zeros in the place of the sum itself, which is written
// last. A file with the mark must have the sum, so that damage to the sum's key is noticed, too.
constexpr const char *kMark = "halftape.version", *kSum = "halftape.crc32c";
constexpr std::string_view kOurs = "halftape.", kNoSum = "00000000";

/// Where the eight digits of the sum stand in the header; npos for none. No string of JSON can hold
/// these characters, for quotes within strings are escaped.
size_t find_sum(std::string_view header) {
  const std::string before = std::string("\"") + kSum + "\":\"";
  const size_t at = header.find(before);
  return at == header.npos ? at : at + before.size();
}

std::string digits(uint32_t sum) {
  std::string out(8, '0');
  for (size_t i = 0; i < 8; ++i) out[i] = "0123456789abcdef"[sum >> (28 - 4 * i) & 15];
  return out;
}

std::array<uint8_t, 8> little_endian(uint64_t n) {
  return std::bit_cast<std::array<uint8_t, 8>>(n);
}

void check_name(const std::string& name, const Tensor& tensor) {
  HALFTAPE_CHECK(!name.empty() && name.size() <= kMaxName && name != "__metadata__" &&
                     name.find('\0') == std::string::npos,
                 "safetensors: a tensor cannot be called \"", name.substr(0, 60),
                 "\": names have 1 to ", kMaxName, " bytes, none of them 0, and are not ",
                 "\"__metadata__\"");
  HALFTAPE_CHECK(tensor.defined(), "safetensors: the tensor \"", name, "\" is undefined");
}

/// The bytes of a bool are 0 and 1, and C++ means to rely on it.
void check_bools(const Array& a, const Entry& entry, const InputFile& file) {
  if (entry.dtype != kBool) return;
  const auto* bytes = static_cast<const uint8_t*>(a.raw());
  const auto* wrong = std::find_if(bytes, bytes + a.numel(), [](uint8_t b) { return b > 1; });
  if (wrong != bytes + a.numel())
    file.fail("tensor \"", entry.name, "\": expected bools of the bytes 0 and 1, found ",
              static_cast<int>(*wrong), " at position ", wrong - bytes);
}

}  // namespace

void save_file(const Tensors& tensors, const std::filesystem::path& path,
               const Metadata& metadata) {
  const NoGradGuard no_grad;
  Header header{{}, metadata};
  for (const auto& [key, value] : metadata)
    HALFTAPE_CHECK(!key.starts_with(kOurs), "safetensors: the metadata key \"", key,
                   "\" begins with \"", kOurs, "\", which the library keeps for itself");
  header.metadata["format"] = "pt";
  header.metadata[kMark] = "1";
  header.metadata[kSum] = kNoSum;
  std::vector<Array> arrays;
  for (const auto& item : tensors) {
    check_name(item.key(), item.value());
    arrays.push_back(item.value().detach().contiguous().cpu().array());
    header.entries.push_back({item.key(), arrays.back().dtype(), arrays.back().shape()});
  }
  // The widest elements first: then all are aligned, as programs that map the file want it.
  std::vector<size_t> order = by_offset(header.entries);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return element_size(arrays[a].dtype()) > element_size(arrays[b].dtype());
  });
  const auto bytes_of = [](const Array& a) {
    return static_cast<size_t>(a.numel()) * element_size(a.dtype());
  };
  uint64_t end = 0;
  for (const size_t i : order) {
    header.entries[i].begin = end;
    header.entries[i].end = end += bytes_of(arrays[i]);
  }
  const std::string text = header_text(header);
  HALFTAPE_CHECK(text.size() <= kMaxHeader, "safetensors: the header would have ", text.size(),
                 " bytes, the format allows ", kMaxHeader, "; save fewer names and less metadata");

  OutputFile file("safetensors", path);
  uint32_t sum = 0;
  const auto write = [&](const void* bytes, size_t n) {
    sum = crc32c(bytes, n, sum);
    file.write(bytes, n);
  };
  const auto length = little_endian(text.size());
  write(length.data(), length.size());
  write(text.data(), text.size());
  for (const size_t i : order)
    if (arrays[i].numel() > 0) write(arrays[i].raw(), bytes_of(arrays[i]));
  file.write_at(length.size() + find_sum(text), digits(sum).data(), kNoSum.size());
  file.commit();
}

Contents read_file(const std::filesystem::path& path, Device device) {
  InputFile file("safetensors", path);
  std::array<uint8_t, 8> length_bytes{};
  if (file.size() < length_bytes.size())
    file.fail("expected at least 8 bytes, the length of the header, found ", file.size());
  file.read_at(0, length_bytes.data(), length_bytes.size(), "the length of the header");
  const auto length = std::bit_cast<uint64_t>(length_bytes);
  const uint64_t rest = file.size() - length_bytes.size();
  if (length > kMaxHeader || length > rest)
    file.fail("expected a header of at most ", std::min(kMaxHeader, rest),
              length > rest ? " bytes, as many as follow" : " bytes", ", found the length ", length,
              "; this is no safetensors file, or a truncated one");
  std::string text(static_cast<size_t>(length), '\0');
  file.read_at(length_bytes.size(), text.data(), text.size(), "the header");
  Header header = parse_header(text, rest - length, file);

  Contents contents;
  std::string expected;
  if (header.metadata.contains(kMark) || header.metadata.contains(kSum)) {
    const size_t at = find_sum(text);
    if (!header.metadata.contains(kSum) || header.metadata[kSum].size() != kNoSum.size() ||
        at == text.npos)
      file.fail("header: expected eight digits under \"", kSum, "\", as files of this library have",
                " them, found none: it is damaged");
    expected = header.metadata[kSum];
    text.replace(at, kNoSum.size(), kNoSum);
    contents.has_checksum = true;
  }

  uint32_t sum = crc32c(text.data(), text.size(), crc32c(length_bytes.data(), 8));
  std::vector<Array> arrays(header.entries.size());
  for (const size_t i : by_offset(header.entries)) {
    const Entry& e = header.entries[i];
    Array& a = arrays[i] = Array(e.shape, e.dtype, kCPU);
    if (e.begin == e.end) continue;
    file.read_at(length_bytes.size() + length + e.begin, a.raw(), e.end - e.begin, e.name.c_str());
    if (contents.has_checksum) sum = crc32c(a.raw(), e.end - e.begin, sum);
  }
  if (contents.has_checksum && digits(sum) != expected)
    file.fail("expected the check sum ", expected, ", found ", digits(sum),
              ": the file is damaged, or was written by a program that copied another file's "
              "metadata (leave out the keys that begin with \"",
              kOurs, "\" there)");

  std::vector<Tensors::Item> items;
  items.reserve(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    check_bools(arrays[i], header.entries[i], file);
    items.emplace_back(std::move(header.entries[i].name), Tensor(arrays[i].to(device)));
  }
  contents.tensors = Tensors(std::move(items));
  std::erase_if(header.metadata, [](const auto& item) { return item.first.starts_with(kOurs); });
  contents.metadata = std::move(header.metadata);
  return contents;
}

Tensors load_file(const std::filesystem::path& path, Device device) {
  return read_file(path, device).tensors;
}

}  // namespace halftape::safetensors
