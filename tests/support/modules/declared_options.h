// The options that the headers of nn/modules declare, and the functions that take some.
#pragma once
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace halftape::testing {

/// The headers of nn/modules.
inline std::vector<std::filesystem::path> module_headers() {
  std::vector<std::filesystem::path> all;
  const std::filesystem::path root = std::filesystem::path(HALFTAPE_TEST_DATA).parent_path();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "nn" / "modules"))
    if (entry.path().extension() == ".h") all.push_back(entry.path());
  return all;
}

/// Each class of options, and its options in their order.
inline std::map<std::string, std::vector<std::string>> declared_options() {
  std::map<std::string, std::vector<std::string>> all;
  const std::regex start("struct (\\w+Options\\w*) \\{"),
      option(" *HALFTAPE_ARG\\(.+?, (\\w+)\\).*");
  for (const auto& path : module_headers()) {
    std::ifstream header(path);
    std::smatch found;
    std::string name;
    for (std::string line; std::getline(header, line);) {
      if (std::regex_match(line, found, start)) name = found[1];
      if (std::regex_match(line, found, option)) all[name].push_back(found[1]);
    }
  }
  return all;
}

/// The functions of namespace functional that take options.
inline std::set<std::string> functions_with_options() {
  std::set<std::string> names;
  const std::regex call(
      "(\\w+)(##D##d)?(\\w*)\\([^()]*[^\\w:]\\w+(?:##D##d)?\\w*Options& o(?:ptions)?\\b");
  for (const auto& path : module_headers()) {
    std::ifstream header(path);
    std::string text;
    bool functional = false, detail = false;  // inside the namespaces of these names
    for (std::string line; std::getline(header, line);) {
      if (line == "namespace functional {") functional = true;
      if (line == "}  // namespace functional") functional = false;
      if (line == "namespace detail {") detail = true;
      if (line == "}  // namespace detail") detail = false;
      if (functional && !detail) text += line.substr(0, line.find(" \\")) + ' ';
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
