#include "halftape/core/capture/peephole.h"

#include <algorithm>
#include <utility>

namespace halftape {
namespace {

void leave(void*, size_t, void*) noexcept {}

/// In place of an array that a call which is held back writes: the same bytes, with a handle and a
/// version of their own.
Array stand_in(const Array& a) {
  if (!a.defined()) return {};
  const Buffer& b = *a.buffer();
  return {make_ref<Buffer>(b.bytes(), b.size(), b.device(), &leave, b.context(), b.pinned()),
          a.shape(), a.strides(), a.offset(), a.dtype()};
}
template <class... A>
void make_stand_ins(A&... arrays) {
  ((arrays = stand_in(arrays)), ...);
}
void make_stand_ins(std::vector<Array>& list) {
  for (Array& a : list) a = stand_in(a);
}

LossScaling standing_in(LossScaling s) {
  make_stand_ins(s.loss, s.scaled, s.bad_loss, s.factor, s.inverse, s.found_inf, s.first);
  return s;
}
void wrote(const Array& a) {
  if (a.defined()) a.bump_version();
}

/// The same elements of the same bytes?
bool same(const Array& a, const Array& b) {
  return a.defined() && b.defined() && a.raw() == b.raw() && a.device() == b.device() &&
         a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}
/// Takes an array out of a list, if it is there.
bool take(std::vector<Array>& list, const Array& wanted) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Array& a) { return same(a, wanted); });
  if (found == list.end()) return false;
  list.erase(found);
  return true;
}
/// The same arrays, in any order, but for those that are undefined?
bool same_set(std::vector<Array> a, std::span<const Array> b) {
  const auto undefined = [](const Array& x) { return !x.defined(); };
  a.erase(std::remove_if(a.begin(), a.end(), undefined), a.end());
  return std::all_of(b.begin(), b.end(),
                     [&](const Array& x) { return undefined(x) || take(a, x); }) &&
         a.empty();
}
bool has(const std::vector<Array>& list, const Array& wanted) {
  return std::any_of(list.begin(), list.end(), [&](const Array& a) { return same(a, wanted); });
}

}  // namespace

void FusedCalls::settle() {
  // Taken out first: what a backend does in steps comes by here again.
  const auto held = std::exchange(held_, {});
  const auto check = [&](const GradientCheck& of) {
    if (!of.grads.empty()) to().check(of);
  };
  if (const auto* c = std::get_if<CrossEntropy>(&held))
    to().cross_entropy(*c);
  else if (const auto* m = std::get_if<Mlp>(&held))
    m->scaling ? to().mlp_loss_and_scale(m->task, *m->scaling, {}) : to().mlp_loss(m->task);
  else if (const auto* g = std::get_if<GradientCheck>(&held))
    check(*g);
  else if (const auto* u = std::get_if<Update>(&held)) {
    to().update(u->slots, u->rule, u->control);
    check(u->clip);
  }
}

void FusedCalls::cross_entropy(const CrossEntropy& given) {
  settle();
  if (!given.mean.defined()) return to().cross_entropy(given);
  CrossEntropy c = given;
  make_stand_ins(c.loss, c.counted, c.grad, c.total, c.mean);
  held_ = std::move(c);
}

void FusedCalls::mlp_loss(const MlpLoss& given) {
  settle();
  if (!given.loss.defined()) return to().mlp_loss(given);
  MlpLoss m = given;
  make_stand_ins(m.loss, m.dx);
  make_stand_ins(m.dweights);
  make_stand_ins(m.dbiases);
  held_ = Mlp{std::move(m), {}};
}

void FusedCalls::scale_loss(const LossScaling& s) {
  if (auto* m = std::get_if<Mlp>(&held_); m && !m->scaling && same(m->task.loss, s.loss)) {
    m->scaling = standing_in(s);  // and a check may follow
    return;
  }
  const auto* c = std::get_if<CrossEntropy>(&held_);
  if (!c || !same(c->mean, s.loss)) {
    settle();
    return to().scale_loss(s);
  }
  const auto held = std::exchange(held_, {});
  to().cross_entropy_and_scale(std::get<CrossEntropy>(held), s);
}

/// Together with the MLP whose gradients these are.
bool FusedCalls::judge(const GradientCheck& check) {
  const auto* m = std::get_if<Mlp>(&held_);
  if (!m || !m->scaling || !check.found_inf.defined()) return false;
  for (const Array& g : check.grads)
    if (g.defined() && !has(m->task.dweights, g) && !has(m->task.dbiases, g)) return false;
  const auto held = std::exchange(held_, {});
  to().mlp_loss_and_scale(std::get<Mlp>(held).task, *std::get<Mlp>(held).scaling, check);
  return true;
}

void FusedCalls::check_finite(std::span<const Array> xs, const Array& found_inf,
                              const Array& inv_scale, const Array& first) {
  if (judge({{xs.begin(), xs.end()}, inv_scale, found_inf, first, false})) return;
  settle();
  to().check_finite(xs, found_inf, inv_scale, first);
}

void FusedCalls::unscale(std::span<const Array> grads, const Array& inv_scale,
                         const Array& found_inf, const Array& first) {
  GradientCheck check{{grads.begin(), grads.end()}, inv_scale, found_inf, first, true};
  if (judge(check)) return;
  settle();
  for (Array& g : check.grads) wrote(g), make_stand_ins(g);
  held_ = std::move(check);
}

void FusedCalls::list_norm(const ListNorm& n) {
  const auto* check = std::get_if<GradientCheck>(&held_);
  if (!check || !same_set(check->grads, n.xs)) {
    settle();
    return to().list_norm(n);
  }
  const auto held = std::exchange(held_, {});
  to().check_and_norm(std::get<GradientCheck>(held), n);
}

/// If all gradients of an update are among those that are to be clipped, it does that itself.
void FusedCalls::take_clip(Update& update) {
  GradientCheck* clip = std::get_if<GradientCheck>(&held_);
  if (auto* before = std::get_if<Update>(&held_)) clip = &before->clip;
  if (!clip || clip->found_inf.defined() || clip->first.defined()) return;
  std::vector<Array> others = clip->grads;
  for (const UpdateSlot& s : update.slots)
    if (!take(others, s.grad)) return;
  update.control.clip = clip->inv_scale;
  update.clip = {.grads = std::move(others), .inv_scale = clip->inv_scale, .divides = true};
  clip->grads.clear();
  for (UpdateSlot& s : update.slots) {
    update.clipped.push_back(s.grad);
    make_stand_ins(s.grad);
  }
}

void FusedCalls::update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                        const StepControl& control) {
  Update u{{slots.begin(), slots.end()}, rule, control};
  take_clip(u);
  settle();
  for (UpdateSlot& s : u.slots) {
    for (Array* a : {&s.param, &s.step, &s.keeping.extra, &s.low}) wrote(*a), make_stand_ins(*a);
    for (Array& m : s.moments) wrote(m), make_stand_ins(m);
  }
  held_ = std::move(u);
}

void FusedCalls::scaler_update(const ScalerUpdate& moved, const ScalerLaw& law) {
  const auto* u = std::get_if<Update>(&held_);
  if (!u || moved.findings.size() != 1 ||
      !same(moved.findings[0].found_inf, u->control.found_inf)) {
    settle();
    return to().scaler_update(moved, law);
  }
  const auto held = std::exchange(held_, {});
  const Update& mine = std::get<Update>(held);
  to().update_and_move_scale(mine.slots, mine.rule, mine.control, moved, law);
  if (!mine.clip.grads.empty()) to().check(mine.clip);
}

}  // namespace halftape
