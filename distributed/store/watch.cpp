// A watch: what the program's threads ask of its own thread.
#include "halftape/distributed/store/watch.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/core/machine/os.h"
#include "halftape/core/machine/warn.h"
#include "halftape/core/start_thread.h"
#include "halftape/distributed/store/table.h"
#include "halftape/distributed/store/watch_sides.h"

namespace halftape::distributed {

class Watch::Impl {
 public:
  Impl(Store& store, const WatchOptions& options, std::function<void(const std::string&)> failed);
  ~Impl();
  /// Starts the thread, and returns once all ranks have come.
  void meet(Store& store, const std::string& host);
  uint64_t session() const { return side_->session; }
  void set_progress(Progress progress);
  std::string diagnosis(uint64_t number);
  void leave(milliseconds at_most);

 private:
  void run();
  bool step(watch::Clock::time_point& next_beat);
  void deliver(const std::string& failure);
  void publish();

  const WatchOptions options_;
  const std::function<void(const std::string&)> failed_;
  std::unique_ptr<watch::Side> side_;
  std::mutex one_question_;  // at a time
  std::thread thread_;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  Progress progress_;
  bool all_here_ = false, started_ = false;  // started: the program has its watch
  bool leaving_ = false, all_left_ = false, ends_ = false;
  uint64_t asked_ = 0, asked_number_ = 0, answered_ = 0;
  std::string answer_, failure_;
  // Of the thread alone.
  bool said_goodbye_ = false;
  uint64_t passed_on_ = 0;  // the last question
};

Watch::Impl::Impl(Store& store, const WatchOptions& options,
                  std::function<void(const std::string&)> failed)
    : options_(options), failed_(std::move(failed)) {
  HALFTAPE_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
                 "Watch: rank ", options.rank, " of ", options.size);
  HALFTAPE_CHECK(options.period.count() >= 1 && options.timeout >= 2 * options.period,
                 "Watch: a timeout of ", seconds_text(options.timeout), " with a period of ",
                 seconds_text(options.period), ": the timeout must be two periods or more");
  const std::string name = os::host_name();
  HALFTAPE_CHECK(name.size() <= watch::kLongestHost, "Watch: the host's name has ", name.size(),
                 " bytes: ", name);
  try {
    if (options.rank == 0)
      side_ = std::make_unique<watch::Server>(options, name, os::process_id());
    else
      side_ = std::make_unique<watch::Client>(options, name, os::process_id(), store);
  } catch (const os::SocketFailure& failure) {
    detail::fail("Watch: ", failure.what());
  }
}

Watch::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  side_->wake();
  if (thread_.joinable())
    thread_.join();
  else
    run();  // the system had no thread: here it says only that this process goes
}

void Watch::Impl::meet(Store& store, const std::string& host) {
  thread_ = detail::start_thread("Watch: its thread", [this] { run(); });
  if (const auto* const server = dynamic_cast<watch::Server*>(side_.get())) {
    watch::Address address = server->address();
    address.host = host.empty() ? os::host_name() : host;
    HALFTAPE_CHECK(address.host.size() <= watch::kLongestHost, "Watch: the host's address has ",
                   address.host.size(), " bytes: ", address.host);
    address.maybe_here = host.empty();
    store.set(watch::kAddressKey, address.bytes());
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return all_here_ || !failure_.empty(); });
  HALFTAPE_CHECK(failure_.empty(), "Watch: ", failure_);
  started_ = true;
}

void Watch::Impl::run() {
  auto next_beat = watch::Clock::now();
  try {
    while (step(next_beat)) {
    }
    bool dropped = false;
    Progress mine;
    {
      const std::lock_guard lock(mutex_);
      dropped = !leaving_ && failure_.empty();
      mine = progress_;
    }
    side_->finish(dropped, mine);
  } catch (const std::exception& error) {  // no memory, say
    deliver("rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.size) +
            " cannot watch the others any longer: " + error.what());
  }
}

/// What happens until the next message, request or beat. False at the end.
bool Watch::Impl::step(watch::Clock::time_point& next_beat) {
  side_->listen(next_beat);
  Progress mine;
  bool goodbye = false, judges = false;
  uint64_t question = 0, number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (ends_ && (said_goodbye_ || !leaving_)) return false;
    mine = progress_;
    goodbye = leaving_ && !std::exchange(said_goodbye_, leaving_);
    judges = failure_.empty();
    if (asked_ != std::exchange(passed_on_, asked_)) question = asked_, number = asked_number_;
  }
  const auto now = watch::Clock::now();
  if (now >= next_beat) {
    side_->beat(mine);
    next_beat = now + options_.period;
  }
  if (goodbye) side_->say_goodbye(mine);
  if (question != 0) side_->ask(question, number);
  const std::string failure = judges ? side_->judge() : std::string();
  publish();
  if (!failure.empty()) {
    side_->tell(failure);
    deliver(failure);
  }
  return true;
}

void Watch::Impl::publish() {
  const std::lock_guard lock(mutex_);
  if (all_here_ == side_->all_here && all_left_ == side_->all_left && answered_ == side_->answered)
    return;
  all_here_ = side_->all_here, all_left_ = side_->all_left;
  answered_ = side_->answered, answer_ = side_->answer;
  changed_.notify_all();
}

void Watch::Impl::deliver(const std::string& failure) {
  bool calls = false;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = failure;
    calls = started_ && !leaving_ && !ends_;
    changed_.notify_all();
  }
  if (!calls || !failed_) return;
  try {
    failed_(failure);
  } catch (const std::exception& error) {
    warn(std::string("Watch: the function that is told of failures has failed itself: ") +
         error.what());
  }
}

void Watch::Impl::set_progress(Progress progress) {
  const std::lock_guard lock(mutex_);
  progress_ = std::move(progress);
}

std::string Watch::Impl::diagnosis(uint64_t number) {
  const std::lock_guard one(one_question_);
  std::unique_lock lock(mutex_);
  if (failure_.empty()) {
    const uint64_t question = ++asked_;
    asked_number_ = number;
    side_->wake();
    const bool done = changed_.wait_for(lock, 2 * options_.period, [this, question] {
      return answered_ == question || !failure_.empty();
    });
    if (!done)
      return "rank 0 of " + std::to_string(options_.size) + " has not said within " +
             seconds_text(2 * options_.period) + " who is missing";
  }
  return failure_.empty() ? answer_ : failure_;
}

void Watch::Impl::leave(milliseconds at_most) {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  side_->wake();
  changed_.wait_for(lock, at_most, [this] { return all_left_ || !failure_.empty(); });
}

Watch::Watch(Store& store, const WatchOptions& options,
             std::function<void(const std::string&)> failed, const std::string& host)
    : impl_(std::make_unique<Impl>(store, options, std::move(failed))) {
  impl_->meet(store, host);
}

Watch::~Watch() = default;
uint64_t Watch::session() const { return impl_->session(); }
void Watch::set_progress(Progress progress) { impl_->set_progress(std::move(progress)); }
std::string Watch::diagnosis(uint64_t number) { return impl_->diagnosis(number); }
void Watch::leave(milliseconds at_most) { impl_->leave(at_most); }

}  // namespace halftape::distributed
