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
  const auto path = std::filesystem::path(HALFTAPE_TEST_DATA) / "fuzz" / folder / target;
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
  for (const fuzz::Target& target : fuzz::reader_targets()) {
    const std::string name(target.name);
    CAPTURE(name);
    for (const std::string& seed : target.seeds()) CHECK(fuzz::run(target, seed));
  }
}

TEST_CASE("fuzzing finds nothing") {
  CAPTURE(seed());
  for (const fuzz::Target& target : fuzz::targets()) {
    const std::string name(target.name);
    CAPTURE(name);
    std::vector<std::string> seeds = target.seeds();
    for (const std::string& input : stored("seeds", target.name)) seeds.push_back(input);
    std::mt19937_64 random(seed());
    int taken = 0;
    constexpr int kRuns = 10000;
    for (int i = 0; i < kRuns; ++i) {
      const std::string input = fuzz::mutate(seeds, random);
      CAPTURE(i);
      taken += fuzz::run(target, input);
    }
    CHECK(taken > 0);
    CHECK(taken <= kRuns);
  }
}

TEST_CASE("what fuzzing found once stays mended") {
  for (const fuzz::Target& target : fuzz::targets())
    for (const std::string& input : stored("findings", target.name)) {
      const std::string name(target.name);
      CAPTURE(name);
      CHECK_NOTHROW(fuzz::run(target, input));
    }
}
