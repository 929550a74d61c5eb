// The thread of a group, on which its collective calls run one after the other.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "halftape/core/machine/flush_denormal.h"
#include "halftape/core/machine/os.h"
#include "halftape/distributed/process_group.h"

namespace halftape::distributed {

class Exchanges;

/// How a call ends, told by the group's thread to those who wait.
class Work::State {
 public:
  /// `finish` runs once, in the first wait() after the call has ended well.
  explicit State(std::function<void()> finish) : finish_(std::move(finish)) {}
  void end(std::exception_ptr error);
  bool ended() const;
  std::exception_ptr error() const;
  void wait();

 private:
  mutable std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::exception_ptr error_;
  std::function<void()> finish_;
};

class CallQueue {
 public:
  struct Place {
    int rank, size;
    milliseconds timeout;
  };
  /// What a call is, for errors, and for the check that all ranks make the same call.
  struct Call {
    const char* name;
    uint64_t signature;  // of what is equal on all ranks
    CollectiveOptions how;
  };
  using Body = std::function<void(Exchanges&)>;
  using Finish = std::function<void()>;

  CallQueue(Place place, std::unique_ptr<Engine> engine, std::unique_ptr<Watch> watch,
            std::shared_ptr<FailureNews> news);
  ~CallQueue();
  /// Says goodbye, after the calls that wait; calls that come later throw.
  void leave();
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  /// Null in a group of one.
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  /// Moves the bytes by `body` on the group's thread. In a group of one nothing runs but `finish`,
  /// as each call leaves its tensors as they are, or copies them.
  Work start(Call call, Body body, Finish finish);
  /// Called by the watch, and after a failed call: all calls that run and come fail for that
  /// reason.
  void fail(const std::string& why);

 private:
  struct Waiting {
    uint64_t number;
    Call call;
    Body body;
    std::shared_ptr<Work::State> state;
    uint32_t flush = halftape::detail::flush_bits();  // sums are the caller's
    std::string title() const;
  };
  void run();
  void run_one(Waiting& one);
  std::string reason() const;

  Place place_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Watch> watch_;
  std::shared_ptr<FailureNews> news_;
  mutable std::mutex mutex_;
  std::condition_variable comes_;
  std::deque<Waiting> waiting_;
  uint64_t calls_ = 0;
  std::string failure_;  // empty while all is well
  bool closed_ = false;
  const int64_t process_ = os::process_id();  // a fork of it is no rank
  std::thread thread_;
};

}  // namespace halftape::distributed
