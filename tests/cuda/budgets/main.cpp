// What captured steps of training cost on a GPU, counted on the rig without executing a kernel, and
// held to a file of budgets:
//
//     gpu_budgets benchmarks/gpu_budgets.txt [--write] [--kernels] [--only NAME]
//
// Prints a table with the goals, fails if a number is worse than its budget, and says what is
// better. --write: renews the file. --kernels: also the calls and kernels of each step. --only: one
// workload, compared with nothing.
#include <halftape/halftape.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>

#include "budgets.h"
#include "count.h"
#include "halftape/cuda/gemm/gemm.h"
#include "halftape/cuda/runtime/runtime.h"
#include "settings.h"
#include "workloads.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

struct Arguments {
  std::string file, only;
  bool write = false, kernels = false;
};

/// The speed of a GPU's memory, and of its products of halves with float32 sums, by NVIDIA's data
/// sheets.
struct Card {
  const char* name;
  double bytes_per_second, operations_per_second;
};
constexpr Card kCards[] = {{"H100", 3.35e12, 989e12},
                           {"A100", 2.04e12, 312e12},
                           {"RTX 4090", 1.01e12, 165e12},
                           {"T4", 0.32e12, 65e12}};

/// What a small kernel adds in a graph on an H100; bench_train_step --calibrate measures it.
constexpr double kSecondsPerNode = 2.6e-6;

std::string duration(double seconds) {
  const bool long_one = seconds >= 1e-3;
  const double value = seconds * (long_one ? 1e3 : 1e6);
  std::ostringstream text;
  text.precision(value < 10 ? 1 : 0);
  text << std::fixed << value << (long_one ? " ms" : " µs");
  return text.str();
}
/// "13, **goal 11**": missed. What is rounded in a goal, 1 %, does not count.
std::string beside(double value, double goal) {
  const std::string mark = value <= 1.01 * goal ? "" : "**";
  return written(value) + (goal > 0 ? ", " + mark + "goal " + written(goal) + mark : "");
}

void print_head() {
  std::cout << "| | nodes | read and written, MB | products, GFLOP | library calls | host waits | "
               "arena, MB | launches |";
  for (const Card& c : kCards) std::cout << ' ' << c.name << " |";
  std::cout << "\n|---|---|---|---|---|---|---|---|";
  for (size_t i = 0; i < std::size(kCards); ++i) std::cout << "---|";
  std::cout << '\n';
}

/// No step is faster than the GPU moves its bytes or multiplies, at best at the same time.
void print_row(const Workload& w, const Count& c) {
  std::cout << "| " << w.name << ": " << w.title << " | "
            << beside(static_cast<double>(c.nodes), static_cast<double>(w.goal_nodes)) << " | "
            << beside(c.bytes / 1e6, w.goal_megabytes) << " | " << written(c.operations / 1e9)
            << " | " << c.library_calls << " | " << c.host_waits << " | "
            << written(c.arena_bytes / 1e6) << " | "
            << duration(kSecondsPerNode * static_cast<double>(c.nodes)) << " |";
  for (const Card& card : kCards)
    std::cout << ' '
              << duration(std::max(c.bytes / card.bytes_per_second,
                                   c.operations / card.operations_per_second))
              << " |";
  std::cout << std::endl;
}

void print_kernels(const std::string& workload, const Count& c) {
  std::cerr << workload << ", calls of the contract:\n";
  for (const auto& [name, calls] : c.calls)
    std::cerr << "  " << calls.count << ' ' << name << ", " << written(calls.bytes / 1e6)
              << " MB\n";
  std::cerr << workload << ", nodes:\n";
  for (const auto& [name, n] : c.kernels) std::cerr << "  " << n << ' ' << name << '\n';
}

Count count_with(const Workload& w, const simt::Settings& settings) {
  const simt::With with(settings);
  cuda::ask_library_again();
  manual_seed(0);
  return count_step(w.make());
}

/// All budgets of the workloads. Prints the tables.
std::vector<Budget> count_all(const Arguments& wanted, const simt::Settings& finishing) {
  std::vector<Budget> all;
  std::ostringstream others;
  print_head();
  for (const Workload& w : workloads()) {
    if (!wanted.only.empty() && w.name != wanted.only) continue;
    Count count;
    try {
      count = count_with(w, finishing);
    } catch (const Error& e) {  // it has no numbers, which fails if the file has some
      std::cout << "| " << w.name << ": " << w.title << " | cannot be captured | | | | | | |"
                << std::endl;
      std::cerr << w.name << ": " << e.what() << '\n';
      continue;
    }
    print_row(w, count);
    if (wanted.kernels) print_kernels(w.name, count);
    const auto budgets = budgets_of(w.name, count);
    all.insert(all.end(), budgets.begin(), budgets.end());
    if (w.goal_elsewhere == 0) continue;
    for (const Library& library : other_libraries(finishing)) {
      const std::string name = w.name + ", " + library.name;
      const Count other = count_with(w, library.settings);
      const auto nodes = static_cast<double>(other.nodes);
      others << "| " << name << " | " << beside(nodes, static_cast<double>(w.goal_elsewhere))
             << " |\n";
      if (wanted.kernels) print_kernels(name, other);
      all.push_back({name, "nodes", nodes});
    }
  }
  if (const std::string rows = others.str(); !rows.empty())
    std::cout << "\n| if cuBLASLt is another | nodes |\n|---|---|\n" << rows;
  return all;
}

int run(const Arguments& arguments) {
  std::string why_not;
  cuda::Runtime* const rig = cuda::halftape_cuda_open(&why_not);
  if (!rig) throw std::runtime_error("the rig does not start: " + why_not);
  cuda::use_runtime(rig);
  set_default_device(kCUDA);
  simt::Settings h100 = simt::settings;
  h100.multiprocessors = 132;
  h100.nan_in_relu = simt::NanInRelu::Kept;
  h100.memory = size_t{60} << 30;
  h100.protect = simt::Protect::Never;
  h100.counts_only = [] { return !cuda::asks_library(); };
  const std::vector<Budget> found = count_all(arguments, h100);
  if (found.empty()) throw std::runtime_error("there is no workload " + arguments.only);
  if (!arguments.only.empty()) return 0;
  if (arguments.write) {
    BudgetFile::write(arguments.file, found);
    return 0;
  }
  const BudgetFile file(arguments.file);
  const std::string worse = file.worse(found), better = file.better(found);
  if (!better.empty()) std::cout << "\nbetter than its budget:\n" << better;
  if (!worse.empty()) std::cout << "\nWORSE than its budget:\n" << worse;
  if (!better.empty() || !worse.empty())
    std::cout << "\nWhere the change is meant: gpu_budgets " << arguments.file << " --write\n";
  return worse.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--write")
      a.write = true;
    else if (word == "--kernels")
      a.kernels = true;
    else if (word == "--only" && i + 1 < argc)
      a.only = argv[++i];
    else if (a.file.empty() && !word.starts_with("--"))
      a.file = word;
    else
      a.file.clear(), i = argc;
  }
  if (a.file.empty() || (a.write && !a.only.empty())) {
    std::cerr << "usage: gpu_budgets FILE [--write | --only NAME] [--kernels]\n";
    return 2;
  }
  try {
    return run(a);
  } catch (const std::exception& e) {
    std::cerr << "gpu_budgets: " << e.what() << '\n';
    return 1;
  }
}
