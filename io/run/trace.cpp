// The format: "Trace Event Format", complete events ("ph": "X") in microseconds.
#include "halftape/io/run/trace.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <locale>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/op_timer.h"
#include "halftape/autograd/tape/value_watcher.h"
#include "halftape/core/array.h"
#include "halftape/core/machine/warn.h"
#include "halftape/core/memory_stats.h"
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

constexpr const char* kOp = "op";  // the category of a forward op

struct Event {
  std::string name;
  const char* category;
  int64_t began, took;
  int thread;
  int64_t memory;  // that arrays held on the CPU when it ended
  bool has_value;  // of an op that recorded itself: its output
  Shape shape;     // of that
  Dtype dtype;     // of that
};

/// The last value that this thread recorded, and when.
struct LastValue {
  int64_t at = -1;
  Shape shape;
  Dtype dtype = kFloat32;
};
thread_local LastValue last_value;

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
    ++detail::tape_watchers;
  }
  std::vector<Event> stop() {
    const std::lock_guard lock(mutex_);
    if (recording_) --detail::tape_watchers;
    set_current(nullptr);
    recording_ = false;
    return std::exchange(events_, {});
  }
  int64_t began() noexcept override { return nanoseconds(); }
  void ended(const char* name, Phase phase, int64_t began) noexcept override {
    add(name, phase == Phase::Op ? kOp : phase == Phase::Backward ? "backward" : "step", began);
  }
  void made(const Array& value) noexcept override {
    last_value = {nanoseconds(), value.shape(), value.dtype()};
  }
  void add(std::string name, const char* category, int64_t began) noexcept {
    const int64_t now = nanoseconds(), memory = cpu::memory_allocated();
    const LastValue& last = last_value;
    const bool made = std::string_view(category) == kOp && last.at >= began;
    const std::lock_guard lock(mutex_);
    if (!recording_ || began < start_) return;
    try {
      events_.push_back({std::move(name), category, began - start_, now - began, this_thread(),
                         memory, made, last.shape, last.dtype});
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

/// What the viewer shows of an event that was chosen.
std::string arguments(const Event& e) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // a global one may group digits
  text << '{';
  if (e.has_value)
    text << "\"output\":\"" << e.dtype << ' ' << e.shape
         << "\",\"bytes\":" << byte_count(e.shape, e.dtype) << ',';
  text << "\"CPU memory\":" << e.memory << '}';
  return text.str();
}

/// A point of the track of the memory.
std::string counter(const Event& e) {
  return "{\"ph\":\"C\",\"name\":\"CPU memory\",\"pid\":1,\"ts\":" +
         microseconds(e.began + e.took) + ",\"args\":{\"bytes\":" + std::to_string(e.memory) + "}}";
}

}  // namespace

Trace::Trace(const std::filesystem::path& path) : path_(absolute_path("trace", path)) {
  Recorder::the().start();
}

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
            ",\"args\":" + arguments(e) + "},\n" + counter(e);
  text += "\n]}\n";
  write_file("trace", path_, text);
}

Trace::Span::Span(std::string name)
    : name_(std::move(name)), began_(OpWatcher::current() ? nanoseconds() : -1) {}

Trace::Span::~Span() {
  if (began_ >= 0) Recorder::the().add(std::move(name_), "user", began_);
}

}  // namespace halftape
