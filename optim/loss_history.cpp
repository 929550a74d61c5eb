#include "halftape/optim/loss_history.h"

#include <algorithm>

#include "halftape/core/bit_cast.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::optim {

LossHistory::LossHistory(int64_t capacity) : capacity_(capacity) {
  HALFTAPE_CHECK(capacity > 0 && capacity < int64_t{1} << 53, "LossHistory: capacity ", capacity,
                 " is not in [1, 2^53)");
}

void LossHistory::push(const Tensor& loss) {
  HALFTAPE_CHECK(loss.defined() && loss.numel() == 1 && loss.is_floating_point(),
                 "LossHistory::push: one floating-point number is expected");
  if (!all_.defined()) {
    const LastingState lasting;
    all_ = full({1 + capacity_}, 0, kFloat64, loss.device());
    count_ = Array(all_.buffer(), {}, {}, 0, kInt64);
    ring_ = all_.slice(0, 1, 1 + capacity_);
  }
  HALFTAPE_CHECK(loss.device() == all_.device(), "LossHistory::push: a number on ", loss.device(),
                 ", those before it are on ", all_.device());
  backend(loss.device()).run(Push{ring_, count_, loss.array()});
}

std::vector<double> LossHistory::to_vector() const {
  if (!all_.defined()) return {};
  std::vector<double> all(static_cast<size_t>(1 + capacity_));
  backend(all_.device()).read(all.data(), all_);
  const auto count = bit_cast<int64_t>(all[0]);
  all.erase(all.begin());
  if (count < capacity_)
    all.resize(static_cast<size_t>(count));
  else
    std::rotate(all.begin(), all.begin() + count % capacity_, all.end());
  return all;
}

int64_t LossHistory::count() const { return all_.defined() ? read_int64(count_) : 0; }

}  // namespace halftape::optim
