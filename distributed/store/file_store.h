// A Store in a folder that all processes see.
#pragma once
#include <atomic>
#include <filesystem>
#include <string>

#include "halftape/distributed/store/store.h"

namespace halftape::distributed {

/// A file for each key, in a folder that is made if need be. Values appear whole or not at all. The
/// files stay: give every run a folder of its own, or processes meet those of an earlier run.
class FileStore final : public Store {
 public:
  explicit FileStore(std::filesystem::path folder, milliseconds timeout = milliseconds(60000));
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  milliseconds timeout() const override { return timeout_; }
  void set_timeout(milliseconds timeout) override {
    timeout_ = checked_timeout("FileStore", timeout, milliseconds(0));
  }

 private:
  std::filesystem::path file_of(const std::string& key) const;
  std::filesystem::path folder_;
  std::atomic<milliseconds> timeout_;
};

}  // namespace halftape::distributed
