// What a captured step of training costs, counted on the rig (tests/simt).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace halftape::testing {

/// Of one replay of the step as a Graph, unless said otherwise.
struct Count {
  int64_t nodes = 0, library_calls = 0;  // the calls are nodes, too
  int64_t host_waits = 0;                // of a replay, and of the step when it is called
  double bytes = 0;        // read and written by the contract's calls: see bytes_of() in count.cpp
  double operations = 0;   // of products: a multiplication and an addition are two
  double arena_bytes = 0;  // device memory that the graph takes
  struct Calls {
    int64_t count = 0;
    double bytes = 0;
  };
  std::map<std::string, Calls> calls;      // of the contract, by name
  std::map<std::string, int64_t> kernels;  // and copies and fills: the nodes, by name
};
Count count_step(const std::function<void()>& step);

}  // namespace halftape::testing
