// Checks that every kernel has run on the rig in every order of threads, from the tallies that the
// test programs write at their ends:
//     kernels_ran FOLDER_OF_KERNELS TALLY...
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "tally.h"

namespace {

/// The names of the __global__ functions of this folder's files.
std::set<std::string> defined_in(const std::filesystem::path& folder) {
  static const std::regex kernel(
      R"(__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\()");
  std::set<std::string> names;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (file.path().extension() != ".cu" && file.path().extension() != ".cuh") continue;
    std::ifstream in(file.path());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    for (std::sregex_iterator at(text.begin(), text.end(), kernel), end; at != end; ++at)
      names.insert((*at)[1]);
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::cerr << "usage: kernels_ran FOLDER_OF_KERNELS TALLY...\n", 2;
  simt::Tally all;
  for (int i = 2; i < argc; ++i) {
    std::ifstream in(argv[i]);
    if (!in) return std::cerr << argv[i] << " is not there: its test did not come to its end\n", 1;
    if (!all.read(in)) return std::cerr << argv[i] << " is damaged\n", 1;
  }
  const auto kernels = defined_in(argv[1]);
  int missing = 0;
  for (const simt::Order order :
       {simt::Order::Forward, simt::Order::Reverse, simt::Order::Random}) {
    const auto ran = all.kernels(order);
    for (const std::string& kernel : kernels)
      if (!ran.contains(kernel)) {
        ++missing;
        std::cout << kernel << " never ran with its threads in the order " << simt::name(order)
                  << '\n';
      }
  }
  std::cout << kernels.size() << " kernels are defined; "
            << (missing ? "not all ran in each order" : "each ran in each order") << '\n'
            << all.line() << '\n';
  return missing || kernels.empty() ? 1 : 0;
}
