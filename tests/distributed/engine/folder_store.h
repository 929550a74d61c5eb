// The smallest store that several processes share: a file for each key.
#pragma once
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/distributed/store/store.h"

namespace halftape::testing {

class FolderStore final : public distributed::Store {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, const std::string& value) override {
    const std::filesystem::path file = place_of(key);
    std::ofstream(file.string() + ".new", std::ios::binary) << value;
    std::filesystem::rename(file.string() + ".new", file);
  }
  std::string get(const std::string& key) override {
    wait({key});
    std::ifstream file(place_of(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  int64_t add(const std::string&, int64_t) override { detail::fail("FolderStore adds nothing"); }
  bool check(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys)
      if (!std::filesystem::exists(place_of(key))) return false;
    return true;
  }
  void wait(const std::vector<std::string>& keys) override {
    const auto until = std::chrono::steady_clock::now() + timeout_;
    while (!check(keys)) {
      HALFTAPE_CHECK(std::chrono::steady_clock::now() < until, "nobody set ", keys.front());
      std::this_thread::sleep_for(distributed::milliseconds(2));
    }
  }
  distributed::milliseconds timeout() const override { return timeout_; }
  void set_timeout(distributed::milliseconds timeout) override { timeout_ = timeout; }

 private:
  std::filesystem::path place_of(std::string key) const {
    for (char& c : key)
      if (c == '/') c = '_';
    return folder_ / ("key_" + key);
  }
  std::filesystem::path folder_;
  distributed::milliseconds timeout_{12345};
};

}  // namespace halftape::testing
