// What one optimizer step costs for each element of a parameter, in cache and in memory, one
// thread. The same source builds against LibTorch (benchmarks/compare optimizer).
#include <memory>

#include "harness.h"
#include "library.h"

namespace {

using lib::Tensor;
namespace optim = lib::optim;

/// A parameter of n elements with a gradient that stays.
std::vector<Tensor> parameter(int64_t n) {
  Tensor p = lib::randn({n}).set_requires_grad(true);
  p.mutable_grad() = lib::randn({n});
  return {p};
}
template <class Optimizer, class Options>
void add(bench::Table& table, const std::string& name, int64_t n, const Options& options) {
  const auto optimizer = std::make_shared<Optimizer>(parameter(n), options);
  table.add(
      name, [optimizer] { optimizer->step(); }, n);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Table table(library(), argc, argv, "ns an element");
  lib::set_num_threads(table.threads());
  // Steps too small to reach subnormal numbers, however many are timed.
  for (const auto& [n, size] :
       {std::pair<int64_t, std::string>{4096, "4 Ki"}, {262144, "256 Ki"}, {8 << 20, "8 Mi"}}) {
    add<optim::SGD>(table, "SGD, " + size, n, optim::SGDOptions(1e-9));
    add<optim::SGD>(table, "SGD with momentum, " + size, n, optim::SGDOptions(1e-9).momentum(0.9));
    add<optim::Adam>(table, "Adam, " + size, n, optim::AdamOptions(1e-9));
    add<optim::AdamW>(table, "AdamW, " + size, n, optim::AdamWOptions(1e-9));
  }
  table.run();
}
