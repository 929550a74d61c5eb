// A training that goes on and on holds no more in the end than in the beginning.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cstdlib>
#include <fstream>

#if defined(__linux__)
#include <unistd.h>
#endif

#include "halftape/autograd/tape/node.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/sanitizers.h"

using namespace halftape;

namespace {

/// HALFTAPE_SOAK_STEPS=1000000 takes half a minute.
int64_t steps_wanted() {
  const char* wanted = std::getenv("HALFTAPE_SOAK_STEPS");
  return wanted ? std::atoll(wanted) : 20'000;
}

/// The bytes of this process that lie in memory; 0 where the system does not tell, or where a
/// sanitizer keeps what is freed, or the driver of a GPU what it likes.
int64_t resident_bytes() {
#if defined(__linux__) && !HALFTAPE_SANITIZED
  if (!get_default_device().is_cpu()) return 0;
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
#else
  return 0;
#endif
}

/// What is alive in this process.
struct Held {
  int64_t tensors = detail::TensorImpl::live_count();
  int64_t nodes = Node::live_count();
  int64_t buffers = Buffer::live_count();
  int64_t bytes = Buffer::live_bytes();
  bool operator==(const Held&) const = default;
};

}  // namespace

TEST_CASE("a training holds as many tensors, nodes and bytes after its last step as after 1,000") {
  const int64_t steps = steps_wanted();
  REQUIRE(steps >= 2000);
  manual_seed(1);
  const Device device = get_default_device();
  nn::Sequential model{nn::Linear(4, 8), nn::ReLU(), nn::Dropout(0.1), nn::Linear(8, 3)};
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-3));
  optim::StepLR schedule(optimizer, 1000, 0.999);
  // The scale grows until a gradient overflows: steps are taken, and skipped.
  amp::GradScaler scaler({.init_scale = 65536, .growth_interval = 20});
  const Tensor x = randn({8, 4}), y = randint(0, 3, {8}, TensorOptions(kInt64));
  Held early;
  int64_t resident = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    optimizer.zero_grad();
    {
      const amp::autocast region(device.type(), kFloat16);
      const Tensor loss = nn::functional::cross_entropy(model->forward(x), y);
      scaler.scale(loss).backward();
    }
    scaler.unscale_(optimizer);
    nn::utils::clip_grad_norm_(model->parameters(), 1);
    scaler.step(optimizer);
    scaler.update();
    schedule.step();
    if (step != 1000) continue;
    testing::settle();
    early = {}, resident = resident_bytes();
  }
  testing::settle();
  const Held late;
  const int64_t growth = resident_bytes() - resident;
  CHECK(late.tensors == early.tensors);
  CHECK(late.nodes == early.nodes);
  CHECK(late.buffers == early.buffers);
  CHECK(late.bytes == early.bytes);
  CHECK(growth < 1 << 20);
  CHECK(scaler.stats().skips > steps / 1000);
  for (const Tensor& p : model->parameters()) CHECK(p.isfinite().all().item<bool>());
  MESSAGE(steps, " steps, ", scaler.stats().skips, " skipped: ", late.tensors, " tensors, ",
          late.nodes, " nodes, ", late.buffers, " buffers of ", late.bytes,
          " bytes as after 1000; resident memory grew by ", growth, " bytes");
}
