// Fuzzing without a fuzzer: halftape_fuzz [--seconds N] [--seed N] [target...]
//
// Changes seeds at random, so that it runs with any compiler; scripts/fuzz builds the targets with
// libFuzzer, which follows the branches, too. An input that leads to a finding is written to the
// working folder as TARGET-finding. With --write-seeds FOLDER the seeds are written, and with
// --list the names of the targets printed, instead.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "target.h"

using namespace halftape;

namespace {

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// Returns true if there was no finding.
bool fuzz_one(const fuzz::Target& target, double seconds, uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const std::vector<std::string> seeds = target.seeds();
  const std::string name(target.name);
  std::mt19937_64 random(seed);
  long runs = 0, taken = 0;
  for (; Clock::now() < end; ++runs) {
    const std::string input = fuzz::mutate(seeds, random);
    try {
      taken += fuzz::run(target, input);
    } catch (const fuzz::Finding& finding) {
      write(name + "-finding", input);
      std::printf("%s: run %ld of seed %llu: %s\nthe input is in %s-finding\n", name.c_str(), runs,
                  static_cast<unsigned long long>(seed), finding.what(), name.c_str());
      return false;
    }
  }
  std::printf("%-12s %10ld runs, %10ld taken, 0 findings\n", name.c_str(), runs, taken);
  std::fflush(stdout);
  return true;
}

void write_seeds(const std::filesystem::path& folder) {
  for (const fuzz::Target& target : fuzz::targets()) {
    std::filesystem::create_directories(folder / target.name);
    int number = 0;
    for (const std::string& seed : target.seeds())
      write(folder / target.name / ("made-" + std::to_string(number++)), seed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 10;
  uint64_t seed = 1;
  bool list = false;
  std::vector<std::string> wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seconds" && i + 1 < argc)
      seconds = std::stod(argv[++i]);
    else if (argument == "--seed" && i + 1 < argc)
      seed = std::stoull(argv[++i]);
    else if (argument == "--write-seeds" && i + 1 < argc)
      return write_seeds(argv[++i]), 0;
    else if (argument == "--list")
      list = true;
    else
      wanted.push_back(argument);
  }
  int failed = 0, named = 0;
  for (const fuzz::Target& target : fuzz::targets()) {
    if (list) std::printf("%.*s\n", static_cast<int>(target.name.size()), target.name.data());
    if (list || (!wanted.empty() && std::ranges::find(wanted, target.name) == wanted.end()))
      continue;
    ++named;
    failed += !fuzz_one(target, seconds, seed);
  }
  if (!list && named == 0) {
    std::fprintf(stderr, "halftape_fuzz: there is no such target\n");
    return 2;
  }
  return failed != 0;
}
