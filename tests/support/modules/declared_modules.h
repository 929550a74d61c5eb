// The modules that the headers of nn/modules declare.
#pragma once
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

namespace halftape::testing {

inline std::set<std::string> declared_modules() {
  std::set<std::string> names;
  const std::filesystem::path root = std::filesystem::path(HALFTAPE_TEST_DATA).parent_path();
  const std::regex plain("HALFTAPE_(?:UNARY_|LOSS_|DERIVED_)?MODULE\\((\\w+)[,)].*"),
      ranked("HALFTAPE_RANK_MODULE\\((\\w+), ([123])\\);"),
      all_ranks("HALFTAPE_RANKED_MODULE\\((\\w+)\\);"),
      holder("class (\\w+) : public ModuleHolder<.*");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "nn" / "modules")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream header(entry.path());
    std::smatch found;
    for (std::string line; std::getline(header, line);) {
      if (std::regex_match(line, found, plain) || std::regex_search(line, found, holder))
        names.insert(found[1]);
      else if (std::regex_match(line, found, ranked))
        names.insert(found[1].str() + found[2].str() + 'd');
      else if (std::regex_match(line, found, all_ranks))
        for (const char* d : {"1d", "2d", "3d"}) names.insert(found[1].str() + d);
    }
  }
  return names;
}

}  // namespace halftape::testing
