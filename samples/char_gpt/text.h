// The built-in text: sentences of a small grammar, and the loss of a model that knows the grammar.
#pragma once
#include <cstdint>
#include <string>

struct Text {
  std::string characters;
  double best_loss = 0;  // −ln p per character of a model that knows the grammar; 0: not known
};

/// At least `length` characters. Sentences agree in number over a distance: "The fox that sees two
/// old dogs sings." The same text on every machine.
Text make_text(int64_t length);
