#include "ranks.h"

#include <fmt/format.h>

#include <cstdio>

using namespace halftape;

namespace sample {

Ranks::Ranks(const Machine& machine) : device_(kCPU) {
  const distributed::LaunchInfo launch = distributed::read_launch_environment();
  device_ = machine.prepare(launch.local_rank);
  group_ = distributed::init_process_group({.backend = device_.is_cpu() ? "gloo" : ""});
  restarted_ = launch.restarts > 0;
  if (!first() && !std::freopen("/dev/null", "w", stdout))
    throw std::runtime_error("/dev/null cannot be written");
}

int64_t Ranks::part_of(int64_t batch_size) const {
  if (batch_size % size() != 0)
    throw UserError(fmt::format("--batch-size: {} cannot be shared by {} ranks; give a multiple",
                                batch_size, size()));
  return batch_size / size();
}

void Ranks::draw_apart() const {
  RandomState state = get_random_state();
  state.seed += static_cast<uint64_t>(rank());
  for (auto& [device, generator] : state.generators)
    generator.seed += static_cast<uint64_t>(rank());
  set_random_state(state);
}

double Ranks::sum(double x) const {
  const Tensor all = full({}, x, kFloat64);
  sum(all);
  return all.item<double>();
}

void Ranks::sum(const Tensor& x) const {
  if (size() > 1) group_->all_reduce(x, distributed::ReduceOp::Sum);
}

bool Ranks::interrupted() const {
  if (size() == 1) return Interrupt::asked();
  const Tensor signal = full({}, Interrupt::signal(), kInt64);
  group_->all_reduce(signal, distributed::ReduceOp::Max, {.label = "whether to go on"});
  const auto agreed = static_cast<int>(signal.item<int64_t>());
  if (agreed != 0) Interrupt::ask(agreed);
  return agreed != 0;  // a signal that came meanwhile counts at the next call
}

void Ranks::wait() const {
  if (size() > 1) group_->barrier();
}

}  // namespace sample
