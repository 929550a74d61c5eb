// What our GradScaler does with a given series of overflows, for scripts/compare_scaler_with_torch.
// Each line read: init_scale growth_factor backoff_factor growth_interval events, where an event is
// "." for finite gradients, "i", "m" or "n" for an infinity, a negative one or a NaN among them.
// Each line written: the scale, in hexadecimal, and the growth tracker after every event.
#include <halftape/halftape.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <sstream>

using namespace halftape;

namespace {

void follow(const amp::GradScalerOptions& options, const std::string& events) {
  const Tensor p = zeros({2}, requires_grad());
  optim::SGD optimizer({p}, optim::SGDOptions(0.0));
  amp::GradScaler scaler(options);
  for (const char event : events) {
    scaler.scale(p.sum());  // the first one makes the state
    p.mutable_grad() = zeros({2});
    float* g = p.mutable_grad().data_ptr<float>();
    if (event == 'i') g[1] = std::numeric_limits<float>::infinity();
    if (event == 'm') g[0] = -std::numeric_limits<float>::infinity();
    if (event == 'n') g[1] = std::nanf("");
    scaler.step(optimizer);
    scaler.update();
    std::printf("%a %lld ", scaler.get_scale(),
                static_cast<long long>(scaler.get_growth_tracker()));
  }
  std::printf("\n");
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    amp::GradScalerOptions options;
    std::string events;
    if (!(words >> options.init_scale >> options.growth_factor >> options.backoff_factor >>
          options.growth_interval >> events)) {
      std::fprintf(stderr, "scaler_trace: expected four numbers and events, found: %s\n",
                   line.c_str());
      return 2;
    }
    follow(options, events);
  }
  return 0;
}
