// How a loader and its workers pass on jobs and results, and how results get back into order.
#pragma once
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
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
  /// Gives the lock back while it waits until ready(). False when that is not so in time.
  bool wait(const std::function<bool()>& ready, std::optional<std::chrono::milliseconds> timeout);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The threads of a loader.
class Threads {
 public:
  Threads();
  ~Threads();
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
  /// Drops the values in the queue and returns how many there were.
  size_t clear() {
    std::deque<T> dropped;  // destroyed after the lock is given back
    const std::lock_guard lock(gate_);
    dropped.swap(values_);
    return dropped.size();
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
  void push_result(Result result) { results_.push(std::move(result)); }
  Job pop_job() { return jobs_.pop(); }
  /// Nothing when no job is on its way. A timeout changes nothing.
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
  size_t in_flight_jobs() const noexcept { return in_flight_; }

 private:
  Queue<Job> jobs_;
  Queue<Result> results_;
  size_t in_flight_ = 0;
};

/// The order in which results are passed on: that of sequence_number, where early results wait in a
/// ring and at most `max_jobs` may be on their way at a time; with max_jobs = 0 that of arrival.
template <class Result>
class Sequencer {
 public:
  explicit Sequencer(size_t max_jobs) : buffer_(max_jobs) {}

  /// The next of the results that produce() gives.
  template <class F>
  std::optional<Result> next(const F& produce) {
    if (buffer_.empty()) return produce();
    std::optional<Result>& due = place(next_sequence_number_);
    while (!due) {
      std::optional<Result> result = produce();
      if (!result) return std::nullopt;
      place(result->sequence_number) = std::move(result);
    }
    ++next_sequence_number_;
    return std::exchange(due, std::nullopt);
  }

 private:
  std::optional<Result>& place(size_t number) { return buffer_[number % buffer_.size()]; }

  size_t next_sequence_number_ = 0;
  std::vector<std::optional<Result>> buffer_;
};

}  // namespace halftape::data::detail
