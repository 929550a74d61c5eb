// The pages tell the truth about the files: links lead somewhere, paths exist, the tour's lengths
// hold.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = fs::path(HALFTAPE_TEST_DATA).parent_path();
const std::set<std::string> kWings{"core",  "cpu", "cuda", "autograd",   "nn",
                                   "optim", "amp", "io",   "distributed"};

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  REQUIRE_MESSAGE(in.good(), file.string());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Every page beside the sources: the root's, those of docs/, and the folders' own.
std::vector<fs::path> pages() {
  std::vector<fs::path> all;
  std::set<std::string> folders{"docs",    "docs/course", "exercises", "tests",
                                "samples", "benchmarks",  "web",       "extras/libtorch"};
  folders.insert(kWings.begin(), kWings.end());
  for (const auto& entry : fs::directory_iterator(kRoot))
    if (entry.path().extension() == ".md") all.push_back(entry.path());
  for (const std::string& folder : folders)
    for (const auto& entry : fs::directory_iterator(kRoot / folder))
      if (entry.path().extension() == ".md") all.push_back(entry.path());
  return all;
}

}  // namespace

TEST_CASE("every link of a page to a file of the repository leads to one") {
  const std::regex link("\\]\\(([^)#: ]+)(#[^)]*)?\\)");
  int links = 0;
  for (const fs::path& page : pages())
    for (const std::string& line : lines_of(page))
      for (std::sregex_iterator i(line.begin(), line.end(), link), end; i != end; ++i, ++links)
        CHECK_MESSAGE(fs::exists(page.parent_path() / (*i)[1].str()),
                      page.string() << " links to " << (*i)[1].str());
  CHECK(links > 30);
}

TEST_CASE("every path of a source that a page names in code exists") {
  const std::regex path(
      "`((core|cpu|cuda|autograd|nn|optim|amp|io|tests|scripts|cmake)/[a-z0-9_/.]*)`");
  int paths = 0;
  for (const fs::path& page : pages()) {
    if (page.filename() == "CHANGELOG.md") continue;
    for (const std::string& line : lines_of(page))
      for (std::sregex_iterator i(line.begin(), line.end(), path), end; i != end; ++i, ++paths) {
        const std::string name = (*i)[1];
        // A page beside its sources may name them from its own folder.
        CHECK_MESSAGE((fs::exists(kRoot / name) || fs::exists(page.parent_path() / name)),
                      page.string() << " names " << name);
      }
  }
  CHECK(paths > 50);
}

TEST_CASE("the tour states how long each of its files is, and the sum") {
  const std::regex row("\\| \\d+ \\| \\[`?([^`\\]]+)`?\\]\\(\\.\\./([^)]+)\\) \\| (\\d+) \\|.*"),
      total("The whole path has (\\d),(\\d+) lines\\.");
  long sum = 0, stated = 0;
  int files = 0;
  for (const std::string& line : lines_of(kRoot / "docs" / "tour.md")) {
    std::smatch found;
    if (std::regex_match(line, found, row)) {
      const long length = static_cast<long>(lines_of(kRoot / found[2].str()).size());
      const long said = std::stol(found[3]);
      CHECK_MESSAGE(std::labs(length - said) <= 10,
                    found[2].str() << " has " << length << " lines, " << said << " in the tour");
      sum += said;
      ++files;
    } else if (std::regex_search(line, found, total)) {
      stated = std::stol(found[1].str() + found[2].str());
    }
  }
  CHECK(files > 10);
  CHECK(sum == stated);
}

TEST_CASE("what cannot run on another system leaves out cases and files that there are") {
  std::string tests;
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests"))
    if (entry.path().extension() == ".cpp") {
      files.push_back(entry.path().string());
      for (const std::string& line : lines_of(entry.path())) tests += line + '\n';
    }
  int entries = 0;
  for (const char* system :
       {"cross/aarch64", "cross/gcc14", "cross/libcxx", "cross/windows", "web/left_out"})
    for (std::string line : lines_of(kRoot / "tests" / (system + std::string(".txt")))) {
      if (line.empty() || line[0] == '#') continue;
      line = line.substr(0, line.find("  #"));
      ++entries;
      if (line.find("file: *") == 0) {
        std::string part = line.substr(7);
        while (!part.empty() && part.back() == '*') part.pop_back();
        part = part.substr(part.rfind('*') + 1);
        CHECK_MESSAGE(std::any_of(files.begin(), files.end(),
                                  [&](const auto& f) { return f.find(part) != std::string::npos; }),
                      line);
      } else {
        CHECK_MESSAGE(tests.find('"' + line + '"') != std::string::npos, line);
      }
    }
  CHECK(entries > 10);
}

TEST_CASE("each folder of sources has a page of at most 15 lines and an umbrella header") {
  for (const std::string& wing : kWings) {
    CAPTURE(wing);
    CHECK(lines_of(kRoot / wing / "README.md").size() <= 15);
    if (wing != "cpu") CHECK(fs::exists(kRoot / wing / (wing + ".h")));
  }
}
