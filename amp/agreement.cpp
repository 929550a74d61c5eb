#include "halftape/amp/agreement.h"

#include <algorithm>
#include <atomic>
#include <vector>

namespace halftape::amp {
namespace {
std::atomic<AgreementFinder> agreement_finder{nullptr};
}

int64_t new_state_number() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

void set_agreement_finder(AgreementFinder finder) { agreement_finder = finder; }

std::shared_ptr<Agreement> agreement_of(std::span<const Tensor> parameters) {
  const AgreementFinder find = agreement_finder.load(std::memory_order_relaxed);
  return find ? find(parameters) : nullptr;
}

bool agree_disabled(std::span<const Tensor> parameters, int64_t flags) {
  const auto with_grad = std::find_if(parameters.begin(), parameters.end(),
                                      [](const Tensor& p) { return p.grad().defined(); });
  if (with_grad == parameters.end()) return false;
  const std::shared_ptr<Agreement> agreement = agreement_of(parameters);
  if (!agreement) return false;
  const Device device = with_grad->grad().device();
  std::vector<Array> none;
  for (int64_t i = 0; i < flags; ++i) none.push_back(full({}, 0, kFloat32, device));
  agreement->agree(none, {.scale = full({}, 0, kFloat32, device)}, {});
  return true;
}

}  // namespace halftape::amp
