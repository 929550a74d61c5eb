#include "target.h"

#include <algorithm>
#include <exception>
#include <typeinfo>

#include "halftape/core/check.h"

namespace halftape::fuzz {
namespace {

size_t pick(std::mt19937_64& random, size_t n) { return n ? random() % n : 0; }

/// One change.
void change(std::string& text, const std::vector<std::string>& seeds, std::mt19937_64& random) {
  static constexpr uint64_t kEnds[] = {0,          1,          0x7f,        0x80,
                                       0xff,       0x7fff,     0xffff,      0x7fffffff,
                                       0x80000000, 0xffffffff, ~uint64_t{}, ~uint64_t{} >> 1};
  static constexpr const char* kWords[] = {
      "-1", "0", "9223372036854775808", "1e999", "nan", "\"", "\n", ",", "{", "[", "\\", "-0"};
  const size_t at = pick(random, text.size());
  const size_t length = std::min(text.size() - at, size_t{1} << pick(random, 6));
  switch (random() % 8) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
      break;
    case 1:
      if (!text.empty()) text[at] = static_cast<char>(random());
      break;
    case 2: {
      const uint64_t value = kEnds[pick(random, std::size(kEnds))];
      const bool big = random() % 2;
      const size_t bytes = size_t{1} << random() % 4;
      for (size_t i = 0; i < bytes && at + i < text.size(); ++i)
        text[at + i] = static_cast<char>(value >> 8 * (big ? bytes - 1 - i : i));
      break;
    }
    case 3:
      text.erase(at, length);
      break;
    case 4:
      text.insert(at, text.substr(at, length));
      break;
    case 5:
      text.insert(at, kWords[pick(random, std::size(kWords))]);
      break;
    case 6: {
      const std::string& other = seeds[pick(random, seeds.size())];
      const size_t from = pick(random, other.size());
      text.replace(at, length, other.substr(from, 1 + pick(random, 32)));
      break;
    }
    default:
      text.resize(at);
  }
}

}  // namespace

std::span<const Target> targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> list;
    for (const auto& part : {reader_targets(), archive_targets(), connection_targets(),
                             state_targets(), program_targets()})
      list.insert(list.end(), part.begin(), part.end());
    return list;
  }();
  return all;
}

bool run(const Target& target, std::string_view input) {
  try {
    return target.run(input);
  } catch (const Finding&) {
    throw;
  } catch (const Error&) {
    return false;
  } catch (const std::exception& error) {
    throw Finding(std::string("threw ") + typeid(error).name() + ": " + error.what());
  }
}

std::string mutate(const std::vector<std::string>& seeds, std::mt19937_64& random) {
  std::string text = seeds[pick(random, seeds.size())];
  for (size_t i = 1 + pick(random, 6); i > 0; --i) change(text, seeds, random);
  return text;
}

}  // namespace halftape::fuzz
