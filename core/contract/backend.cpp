#include "halftape/core/contract/backend.h"

#include <tuple>

#include "halftape/core/contract/mlp_loss_unfused.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"

namespace halftape {
namespace {
std::atomic<Backend*> replaced[kDeviceTypes];
// Of one device at a time; null: none.
thread_local constinit Backend* mine = nullptr;
thread_local constinit Device mine_of = kCPU;
}  // namespace

Backend& backend(Device device) {
  if (mine) [[unlikely]] {
    if (mine_of == device) return *mine;
    HALFTAPE_CHECK(!mine_of.is_cuda() || !device.is_cuda(), "work on ", device,
                   " inside a step on ", mine_of,
                   " that is to become a Graph, which is of one GPU");
  }
  if (Backend* b = replaced[static_cast<size_t>(device.type())].load(std::memory_order_acquire))
    return *b;
  return device.is_cpu() ? cpu_backend() : cuda_backend(device);
}

BackendGuard::BackendGuard(Device device, Backend& backend) : before_(mine_of, mine) {
  mine_of = device;
  mine = &backend;
}
BackendGuard::~BackendGuard() { std::tie(mine_of, mine) = before_; }

BufferPtr Backend::allocate_pinned(size_t) {
  detail::fail("pin_memory: pinned memory belongs to a GPU; the backend of this device is ",
               name());
}

void Backend::mlp_loss(const MlpLoss& m) { mlp_loss_unfused(*this, m); }

void Backend::scatter_add(const Array& y, const Array& g, int dim, const Array& index,
                          IndexUse use) {
  scatter_reduce(ReduceOps::index<formula::Sum>(), y, g, dim, index, use);
}

void Backend::cross_entropy_grad(const Array& dx, const Array& slopes, const Array& g,
                                 const Array& total) {
  const Array share = empty_like(total);
  binary(BinaryOps::index<formula::Div>(), share, g, total);
  binary(BinaryOps::index<formula::Mul>(), dx, slopes, share.expand(slopes.shape()));
}

void Backend::mean_in_steps(const CrossEntropy& o) {
  Dims all;
  for (int d = 0; d < o.loss.dim(); ++d) all.push_back(d);
  reduce(ReduceOps::index<formula::Sum>(), o.total, o.counted, all);
  reduce(ReduceOps::index<formula::Sum>(), o.mean, o.loss, all);
  binary(BinaryOps::index<formula::Div>(), o.mean, o.mean, o.total);
}

void Backend::scale_loss(const LossScaling& s) {
  if (s.begins) fill(s.bad_loss, 0);
  check_finite({&s.loss, 1}, s.bad_loss);
  binary(BinaryOps::index<formula::Mul>(), s.scaled, s.loss, s.scale.expand(s.loss.shape()));
  if (s.factor.defined()) copy(s.factor, s.scale);
  if (s.inverse.defined()) unary(UnaryOps::index<formula::Reciprocal>(), s.inverse, s.scale, {});
  if (s.found_inf.defined()) copy(s.found_inf, s.bad_loss);
  if (s.first.defined()) fill(s.first, -1);
}

void Backend::push(const Array& ring, const Array& count, const Array& value) {
  const Array at({1}, kInt64, ring.device()), n = empty_like(at);
  fill(n, ring.numel());
  const Array now = count.reshape({1}), pushed({1}, ring.dtype(), ring.device());
  copy(pushed, value.reshape({1}));
  binary(BinaryOps::index<formula::Remainder>(), at, now, n);
  scatter(ring, pushed, 0, at, {"push"});
  fill(n, 1);
  binary(BinaryOps::index<formula::Add>(), now, now, n);
}

void Backend::check(const GradientCheck& c) {
  if (c.divides)
    unscale(c.grads, c.inv_scale, c.found_inf, c.first);
  else
    check_finite(c.grads, c.found_inf, c.inv_scale, c.first);
}

void Backend::cross_entropy_and_scale(const CrossEntropy& o, const LossScaling& scaling) {
  cross_entropy(o);
  scale_loss(scaling);
}

void Backend::mlp_loss_and_scale(const MlpLoss& m, const LossScaling& scaling,
                                 const std::optional<GradientCheck>& checked) {
  mlp_loss(m);
  scale_loss(scaling);
  if (checked) check(*checked);
}

void Backend::check_and_norm(const GradientCheck& checked, const ListNorm& n) {
  check(checked);
  list_norm(n);
}

void Backend::update_and_move_scale(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                                    const StepControl& control, const ScalerUpdate& moved,
                                    const ScalerLaw& law) {
  update(slots, rule, control);
  scaler_update(moved, law);
}

Backend* swap_backend(DeviceType type, Backend* b) {
  return replaced[static_cast<size_t>(type)].exchange(b, std::memory_order_acq_rel);
}

}  // namespace halftape
