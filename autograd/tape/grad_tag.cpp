#include "halftape/autograd/tape/grad_tag.h"

#include <atomic>
#include <utility>

#include "halftape/core/check.h"

namespace halftape {
namespace {

std::atomic<bool> marks_are_kept{false};
constinit thread_local GradTag* current_mark = nullptr;
constinit thread_local GradTag::Pass* current_pass = nullptr;

/// The mark of a sum.
Ref<GradTag> sum_of(const Ref<GradTag>& held, const Ref<GradTag>& arriving) {
  if (held == arriving) return held;
  return held ? held->plus(arriving) : arriving->plus(held);
}

}  // namespace

void GradTag::enable() { marks_are_kept.store(true, std::memory_order_relaxed); }
bool GradTag::enabled() { return marks_are_kept.load(std::memory_order_relaxed); }
GradTag* GradTag::current() { return current_mark; }

void GradTag::mark(Ref<GradTag> tag) {
  current_mark = tag.get();
  current_pass->kept_.push_back(std::move(tag));
}

std::optional<Ref<GradTag>> GradTag::of_sum(const Tensor& grad) {
  if (!enabled()) [[likely]]
    return {};
  const GradMark held = mark_of(grad);
  Ref<GradTag> arriving(current_mark);
  return held.known ? sum_of(held.tag, arriving) : std::move(arriving);
}

GradTag::Pass::Pass(GradTag* mark)
    : outer_(std::exchange(current_pass, this)), before_(std::exchange(current_mark, mark)) {}
GradTag::Pass::~Pass() {
  current_pass = outer_;
  current_mark = before_;
}
void GradTag::Pass::begin_rule(GradTag* mark) { current_mark = mark; }
GradTag* GradTag::Pass::sum(GradTag* held, GradTag* arriving) {
  if (held == arriving) return held;
  return kept_.emplace_back(sum_of(Ref(held), Ref(arriving))).get();
}

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

Array verdict_on(const Tensor& grad) {
  return is_known(grad) && grad.impl()->mark ? grad.impl()->mark->verdict() : Array();
}

bool is_partial(const Tensor& grad) { return grad.impl() && grad.impl()->partial; }
void set_partial(const Tensor& grad, bool partial) { grad.impl()->partial = partial; }

void check_whole(const Tensor& grad, const char* call) {
  HALFTAPE_CHECK(!is_partial(grad), call,
                 ": each rank has a part of these gradients alone, for the ZeroRedundancyOptimizer "
                 "that was given the DistributedDataParallel; step with that one, or call "
                 "ddp.gather_gradients() first");
}

void check_mark(const Tensor& grad, const char* call, GradTag::Use use, GradParts parts) {
  if (parts == GradParts::Refused) check_whole(grad, call);
  if (!grad.impl() || !grad.impl()->mark) [[likely]]
    return;
  if (!is_known(grad)) return;
  const std::string objection = grad.impl()->mark->objection(call, use);
  HALFTAPE_CHECK(objection.empty(), objection);
}

}  // namespace halftape
