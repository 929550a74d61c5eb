// A slice of fuzzing: what was found once, the seeds, and some changes to them, the same ones in
// every run, so that only a change of the code can turn it red. scripts/fuzz makes new ones for as
// long as one likes, and so does HALFTAPE_FUZZ_SEED=N here.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "halftape/tests/support/temp_folder.h"
#include "target.h"

using namespace halftape;

namespace {

/// The inputs of a target that other programs wrote, or that led to a finding once: TARGET/NAME.
std::vector<std::string> stored(std::string_view folder, std::string_view target) {
  std::vector<std::string> inputs;
  const auto all = std::filesystem::path(HALFTAPE_TEST_DATA) / "fuzz" / folder;
  REQUIRE(std::filesystem::is_directory(all));
  const auto path = all / target;
  if (!std::filesystem::is_directory(path)) return inputs;
  for (const auto& file : std::filesystem::directory_iterator(path))
    inputs.push_back(testing::read_bytes(file.path()));
  return inputs;
}

uint64_t seed() {
  const char* given = std::getenv("HALFTAPE_FUZZ_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}

}  // namespace

TEST_CASE("the readers take the seeds") {
  for (const auto& targets : {fuzz::reader_targets(), fuzz::archive_targets()})
    for (const fuzz::Target& target : targets) {
      const std::string name(target.name);
      CAPTURE(name);
      for (const std::string& seed : target.seeds()) CHECK(fuzz::run(target, seed));
    }
}

TEST_CASE("fuzzing finds nothing") {
  CAPTURE(seed());
  size_t foreign = 0;  // seeds of other programs
  for (const fuzz::Target& target : fuzz::targets()) {
    const std::string name(target.name);
    CAPTURE(name);
    std::vector<std::string> seeds = target.seeds();
    for (const std::string& input : stored("seeds", target.name)) {
      seeds.push_back(input);
      ++foreign;
    }
    std::mt19937_64 random(seed());
    int taken = 0;
    constexpr int kRuns = 10000;
    for (int i = 0; i < kRuns; ++i) {
      const std::string input = fuzz::mutate(seeds, random);
      CAPTURE(i);
      taken += fuzz::run(target, input);
    }
    CHECK(taken > 0);
    // Every format has check sums, or bytes that must be there: of so many changes, some are
    // damage that its reader has to see.
    const bool reads =
        std::ranges::any_of(fuzz::reader_targets(), [&](const auto& t) { return t.name == name; });
    if (reads) CHECK(taken < kRuns);
  }
  CHECK(foreign >= 46);
}

TEST_CASE("what fuzzing found once stays mended") {
  int ran = 0;
  for (const fuzz::Target& target : fuzz::targets())
    for (const std::string& input : stored("findings", target.name)) {
      const std::string name(target.name);
      CAPTURE(name);
      CHECK_NOTHROW(fuzz::run(target, input));
      ++ran;
    }
  CHECK(ran >= 3);  // as many as there are: a folder that no target is called after runs nothing
}
