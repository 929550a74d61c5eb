#include "halftape/amp/inspector/count_history.h"

#include <algorithm>

#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::amp {

void CountHistory::push(const Array& classes) {
  if (!ring_.defined()) {
    const LastingState lasting;
    ring_ = full({rows_, classes.numel()}, 0, kInt64, classes.device());
    count_ = full({}, 0, kInt64, classes.device());
    taken_ = 0;
  }
  backend(ring_.device()).run(Push{ring_, count_, classes.reshape({classes.numel()})});
}

CountHistory::Taken CountHistory::take() {
  if (!ring_.defined()) return {};
  const int64_t count = read_int64(count_), width = ring_.size(1);
  std::vector<int64_t> all(static_cast<size_t>(ring_.numel()));
  Taken taken{count - taken_, {}};
  if (taken.pushed == 0) return taken;
  backend(ring_.device()).read(all.data(), ring_);
  for (int64_t i = count - std::min(rows_, taken.pushed); i < count; ++i) {
    const auto row = all.begin() + i % rows_ * width;
    auto& counts = taken.rows.emplace_back(static_cast<size_t>(width) / kNumberClasses);
    for (size_t e = 0; e < counts.size(); ++e)
      std::copy_n(row + static_cast<int64_t>(e) * kNumberClasses, kNumberClasses,
                  counts[e].counts.begin());
  }
  taken_ = count;
  return taken;
}

}  // namespace halftape::amp
