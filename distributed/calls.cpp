#include "halftape/distributed/calls.h"

#include <tuple>
#include <utility>

#include "halftape/core/start_thread.h"
#include "halftape/distributed/collectives.h"
#include "halftape/distributed/engine/mix.h"

namespace halftape::distributed {

bool Work::is_completed() const { return state_->ended(); }
bool Work::is_success() const { return state_->ended() && !state_->error(); }
std::exception_ptr Work::exception() const { return state_->error(); }
void Work::wait() const { state_->wait(); }

void Work::State::end(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  error_ = std::move(error);
  ends_.notify_all();
}
bool Work::State::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}
std::exception_ptr Work::State::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}
void Work::State::wait() {
  std::unique_lock lock(mutex_);
  ends_.wait(lock, [this] { return ended_; });
  if (error_) std::rethrow_exception(error_);
  const auto finish = std::exchange(finish_, {});
  if (!finish) return;
  try {
    finish();
  } catch (...) {  // the result is not where it belongs: every wait() says so
    error_ = std::current_exception();
    throw;
  }
}

CallQueue::CallQueue(Place place, std::unique_ptr<Engine> engine, std::unique_ptr<Watch> watch,
                     std::shared_ptr<FailureNews> news)
    : place_(place), engine_(std::move(engine)), watch_(std::move(watch)), news_(std::move(news)) {
  if (!engine_) return;
  if (!engine_->queues())
    thread_ = detail::start_thread("ProcessGroup: the thread of its calls", [this] { run(); });
  if (news_) news_->listen([this](const std::string& why) { fail(why); });
}

CallQueue::~CallQueue() {
  if (process_ == os::process_id()) {
    leave();
    return;
  }
  // A fork has none of the threads that would be joined: what its parent had is kept for ever.
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory a fork has to end
  new auto(std::make_tuple(std::move(thread_), std::move(watch_), std::move(engine_),
                           std::move(news_)));  // NOLINT
}

void CallQueue::leave() {
  if (!engine_) return;
  if (std::uncaught_exceptions() > 0) fail("this process ends by an error");
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    failed = !failure_.empty();
  }
  comes_.notify_all();
  if (thread_.joinable()) thread_.join();  // after the calls that wait: each has its timeout
  if (watch_ && !failed) watch_->leave(milliseconds(5000));
  if (news_) news_->listen({});
}

std::string CallQueue::Waiting::title() const {
  const std::string label = call.how.label.empty() ? "" : " (" + call.how.label + ')';
  return detail::str(call.name, ' ', number, label);
}

Work CallQueue::start(Call call, Body body, Finish finish) {
  checked_timeout(call.name, call.how.timeout, milliseconds(0));  // 0: the group's
  const bool async_op = call.how.async_op;
  for (const char c : call.how.label) call.signature = mix(call.signature, static_cast<uint8_t>(c));
  Work work(std::make_shared<Work::State>(std::move(finish)));
  if (!engine_) {
    Exchanges alone(nullptr, 0, 1, 0, {});
    body(alone);
    work.state()->end({});
    work.wait();
    return work;
  }
  HALFTAPE_CHECK(process_ == os::process_id(), call.name,
                 ": this process was forked from a rank, and is none itself");
  {
    std::unique_lock lock(mutex_);
    HALFTAPE_CHECK(failure_.empty(), call.name, ": ", failure_);
    HALFTAPE_CHECK(!closed_, call.name, ": this process has left the group");
    Waiting one{++calls_, std::move(call), std::move(body), work.state()};
    if (thread_.joinable()) {
      waiting_.push_back(std::move(one));
      comes_.notify_one();
    } else {  // the device's stream is the queue
      lock.unlock();
      run_one(one);
    }
  }
  if (!async_op) work.wait();
  return work;
}

void CallQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    comes_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Waiting one = std::move(waiting_.front());
    waiting_.pop_front();
    const std::string failed = failure_;
    lock.unlock();
    if (failed.empty())
      run_one(one);
    else
      one.state->end(std::make_exception_ptr(Error(one.title() + ": " + failed)));
    lock.lock();
  }
}

void CallQueue::run_one(Waiting& one) {
  const std::string title = one.title();
  if (watch_) watch_->set_progress({one.number, one.call.signature, true, title});
  try {
    const milliseconds own = one.call.how.timeout;
    // Calls that differ do not meet by chance: their tags differ. Each call has 8 of its own.
    Exchanges with(engine_.get(), place_.rank, place_.size,
                   one.number << 24 | (one.call.signature & 0x1fffff) << 3,
                   own.count() > 0 ? own : place_.timeout);
    {
      const halftape::detail::FlushAs caller(one.flush);
      one.body(with);
    }
    one.body = {};  // whoever waits finds the tensors' bytes with their owners alone
    if (watch_) watch_->set_progress({one.number, one.call.signature, false, title});
    one.state->end({});
  } catch (const std::exception& e) {
    std::string why = watch_ ? watch_->diagnosis(one.number) : "";
    if (why.empty())
      why = e.what();
    else
      why += std::string(" [") + engine_->name() + ": " + e.what() + "]";
    fail(why);
    one.state->end(std::make_exception_ptr(Error(title + ": " + reason())));
  }
}

std::string CallQueue::reason() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void CallQueue::fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = why;
  }
  engine_->abort();
}

}  // namespace halftape::distributed
