#include "halftape/core/random/random.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "halftape/core/capture/capture.h"

namespace halftape {

struct detail::RandomStreams {
  std::mutex mutex;
  uint64_t seed = Generator{}.seed;
  std::map<std::pair<int, int>, Generator> of;
  std::atomic<RandomEngine> cpu_engine{RandomEngine::Philox};  // read without the lock
  Generator& at(Device d) {
    const auto [found, made] =
        of.try_emplace({static_cast<int>(d.type()), d.index()}, Generator{.seed = seed});
    Generator& g = found->second;
    if (made && d.type() == kCPU && cpu_engine == RandomEngine::Mt19937) g.mt19937.emplace(seed);
    return g;
  }
  void set(Device d, const Generator& g) {
    if (d.type() == kCPU)
      cpu_engine = g.mt19937 ? RandomEngine::Mt19937 : RandomEngine::Philox;
    else
      HALFTAPE_CHECK(!g.mt19937, "set_generator: an Mt19937 draws on the CPU alone, not on ", d);
    at(d) = g;
  }
  void set(const RandomState& state) {
    RandomStreams next;  // whole before the first number changes
    next.seed = state.seed;
    next.cpu_engine = state.cpu_engine;
    for (const auto& [device, generator] : state.generators) next.set(device, generator);
    const std::lock_guard lock(mutex);
    seed = next.seed;
    cpu_engine = next.cpu_engine.load();
    of.swap(next.of);
  }
};

namespace {

constinit thread_local detail::RandomStreams* own_streams = nullptr;

/// This thread's own streams, or those of all threads.
detail::RandomStreams& streams() {
  static auto* all = new detail::RandomStreams;  // NOLINT: statics may draw in their destructors
  return own_streams ? *own_streams : *all;
}

/// Also in its trial, which puts back the random numbers of one device alone.
void refuse_in_captured_step() {
  if (Capture::active_or_tried())
    detail::fail("the state of random numbers is set inside a captured step, whose replays each ",
                 "draw the next ones");
}

}  // namespace

void set_cpu_random_engine(RandomEngine engine) {
  refuse_in_captured_step();
  const std::lock_guard lock(streams().mutex);
  streams().cpu_engine = engine;
  const auto of_cpu = [](const auto& one) { return one.first.first == static_cast<int>(kCPU); };
  std::erase_if(streams().of, of_cpu);
}

RandomEngine cpu_random_engine() { return streams().cpu_engine; }

Generator get_generator(Device device) {
  const std::lock_guard lock(streams().mutex);
  return streams().at(device);
}

void set_generator(const Generator& generator, Device device) {
  refuse_in_captured_step();
  const std::lock_guard lock(streams().mutex);
  streams().set(device, generator);
}

RandomState get_random_state() {
  const std::lock_guard lock(streams().mutex);
  RandomState state{streams().seed, streams().cpu_engine, {}};
  for (const auto& [device, generator] : streams().of)
    state.generators.emplace_back(
        Device(static_cast<DeviceType>(device.first), static_cast<DeviceIndex>(device.second)),
        generator);
  return state;
}

void set_random_state(const RandomState& state) {
  refuse_in_captured_step();
  streams().set(state);
}

void manual_seed(uint64_t seed) {
  refuse_in_captured_step();
  const std::lock_guard lock(streams().mutex);
  streams().seed = seed;
  streams().of.clear();
}

namespace {
RandomKey reserve(Device device, int64_t count) {
  if (Capture* c = Capture::on(device)) return c->reserve_random(count);
  const std::lock_guard lock(streams().mutex);
  Generator& g = streams().at(device);
  if (g.mt19937) return {g.mt19937->random64(), 0};
  const RandomKey key{g.seed, g.offset};
  g.offset += (static_cast<uint64_t>(count) + 3) / 4;
  return key;
}
}  // namespace

RandomKey random_reserve(Device device, int64_t count) {
  const DrawLog::Draw* const logged = DrawScope::logged();
  const DrawLog::Draw draw = logged ? *logged : DrawLog::Draw{reserve(device, count), nullptr};
  if (draw.engine)
    detail::fail("work that is done again draws other random numbers than the first time, by ",
                 "another generator; it must do the same work");
  DrawScope::note(draw);
  return draw.key;
}

RandomScope::RandomScope(const RandomState& begin)
    : own_(std::make_unique<detail::RandomStreams>()), region_([&] {
        HALFTAPE_CHECK(!Capture::active(),
                       "RandomScope: inside a captured step, whose replays each "
                       "draw the next random numbers");
        own_->set(begin);
        return std::exchange(own_streams, own_.get());
      }) {}

RandomScope::~RandomScope() {
  // Streams that another thread goes on using stay.
  if (!region_.end("RandomScope", [](detail::RandomStreams* before) { own_streams = before; }))
    static_cast<void>(own_.release());
}

constinit thread_local DrawScope* DrawScope::innermost = nullptr;

DrawScope::DrawScope(DrawLog& log, bool again) : log_(log), again_(again), outer_(innermost) {
  innermost = this;
}
DrawScope::~DrawScope() { innermost = outer_; }

const DrawLog::Draw* DrawScope::logged() {
  const DrawScope* scope = innermost;
  while (scope && !scope->again_) scope = scope->outer_;
  return scope && scope->next_ < scope->log_.draws.size() ? &scope->log_.draws[scope->next_]
                                                          : nullptr;
}

void DrawScope::note(const DrawLog::Draw& draw) {
  DrawScope* scope = innermost;
  for (; scope && !scope->again_; scope = scope->outer_) scope->log_.draws.push_back(draw);
  if (scope) ++scope->next_;
}

LockedMt19937::LockedMt19937(Device device) {
  if (device.type() != kCPU) return;
  if (const DrawLog::Draw* draw = DrawScope::logged()) {
    if (!draw->engine) return;
    engine_ = &logged_.emplace(*draw->engine);
    DrawScope::note({{}, draw->engine});
    return;
  }
  if (cpu_random_engine() == RandomEngine::Philox) return;
  std::unique_lock lock(streams().mutex);
  auto& engine = streams().at(device).mt19937;
  if (!engine) return;  // another thread has changed the engine
  if (DrawScope::any()) DrawScope::note({{}, std::make_shared<const Mt19937>(*engine)});
  engine_ = &*engine;
  locked_ = &streams();
  lock.release();
}

LockedMt19937::~LockedMt19937() {
  if (locked_) locked_->mutex.unlock();
}

}  // namespace halftape
