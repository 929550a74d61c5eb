// A FunctionRef calls what it refers to, and keeps no copy of it.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "halftape/core/function_ref.h"

using namespace halftape;

namespace {

int twice(FunctionRef<int(int)> f, int x) { return f(f(x)); }

}  // namespace

TEST_CASE("a FunctionRef hands arguments, references among them, and results on") {
  CHECK(twice([](int x) { return 3 * x; }, 5) == 45);
  std::string text;
  const auto append = [](std::string& to, const std::string& what) { to += what; };
  const FunctionRef<void(std::string&, const std::string&)> f(append), same = f;
  f(text, "a");
  same(text, "b");
  CHECK(text == "ab");
}

TEST_CASE("a FunctionRef sees what its function captured by reference, and may drop its result") {
  int calls = 0;
  const auto count = [&] { return ++calls; };
  const FunctionRef<void()> drops = count;
  const FunctionRef<int64_t()> widens = count;
  drops();
  CHECK(widens() == 2);
  CHECK(calls == 2);
  static_assert(!std::is_convertible_v<int, FunctionRef<void()>>);
  static_assert(!std::is_constructible_v<FunctionRef<int(std::string)>, decltype(count)>);
}
