#include "halftape/distributed/process_group.h"

#include <utility>

#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/contract/backend.h"
#include "halftape/distributed/calls.h"
#include "halftape/distributed/collectives.h"
#include "halftape/distributed/engine/mix.h"

namespace halftape::distributed {

class ProcessGroup::Impl {
 public:
  GroupOptions options;
  std::shared_ptr<Store> store;
  CallQueue calls;
};

namespace {

/// A tensor as a call sees it: contiguous, in memory that the engine reaches.
class Staged {
 public:
  Staged(const std::shared_ptr<Engine>& engine, const Tensor& tensor)
      : engine_(engine), original_(tensor.array()) {
    at_ = original_.to_contiguous();
    if (!engine) return;
    if (!engine->reaches(at_.device().type())) at_ = at_.to(engine->device());
    HALFTAPE_CHECK(at_.device() == engine->device(), "a tensor on ", at_.device(),
                   " in a group of ", engine->name(), ", whose device in this process is ",
                   engine->device(), ", by the local rank; put tensors there");
  }
  const Array& at() const { return at_; }
  /// What to do with a result once the call has ended; null if it lies in place.
  std::function<void()> put_back() const {
    if (at_.buffer() == original_.buffer()) return {};
    return [at = at_, to = original_, weak = engine_] {
      if (at.device() == to.device()) return backend(to.device()).copy(to, at);
      const Array here = at.to(to.device());
      if (const auto engine = weak.lock()) engine->check();  // the host has waited for the device
      backend(to.device()).copy(to, here);
    };
  }

 private:
  std::weak_ptr<Engine> engine_;
  Array original_, at_;
};

void check_defined(const char* call, const Tensor& t) {
  HALFTAPE_CHECK(t.defined(), call, ": the tensor is undefined");
}

void check_written(const char* call, const Tensor& t) {
  check_defined(call, t);
  HALFTAPE_CHECK(!overlaps_itself(t.sizes(), t.strides()), call, ": the tensor of shape ",
                 t.sizes(), " overlaps itself, as an expanded one does; clone() it first");
  HALFTAPE_CHECK(t.is_leaf() || !t.requires_grad(), call, ": the tensor of shape ", t.sizes(),
                 " has a history, and the call would change it unseen; detach() or clone() it");
}

void check_alike(const char* call, const Tensor& t, const Tensor& as, bool same_sizes = true) {
  check_defined(call, t);
  HALFTAPE_CHECK((!same_sizes || t.sizes() == as.sizes()) && t.dtype() == as.dtype() &&
                     t.device() == as.device(),
                 call, ": a tensor ", t.sizes(), " of ", t.dtype(), " on ", t.device(),
                 " beside one ", as.sizes(), " of ", as.dtype(), " on ", as.device());
}

/// The bytes from the first to the last element.
std::pair<const char*, const char*> extent(const Tensor& t) {
  const auto* const first = static_cast<const char*>(t.array().raw());
  int64_t last = 0;
  for (int d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.strides()[d];
  return {first, first + (last + 1) * static_cast<int64_t>(element_size(t.dtype()))};
}

bool overlap(const Tensor& a, const Tensor& b) {
  const auto [begin, end] = extent(a);
  const auto [from, to] = extent(b);
  return a.device() == b.device() && begin < to && from < end;
}

/// Bytes that arrive must not be those that another message still brings, or sends.
void check_apart(const char* call, const std::vector<Tensor>& written,
                 const std::vector<Tensor>& read) {
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i].numel() == 0) continue;
    for (size_t k = 0; k < read.size() + i; ++k) {
      const Tensor& other = k < read.size() ? read[k] : written[k - read.size()];
      HALFTAPE_CHECK(other.numel() == 0 || !overlap(written[i], other), call,
                     ": two of the tensors share bytes, and one of them is written; clone() one");
    }
  }
}

void check_count(const char* call, const std::vector<Tensor>& list, int size) {
  HALFTAPE_CHECK(list.size() == static_cast<size_t>(size), call, ": ", list.size(),
                 " tensors for a group of ", size, "; give one for each rank");
}

void check_parts(const char* call, const Tensor& whole, const Tensor& part, int size) {
  check_defined(call, whole);
  check_defined(call, part);
  HALFTAPE_CHECK(whole.dtype() == part.dtype() && whole.device() == part.device() &&
                     whole.numel() == checked_mul(part.numel(), size),
                 call, ": ", whole.numel(), " elements of ", whole.dtype(), " on ", whole.device(),
                 " are not ", size, " parts, one for each rank, of ", part.numel(), " of ",
                 part.dtype(), " on ", part.device());
}

void check_op(const char* call, ReduceOp op, Dtype dtype) {
  HALFTAPE_CHECK(op <= ReduceOp::Max, call, ": ReduceOp ", static_cast<int>(op), " does not exist");
  HALFTAPE_CHECK(op != ReduceOp::Avg || is_floating_point(dtype), call, ": Avg of ", dtype,
                 " is not defined; use Sum, or a floating dtype");
}

/// The parts of a call that all ranks must agree on, as one number.
class Signature {
 public:
  explicit Signature(const char* call) {
    for (const char* c = call; *c; ++c) add(static_cast<uint8_t>(*c));
  }
  Signature& add(uint64_t part) {
    value_ = mix(value_, part);
    return *this;
  }
  Signature& add(const Tensor& t) {
    return add(static_cast<uint64_t>(t.numel())).add(static_cast<uint64_t>(t.dtype()));
  }
  Signature& add(const std::vector<Tensor>& list) {
    for (const Tensor& t : list) add(t);
    return *this;
  }
  operator uint64_t() const { return value_; }  // NOLINT: it is a number

 private:
  uint64_t value_ = 0;
};

std::vector<Array> arrays_of(const std::vector<Staged>& staged) {
  std::vector<Array> all;
  all.reserve(staged.size());
  for (const Staged& s : staged) all.push_back(s.at());
  return all;
}

std::vector<Staged> stage(const std::shared_ptr<Engine>& engine,
                          const std::vector<Tensor>& tensors) {
  std::vector<Staged> all;
  all.reserve(tensors.size());
  for (const Tensor& t : tensors) all.emplace_back(engine, t);
  return all;
}

/// Puts the results where they belong, and counts the change.
CallQueue::Finish finish(const std::vector<Staged>& results) {
  std::vector<std::function<void()>> all;
  for (const Staged& result : results)
    if (auto one = result.put_back()) all.push_back(std::move(one));
  if (all.empty()) return {};
  return [all = std::move(all)] {
    for (const auto& one : all) one();
  };
}

void bump(const CollectiveOptions& how, const std::vector<Tensor>& written) {
  if (!how.raises_versions) return;
  for (const Tensor& t : written) t.array().bump_version();
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<Engine> engine, int rank, int size, GroupOptions options,
                           std::unique_ptr<Watch> watch, std::shared_ptr<FailureNews> news,
                           std::shared_ptr<Store> store) {
  HALFTAPE_CHECK(size >= 1 && rank >= 0 && rank < size, "ProcessGroup: rank ", rank, " of ", size,
                 "; ranks are counted from 0");
  HALFTAPE_CHECK(engine || size == 1, "ProcessGroup: ", size, " processes need an engine");
  checked_timeout("ProcessGroup", options.timeout);
  impl_.reset(new Impl{
      options,
      std::move(store),
      {{rank, size, options.timeout}, std::move(engine), std::move(watch), std::move(news)}});
}
ProcessGroup::~ProcessGroup() = default;
void ProcessGroup::leave() { impl_->calls.leave(); }

int ProcessGroup::rank() const { return impl_->calls.rank(); }
int ProcessGroup::size() const { return impl_->calls.size(); }
std::string ProcessGroup::backend() const {
  return impl_->calls.engine() ? impl_->calls.engine()->name() : "none";
}
std::shared_ptr<Store> ProcessGroup::store() const { return impl_->store; }
Summation ProcessGroup::summation() const { return impl_->options.summation; }
bool ProcessGroup::queues() const {
  return impl_->calls.engine() && impl_->calls.engine()->queues();
}

Work ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, CollectiveOptions how) {
  check_written("all_reduce", tensor);
  check_op("all_reduce", op, tensor.dtype());
  const uint64_t signature = Signature("all_reduce").add(tensor).add(static_cast<uint64_t>(op));
  const std::vector<Staged> at = stage(impl_->calls.engine(), {tensor});
  bump(how, {tensor});
  return impl_->calls.start(
      {"all_reduce", signature, std::move(how)},
      [x = at[0].at(), op, by_engine = summation() == Summation::Engine](Exchanges& with) {
        if (by_engine && with.reduce_by_engine(x, op)) return;
        distributed::all_reduce(with, x, op);
      },
      finish(at));
}

Work ProcessGroup::broadcast(const Tensor& tensor, int src, CollectiveOptions how) {
  check_written("broadcast", tensor);
  HALFTAPE_CHECK(src >= 0 && src < size(), "broadcast: from rank ", src, " in a group of ", size());
  const uint64_t signature = Signature("broadcast").add(tensor).add(static_cast<uint64_t>(src));
  const std::vector<Staged> at = stage(impl_->calls.engine(), {tensor});
  if (rank() != src) bump(how, {tensor});
  return impl_->calls.start(
      {"broadcast", signature, std::move(how)},
      [x = at[0].at(), src](Exchanges& with) { distributed::broadcast(with, x, src); }, finish(at));
}

Work ProcessGroup::all_gather(const std::vector<Tensor>& outputs, const Tensor& input,
                              CollectiveOptions how) {
  check_count("all_gather", outputs, size());
  check_defined("all_gather", input);
  for (size_t r = 0; r < outputs.size(); ++r) {
    check_alike("all_gather", outputs[r], input, static_cast<int>(r) == rank());
    check_written("all_gather", outputs[r]);
  }
  check_apart("all_gather", outputs, {});
  for (size_t r = 0; r < outputs.size(); ++r) {
    const bool in_place = static_cast<int>(r) == rank() &&
                          outputs[r].array().raw() == input.array().raw() &&
                          outputs[r].strides() == input.strides();
    if (!in_place) check_apart("all_gather", {outputs[r]}, {input});
  }
  const std::vector<Staged> at = stage(impl_->calls.engine(), outputs),
                            from = stage(impl_->calls.engine(), {input});
  bump(how, outputs);
  return impl_->calls.start(
      {"all_gather", Signature("all_gather").add(outputs), std::move(how)},
      [ys = arrays_of(at), x = from[0].at()](Exchanges& with) {
        distributed::all_gather(with, ys, x);
      },
      finish(at));
}

Work ProcessGroup::all_gather_into_tensor(const Tensor& output, const Tensor& input,
                                          CollectiveOptions how) {
  check_parts("all_gather_into_tensor", output, input, size());
  check_written("all_gather_into_tensor", output);
  const auto mine = static_cast<const char*>(output.array().raw()) +
                    rank() * input.numel() * static_cast<int64_t>(element_size(input.dtype()));
  const bool in_place =
      output.is_contiguous() && input.is_contiguous() && mine == input.array().raw();
  if (!in_place) check_apart("all_gather_into_tensor", {output}, {input});
  const std::vector<Staged> at = stage(impl_->calls.engine(), {output}),
                            from = stage(impl_->calls.engine(), {input});
  bump(how, {output});
  return impl_->calls.start(
      {"all_gather_into_tensor", Signature("all_gather_into_tensor").add(input), std::move(how)},
      [ys = equal_parts_of(at[0].at(), size()), x = from[0].at().reshape({input.numel()})](
          Exchanges& with) { distributed::all_gather(with, ys, x); },
      finish(at));
}

Work ProcessGroup::reduce_scatter(const Tensor& output, const std::vector<Tensor>& inputs,
                                  ReduceOp op, CollectiveOptions how) {
  check_count("reduce_scatter", inputs, size());
  check_written("reduce_scatter", output);
  for (size_t r = 0; r < inputs.size(); ++r)
    check_alike("reduce_scatter", inputs[r], output, static_cast<int>(r) == rank());
  check_op("reduce_scatter", op, output.dtype());
  const std::vector<Staged> at = stage(impl_->calls.engine(), {output}),
                            from = stage(impl_->calls.engine(), inputs);
  bump(how, {output});
  return impl_->calls.start(
      {"reduce_scatter", Signature("reduce_scatter").add(inputs).add(static_cast<uint64_t>(op)),
       std::move(how)},
      [y = at[0].at(), xs = arrays_of(from), op](Exchanges& with) {
        distributed::reduce_scatter(with, y, xs, op);
      },
      finish(at));
}

Work ProcessGroup::reduce_scatter_tensor(const Tensor& output, const Tensor& input, ReduceOp op,
                                         CollectiveOptions how) {
  check_parts("reduce_scatter_tensor", input, output, size());
  check_written("reduce_scatter_tensor", output);
  check_op("reduce_scatter_tensor", op, output.dtype());
  const std::vector<Staged> at = stage(impl_->calls.engine(), {output}),
                            from = stage(impl_->calls.engine(), {input});
  bump(how, {output});
  return impl_->calls.start(
      {"reduce_scatter_tensor",
       Signature("reduce_scatter_tensor").add(output).add(static_cast<uint64_t>(op)),
       std::move(how)},
      [y = at[0].at().reshape({output.numel()}), xs = equal_parts_of(from[0].at(), size()),
       op](Exchanges& with) { distributed::reduce_scatter(with, y, xs, op); },
      finish(at));
}

Work ProcessGroup::all_to_all(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                              CollectiveOptions how) {
  check_count("all_to_all", outputs, size());
  check_count("all_to_all", inputs, size());
  for (const Tensor& x : inputs) check_defined("all_to_all", x);
  for (const Tensor& y : outputs) check_written("all_to_all", y);
  const auto me = static_cast<size_t>(rank());
  check_alike("all_to_all", inputs[me], outputs[me]);
  check_apart("all_to_all", outputs, inputs);
  const std::vector<Staged> at = stage(impl_->calls.engine(), outputs),
                            from = stage(impl_->calls.engine(), inputs);
  bump(how, outputs);
  return impl_->calls.start(
      {"all_to_all", Signature("all_to_all"), std::move(how)},
      [ys = arrays_of(at), xs = arrays_of(from)](Exchanges& with) {
        distributed::all_to_all(with, ys, xs);
      },
      finish(at));
}

Work ProcessGroup::all_to_all_single(const Tensor& output, const Tensor& input,
                                     CollectiveOptions how) {
  check_written("all_to_all_single", output);
  check_parts("all_to_all_single", output, input, 1);
  HALFTAPE_CHECK(input.numel() % size() == 0, "all_to_all_single: ", input.numel(),
                 " elements are not ", size(), " equal parts, one for each rank");
  check_apart("all_to_all_single", {output}, {input});
  const std::vector<Staged> at = stage(impl_->calls.engine(), {output}),
                            from = stage(impl_->calls.engine(), {input});
  bump(how, {output});
  return impl_->calls.start(
      {"all_to_all_single", Signature("all_to_all_single").add(input), std::move(how)},
      [ys = equal_parts_of(at[0].at(), size()), xs = equal_parts_of(from[0].at(), size())](
          Exchanges& with) { distributed::all_to_all(with, ys, xs); },
      finish(at));
}

Work ProcessGroup::barrier(CollectiveOptions how) {
  // The host of every rank waits: the number comes back to it.
  const std::vector<Staged> at = stage(impl_->calls.engine(), {Tensor(full({1}, 0, kUInt8, kCPU))});
  return impl_->calls.start(
      {"barrier", Signature("barrier"), std::move(how)},
      [x = at[0].at()](Exchanges& with) { distributed::all_reduce(with, x, ReduceOp::Max); },
      finish(at));
}

}  // namespace halftape::distributed
