// Queues between a loader and its workers, and the order of results.
#pragma once
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "halftape/core/check.h"

namespace halftape::data::detail {

/// A mutex with a condition variable.
class Gate {
 public:
  Gate();
  ~Gate();
  void lock();
  void unlock();
  void notify_one();
  void notify_all();
  /// Releases the lock while it waits for ready(). False after the timeout.
  bool wait(const std::function<bool()>& ready, std::optional<std::chrono::milliseconds> timeout);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Throws Error for a number of threads that can only be a mistake, such as −1.
inline void check_threads(const char* what, size_t count) {
  constexpr size_t kMost = 4096;
  HALFTAPE_CHECK(count <= kMost, what, " is ", count, "; expected at most ", kMost, " threads");
}

/// The threads of a loader.
class Threads {
 public:
  Threads();
  ~Threads();
  /// Throws Error when the system has no more threads.
  void start(std::function<void()> work);
  void join();
  size_t size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// First in, first out, for several threads.
template <class T>
class Queue {
 public:
  void push(T value) {
    {
      const std::lock_guard lock(gate_);
      values_.push_back(std::move(value));
    }
    gate_.notify_one();
  }
  /// Waits for a value; with a timeout, throws Error when none has come by then.
  T pop(std::optional<std::chrono::milliseconds> timeout = {}) {
    const std::lock_guard lock(gate_);
    HALFTAPE_CHECK(gate_.wait([this] { return !values_.empty(); }, timeout),
                   "Timeout in DataLoader queue while waiting for next batch (timeout was ",
                   timeout->count(), " ms)");
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }
  /// Drops the values in the queue and returns how many there were. Allocates nothing, as a
  /// destructor calls it.
  size_t clear() {
    for (size_t n = 0;; ++n) {
      std::optional<T> dropped;  // destroyed after the lock is given back
      const std::lock_guard lock(gate_);
      if (values_.empty()) return n;
      dropped.emplace(std::move(values_.front()));
      values_.pop_front();
    }
  }

 private:
  std::deque<T> values_;
  Gate gate_;
};

/// Jobs one way and results the other. Workers pop jobs and push results; the other calls are one
/// thread's.
template <class Job, class Result>
class DataShuttle {
 public:
  void push_job(Job job) {
    jobs_.push(std::move(job));
    ++in_flight_;
  }
  /// A job that ends a worker, and gives no result.
  void push_end(Job job) { jobs_.push(std::move(job)); }
  void push_result(Result result) { results_.push(std::move(result)); }
  Job pop_job() { return jobs_.pop(); }
  /// Nothing if no job is in flight. A timeout changes nothing.
  std::optional<Result> pop_result(std::optional<std::chrono::milliseconds> timeout = {}) {
    if (in_flight_ == 0) return std::nullopt;
    std::optional<Result> result = results_.pop(timeout);
    --in_flight_;
    return result;
  }
  /// Removes jobs that no worker has begun, and waits for the others.
  void drain() {
    in_flight_ -= jobs_.clear();
    while (in_flight_ > 0) pop_result();
  }

 private:
  Queue<Job> jobs_;
  Queue<Result> results_;
  size_t in_flight_ = 0;
};

/// Passes on results in the order of their sequence_number; early ones wait.
template <class Result>
class Sequencer {
 public:
  /// The next of the results that produce() gives.
  template <class F>
  std::optional<Result> next(const F& produce) {
    while (!early_.contains(due_)) {
      std::optional<Result> result = produce();
      if (!result) return std::nullopt;
      early_.emplace(result->sequence_number, *std::move(result));
    }
    return std::move(early_.extract(due_++).mapped());
  }

 private:
  size_t due_ = 0;
  std::map<size_t, Result> early_;
};

}  // namespace halftape::data::detail
