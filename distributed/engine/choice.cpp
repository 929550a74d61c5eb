#include "halftape/distributed/engine/choice.h"

#include <sstream>

#include "halftape/core/check.h"

namespace halftape::distributed {
namespace {

constexpr const char* kChoice = "backend";

std::string key_of(int rank) { return "backend of " + std::to_string(rank); }
std::string in_words(const std::string& backend) {
  return backend.empty() ? "whichever fits" : '"' + backend + '"';
}

/// Rank 0's decision: an engine, or "!" and the reason why there is none.
std::string decide(const std::string& asked, int size, Store& store) {
  std::string missing;
  for (int r = 0; r < size; ++r) {
    const std::string said = store.get(key_of(r));  // what it asks for, a line, its obstacle
    const size_t line = said.find('\n');
    const std::string backend = said.substr(0, line), obstacle = said.substr(line + 1);
    std::ostringstream text;
    if (backend != asked) {
      text << "!rank 0 asks for the backend " << in_words(asked) << ", rank " << r << " for "
           << in_words(backend) << "; give all the same";
      return text.str();
    }
    if (obstacle.empty() || !missing.empty()) continue;
    text << "!rank " << r << " of " << size << " cannot use NCCL: " << obstacle;
    missing = text.str();
  }
  if (asked == "nccl" && !missing.empty()) return missing;
  return !asked.empty() ? asked : missing.empty() ? "nccl" : "gloo";
}

}  // namespace

std::string agreed_backend(const std::string& asked, const std::string& nccl_obstacle, int rank,
                           int size, Store& store) {
  store.set(key_of(rank), asked + '\n' + nccl_obstacle);
  if (rank == 0) store.set(kChoice, decide(asked, size, store));
  std::string choice = store.get(kChoice);
  HALFTAPE_CHECK(!choice.starts_with('!'), "init_process_group: ", choice.substr(1));
  return choice;
}

}  // namespace halftape::distributed
