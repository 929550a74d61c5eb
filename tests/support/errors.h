// Mistakes, and what the library says about them.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace halftape::testing {

/// Does the name stand in the text as a word? An in-place form may go by the name of its op,
/// another spelling by the one it stands for.
bool names(const std::string& text, std::string op);

/// A call that an op refuses.
struct ErrorCase {
  std::string op;
  std::function<void()> call;
  std::vector<std::string> words;  // stand in the message, besides the op's name
};

/// Mistakes that are an op's own; those that any op's row can be turned into stand in
/// tests/autograd/errors_test.cpp.
std::vector<ErrorCase> error_table();

}  // namespace halftape::testing
