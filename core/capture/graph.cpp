#include "halftape/core/capture/graph.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <utility>
#include <vector>

#include "halftape/core/capture/capture.h"
#include "halftape/core/capture/peephole.h"
#include "halftape/core/capture/trial.h"
#include "halftape/core/capture/watch.h"

namespace halftape {

LastingState::LastingState() {
  if (detail::Stage* s = detail::Stage::current()) s->begin_lasting();
}
LastingState::~LastingState() {
  if (detail::Stage* s = detail::Stage::current()) s->end_lasting();
}
void lent_to_step(BufferSlot& slot) {
  if (detail::Stage* s = detail::Stage::current()) s->lent(slot);
}
void touched_in_step(const Array& array, bool written) {
  if (detail::Stage* s = detail::Stage::current()) s->touched(array, written);
}

namespace {
thread_local constinit Capture* capturing = nullptr;
thread_local constinit Device capturing_on = kCPU;

struct Capturing {
  Capturing(Capture& capture, Device device) {
    capturing = &capture;
    capturing_on = device;
  }
  ~Capturing() { capturing = nullptr; }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;
};
}  // namespace

Capture* Capture::on(Device device) {
  return capturing && capturing_on == device ? capturing : nullptr;
}

Array Capture::random_start_on(Device device) {
  const Capture* const capture = on(device);
  return capture ? capture->random_start() : Array();
}
bool Capture::active() { return capturing != nullptr; }
bool Capture::active_or_tried() { return detail::Stage::current() != nullptr; }

/// The recording, and the bytes that are refreshed before each replay.
class Graph::Captured final : public Capture {
 public:
  Captured(Device device, Backend& backend, std::unique_ptr<Recording> recording)
      : device_(device),
        backend_(backend),
        live_({kLiveBytes}, kUInt8, device),
        host_({kLiveBytes}, kUInt8, kCPU),
        sent_(kLiveBytes),
        recording_(std::move(recording)) {}
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  void make(const std::function<void()>& step) {
    const Generator random = get_generator(device_);
    detail::Buffers left;
    std::exception_ptr failed;
    {
      detail::Trial trial(device_, backend_);
      try {
        recording_->rehearse([&] {
          const BackendGuard guard(device_, trial);
          step();
        });
        backend_.synchronize();
      } catch (...) {
        failed = std::current_exception();
        // What a kernel has found since, as a second bad index, would be thrown by the next call.
        try {
          backend_.synchronize();
        } catch (...) {  // NOLINT: the first failure is told
        }
      }
      try {
        trial.put_back();
      } catch (...) {
        if (!failed) failed = std::current_exception();
      }
      left = trial.made();
    }
    set_generator(random, device_);
    if (failed) std::rethrow_exception(failed);
    // The first value is the start of the random numbers.
    value(sizeof(RandomKey), [this](std::byte* bytes) {
      const Generator now = get_generator(device_);
      const RandomKey start{now.seed, now.offset};
      std::memcpy(bytes, &start, sizeof start);
    });
    FusedCalls fused(backend_);
    detail::Watch watch(device_, fused, held_, std::move(left));
    watch_ = &watch;
    fused_ = &fused;
    recording_->record([&] {
      const BackendGuard guard(device_, watch);
      const Capturing on(*this, device_);
      step();
      fused.settle();
    });
    watch_ = nullptr;
    fused_ = nullptr;
    for (const Ref<BufferSlot>& slot : watch.lent()) held_.add(slot->buffer(), false);
    for (detail::KeptCopy& c : copies_) c.captured();
    held_.raise_versions();  // as if the step were done
  }

  void replay() {
    HALFTAPE_CHECK(!detail::Stage::current(), "Graph: replayed inside the step of another graph");
    recording_->check_queue();  // before anything is written
    for (const detail::KeptCopy& c : copies_) c.refresh();
    auto* const bytes = host_.data<uint8_t>();
    for (const Value& v : values_) v.refresh(reinterpret_cast<std::byte*>(bytes) + v.at);
    if (!current_ || std::memcmp(bytes, sent_.data(), used_) != 0) {
      const auto n = static_cast<int64_t>(used_);
      // From memory that the device may read later: no replay waits for the one before it.
      const Array now(backend_.allocate(used_, true), Shape{n}, Strides{1}, 0, kUInt8);
      std::memcpy(now.raw(), bytes, used_);
      backend_.copy_across(live_.slice(0, 0, n), now, true);
      std::memcpy(sent_.data(), bytes, used_);
      current_ = true;
    }
    recording_->replay();
    if (drawn_ > 0) random_reserve(device_, drawn_);
    held_.raise_versions();
    for (detail::KeptCopy& c : copies_) c.replayed();
  }
  int64_t size() const { return recording_->size(); }

  Array value(size_t size, Refresh refresh) override {
    HALFTAPE_CHECK(used_ + size <= kLiveBytes, "Graph: more than ", kLiveBytes,
                   " bytes of numbers that the host may change, as learning rates are");
    const size_t at = used_;
    values_.push_back({at, std::move(refresh)});
    used_ += (size + 15) / 16 * 16;
    return live_.slice(0, static_cast<int64_t>(at), static_cast<int64_t>(at + size));
  }
  bool made_here(const Array& a) const override { return watch_ && watch_->made(a.buffer().get()); }
  RandomKey reserve_random(int64_t count) override {
    const RandomKey key{0, static_cast<uint64_t>(drawn_) / 4,
                        static_cast<const RandomKey*>(live_.raw())};
    drawn_ += (count + 3) / 4 * 4;
    return key;
  }
  Array random_start() const override { return live_.slice(0, 0, sizeof(RandomKey)); }
  bool writes(const Array& a) const override { return held_.written(a.buffer().get()); }
  void keep(const Array& source, const Array& copy, Renew renew) override {
    copies_.emplace_back(source, copy, std::move(renew));
  }
  bool keeps(const Array& copy) const override {
    return std::any_of(copies_.begin(), copies_.end(),
                       [&](const detail::KeptCopy& c) { return c.is(copy); });
  }
  void wrote_alike(const Array& copy) override {
    for (detail::KeptCopy& c : copies_)
      if (c.is(copy)) c.agree();
  }
  void settle() override {
    if (fused_) fused_->settle();
  }

 private:
  static constexpr int64_t kLiveBytes = 1 << 14;
  struct Value {
    size_t at;
    Refresh refresh;
  };
  Device device_;
  Backend& backend_;
  Array live_, host_;  // the refreshed bytes on the device, and those for the next replay
  std::vector<uint8_t> sent_;
  bool current_ = false;
  std::vector<Value> values_;
  size_t used_ = 0;
  int64_t drawn_ = 0;  // words of the device's random stream in a replay
  detail::Held held_;
  std::deque<detail::KeptCopy> copies_;
  const detail::Watch* watch_ = nullptr;  // while the step is captured
  FusedCalls* fused_ = nullptr;           // likewise
  std::unique_ptr<Recording> recording_;  // destroyed first: it waits for the last replay
};

Graph::Graph(Device device, std::function<void()> step) : step_(std::move(step)) {
  HALFTAPE_CHECK(step_, "Graph: the step is empty");
  Backend& of_device = backend(device);
  Queues* const queues = of_device.queues();
  if (!queues) return;
  captured_ = std::make_unique<Captured>(device, of_device, queues->new_recording());
  captured_->make(step_);
}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

void Graph::replay() {
  if (captured_)
    captured_->replay();
  else
    step_();
}

int64_t Graph::size() const { return captured_ ? captured_->size() : 0; }

}  // namespace halftape
