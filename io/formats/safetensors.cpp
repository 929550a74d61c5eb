#include "halftape/io/formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/buffer.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/crc.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/file_kind.h"
#include "halftape/io/formats/safetensors_header.h"
#include "halftape/io/formats/tensor_bytes.h"

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace halftape::safetensors {
namespace {

// The sum is that of the whole file with zeros in the place of the sum itself, which is written
// last. A file with the mark must have the sum, so that damage to the sum's key is noticed, too.
constexpr const char *kMark = "halftape.version", *kSum = "halftape.crc32c";
constexpr std::string_view kOurs = "halftape.", kNoSum = "00000000";
constexpr size_t kLength = 8;  // bytes of the header's length

/// The position of the sum's eight digits in the header; npos for none. In a string of JSON there
/// is a backslash before each quote, so what has none is the key.
size_t find_sum(std::string_view header) {
  const std::string before = std::string("\"") + kSum + "\":\"";
  size_t at = header.find(before);
  while (at != header.npos && at > 0 && header[at - 1] == '\\') at = header.find(before, at + 1);
  return at == header.npos ? at : at + before.size();
}

std::string digits(uint32_t sum) { return hex(big_endian(sum, 4)); }

void check_name(const std::string& name, const Tensor& tensor) {
  HALFTAPE_CHECK(!name.empty() && name.size() <= kMaxName && name != "__metadata__" &&
                     name.find('\0') == std::string::npos,
                 "safetensors: a tensor cannot be called \"", name.substr(0, 60),
                 "\": names have 1 to ", kMaxName, " bytes, none of them 0, and are not ",
                 "\"__metadata__\"");
  HALFTAPE_CHECK(tensor.defined(), "safetensors: the tensor \"", name, "\" is undefined");
}

/// What a file will be: the header, in which the sum is still 0, and the arrays in their order.
struct Draft {
  std::string header;
  std::vector<Array> arrays;
};

Draft draft_of(const Tensors& tensors, const Metadata& metadata) {
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
  uint64_t end = 0;
  for (const size_t i : order) {
    header.entries[i].begin = end;
    header.entries[i].end = end += bytes_of(arrays[i]).size();
  }
  std::string text = header_text(header);
  HALFTAPE_CHECK(text.size() <= kMaxHeader, "safetensors: the header would have ", text.size(),
                 " bytes, the format allows ", kMaxHeader, "; save fewer names and less metadata");

  Draft draft{std::move(text), {}};
  for (const size_t i : order) draft.arrays.push_back(std::move(arrays[i]));
  return draft;
}

/// Hands all bytes to `write`, one after another; returns the digits of their sum.
template <class Write>
std::string write_draft(const Draft& draft, const Write& write) {
  uint32_t sum = 0;
  const auto summed = [&](std::string_view bytes) {
    sum = crc32c(bytes.data(), bytes.size(), sum);
    write(bytes);
  };
  summed(little_endian(draft.header.size(), kLength));
  summed(draft.header);
  for (const Array& a : draft.arrays)
    if (a.numel() > 0) summed(bytes_of(a));
  return digits(sum);
}

Contents read_contents(InputFile& file, Device device) {
  expect_kind(file, FileKind::Safetensors, "a safetensors file");
  std::string length_bytes(kLength, '\0');
  if (file.size() < kLength)
    file.fail("expected at least 8 bytes, the length of the header, found ", file.size());
  file.read_at(0, length_bytes.data(), kLength, "the length of the header");
  const uint64_t length = from_little_endian(length_bytes);
  const uint64_t rest = file.size() - kLength;
  if (length > kMaxHeader || length > rest)
    file.fail("expected a header of at most ", std::min(kMaxHeader, rest),
              length > rest ? " bytes, as many as follow" : " bytes", ", found the length ", length,
              "; this is no safetensors file, or a truncated one");
  std::string text = host_string(static_cast<size_t>(length));
  file.read_at(kLength, text.data(), text.size(), "the header");
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

  uint32_t sum = crc32c(text.data(), text.size(), crc32c(length_bytes.data(), kLength));
  std::vector<Array> arrays(header.entries.size());
  for (const size_t i : by_offset(header.entries)) {
    const Entry& e = header.entries[i];
    Array& a = arrays[i] = Array(e.shape, e.dtype, kCPU);
    if (e.begin == e.end) continue;
    file.read_at(kLength + length + e.begin, a.raw(), e.end - e.begin, e.name.c_str());
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
    if (const auto at = find_damaged_bool(arrays[i]))
      file.fail("tensor \"", header.entries[i].name,
                "\": expected bools of the bytes 0 and 1, found ",
                int{static_cast<uint8_t>(bytes_of(arrays[i])[*at])}, " at position ", *at);
    items.emplace_back(std::move(header.entries[i].name), Tensor(arrays[i].to(device)));
  }
  contents.tensors = Tensors(std::move(items));
  std::erase_if(header.metadata, [](const auto& item) { return item.first.starts_with(kOurs); });
  contents.metadata = std::move(header.metadata);
  return contents;
}

}  // namespace

void save_file(const Tensors& tensors, const std::filesystem::path& path,
               const Metadata& metadata) {
  const Draft draft = draft_of(tensors, metadata);
  OutputFile file("safetensors", path);
  const std::string sum =
      write_draft(draft, [&](std::string_view bytes) { file.write(bytes.data(), bytes.size()); });
  file.write_at(kLength + find_sum(draft.header), sum.data(), sum.size());
  file.commit();
}

std::string save(const Tensors& tensors, const Metadata& metadata) {
  const Draft draft = draft_of(tensors, metadata);
  std::string all;
  const std::string sum = write_draft(draft, [&](std::string_view bytes) { all += bytes; });
  return all.replace(kLength + find_sum(draft.header), sum.size(), sum);
}

Contents read_file(const std::filesystem::path& path, Device device) {
  InputFile file("safetensors", path);
  return read_contents(file, device);
}

Contents read(std::string_view bytes, Device device, const std::string& name) {
  InputFile file("safetensors", bytes, name);
  return read_contents(file, device);
}

Tensors load_file(const std::filesystem::path& path, Device device) {
  return read_file(path, device).tensors;
}

}  // namespace halftape::safetensors
