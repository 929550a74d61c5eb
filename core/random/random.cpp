#include "halftape/core/random/random.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "halftape/core/capture/capture.h"

namespace halftape {
namespace {
struct Streams {
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
};
Streams& streams() {
  static auto* all = new Streams;  // NOLINT: statics may draw in their destructors
  return *all;
}
}  // namespace

void set_cpu_random_engine(RandomEngine engine) {
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
  if (Capture::active())
    detail::fail("the state of random numbers is set inside a captured step, whose replays each ",
                 "draw the next ones; checkpoint() there needs preserve_rng_state=false");
  Streams next;  // whole before the first number changes
  next.seed = state.seed;
  next.cpu_engine = state.cpu_engine;
  for (const auto& [device, generator] : state.generators) next.set(device, generator);
  const std::lock_guard lock(streams().mutex);
  streams().seed = next.seed;
  streams().cpu_engine = next.cpu_engine.load();
  streams().of.swap(next.of);
}

void manual_seed(uint64_t seed) {
  const std::lock_guard lock(streams().mutex);
  streams().seed = seed;
  streams().of.clear();
}

RandomKey random_reserve(Device device, int64_t count) {
  if (Capture* c = Capture::on(device)) return c->reserve_random(count);
  const std::lock_guard lock(streams().mutex);
  Generator& g = streams().at(device);
  if (g.mt19937) return {g.mt19937->random64(), 0};
  const RandomKey key{g.seed, g.offset};
  g.offset += (static_cast<uint64_t>(count) + 3) / 4;
  return key;
}

LockedMt19937::LockedMt19937(Device device) {
  if (device.type() != kCPU || cpu_random_engine() == RandomEngine::Philox) return;
  streams().mutex.lock();
  if (auto& engine = streams().at(device).mt19937)
    engine_ = &*engine;
  else
    streams().mutex.unlock();  // another thread has changed the engine
}

LockedMt19937::~LockedMt19937() {
  if (engine_) streams().mutex.unlock();
}

}  // namespace halftape
