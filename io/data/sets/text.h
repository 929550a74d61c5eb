// Text for language models: a vocabulary of characters or bytes, and windows of tokens.
//
//     const std::string text = data::read_text("input.txt");
//     const data::CharVocabulary vocabulary(text);
//     data::datasets::TextWindows train(vocabulary.encode(text), 256);
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "halftape/io/data/dataset.h"

namespace halftape::data {

/// The file's bytes. Throws DataError when there is no such file, or nothing in it.
std::string read_text(const std::filesystem::path& path);

/// The different characters of a text, numbered in the order of their code points. Text is UTF-8;
/// other bytes throw DataError with their place.
class CharVocabulary {
 public:
  explicit CharVocabulary(std::string_view text);
  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  /// (characters,) of int64. Throws DataError for a character that the vocabulary lacks.
  Tensor encode(std::string_view text) const;
  /// The text of a 1-d tensor of integers. Throws Error for a number that is no character's.
  std::string decode(const Tensor& tokens) const;
  /// All characters in their order: CharVocabulary(v.characters()) is the same vocabulary.
  std::string characters() const;

 private:
  std::vector<std::string> characters_;
  std::unordered_map<uint32_t, int64_t> numbers_;  // by code point
};

/// 256 tokens, one for each byte: for any file.
struct ByteVocabulary {
  int64_t size() const { return 256; }
  /// The tokens of a text, (length) int64; and its bytes again.
  Tensor encode(std::string_view bytes) const;
  /// The bytes of tokens.
  std::string decode(const Tensor& tokens) const;
};

namespace datasets {

/// Windows of `block_size` tokens, and as targets the token after each: data (block_size,) and
/// target (block_size,) of int64. Window i begins at token i · stride; a stride of block_size cuts
/// the text in pieces, of 1 gives a window for every place. The sampler decides whether they come
/// in random order. Tokens at the end that are too few for a window are left out.
class TextWindows : public Dataset<TextWindows> {
 public:
  /// tokens: 1-d, of an integer dtype. Throws when there are no block_size + 1 of them.
  TextWindows(Tensor tokens, int64_t block_size, int64_t stride = 1);
  Example<> get(size_t index) override;
  std::optional<size_t> size() const override;
  const Tensor& tokens() const { return tokens_; }

 private:
  Tensor tokens_;
  int64_t block_size_, stride_;
};

}  // namespace datasets
}  // namespace halftape::data
