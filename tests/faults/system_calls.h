// The C library's calls for files and threads, which fail when a test says so. system_calls.cpp
// defines them for the whole program, so that the library's own calls and those of the C++
// library's streams and folders go through it.
#pragma once
#include <cstdint>

namespace halftape::testing {

/// What goes wrong. Calls are counted from 1.
struct Fault {
  int64_t nth = 0;
  int error = 0;          // an errno
  bool persists = false;  // all later calls fail, too
  bool half = false;      // of writes alone: the n-th takes half of its bytes, the next one fails,
                          // unless the error is 0
};

/// Lets calls for files fail as long as it lives. No two at a time.
class FailingCalls {
 public:
  explicit FailingCalls(const Fault& fault);
  ~FailingCalls();
  FailingCalls(const FailingCalls&) = delete;
  FailingCalls& operator=(const FailingCalls&) = delete;

  /// Lets all calls through from now on.
  void stop();
  /// The first call that failed; null if there were fewer.
  const char* failed() const;
};

/// Refuses threads with EAGAIN as long as it lives: the n-th, or with `persists` all from it on.
class RefusedThreads {
 public:
  explicit RefusedThreads(int64_t nth, bool persists);
  ~RefusedThreads();
  RefusedThreads(const RefusedThreads&) = delete;
  RefusedThreads& operator=(const RefusedThreads&) = delete;

  bool refused() const;
};

}  // namespace halftape::testing
