// The options that the headers of nn/options declare, and the functions that take some.
#pragma once
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace halftape::testing {

/// Each class of options, and its options in their order.
inline std::map<std::string, std::vector<std::string>> declared_options() {
  std::map<std::string, std::vector<std::string>> all;
  const std::filesystem::path root = std::filesystem::path(HALFTAPE_TEST_DATA).parent_path();
  const std::regex start("class (\\w+Options\\w*) \\{"),
      option(" *HALFTAPE_ARG\\(.+?, (\\w+)\\).*");
  for (const auto& entry : std::filesystem::directory_iterator(root / "nn" / "options")) {
    std::ifstream header(entry.path());
    std::smatch found;
    std::string name;
    for (std::string line; std::getline(header, line);) {
      if (std::regex_match(line, found, start)) name = found[1];
      if (std::regex_match(line, found, option)) all[name].push_back(found[1]);
    }
  }
  return all;
}

/// The functions of nn/functional that take options.
inline std::set<std::string> functions_with_options() {
  std::set<std::string> names;
  const std::filesystem::path root = std::filesystem::path(HALFTAPE_TEST_DATA).parent_path();
  const std::regex call(
      "(\\w+)(##D##d)?(\\w*)\\([^()]*[^\\w:]\\w+(?:##D##d)?\\w*Options& o(?:ptions)?\\b");
  for (const auto& entry : std::filesystem::directory_iterator(root / "nn" / "functional")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream header(entry.path());
    std::string text, code;
    bool hidden = false;  // in namespace detail
    for (std::string line; std::getline(header, line);) {
      if (line.find("namespace detail {") == 0) hidden = true;
      if (line.find("}  // namespace detail") == 0) hidden = false;
      if (!hidden) text += line.substr(0, line.find(" \\")) + ' ';
    }
    for (std::sregex_iterator i(text.begin(), text.end(), call), end; i != end; ++i) {
      const std::smatch& found = *i;
      if (!found[2].matched) {
        names.insert(found[1]);
        continue;
      }
      for (const char* d : {"1d", "2d", "3d"}) names.insert(found[1].str() + d + found[3].str());
    }
  }
  return names;
}

}  // namespace halftape::testing
