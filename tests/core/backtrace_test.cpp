// HALFTAPE_BACKTRACE=1: errors say in which functions they were thrown.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "halftape/core/buffer.h"
#include "halftape/core/machine/backtrace.h"
#include "halftape/core/machine/os.h"
#include "halftape/io/file/file.h"
#include "halftape/tests/support/backtraces.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::has;
using testing::message;

namespace {
const std::string kPlain = "too deep: 7";
}

// Not in an anonymous namespace, so that the program exports its name.
[[gnu::noinline]] void throws_far_down(int depth) {
  if (depth < 0) return;
  HALFTAPE_CHECK(depth > 0, "too deep: ", 7);
  throws_far_down(depth - 1);
  asm volatile("");  // prevents a tail call, which would leave no frame
}

TEST_CASE("an error names the functions it was thrown in only if that is asked for") {
  CHECK(message([] { throws_far_down(0); }) == kPlain);
  const testing::Backtraces guard;
  const std::string text = message([] { throws_far_down(0); });
  CHECK(text.starts_with(kPlain + "\nthrown in:"));
  if (!has(text, "#0")) return;  // this system has no backtraces
  CHECK_MESSAGE(has(text, "\n  #0 "), text);
  CHECK_MESSAGE(has(text, "+0x"), text);
  CHECK_FALSE(has(text, "halftape::detail::fail"));
  // The text has the name, or the command that the text gives finds it.
  const std::string command = testing::addr2line_of(text), found = os::output_of(command);
  if (os::output_of("addr2line --version").empty()) return;
  CHECK_MESSAGE((has(text.substr(0, text.find("#1 ")), "throws_far_down(int)") ||
                 has(found, "throws_far_down(int)")),
                text);
  CHECK_MESSAGE(has(found, "throws_far"), text);
}

TEST_CASE("a backtrace has at most 30 functions, and none that only make errors") {
  const testing::Backtraces guard;
  const std::string deep = message([] { throws_far_down(100); });
  if (!has(deep, "#0")) return;
  CHECK(has(deep, "#29 "));
  CHECK_FALSE(has(deep, "#30 "));
  const auto first_of = [](const std::string& text) { return text.substr(0, text.find("#1 ")); };
  CHECK_FALSE(has(first_of(message<OutOfMemoryError>([] { out_of_memory(7); })), "out_of_memory("));
  const std::string file = message<FileError>([] { read_file("x", "no such file"); });
  CHECK(has(file, "#1 "));
  CHECK_FALSE(has(first_of(file), "FileError"));
}

TEST_CASE("an error made from another's text keeps its backtrace, and so does a copy") {
  const testing::Backtraces guard;
  try {
    throws_far_down(0);
  } catch (const Error& first) {
    CHECK(first.what_without_backtrace() == kPlain);
    const Error copy(first);
    CHECK(std::string(copy.what()) == first.what());
    const std::string second = Error(std::string("load: ") + first.what()).what();
    CHECK(second == std::string("load: ") + first.what());
  }
}

TEST_CASE("an error to be seen from outside" * doctest::skip()) {
  std::puts(message([] { throws_far_down(0); }).c_str());
}

#if defined(__linux__)
TEST_CASE("HALFTAPE_BACKTRACE asks for a backtrace, unless it is empty or 0") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto said = [&](const std::string& value) {
    return os::output_of("HALFTAPE_BACKTRACE=" + value + " '" + self +
                         "' --no-skip --tc='an error to be seen from outside' 2>&1");
  };
  for (const char* asked : {"1", "yes"}) CHECK(has(said(asked), kPlain + "\nthrown in:"));
  for (const char* none : {"", "0"}) {
    CHECK(has(said(none), kPlain));
    CHECK_FALSE(has(said(none), "thrown in:"));
  }
}
#endif
