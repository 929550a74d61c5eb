// Where the processes of a group meet: a small table of keys and values that all of them see.
// Spelled as c10d::Store.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace halftape::distributed {

using std::chrono::milliseconds;

/// Returns the timeout. Throws Error, in the name of `call`, unless it lies from `least` to 1,000
/// days: a clock has no times that are much later.
milliseconds checked_timeout(const char* call, milliseconds timeout,
                             milliseconds least = milliseconds(1));

/// A table of keys and values, shared by the processes of a group. All calls are safe from several
/// threads and throw Error, with the reason, when the table cannot be reached.
class Store {
 public:
  virtual ~Store() = default;
  /// Replaces the value of a key. Keys have 1 to 1,024 bytes, values up to 1 MiB.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until the key has a value, and returns it. Throws after timeout(), naming the key.
  virtual std::string get(const std::string& key) = 0;
  /// Adds to the number that the key has, 0 at first, and returns the sum.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  /// True if all of the keys have a value now.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  /// Waits until all of the keys have a value. Throws after timeout(), naming those that have none.
  virtual void wait(const std::vector<std::string>& keys) = 0;
  /// Of get() and wait().
  virtual milliseconds timeout() const = 0;
  virtual void set_timeout(milliseconds timeout) = 0;
};

/// Puts a prefix and "/" before every key of another store, so that several users do not meet.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  milliseconds timeout() const override;
  void set_timeout(milliseconds timeout) override;

 private:
  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace halftape::distributed
