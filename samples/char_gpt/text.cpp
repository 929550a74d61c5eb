#include "text.h"

#include <cmath>
#include <random>
#include <string_view>
#include <vector>

namespace {

/// A singular and its plural.
struct Word {
  std::string_view one, many;
};
using Words = std::vector<Word>;

const Words kNouns{{"fox", "foxes"},    {"dog", "dogs"},   {"owl", "owls"},   {"child", "children"},
                   {"horse", "horses"}, {"mouse", "mice"}, {"king", "kings"}, {"bird", "birds"}};
const Words kSeen{{"sees", "see"},
                  {"hears", "hear"},
                  {"follows", "follow"},
                  {"forgets", "forget"},
                  {"watches", "watch"}};
const Words kDone{{"sings", "sing"},
                  {"runs", "run"},
                  {"sleeps", "sleep"},
                  {"laughs", "laugh"},
                  {"waits", "wait"}};
const std::vector<std::string_view> kKinds{"old", "small", "red", "happy", "tired", "quiet"};
const std::vector<std::string_view> kFew{"two", "three", "some", "many"};
const std::vector<std::string_view> kWhen{"today", "at night", "in the rain", "by the river"};

class Writer {
 public:
  void sentence() {
    const bool many = chance(2) == 0;
    const size_t begin = text.size();
    things(many);
    if (chance(3) == 0) {
      text += " that ";
      text += pick(kSeen, many);
      text += ' ';
      things(chance(2) == 0);
    }
    text += ' ';
    if (chance(2) == 0) {
      text += pick(kDone, many);
    } else {
      text += pick(kSeen, many);
      text += ' ';
      things(chance(2) == 0);
    }
    if (chance(4) == 0) {
      text += ' ';
      text += kWhen[chance(kWhen.size())];
    }
    text += chance(5) == 0 ? ".\n" : ". ";
    text[begin] = static_cast<char>(text[begin] - 'a' + 'A');
  }

  std::string text;
  double nats = 0;  // −ln of the probability of all choices so far

 private:
  /// One of n, each with the same probability. Uses the engine's bits alone, which the standard
  /// fixes; its distributions differ between libraries.
  size_t chance(size_t n) {
    nats += std::log(static_cast<double>(n));
    return static_cast<size_t>(engine_() >> 11) % n;
  }
  std::string_view pick(const Words& words, bool many) {
    const Word& word = words[chance(words.size())];
    return many ? word.many : word.one;
  }
  /// "the old fox" or "two foxes". The text shows every choice, so `nats` is its information.
  void things(bool many) {
    text += many ? kFew[chance(kFew.size())] : "the";
    if (chance(2) == 0) {
      text += ' ';
      text += kKinds[chance(kKinds.size())];
    }
    text += ' ';
    text += pick(kNouns, many);
  }

  std::mt19937_64 engine_{1};
};

}  // namespace

Text make_text(int64_t length) {
  Writer writer;
  while (static_cast<int64_t>(writer.text.size()) < length) writer.sentence();
  return {writer.text, writer.nats / static_cast<double>(writer.text.size())};
}
