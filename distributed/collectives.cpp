#include "halftape/distributed/collectives.h"

#include <algorithm>
#include <utility>

#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"

namespace halftape::distributed {
namespace {

/// Up to so many bytes, a second exchange would cost more than sending everything to everybody.
constexpr int64_t kSmall = 16384;

size_t bytes_in(const Array& x) { return static_cast<size_t>(x.numel()) * element_size(x.dtype()); }

OpId op_id(ReduceOp op, Dtype dtype) {
  const bool logical = dtype == kBool;
  switch (op) {
    case ReduceOp::Sum:
      return logical ? BinaryOps::index<formula::Maximum>() : BinaryOps::index<formula::Add>();
    case ReduceOp::Avg:
      return BinaryOps::index<formula::Add>();
    case ReduceOp::Product:
      return logical ? BinaryOps::index<formula::Minimum>() : BinaryOps::index<formula::Mul>();
    case ReduceOp::Min:
      return BinaryOps::index<formula::Minimum>();
    case ReduceOp::Max:
      return BinaryOps::index<formula::Maximum>();
  }
  halftape::detail::fail("ReduceOp ", static_cast<int>(op), " does not exist");
}

std::vector<Array> parts(const Array& x, int n, int64_t each) {
  const Array flat = x.reshape({x.numel()});
  std::vector<Array> all;
  for (int64_t i = 0; i < n; ++i)
    all.push_back(
        flat.slice(0, std::min(i * each, x.numel()), std::min((i + 1) * each, x.numel())));
  return all;
}

}  // namespace

int64_t part_size(int64_t numel, int n) { return ((numel + n - 1) / n + 15) / 16 * 16; }

std::vector<Array> parts_of(const Array& x, int n) { return parts(x, n, part_size(x.numel(), n)); }

std::vector<Array> equal_parts_of(const Array& x, int n) { return parts(x, n, x.numel() / n); }

/// Whole where a device's queue does the messages, whose time begins later.
milliseconds Exchanges::left() const {
  if (engine_->queues()) return timeout_;
  const auto gone =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin_);
  return std::max(timeout_ - gone, milliseconds(1));
}

void Exchanges::run(std::span<const Array> sent, std::span<const Array> received) {
  std::vector<Message> sends, receives;
  for (int r = 0; r < size_; ++r) {
    const auto i = static_cast<size_t>(r);
    if (r == rank_) {
      if (sent[i].defined() && received[i].defined() && sent[i].raw() != received[i].raw())
        backend(received[i].device()).copy(received[i], sent[i]);
      continue;
    }
    if (sent[i].defined() && sent[i].numel() > 0)
      sends.push_back({r, sent[i].raw(), bytes_in(sent[i]), sent[i].dtype()});
    if (received[i].defined() && received[i].numel() > 0)
      receives.push_back({r, received[i].raw(), bytes_in(received[i]), received[i].dtype()});
  }
  if (!engine_) return;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].defined()) touched_in_step(sent[i], false);
    if (received[i].defined()) touched_in_step(received[i], true);
  }
  engine_->exchange(sends, receives, tag_++, left());
}

bool Exchanges::reduce_by_engine(const Array& x, ReduceOp op) {
  if (!engine_) return false;
  touched_in_step(x, true);
  const auto reduce = [&](ReduceOp by) {
    return engine_->all_reduce(x.raw(), x.numel(), x.dtype(), by, tag_++, left());
  };
  if (reduce(op)) return true;
  const bool is_wide = x.dtype() == kFloat32 || x.dtype() == kFloat64;
  if (op != ReduceOp::Avg || !is_wide || !reduce(ReduceOp::Sum)) return false;
  divide(x, size_);
  return true;
}

void reduce_tree(const Array& y, std::vector<Array> xs, ReduceOp op) {
  Backend& device = backend(y.device());
  const Dtype dtype = compute_dtype(y.dtype());
  const OpId id = op_id(op, dtype);
  for (Array& x : xs) x = x.to(dtype);
  for (size_t step = 1; step < xs.size(); step *= 2)
    for (size_t i = 0; i + step < xs.size(); i += 2 * step)
      device.binary(id, xs[i], xs[i], xs[i + step]);
  if (op == ReduceOp::Avg) divide(xs[0], static_cast<int64_t>(xs.size()));
  if (y.raw() != xs[0].raw()) device.copy(y, xs[0]);
}

void divide(const Array& sum, int64_t n) {
  const Array by = full({}, n, sum.dtype(), sum.device());
  backend(sum.device()).binary(BinaryOps::index<formula::Div>(), sum, sum, by.expand(sum.shape()));
}

void all_to_all(Exchanges& with, std::span<const Array> outputs, std::span<const Array> inputs) {
  with.run(inputs, outputs);
}

void all_gather(Exchanges& with, std::span<const Array> outputs, const Array& input) {
  with.run(std::vector<Array>(static_cast<size_t>(with.size()), input), outputs);
}

void reduce_scatter(Exchanges& with, const Array& output, std::span<const Array> inputs,
                    ReduceOp op) {
  const auto me = static_cast<size_t>(with.rank());
  std::vector<Array> arrived(inputs.size());
  for (size_t r = 0; r < inputs.size(); ++r)
    arrived[r] = r == me ? inputs[me] : empty_like(inputs[me]);
  with.run(inputs, arrived);
  // The tree writes to what it is given, and the input stays as it is.
  if (me % 2 == 0 && inputs[me].raw() != output.raw()) arrived[me] = arrived[me].clone();
  reduce_tree(output, std::move(arrived), op);
}

void all_reduce(Exchanges& with, const Array& x, ReduceOp op) {
  if (static_cast<int64_t>(bytes_in(x)) * with.size() <= kSmall) {
    std::vector<Array> all(static_cast<size_t>(with.size()));
    for (Array& one : all) one = empty_like(x);
    all_gather(with, all, x);
    return reduce_tree(x, std::move(all), op);
  }
  const std::vector<Array> parts = parts_of(x, with.size());
  const Array& mine = parts[static_cast<size_t>(with.rank())];
  reduce_scatter(with, mine, parts, op);
  all_gather(with, parts, mine);
}

void broadcast(Exchanges& with, const Array& x, int src) {
  const auto n = static_cast<size_t>(with.size()), from = static_cast<size_t>(src);
  const bool mine = with.rank() == src;
  const std::vector<Array> nothing(n);
  std::vector<Array> sent(n), received(n);
  if (n == 2 || static_cast<int64_t>(bytes_in(x)) <= kSmall) {
    if (mine) sent.assign(n, x);
    received[from] = x;
    return with.run(mine ? sent : nothing, mine ? nothing : received);
  }
  // A part to each rank, which gives it to the others: no rank sends more than twice the bytes.
  const std::vector<Array> parts = parts_of(x, with.size());
  const Array& own = parts[static_cast<size_t>(with.rank())];
  received[from] = own;
  with.run(mine ? parts : nothing, mine ? nothing : received);
  sent.assign(n, own);
  received = parts;
  if (mine)
    received.assign(n, {});
  else
    sent[from] = {};
  with.run(sent, received);
}

}  // namespace halftape::distributed
