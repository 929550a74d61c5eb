// os::NoPipeSignal.
#if defined(__unix__) || defined(__APPLE__)
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "halftape/core/machine/os.h"

namespace halftape {
namespace {

/// Writes to a pipe that nobody reads; its error.
int write_to_nobody() {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  const char byte = 0;
  const int error = ::write(ends[1], &byte, 1) < 0 ? errno : 0;
  close(ends[1]);
  return error;
}
bool is_blocked() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, SIGPIPE) == 1;
}
bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

TEST_CASE("a write that nobody reads is an error, here and in threads that start meanwhile") {
  REQUIRE_FALSE(is_blocked());
  {
    const os::NoPipeSignal no_signal;
    CHECK(write_to_nobody() == EPIPE);
    {
      const os::NoPipeSignal within;
      CHECK(write_to_nobody() == EPIPE);
    }
    CHECK(is_blocked());
    std::thread([] { CHECK(write_to_nobody() == EPIPE); }).join();
    CHECK(is_pending());
  }
  CHECK_FALSE(is_blocked());
  CHECK_FALSE(is_pending());  // or this program had ended
}

TEST_CASE("a signal that the caller holds back stays the caller's") {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  CHECK(write_to_nobody() == EPIPE);
  {
    const os::NoPipeSignal no_signal;
    CHECK(write_to_nobody() == EPIPE);
  }
  CHECK(is_blocked());
  CHECK(is_pending());
  int taken;
  sigwait(&pipe, &taken);
  pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace
}  // namespace halftape
#endif
