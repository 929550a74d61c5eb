// Timing of short calls. Every case runs in rounds that are interleaved with the other cases' and
// reports the median and the quickest round, in nanoseconds a call.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/// The compiler must take the value for used.
template <class T>
void keep(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

/// Cases under names. --json writes one JSON object for programs instead of a table.
class Table {
 public:
  Table(std::string title, int argc, char** argv) : title_(std::move(title)) {
    for (int i = 1; i < argc; ++i) json_ |= std::strcmp(argv[i], "--json") == 0;
  }
  void add(std::string name, std::function<void()> call) {
    cases_.push_back({std::move(name), std::move(call), 1, {}});
  }
  void run() {
    for (Case& c : cases_)  // calls for a round of half a millisecond
      while (time(c) * static_cast<double>(c.calls) < 5e5) c.calls *= 2;
    for (int round = 0; round < 101; ++round)
      for (Case& c : cases_) c.ns.push_back(time(c));
    if (json_) std::printf("{\"library\": \"%s\", \"unit\": \"ns\", \"cases\": {", title_.c_str());
    for (size_t i = 0; i < cases_.size(); ++i) {
      Case& c = cases_[i];
      std::sort(c.ns.begin(), c.ns.end());
      const double median = c.ns[c.ns.size() / 2], least = c.ns[0];
      if (json_)
        std::printf("%s\"%s\": [%.1f, %.1f]", i ? ", " : "", c.name.c_str(), median, least);
      else
        std::printf("%-40s %10.1f ns  (least %.1f)\n", c.name.c_str(), median, least);
    }
    if (json_) std::printf("}}\n");
  }

 private:
  struct Case {
    std::string name;
    std::function<void()> call;
    int64_t calls;
    std::vector<double> ns;
  };
  static double time(const Case& c) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < c.calls; ++i) c.call();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    return spent.count() / static_cast<double>(c.calls);
  }
  std::string title_;
  bool json_ = false;
  std::vector<Case> cases_;
};

}  // namespace bench
