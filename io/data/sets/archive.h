// The state of a sampler or dataset as integers by name, and save() and load(), under LibTorch's
// names.
#pragma once
#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <ostream>
#include <string>

namespace halftape::serialize {

/// Collects a state.
class OutputArchive {
 public:
  /// name: a word without blanks.
  void write(const std::string& name, uint64_t value);
  const std::map<std::string, uint64_t>& numbers() const { return numbers_; }
  /// A line of text each. A file is written whole or not at all, see OutputFile.
  void save_to(std::ostream& stream) const;
  void save_to(const std::filesystem::path& path) const;

 private:
  std::map<std::string, uint64_t> numbers_;
};

/// A saved state.
class InputArchive {
 public:
  InputArchive() = default;
  explicit InputArchive(std::map<std::string, uint64_t> numbers) : numbers_(std::move(numbers)) {}
  /// Throws Error for an unknown name, and lists the known ones.
  uint64_t read(const std::string& name) const;
  const std::map<std::string, uint64_t>& numbers() const { return numbers_; }
  /// Throws Error, changing nothing, unless save_to() wrote it; FileError for a file that cannot be
  /// read. A stream is left behind the state.
  void load_from(std::istream& stream);
  void load_from(const std::filesystem::path& path);

 private:
  std::map<std::string, uint64_t> numbers_;
};

}  // namespace halftape::serialize

namespace halftape {

/// A sampler or dataset with the two members below.
template <class T>
concept Archived = requires(T& value, const T& saved, serialize::OutputArchive& out,
                            serialize::InputArchive& in) {
  saved.save(out);
  value.load(in);
};

/// `to`: a stream or a path.
template <Archived T, class To>
void save(const T& value, To&& to) {
  serialize::OutputArchive archive;
  value.save(archive);
  archive.save_to(to);
}
template <Archived T, class From>
void load(T& value, From&& from) {
  serialize::InputArchive archive;
  archive.load_from(from);
  value.load(archive);
}

}  // namespace halftape
