#include "halftape/core/capture/peephole.h"

#include <algorithm>
#include <utility>

namespace halftape {
namespace {

void leave(void*, size_t, void*) noexcept {}

/// Replaces an array that a held call writes: the same bytes, with a handle and a version of their
/// own.
Array stand_in(const Array& a) {
  if (!a.defined()) return {};
  const Buffer& b = *a.buffer();
  return {make_ref<Buffer>(b.bytes(), b.size(), b.device(), &leave, b.context(), b.pinned()),
          a.shape(), a.strides(), a.offset(), a.dtype()};
}
void wrote(const Array& a) {
  if (a.defined()) a.bump_version();
}

/// True for the same elements of the same bytes.
bool same(const Array& a, const Array& b) {
  return a.defined() && b.defined() && a.raw() == b.raw() && a.device() == b.device() &&
         a.dtype() == b.dtype() && a.shape() == b.shape() && a.strides() == b.strides();
}
/// Takes an array out of a list; false if it is not there.
bool take(std::vector<Array>& list, const Array& wanted) {
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const Array& a) { return same(a, wanted); });
  if (found == list.end()) return false;
  list.erase(found);
  return true;
}
/// True for the same arrays in any order. Undefined ones do not count.
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

FusedCalls::Kept::~Kept() {
  for (const Memory& m : all_)
    if (m.uncounted) m.buffer->release_from_call();
}
void FusedCalls::Kept::add(const Array& a) {
  if (!a.defined()) return;
  const auto here = [&](const Memory& m) { return m.buffer == a.buffer(); };
  if (std::any_of(all_.begin(), all_.end(), here)) return;
  all_.push_back({a.buffer(), a.buffer()->hold_for_call()});
}

template <class... A>
void FusedCalls::make_stand_ins(A&... arrays) {
  ((kept_.add(arrays), arrays = stand_in(arrays)), ...);
}
void FusedCalls::make_stand_ins(std::vector<Array>& list) {
  for (Array& a : list) make_stand_ins(a);
}

void FusedCalls::Check::pass_on(Backend& to) const {
  if (!grads.empty()) to.unscale(grads, inv_scale, found_inf, first);
}

void FusedCalls::settle() {
  // Taken out first: the calls by which a backend does it come by here again.
  const Kept memory = std::move(kept_);
  const auto held = std::exchange(held_, {});
  if (const auto* c = std::get_if<CrossEntropy>(&held)) {
    to().cross_entropy(*c);
  } else if (const auto* m = std::get_if<Mlp>(&held)) {
    m->scaling ? to().run(m->task, *m->scaling) : to().run(m->task);
  } else if (const auto* checked = std::get_if<Check>(&held)) {
    checked->pass_on(to());
  } else if (const auto* u = std::get_if<Update>(&held)) {
    to().update(u->slots, u->rule, u->control);
    u->clip.pass_on(to());
  }
}

void FusedCalls::cross_entropy(const CrossEntropy& given) {
  settle();
  if (!given.mean.defined()) return to().cross_entropy(given);
  CrossEntropy c = given;
  make_stand_ins(c.loss, c.counted, c.grad, c.total, c.mean);
  held_ = std::move(c);
}

bool FusedCalls::try_fused(std::span<const Call> calls) {
  if (calls.size() == 1) {
    if (const auto* m = std::get_if<const MlpLoss*>(&calls[0]); m && hold(**m)) return true;
    if (const auto* s = std::get_if<const CheckedScale*>(&calls[0]); s && scale(**s)) return true;
  }
  return ForwardingBackend::try_fused(calls);
}

bool FusedCalls::hold(const MlpLoss& given) {
  if (!given.loss.defined()) return false;
  settle();
  MlpLoss m = given;
  make_stand_ins(m.loss, m.dx);
  make_stand_ins(m.dweights);
  make_stand_ins(m.dbiases);
  held_ = Mlp{std::move(m), {}};
  return true;
}

bool FusedCalls::scale(const CheckedScale& s) {
  if (auto* m = std::get_if<Mlp>(&held_); m && !m->scaling && same(m->task.loss, s.x)) {
    CheckedScale& mine = m->scaling.emplace(s);
    make_stand_ins(mine.x, mine.y, mine.nonfinite, mine.factor, mine.inverse, mine.found_inf,
                   mine.first);
    return true;  // and a check may follow
  }
  const auto* c = std::get_if<CrossEntropy>(&held_);
  if (!c || !same(c->mean, s.x)) return false;
  const Kept memory = std::move(kept_);
  const auto held = std::exchange(held_, {});
  to().run(std::get<CrossEntropy>(held), s);
  return true;
}

/// Joins a check with the MLP whose gradients it looks at.
bool FusedCalls::check_mlp(const GradientCheck& c) {
  const auto* m = std::get_if<Mlp>(&held_);
  if (!m || !m->scaling || !c.found_inf.defined()) return false;
  for (const Array& g : c.grads)
    if (g.defined() && !has(m->task.dweights, g) && !has(m->task.dbiases, g)) return false;
  const Kept memory = std::move(kept_);
  const auto held = std::exchange(held_, {});
  to().run(std::get<Mlp>(held).task, *std::get<Mlp>(held).scaling, c);
  return true;
}

void FusedCalls::check(const GradientCheck& c) {
  if (check_mlp(c)) return;
  settle();
  if (!c.divides) return to().check(c);
  Check held{{c.grads.begin(), c.grads.end()}, c.inv_scale, c.found_inf, c.first};
  for (Array& g : held.grads) wrote(g), make_stand_ins(g);
  held_ = std::move(held);
}

void FusedCalls::list_norm(const ListNorm& n) {
  const auto* c = std::get_if<Check>(&held_);
  if (!c || !same_set(c->grads, n.xs)) {
    settle();
    return to().list_norm(n);
  }
  const Kept memory = std::move(kept_);
  const auto held = std::exchange(held_, {});
  const auto& [grads, inv_scale, found_inf, first] = std::get<Check>(held);
  to().run(GradientCheck{grads, inv_scale, found_inf, first, true}, n);
}

/// An update clips its gradients itself, if all of them are among those that are to be clipped.
void FusedCalls::take_clip(Update& update) {
  Check* clip = std::get_if<Check>(&held_);
  if (auto* before = std::get_if<Update>(&held_)) clip = &before->clip;
  if (!clip || !clip->clips()) return;
  std::vector<Array> others = clip->grads;
  for (const UpdateSlot& s : update.slots)
    if (!take(others, s.grad)) return;
  update.control.clip = clip->inv_scale;
  update.clip = {.grads = std::move(others), .inv_scale = clip->inv_scale};
  clip->grads.clear();
  for (UpdateSlot& s : update.slots) make_stand_ins(s.grad);
}

void FusedCalls::update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                        const StepControl& control) {
  Update u{{slots.begin(), slots.end()}, rule, control};
  take_clip(u);
  Kept clipped = std::move(kept_);
  settle();
  kept_ = std::move(clipped);
  for (UpdateSlot& s : u.slots) {
    for (Array* a : {&s.param, &s.step, &s.keeping.extra, &s.low}) wrote(*a), make_stand_ins(*a);
    for (Array& m : s.moments) wrote(m), make_stand_ins(m);
  }
  held_ = std::move(u);
}

void FusedCalls::transition(const Transition& t) {
  const auto* u = std::get_if<Update>(&held_);
  if (!u || t.results.size() != 1 || !same(t.results[0].found_inf, u->control.found_inf)) {
    settle();
    return to().transition(t);
  }
  const Kept memory = std::move(kept_);
  const auto held = std::exchange(held_, {});
  const Update& mine = std::get<Update>(held);
  to().run(ListUpdate{mine.slots, mine.rule, mine.control}, t);
  mine.clip.pass_on(to());
}

}  // namespace halftape
