// Ranks that are threads of this process, each with a device of the rig, and the fake NCCL between
// them.
#pragma once
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fake_nccl.h"
#include "halftape/core/check.h"
#include "halftape/distributed/nccl/nccl_engine.h"
#include "halftape/distributed/process_group.h"
#include "runtime/device.h"

namespace halftape::testing {

/// A Store within the process.
class MemoryStore final : public distributed::Store {
 public:
  explicit MemoryStore(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    comes_.notify_all();
  }
  std::string get(const std::string& key) override {
    std::unique_lock lock(mutex_);
    HALFTAPE_CHECK(comes_.wait_for(lock, timeout_, [&] { return values_.count(key) > 0; }), key,
                   " did not come");
    return values_.at(key);
  }
  int64_t add(const std::string&, int64_t) override { return 0; }
  bool check(const std::vector<std::string>&) override { return false; }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) (void)get(key);
  }
  std::chrono::milliseconds timeout() const override { return timeout_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

 private:
  std::mutex mutex_;
  std::condition_variable comes_;
  std::chrono::milliseconds timeout_;
  std::map<std::string, std::string> values_;
};

FakeNccl& fake();         // that of main.cpp
std::string fake_file();  // its library

/// The fake as new; at the end there must be no wrong use, and nothing left.
class Fresh {
 public:
  Fresh() {
    fake().reset({[](void* stream, std::function<bool()> ready, std::function<void()> run) {
                    (void)simt::enqueue_foreign(static_cast<cudaStream_t>(stream), std::move(ready),
                                                std::move(run));
                  },
                  simt::copy_foreign});
  }
  ~Fresh() {
    fake().release();
    CHECK(fake().violations() == std::vector<std::string>{});
    CHECK(fake().alive() == 0);
  }
};

/// Work runs in the calls that wait, as on a GPU; on the rig by itself, at once.
inline simt::Settings deferred() {
  simt::Settings s = simt::settings;
  s.mode = simt::Mode::Deferred;
  return s;
}

/// Calls f(rank) on a thread for each rank. The errors that they threw, "" for none.
template <class F>
std::vector<std::string> on_threads(int size, const F& f) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        f(r);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return errors;
}

/// Calls f(group, device) for each rank.
template <class F>
std::vector<std::string> on_nccl(int size, const F& f, distributed::GroupOptions options = {}) {
  MemoryStore store(options.timeout);
  return on_threads(size, [&](int r) {
    auto engine = distributed::open_nccl({r, size, &store, options.timeout, "", r});
    const auto group =
        std::make_shared<distributed::ProcessGroup>(std::move(engine), r, size, options);
    f(group, Device(kCUDA, static_cast<DeviceIndex>(r)));
  });
}

inline std::vector<std::string> none(int size) {
  return std::vector<std::string>(static_cast<size_t>(size));
}

}  // namespace halftape::testing
