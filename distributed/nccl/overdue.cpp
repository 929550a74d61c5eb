#include "halftape/distributed/nccl/overdue.h"

#include <utility>

#include "halftape/core/check.h"

namespace halftape::distributed::nccl {

void CallsUnderWay::add(const Call& call) {
  if (spare_.empty()) spare_.emplace_back(false, device_);
  cuda::Event end = std::move(spare_.back());
  spare_.pop_back();
  end.record(cuda::current_stream(device_));
  if (all_.empty()) oldest_since_ = Clock::now();
  all_.push_back({call, std::move(end)});
}

void CallsUnderWay::forget_ended() {
  while (!all_.empty() && all_.front().end.query()) {
    spare_.push_back(std::move(all_.front().end));
    all_.pop_front();
    oldest_since_ = Clock::now();
  }
}

std::string CallsUnderWay::overdue() const {
  if (all_.empty()) return "";
  const Call& oldest = all_.front().call;
  if (Clock::now() - oldest_since_ < oldest.timeout) return "";
  return detail::str("NCCL: collective call ", oldest.number, " (", oldest.what, " of ",
                     oldest.bytes, " bytes) has not ended on ", device_, " within ",
                     oldest.timeout.count(), " ms; another rank has not made it, perhaps");
}

}  // namespace halftape::distributed::nccl
