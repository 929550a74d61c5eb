// UTF-8 to tokens and back.
#include "halftape/io/data/sets/text.h"

#include <algorithm>
#include <map>
#include <utility>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/core/buffer.h"
#include "halftape/core/check.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/json.h"

namespace halftape::data {
namespace {

template <class... Parts>
[[noreturn]] void fail(size_t at, const Parts&... parts) {
  throw DataError(halftape::detail::str("text: byte ", at, ": ", parts...));
}

/// Calls f(code point, its bytes, where) for each character.
template <class F>
void for_each_character(std::string_view text, const F& f) {
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
    const uint8_t first = byte(0);
    length = utf8_length(text.substr(at));
    if (length == 0)
      fail(at, "expected UTF-8, found the byte ", int{first},
           " out of place; convert the text, or use ByteVocabulary");
    uint32_t code = length == 1 ? first : first & (0x7fu >> length);
    for (size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3f);
    f(code, text.substr(at, length), at);
  }
}

/// The tokens as numbers of the host. Throws unless they lie in [0, size).
std::vector<int64_t> checked(const Tensor& tokens, int64_t size) {
  HALFTAPE_CHECK(tokens.dim() == 1 && !is_floating_point(tokens.dtype()),
                 "decode: expected tokens (n,) of an integer dtype, got ", tokens.sizes(), " of ",
                 tokens.dtype());
  std::vector<int64_t> numbers = tokens.to_vector<int64_t>();
  for (size_t i = 0; i < numbers.size(); ++i)
    HALFTAPE_CHECK(numbers[i] >= 0 && numbers[i] < size, "decode: token ", numbers[i], " at ", i,
                   " is none of the vocabulary's ", size);
  return numbers;
}

}  // namespace

std::string read_text(const std::filesystem::path& path) {
  std::string text = read_file("text", path);
  if (text.empty()) fail_file("text", path, "the file is empty");
  return text;
}

CharVocabulary::CharVocabulary(std::string_view text) {
  std::map<uint32_t, std::string_view> found;
  for_each_character(text, [&](uint32_t code, std::string_view c, size_t) { found[code] = c; });
  for (const auto& [code, character] : found) {
    numbers_[code] = size();
    characters_.emplace_back(character);
  }
}

Tensor CharVocabulary::encode(std::string_view text) const {
  auto tokens = host_room<std::vector<int64_t>>(text.size());
  for_each_character(text, [&](uint32_t code, std::string_view c, size_t at) {
    const auto number = numbers_.find(code);
    if (number == numbers_.end())
      fail(at, "the character '", c, "' is none of the vocabulary's ", size(),
           "; make the vocabulary of all texts together");
    tokens.push_back(number->second);
  });
  return tensor(tokens, TensorOptions(kInt64).device(kCPU));
}

std::string CharVocabulary::decode(const Tensor& tokens) const {
  std::string text;
  for (const int64_t token : checked(tokens, size()))
    text += characters_[static_cast<size_t>(token)];
  return text;
}

std::string CharVocabulary::characters() const {
  std::string all;
  for (const std::string& c : characters_) all += c;
  return all;
}

Tensor ByteVocabulary::encode(std::string_view bytes) const {
  Tensor tokens = empty({static_cast<int64_t>(bytes.size())}, TensorOptions(kInt64).device(kCPU));
  std::transform(bytes.begin(), bytes.end(), tokens.data_ptr<int64_t>(),
                 [](char c) { return static_cast<uint8_t>(c); });
  return tokens;
}

std::string ByteVocabulary::decode(const Tensor& tokens) const {
  auto bytes = host_room<std::string>(static_cast<uint64_t>(tokens.numel()));
  for (const int64_t token : checked(tokens, size())) bytes += static_cast<char>(token);
  return bytes;
}

namespace datasets {

TextWindows::TextWindows(Tensor tokens, int64_t block_size, int64_t stride)
    : tokens_(std::move(tokens)), block_size_(block_size), stride_(stride) {
  HALFTAPE_CHECK(tokens_.dim() == 1 && !is_floating_point(tokens_.dtype()),
                 "TextWindows: expected tokens (n,) of an integer dtype, got ", tokens_.sizes(),
                 " of ", tokens_.dtype());
  HALFTAPE_CHECK(block_size > 0 && stride > 0, "TextWindows: block_size ", block_size,
                 " and stride ", stride, " must be at least 1");
  HALFTAPE_CHECK(tokens_.size(0) > block_size, "TextWindows: ", tokens_.size(0),
                 " tokens give no window of ", block_size, ", which takes ",
                 static_cast<uint64_t>(block_size) + 1, " with the target of the last");
}

Example<> TextWindows::get(size_t index) {
  HALFTAPE_CHECK(index < *size(), "TextWindows: window ", index, " of ", *size());
  const int64_t from = static_cast<int64_t>(index) * stride_;
  return {tokens_.slice(0, from, from + block_size_).to(kInt64),
          tokens_.slice(0, from + 1, from + 1 + block_size_).to(kInt64)};
}

std::optional<size_t> TextWindows::size() const {
  return static_cast<size_t>((tokens_.size(0) - block_size_ - 1) / stride_ + 1);
}

}  // namespace datasets
}  // namespace halftape::data
