#include "halftape/core/capture/graph.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "halftape/core/capture/buffer_slot.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/capture/peephole.h"
#include "halftape/core/contract/forwarding_backend.h"

namespace halftape {
namespace {

using Buffers = std::unordered_set<const Buffer*>;

/// A trial or a capture that goes on in this thread.
class Stage {
 public:
  static Stage*& current() {
    thread_local constinit Stage* stage = nullptr;
    return stage;
  }
  virtual void begin_lasting() = 0;
  virtual void end_lasting() = 0;
  virtual void lent(BufferSlot& slot) = 0;

 protected:
  Stage() {
    HALFTAPE_CHECK(!current(), "Graph: made inside the step of another graph");
    current() = this;
  }
  ~Stage() { current() = nullptr; }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
};

Array all_bytes(const BufferPtr& buffer) {
  const auto size = static_cast<int64_t>(buffer->size());
  return Array(buffer, Shape{size}, Strides{1}, 0, kUInt8);
}

/// An array that a graph, or its trial, holds for what it does.
struct Hold {
  explicit Hold(Array held) : array(std::move(held)) { array.buffer()->hold_for_graph(); }
  ~Hold() { array.buffer()->release_from_graph(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  const Array array;
};

/// Carries the step out, and can put back what it wrote: bytes that were there before, or were made
/// as lasting state, are copied before they are written first.
class Trial final : public ForwardingBackend, public Stage {
 public:
  Trial(Device device, Backend& to) : ForwardingBackend(to), device_(device) {}

  BufferPtr allocate(size_t bytes) override {
    BufferPtr made = to().allocate(bytes);
    made_.insert(made.get());
    if (lasting_) fresh_.push_back(made);
    return made;
  }
  void begin_lasting() override { ++lasting_; }
  void end_lasting() override {
    if (--lasting_) return;
    for (const BufferPtr& b : fresh_) made_.erase(b.get());
    fresh_.clear();
  }
  void lent(BufferSlot& slot) override {
    if (slot.buffer()->device() != device_) return;
    made_.insert(slot.buffer().get());
    if (lasting_) fresh_.push_back(slot.buffer());
  }
  void put_back() {
    // In the other order: a buffer and a part of it may both be there.
    for (; !saved_.empty(); saved_.pop_back()) {
      const Saved& saved = saved_.back();
      to().copy(saved.now.array, saved.before);
      saved.now.array.bump_version();  // what was made of the trial's bytes does not count
    }
    to().synchronize();
    known_.clear();
  }
  /// What the step made for itself, some of which may still be there.
  const Buffers& made() const { return made_; }

 private:
  void before(const std::string&, const Touched& touched) override {
    for (const Array* a : touched.writes) {
      if (!a->defined() || a->device() != device_) continue;
      const BufferPtr& buffer = a->buffer();
      if (made(buffer.get()) || !known_.insert(buffer.get()).second) continue;
      const Array now = all_bytes(buffer);
      const Array before(to().allocate(buffer->size()), now.shape(), now.strides(), 0, kUInt8);
      to().copy(before, now);
      saved_.emplace_back(now, before);
    }
  }

  bool made(const Buffer* buffer) const {
    return made_.contains(buffer) || (buffer->whole() && made_.contains(buffer->whole()));
  }

  Device device_;
  int lasting_ = 0;
  Buffers made_;  // by the step, for itself
  std::vector<BufferPtr> fresh_;
  struct Saved {
    Saved(const Array& array, Array copy) : now(array), before(std::move(copy)) {}
    Hold now;
    Array before;
  };
  std::deque<Saved> saved_;
  Buffers known_;  // what is saved
};

/// Buffers that were there before a step was captured, and must be as long as it is replayed.
class Held {
 public:
  void add(const BufferPtr& buffer, bool written) {
    entries_.try_emplace(buffer.get(), all_bytes(buffer)).first->second.written |= written;
  }
  /// By itself, or as a part of what is written.
  bool written(const Buffer* buffer) const {
    const auto found = entries_.find(buffer);
    if (found != entries_.end() && found->second.written) return true;
    return buffer->whole() && written(buffer->whole());
  }
  /// What a replay writes is not what it was.
  void raise_versions() const {
    for (const auto& [buffer, entry] : entries_)
      if (entry.written) entry.hold.array.bump_version();
  }

 private:
  struct Entry {
    explicit Entry(Array all) : hold(std::move(all)) {}
    Hold hold;
    bool written = false;
  };
  std::unordered_map<const Buffer*, Entry> entries_;
};

/// A copy in another dtype that is brought up to date before a replay, if need be.
class KeptCast {
 public:
  KeptCast(const Array& source, const Array& copy) : source_(source), copy_(copy) { agree(); }
  bool is(const Array& copy) const { return copy_.array.buffer() == copy.buffer(); }
  /// As of now they do.
  void agree() { agreed_ = versions(); }
  /// The step is captured. If it leaves them alike, so does every replay.
  void captured() {
    stays_ = agreed_ == versions();
    agreed_ = {};
  }
  void refresh(Backend& on) const {
    if (agreed_ != versions() || source_.array.buffer()->exposed())
      on.copy(copy_.array, source_.array);
  }
  void replayed() { agreed_ = stays_ ? versions() : std::nullopt; }

 private:
  using Versions = std::optional<std::pair<uint64_t, uint64_t>>;
  Versions versions() const { return std::pair(source_.array.version(), copy_.array.version()); }
  Hold source_, copy_;
  Versions agreed_;
  bool stays_ = false;
};

/// Passes on what a replay can repeat, and refuses the rest; notes what the replays will touch.
class Watch final : public ForwardingBackend, public Stage {
 public:
  /// `left`: what the trial made.
  Watch(Device device, Backend& to, Held& held, Buffers left)
      : ForwardingBackend(to), device_(device), held_(held), left_(std::move(left)) {}

  BufferPtr allocate(size_t bytes) override {
    check_no_state();
    BufferPtr made = to().allocate(bytes);
    made_.insert(made.get());  // it stays with the recording
    return made;
  }
  void begin_lasting() override { ++lasting_; }
  void end_lasting() override { --lasting_; }
  void lent(BufferSlot& slot) override {
    if (slot.buffer()->device() != device_) return;
    check_no_state();
    made_.insert(slot.buffer().get());
    lent_.emplace_back(&slot);
  }
  bool made(const Buffer* buffer) const { return made_.contains(buffer); }
  /// The slots that the step used: replays write there.
  const std::vector<Ref<BufferSlot>>& lent() const { return lent_; }

 private:
  void before(const std::string& call, const Touched& touched) override {
    HALFTAPE_CHECK(call != "read", "item(), or another read of a value by the host, inside a ",
                   "captured step: log after replay(), or every n steps outside it");
    HALFTAPE_CHECK(call != "synchronize", "synchronize() inside a captured step; wait outside it");
    for (const Array* a : touched.writes) note(*a, true);
    for (const Array* a : touched.reads) note(*a, false);
  }
  void check_no_state() const {
    HALFTAPE_CHECK(!lasting_,
                   "Graph: state is made for the first time while the step is captured, ",
                   "though the step was tried before: does it do something else each time?");
  }
  void note(const Array& a, bool written) {
    if (!a.defined()) return;
    HALFTAPE_CHECK(a.device() == device_ || a.buffer()->pinned(), "a copy between ", device_,
                   " and ", a.device(), " inside a captured step: make the tensor on the device ",
                   "outside it, and copy new values into it between replays");
    if (made(a.buffer().get())) return;
    HALFTAPE_CHECK(!left_.contains(a.buffer().get()),
                   "Graph: the captured step goes on with what its trial has left, gradients that ",
                   "are accumulated perhaps; begin the step with zero_grad(), or call it once ",
                   "before the graph is made");
    held_.add(a.buffer(), written);
  }

  Device device_;
  Held& held_;
  int lasting_ = 0;
  const Buffers left_;
  Buffers made_;
  std::vector<Ref<BufferSlot>> lent_;
};

}  // namespace

LastingState::LastingState() {
  if (Stage* s = Stage::current()) s->begin_lasting();
}
LastingState::~LastingState() {
  if (Stage* s = Stage::current()) s->end_lasting();
}
void lent_to_step(BufferSlot& slot) {
  if (Stage* s = Stage::current()) s->lent(slot);
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

bool Capture::active() { return capturing != nullptr; }
bool Capture::active_or_tried() { return Stage::current() != nullptr; }

/// The recording, and what goes with it: the bytes that are brought up to date before each replay.
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
    Buffers left;
    {
      Trial trial(device_, backend_);
      try {
        recording_->rehearse([&] {
          const BackendGuard guard(device_, trial);
          step();
        });
      } catch (...) {
        trial.put_back();
        set_generator(random, device_);
        throw;
      }
      trial.put_back();
      left = trial.made();
    }
    set_generator(random, device_);
    // The first value is the start of the random numbers.
    value(sizeof(RandomKey), [this](std::byte* bytes) {
      const Generator now = get_generator(device_);
      const RandomKey start{now.seed, now.offset};
      std::memcpy(bytes, &start, sizeof start);
    });
    FusedCalls fused(backend_);
    Watch watch(device_, fused, held_, std::move(left));
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
    for (KeptCast& c : casts_) c.captured();
    held_.raise_versions();  // as the step has said, though nothing is done yet
  }

  void replay() {
    HALFTAPE_CHECK(!Stage::current(), "Graph: replayed inside the step of another graph");
    for (const KeptCast& c : casts_) c.refresh(backend_);
    auto* const bytes = host_.data<uint8_t>();
    for (const Value& v : values_) v.refresh(reinterpret_cast<std::byte*>(bytes) + v.at);
    if (!current_ || std::memcmp(bytes, sent_.data(), used_) != 0) {
      const auto n = static_cast<int64_t>(used_);
      backend_.copy_across(live_.slice(0, 0, n), host_.slice(0, 0, n), false);
      std::memcpy(sent_.data(), bytes, used_);
      current_ = true;
    }
    recording_->replay();
    if (drawn_ > 0) random_reserve(device_, drawn_);
    held_.raise_versions();
    for (KeptCast& c : casts_) c.replayed();
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
  bool keep_cast(const Array& source, const Array& copy) override {
    if (keeps(copy) || held_.written(source.buffer().get()) || held_.written(copy.buffer().get()))
      return false;
    casts_.emplace_back(source, copy);
    return true;
  }
  bool keeps(const Array& copy) const override {
    return std::any_of(casts_.begin(), casts_.end(), [&](const KeptCast& c) { return c.is(copy); });
  }
  void wrote_alike(const Array& copy) override {
    for (KeptCast& c : casts_)
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
  Array live_, host_;  // on the device, and as the next replay shall see them
  std::vector<uint8_t> sent_;
  bool current_ = false;
  std::vector<Value> values_;
  size_t used_ = 0;
  int64_t drawn_ = 0;  // words of the device's random stream in a replay
  Held held_;
  std::deque<KeptCast> casts_;
  const Watch* watch_ = nullptr;          // while the step is captured
  FusedCalls* fused_ = nullptr;           // likewise
  std::unique_ptr<Recording> recording_;  // goes first: it waits for the last replay
};

Graph::Graph(Device device, std::function<void()> step) : step_(std::move(step)) {
  HALFTAPE_CHECK(step_, "Graph: the step is empty");
  Backend& of_device = backend(device);
  std::unique_ptr<Recording> recording = of_device.new_recording();
  if (!recording) return;
  captured_ = std::make_unique<Captured>(device, of_device, std::move(recording));
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
