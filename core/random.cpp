#include "halftape/core/random.h"

#include <map>
#include <mutex>
#include <utility>

#include "halftape/core/capture.h"

namespace halftape {
namespace {
struct Streams {
  std::mutex mutex;
  uint64_t seed = Generator{}.seed;
  std::map<std::pair<int, int>, Generator> of;
  Generator& at(Device d) {
    return of.try_emplace({static_cast<int>(d.type()), d.index()}, Generator{.seed = seed})
        .first->second;
  }
};
Streams& streams() {
  static Streams all;
  return all;
}
}  // namespace

Generator get_generator(Device device) {
  const std::lock_guard lock(streams().mutex);
  return streams().at(device);
}

void set_generator(const Generator& generator, Device device) {
  const std::lock_guard lock(streams().mutex);
  streams().at(device) = generator;
}

RandomState get_random_state() {
  const std::lock_guard lock(streams().mutex);
  RandomState state{streams().seed, {}};
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
  const std::lock_guard lock(streams().mutex);
  streams().seed = state.seed;
  streams().of.clear();
  for (const auto& [device, generator] : state.generators) streams().at(device) = generator;
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
  const RandomKey key{g.seed, g.offset};
  g.offset += (static_cast<uint64_t>(count) + 3) / 4;
  return key;
}

}  // namespace halftape
