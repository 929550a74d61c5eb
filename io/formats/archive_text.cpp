// Archives of whole numbers alone, as text: a line with name and version, the number of values,
// "name value" lines, and the CRC-32C of these. Archives of version 1 had no check sum.
#include "halftape/io/formats/archive.h"

#include <algorithm>
#include <istream>
#include <string_view>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/crc.h"
#include "halftape/io/file/file.h"

namespace halftape::serialize {
namespace {

constexpr std::string_view kFirstLine = "halftape archive 2",
                           kFormerFirstLine = "halftape archive 1";

std::string sum_line(const std::string& body) {
  return "crc32c " + hex(big_endian(crc32c(body.data(), body.size()), 4));
}

/// Takes decimal digits and nothing else.
uint64_t whole(std::string_view text, const std::string& line) {
  const std::optional<uint64_t> value = number_in<uint64_t>(text);
  HALFTAPE_CHECK(value, "load: expected a whole number from 0 to 2^64 - 1 at the end of the line '",
                 line.substr(0, 40), "': the state is damaged");
  return *value;
}

}  // namespace

bool OutputArchive::is_text() const {
  return tensors_.is_empty() && values_.empty() && !numbers_.empty() &&
         std::all_of(numbers_.begin(), numbers_.end(), [](const auto& item) {
           return !item.first.empty() && item.first.find_first_of(" \t\r\n") == std::string::npos;
         });
}

std::string OutputArchive::bytes() const {
  if (!is_text()) return safetensors::save(tensors_, metadata());
  std::string body = std::to_string(numbers_.size()) + '\n';
  for (const auto& [name, value] : numbers_) body += name + ' ' + std::to_string(value) + '\n';
  return std::string(kFirstLine) + '\n' + body + sum_line(body) + '\n';
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

void InputArchive::take_text(const std::string& first_line, std::istream& stream) {
  std::string line = first_line, body;
  const bool former = line == kFormerFirstLine;
  HALFTAPE_CHECK(former || line == kFirstLine, "load: expected the line '", kFirstLine,
                 "', found '", line.substr(0, 40), "': this was not written by save()");
  // A last line without its line feed is cut off.
  const auto next = [&] { return std::getline(stream, line) && !stream.eof(); };
  HALFTAPE_CHECK(next(), "load: expected a number of values, found the end: the state is cut off");
  const uint64_t count = whole(line, line);
  std::map<std::string, uint64_t> numbers;
  for (body = line + '\n'; numbers.size() < count && next(); body += line + '\n') {
    const size_t blank = line.find(' ');
    HALFTAPE_CHECK(blank != line.npos && blank > 0 && !numbers.count(line.substr(0, blank)),
                   "load: the line '", line.substr(0, 40),
                   "' has no name, or that of another line: the state is damaged");
    numbers[line.substr(0, blank)] = whole(std::string_view(line).substr(blank + 1), line);
  }
  HALFTAPE_CHECK(numbers.size() == count, "load: expected ", count, " numbers, found ",
                 numbers.size(), ": the state is cut off or damaged");
  HALFTAPE_CHECK(former || (next() && line == sum_line(body)),
                 "load: the check sum does not fit: the state is cut off or damaged");
  *this = InputArchive(std::move(numbers));
}

}  // namespace halftape::serialize
