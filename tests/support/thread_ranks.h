// Ranks that are threads of one process, and an engine between them.
#pragma once
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "halftape/distributed/distributed.h"
#include "halftape/halftape.h"

namespace halftape::testing {

/// Where the messages of all ranks lie until they are fetched.
class Hall {
 public:
  using Address = std::tuple<uint64_t, Dtype, int, int>;  // tag, of what, from, to
  void put(const Address& at, const void* bytes, size_t n) {
    const auto* first = static_cast<const char*>(bytes);
    const std::lock_guard lock(mutex_);
    sent_bytes_ += n;
    letters_[at].assign(first, first + n);
    comes_.notify_all();
  }
  void take(const Address& at, void* bytes, size_t n, std::chrono::milliseconds timeout,
            const bool& aborted) {
    std::unique_lock lock(mutex_);
    const bool there =
        comes_.wait_for(lock, timeout, [&] { return aborted || letters_.count(at) > 0; });
    if (aborted) throw Error("aborted");
    if (!there) throw Error("no message within the timeout");
    if (letters_[at].size() != n) throw Error("a message of another size");
    if (n > 0) std::memcpy(bytes, letters_[at].data(), n);
    letters_.erase(at);
  }
  void abort(bool& aborted) {
    const std::lock_guard lock(mutex_);
    aborted = true;
    comes_.notify_all();
  }
  size_t sent_bytes() {
    const std::lock_guard lock(mutex_);
    return sent_bytes_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable comes_;
  std::map<Address, std::vector<char>> letters_;
  size_t sent_bytes_ = 0;
};

class ThreadEngine final : public distributed::Engine {
 public:
  ThreadEngine(std::shared_ptr<Hall> hall, int rank) : hall_(std::move(hall)), rank_(rank) {}
  const char* name() const override { return "threads"; }
  bool reaches(DeviceType device) const override { return device == DeviceType::CPU; }
  void exchange(std::span<const distributed::Message> sends,
                std::span<const distributed::Message> receives, uint64_t tag,
                std::chrono::milliseconds timeout) override {
    for (const auto& m : sends) hall_->put({tag, m.dtype, rank_, m.peer}, m.bytes, m.size);
    for (const auto& m : receives)
      hall_->take({tag, m.dtype, m.peer, rank_}, m.bytes, m.size, timeout, aborted_);
  }
  bool all_reduce(void*, int64_t, Dtype, distributed::ReduceOp, uint64_t,
                  std::chrono::milliseconds) override {
    return false;
  }
  void abort() noexcept override { hall_->abort(aborted_); }

 private:
  std::shared_ptr<Hall> hall_;
  int rank_;
  bool aborted_ = false;
};

/// Calls f(group) on a thread for each of `size` ranks, and throws what the first of them threw.
template <class F>
size_t on_ranks(int size, const F& f, distributed::GroupOptions options = {}) {
  auto hall = std::make_shared<Hall>();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        auto engine = size > 1 ? std::make_unique<ThreadEngine>(hall, r) : nullptr;
        f(std::make_shared<distributed::ProcessGroup>(std::move(engine), r, size, options));
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& e : errors)
    if (e) std::rethrow_exception(e);
  return hall->sent_bytes();
}

}  // namespace halftape::testing
