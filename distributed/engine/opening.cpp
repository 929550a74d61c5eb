#include "halftape/distributed/engine/opening.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/core/start_thread.h"

namespace halftape::distributed {
namespace {

struct Opening {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  std::unique_ptr<Engine> engine;
  std::exception_ptr error;
  std::string failure;  // of another process
};

}  // namespace

std::unique_ptr<Engine> open_in_time(std::function<std::unique_ptr<Engine>()> open,
                                     milliseconds timeout, FailureNews& news) {
  const auto opening = std::make_shared<Opening>();
  auto work = [opening, open = std::move(open)] {
    std::unique_ptr<Engine> engine;
    std::exception_ptr error;
    try {
      engine = open();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(opening->mutex);
    opening->engine = std::move(engine);
    opening->error = std::move(error);
    opening->ended = true;
    opening->changed.notify_all();
  };
  detail::start_thread("init_process_group: the thread that opens the engine", std::move(work))
      .detach();
  news.listen([opening](const std::string& failure) {
    const std::lock_guard lock(opening->mutex);
    opening->failure = failure;
    opening->changed.notify_all();
  });
  std::unique_lock lock(opening->mutex);
  // The engine's own error, which says more, comes at the timeout.
  const bool done = opening->changed.wait_for(
      lock, timeout + timeout / 8, [&] { return opening->ended || !opening->failure.empty(); });
  const std::string failure = opening->failure;
  // Taken out: the other thread, which may end later, is not to free what is caught from here.
  const std::exception_ptr error = std::exchange(opening->error, nullptr);
  std::unique_ptr<Engine> engine = std::move(opening->engine);
  lock.unlock();
  news.listen({});
  HALFTAPE_CHECK(failure.empty(), "init_process_group: ", failure);
  if (error) std::rethrow_exception(error);
  HALFTAPE_CHECK(done,
                 "init_process_group: the processes have met, and not all of their "
                 "connections came about within ",
                 timeout.count() / 1000., " s");
  return engine;
}

}  // namespace halftape::distributed
