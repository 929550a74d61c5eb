// Timing of calls. Every case runs in rounds that are interleaved with the other cases' and reports
// the median and the quickest round, in nanoseconds a call or an item of one: of the process's time
// on the CPU, which says more than the clock does where others use the machine.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/// The compiler must take the value for used.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

/// Cases under names; --only=TEXT: those with TEXT in it. --json writes one JSON object for
/// programs instead of a table; --count=N only calls each case N times, for a profiler, and --peak
/// says then how many KiB of memory the process had at most, on Linux;
/// --threads=N is 1 otherwise. With --check the program is to report numbers with check() instead
/// of adding cases.
class Table {
 public:
  Table(std::string title, int argc, char** argv, std::string unit = "ns a call")
      : title_(std::move(title)), unit_(std::move(unit)) {
    for (int i = 1; i < argc; ++i) {
      json_ |= std::strcmp(argv[i], "--json") == 0;
      if (std::strncmp(argv[i], "--only=", 7) == 0) only_ = argv[i] + 7;
      if (std::strncmp(argv[i], "--count=", 8) == 0) count_ = std::atoi(argv[i] + 8);
      if (std::strncmp(argv[i], "--threads=", 10) == 0) threads_ = std::atoi(argv[i] + 10);
      checks_ |= std::strcmp(argv[i], "--check") == 0;
      peak_ |= std::strcmp(argv[i], "--peak") == 0;
    }
  }
  bool checks() const { return checks_; }
  /// How many threads the library is to use: with more than one the clock counts, not the CPU's
  /// time.
  int threads() const { return threads_; }
  /// A number that is the same whoever computes it.
  void check(const std::string& name, double value) {
    std::printf("%s\t%.9g\n", name.c_str(), value);
  }
  /// What no case is made for takes no memory.
  bool wants(const std::string& name) const { return name.find(only_) != std::string::npos; }
  /// A call's time is divided by its items.
  void add(std::string name, std::function<void()> call, int64_t items = 1) {
    if (!wants(name)) return;
    cases_.push_back({std::move(name), std::move(call), items, 1, 0, {}});
  }
  void run() {
    if (checks_) return;
    if (count_ > 0) {
      for (Case& c : cases_)
        for (int i = 0; i < count_; ++i) c.call();
      if (peak_) print_peak();
      return;
    }
    for (Case& c : cases_)  // calls for a round of half a millisecond
      while (time(c) * static_cast<double>(c.calls * c.items) < 5e5) c.calls *= 2;
    for (Case& c : cases_) {  // long calls in fewer rounds
      const double round = time(c) * static_cast<double>(c.calls * c.items);
      c.rounds = static_cast<int>(std::clamp(5e8 / round, 5., 101.));
    }
    for (int round = 0; round < 101; ++round)
      for (Case& c : cases_)
        if (round < c.rounds) c.ns.push_back(time(c));
    if (json_)
      std::printf("{\"library\": \"%s\", \"unit\": \"%s\", \"cases\": {", title_.c_str(),
                  unit_.c_str());
    for (size_t i = 0; i < cases_.size(); ++i) {
      Case& c = cases_[i];
      std::sort(c.ns.begin(), c.ns.end());
      const double median = c.ns[c.ns.size() / 2], least = c.ns[0];
      if (json_)
        std::printf("%s\"%s\": [%.4g, %.4g]", i ? ", " : "", c.name.c_str(), median, least);
      else
        std::printf("%-40s %10.4g %s  (least %.4g)\n", c.name.c_str(), median, unit_.c_str(),
                    least);
    }
    if (json_) std::printf("}}\n");
  }

 private:
  struct Case {
    std::string name;
    std::function<void()> call;
    int64_t items, calls;
    int rounds;
    std::vector<double> ns;
  };
  static void print_peak() {
    std::string line;  // not getrusage(), which counts what the process was before exec(), too
    for (std::ifstream status("/proc/self/status"); std::getline(status, line);)
      if (line.compare(0, 6, "VmHWM:") == 0) std::printf("%ld\n", std::atol(&line[6]));
  }
  double now() const {  // nanoseconds
    timespec t;
    clock_gettime(threads_ > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
  }
  double time(const Case& c) const {
    const double start = now();
    for (int64_t i = 0; i < c.calls; ++i) c.call();
    return (now() - start) / static_cast<double>(c.calls * c.items);
  }
  std::string title_, unit_;
  std::string only_;
  int count_ = 0, threads_ = 1;
  bool json_ = false, checks_ = false, peak_ = false;
  std::vector<Case> cases_;
};

}  // namespace bench
