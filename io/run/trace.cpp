// The format: "Trace Event Format", complete events ("ph": "X") in microseconds.
#include "halftape/io/run/trace.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/op_timer.h"
#include "halftape/core/machine/warn.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/json.h"

namespace halftape {
namespace {

int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int this_thread() {
  static std::atomic<int> count{0};
  thread_local const int number = count++;
  return number;
}

struct Event {
  std::string name;
  const char* category;
  int64_t began, took;
  int thread;
};

class Recorder final : public OpWatcher {
 public:
  static Recorder& the() {
    static auto* const recorder = new Recorder;  // NOLINT: ops may end while the process does
    return *recorder;
  }
  void start() {
    const std::lock_guard lock(mutex_);
    HALFTAPE_CHECK(!recording_, "Trace: another trace is recording; stop() it first");
    recording_ = true;
    events_.clear();
    start_ = nanoseconds();
    set_current(this);
  }
  std::vector<Event> stop() {
    const std::lock_guard lock(mutex_);
    set_current(nullptr);
    recording_ = false;
    return std::exchange(events_, {});
  }
  int64_t began() noexcept override { return nanoseconds(); }
  void ended(const char* name, Phase phase, int64_t began) noexcept override {
    add(name, phase == Phase::Op ? "op" : phase == Phase::Backward ? "backward" : "step", began);
  }
  void add(std::string name, const char* category, int64_t began) noexcept {
    const int64_t now = nanoseconds();
    const std::lock_guard lock(mutex_);
    if (!recording_ || began < start_) return;
    try {
      events_.push_back({std::move(name), category, began - start_, now - began, this_thread()});
    } catch (const std::bad_alloc&) {  // NOLINT: drop the event, not the run
    }
  }

 private:
  std::mutex mutex_;
  bool recording_ = false;
  int64_t start_ = 0;
  std::vector<Event> events_;
};

std::string microseconds(int64_t ns) {
  char text[40];
  std::snprintf(text, sizeof(text), "%lld.%03d", static_cast<long long>(ns / 1000),
                static_cast<int>(ns % 1000));
  return text;
}

}  // namespace

Trace::Trace(std::filesystem::path path) : path_(std::move(path)) { Recorder::the().start(); }

Trace::~Trace() {
  try {
    stop();
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

void Trace::stop() {
  if (!std::exchange(recording_, false)) return;
  const std::vector<Event> events = Recorder::the().stop();
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  for (const Event& e : events)
    text += (&e == events.data() ? "\n" : ",\n") + ("{\"name\":" + json_quoted(e.name)) +
            ",\"cat\":\"" + e.category + "\",\"ph\":\"X\",\"ts\":" + microseconds(e.began) +
            ",\"dur\":" + microseconds(e.took) + ",\"pid\":1,\"tid\":" + std::to_string(e.thread) +
            "}";
  text += "\n]}\n";
  write_file("trace", path_, text);
}

Trace::Span::Span(std::string name)
    : name_(std::move(name)), began_(OpWatcher::current() ? nanoseconds() : -1) {}

Trace::Span::~Span() {
  if (began_ >= 0) Recorder::the().add(std::move(name_), "user", began_);
}

}  // namespace halftape
