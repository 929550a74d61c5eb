#include "halftape/autograd/tape/grad_tag.h"

#include <atomic>
#include <utility>

#include "halftape/core/check.h"

namespace halftape {
namespace {

std::atomic<bool> enabled{false};
thread_local Ref<GradTag> current;

/// The mark of a sum.
Ref<GradTag> sum_of(const Ref<GradTag>& held, const Ref<GradTag>& arriving) {
  if (held == arriving) return held;
  return held ? held->plus(arriving) : arriving->plus(held);
}

}  // namespace

void GradTag::enable() { enabled.store(true, std::memory_order_relaxed); }

std::optional<Ref<GradTag>> GradTag::of_sum(const Tensor& grad) {
  if (!enabled.load(std::memory_order_relaxed)) [[likely]]
    return {};
  const GradMark held = mark_of(grad);
  return held.known ? sum_of(held.tag, current) : current;
}

void GradTag::mark_pass(Ref<GradTag> tag) {
  current = current ? sum_of(current, tag) : std::move(tag);
}

GradTag::Pass::Pass() : before_(halftape::current) {}
GradTag::Pass::Pass(Ref<GradTag> inherited)
    : before_(std::exchange(halftape::current, std::move(inherited))) {}
GradTag::Pass::~Pass() { halftape::current = std::move(before_); }
Ref<GradTag> GradTag::Pass::current() { return halftape::current; }

namespace {
bool is_known(const Tensor& grad) {
  return grad.impl() && grad.impl()->marked_version == grad.version();
}
}  // namespace

GradMark mark_of(const Tensor& grad) {
  if (!is_known(grad)) return {};
  return {true, grad.impl()->mark};
}

bool has_mark(const Tensor& grad, const Ref<GradTag>& tag) {
  return is_known(grad) && grad.impl()->mark == tag;
}

void set_mark(const Tensor& grad, Ref<GradTag> tag) {
  detail::TensorImpl& impl = *grad.impl();
  impl.mark = std::move(tag);
  impl.marked_version = grad.version();
}

void check_mark(const Tensor& grad, const char* call, GradTag::Use use) {
  if (!grad.impl() || !grad.impl()->mark) [[likely]]
    return;
  if (!is_known(grad)) return;
  const std::string objection = grad.impl()->mark->objection(call, use);
  HALFTAPE_CHECK(objection.empty(), objection);
}

}  // namespace halftape
