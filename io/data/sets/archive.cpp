// Archives as text: a first line with name and version, then "name value" lines.
#include "halftape/io/data/sets/archive.h"

#include <fstream>
#include <utility>

#include "halftape/core/check.h"

namespace halftape::serialize {
namespace {
constexpr const char* kFirstLine = "halftape archive 1";
}

void OutputArchive::save_to(std::ostream& stream) const {
  stream << kFirstLine << '\n' << numbers_.size() << '\n';
  for (const auto& [name, value] : numbers_) stream << name << ' ' << value << '\n';
  stream.flush();
  HALFTAPE_CHECK(stream, "save: the stream does not take what is written to it");
}

void OutputArchive::save_to(const std::filesystem::path& path) const {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  HALFTAPE_CHECK(file, "save: ", path.string(), " cannot be opened for writing");
  save_to(file);
}

uint64_t InputArchive::read(const std::string& name) const {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  std::string there;
  for (const auto& [other, value] : numbers_) there += (there.empty() ? "" : ", ") + other;
  ::halftape::detail::fail("load: the state has no '", name, "'; it has ",
                           there.empty() ? "nothing" : there,
                           ": it was saved by another kind of sampler or dataset");
}

void InputArchive::load_from(std::istream& stream) {
  std::string line, name;
  std::getline(stream, line);
  HALFTAPE_CHECK(line == kFirstLine, "load: expected the line '", kFirstLine, "', found '",
                 line.substr(0, 40), "': this was not written by save() of a sampler");
  size_t count = 0;
  uint64_t value = 0;
  std::map<std::string, uint64_t> numbers;
  stream >> count;
  for (size_t i = 0; i < count && stream >> name >> value; ++i) numbers[name] = value;
  HALFTAPE_CHECK(stream && numbers.size() == count, "load: expected ", count, " numbers, found ",
                 numbers.size(), ": the state is cut off or damaged");
  numbers_ = std::move(numbers);
}

void InputArchive::load_from(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  HALFTAPE_CHECK(file, "load: ", path.string(), " cannot be opened");
  load_from(file);
}

}  // namespace halftape::serialize
