// Where the state of a sampler or dataset goes: integers by name. LibTorch's names for it, and its
// save() and load() of one sampler.
#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <ostream>
#include <string>

namespace halftape::serialize {

/// What is being saved.
class OutputArchive {
 public:
  void write(const std::string& name, uint64_t value) { numbers_[name] = value; }
  const std::map<std::string, uint64_t>& numbers() const { return numbers_; }
  /// A line of text each.
  void save_to(std::ostream& stream) const;
  void save_to(const std::filesystem::path& path) const;

 private:
  std::map<std::string, uint64_t> numbers_;
};

/// What was saved.
class InputArchive {
 public:
  InputArchive() = default;
  explicit InputArchive(std::map<std::string, uint64_t> numbers) : numbers_(std::move(numbers)) {}
  /// Throws Error when there is no such number, and names those that there are.
  uint64_t read(const std::string& name) const;
  const std::map<std::string, uint64_t>& numbers() const { return numbers_; }
  /// Throws Error for what save_to() did not write.
  void load_from(std::istream& stream);
  void load_from(const std::filesystem::path& path);

 private:
  std::map<std::string, uint64_t> numbers_;
};

}  // namespace halftape::serialize

namespace halftape {

/// A sampler or a dataset that saves itself: what has the two members below.
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
