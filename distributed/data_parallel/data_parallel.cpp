#include "halftape/distributed/data_parallel/data_parallel.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/tape/engine.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/distributed/data_parallel/impl.h"
#include "halftape/distributed/data_parallel/local_tag.h"

namespace halftape::distributed {

using Impl = DistributedDataParallel::Impl;

Impl::Impl(const nn::Module& module, const DataParallelOptions& how,
           std::shared_ptr<ProcessGroup> over)
    : options(how), group(over ? std::move(over) : default_group()) {
  if (options.shards == 0) options.shards = group->size();
  HALFTAPE_CHECK(options.bucket_bytes > 0 && options.first_bucket_bytes > 0,
                 "DistributedDataParallel: buckets of ", options.bucket_bytes, " and ",
                 options.first_bucket_bytes, " bytes; both must be positive");
  const int64_t each = options.shards / group->size();
  HALFTAPE_CHECK(
      options.shards > 0 && options.shards % group->size() == 0 &&
          (group->size() == 1 || (each & (each - 1)) == 0),
      "DistributedDataParallel: ", options.shards, " shards for ", group->size(),
      " ranks; each rank must have as many as the others, and that must be a power of 2, "
      "or sums would depend on the number of ranks");
  std::unordered_set<const halftape::detail::TensorImpl*> met;  // a layer may have two names
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad() || !met.insert(item.value().impl()).second) continue;
    params.push_back(item.value());
    names.push_back(item.key());
  }
  HALFTAPE_CHECK(!params.empty(),
                 "DistributedDataParallel: the module has no parameter that requires grad");
  all = params;
  for (const auto& item : module.named_parameters()) {
    if (!met.insert(item.value().impl()).second) continue;
    all.push_back(item.value());
    names.push_back(item.key());
  }
  frozen_end_ = all.size();
  for (const auto& item : module.named_buffers()) {
    if (!met.insert(item.value().impl()).second) continue;
    HALFTAPE_CHECK(buffers.empty() || item.value().device() == buffers[0].device(),
                   "DistributedDataParallel: buffers on ", buffers[0].device(), ", and ",
                   item.key(), " on ", item.value().device(), "; put them on one device");
    buffers.push_back(item.value());
    all.push_back(item.value());
    names.push_back(item.key());
  }
  buckets = cut_into_buckets(params, options.first_bucket_bytes, options.bucket_bytes);
  bucket_of_.resize(params.size());
  for (size_t b = 0; b < buckets.size(); ++b)
    for (const size_t i : buckets[b].numbers()) bucket_of_[i] = b;
}

void Impl::listen() {
  GradTag::enable();
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].register_hook([weak = weak_from_this(), i](const Tensor&) {
      if (const std::shared_ptr<Impl> self = weak.lock()) self->before_adding(i);
      return Tensor();  // the gradient stays as it is
    });
    params[i].register_post_accumulate_grad_hook([weak = weak_from_this(), i](const Tensor&) {
      if (const std::shared_ptr<Impl> self = weak.lock()) self->arrived(i);
    });
  }
}

/// Before a gradient is added: another thread may be reducing what is there.
void Impl::before_adding(size_t param) {
  // In flat storage the new gradient lies where a lost one lay, and calls may still write there.
  for (const Work& work : std::exchange(lost_, {})) {
    try {
      work.wait();
    } catch (const std::exception&) {  // the next call of the group says the same
    }
  }
  const std::shared_ptr<Pass> pass = pass_.lock();
  HALFTAPE_CHECK(!pass || bucket_of_[param] >= pass->reduction.works.size(),
                 "DistributedDataParallel: the gradient of ", names[param],
                 " grew after its bucket was sent, as by a hook that calls backward(); "
                 "make the DistributedDataParallel with .overlap = false");
}

GradMark shared_mark(const Tensor& grad) {
  GradMark mark = mark_of(grad);
  if (const auto* local = dynamic_cast<const LocalTag*>(mark.tag.get())) mark.tag = local->inner();
  return mark;
}

/// A gradient of a parameter is there.
void Impl::arrived(size_t param) {
  check_usable();
  if (in_loop) return;
  if (pass_.expired()) begin_pass();
  const std::shared_ptr<Pass> pass = pass_.lock();
  if (!pass) return;  // outside of a backward(): begin_pass() has done all
  HALFTAPE_CHECK(pass->backward == autograd::current_backward(),
                 "DistributedDataParallel: two threads run backward() through one model; let one "
                 "end before the next begins, so that all ranks send the same buckets");
  HALFTAPE_CHECK(no_sync > 0 || !GradMode::is_enabled(),
                 "DistributedDataParallel: backward(create_graph = true) would lose the graph of "
                 "the reduced gradients; use autograd::grad(), or no_sync()");
  const Tensor& grad = params[param].grad();
  check_there(param, grad.defined());
  if (mark_of(grad).known) set_mark(grad, make_ref<LocalTag>(shared_mark(grad).tag));
  const size_t b = bucket_of_[param];
  if (!pass->arrived[param]) --pass->missing[b];
  pass->arrived[param] = true;
  if (no_sync == 0 && options.overlap) launch_complete(*pass);
}

/// Throws if a gradient that came in this pass is gone.
void Impl::check_there(size_t param, bool is_there) const {
  HALFTAPE_CHECK(is_there, "DistributedDataParallel: the gradient of ", names[param],
                 " was taken before it was reduced, as by a hook that steps; let the optimizer "
                 "step after backward()");
}

/// Throws for what would be trained on this rank alone, or twice.
void Impl::check_trained() const {
  for (size_t i = params.size(); i < frozen_end_; ++i)
    HALFTAPE_CHECK(!all[i].requires_grad(), "DistributedDataParallel: ", names[i],
                   " requires grad, and was frozen when this was made, so its gradient would stay "
                   "this rank's; make the DistributedDataParallel anew");
  const std::optional<size_t> twice = reduced_twice(params);
  HALFTAPE_CHECK(!twice, "DistributedDataParallel: ", names[twice.value_or(0)],
                 " belongs to another DistributedDataParallel, too, and both would reduce its "
                 "gradient at once; make one of the whole model");
}

void Impl::begin_pass() {
  check_trained();
  for (size_t i = 0; i < params.size(); ++i)
    HALFTAPE_CHECK(!is_partial(params[i].grad()),
                   "DistributedDataParallel: each rank has a part "
                   "of the gradient of ",
                   names[i],
                   " alone, of a backward() before, and this one "
                   "would add to it; call optimizer.zero_grad() between them, or make all but the "
                   "last one under no_sync()");
  auto pass = std::make_shared<Pass>();
  pass->reduction.partial = has_sharded_optimizer();
  pass->arrived.resize(params.size());
  pass->marks.resize(params.size());
  for (const Bucket& bucket : buckets) pass->missing.push_back(bucket.params().size());
  pass_ = pass;
  // The engine holds the pass, and lets go of it if backward() or a collective call in it fails.
  struct Held {
    std::shared_ptr<Impl> self;
    std::shared_ptr<Pass> pass;
    bool ended = false;
    Held(std::shared_ptr<Impl> of, std::shared_ptr<Pass> held)
        : self(std::move(of)), pass(std::move(held)) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
      if (ended) return;
      try {
        self->give_up(*pass);
      } catch (...) {  // there is no memory for zeros or marks
      }
    }
  };
  autograd::queue_callback([held = std::make_shared<Held>(shared_from_this(), pass)] {
    Impl& self = *held->self;
    self.pass_.reset();
    if (self.no_sync > 0)
      self.mark_local();
    else
      self.end_pass(*held->pass);
    held->ended = true;
  });
}

/// Buckets are sent in one order, on all ranks the same.
void Impl::launch_complete(Pass& pass) {
  const std::vector<Work>& works = pass.reduction.works;
  while (works.size() < buckets.size() && pass.missing[works.size()] == 0) launch(pass);
}

void Impl::launch(Pass& pass) {
  const Bucket& bucket = buckets[pass.reduction.works.size()];
  for (const size_t i : bucket.numbers())
    if (const Tensor& g = params[i].grad(); g.defined()) pass.marks[i] = shared_mark(g);
  const Array gathered = bucket.gathered();
  // Until finish() nobody may use them, such as a hook.
  for (const size_t i : bucket.numbers())
    if (pass.marks[i].known) set_mark(params[i].grad(), make_ref<LocalTag>(pass.marks[i].tag));
  reduce(pass.reduction, gathered);
}

void Impl::end_pass(Pass& pass) {
  const NoGradGuard no_grad;
  while (pass.reduction.works.size() < buckets.size()) launch(pass);
  std::vector<bool> defined;
  for (size_t i = 0; i < params.size(); ++i) {
    defined.push_back(params[i].grad().defined());
    check_there(i, defined[i] || !pass.arrived[i]);
  }
  const std::vector<bool> anywhere = any_rank(defined);
  if (options.average_buffers) average_buffers();
  finish(pass.reduction, defined, anywhere, pass.marks);
}

/// What has become of the gradients is this rank's alone. Those that were sent are lost: calls that
/// still run write to their bytes, so the parameters let go of these, and get zeros.
void Impl::give_up(Pass& pass) {
  const size_t begun = pass.reduction.sums.size();
  std::vector<bool> sent(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor& g = params[i].mutable_grad();
    sent[i] = bucket_of_[i] < begun && g.defined();
    if (sent[i]) g = Tensor();
  }
  lost_ = std::move(pass.reduction.works);
  mark_local();
  for (size_t i = 0; i < params.size(); ++i) {
    if (!sent[i]) continue;
    const Tensor& p = params[i];
    p.mutable_grad() = Tensor(full(p.sizes(), 0, p.dtype(), p.device()));
    set_mark(p.grad(), make_ref<LocalTag>(pass.marks[i].tag));
  }
}

/// After a backward() under no_sync().
void Impl::mark_local() {
  for (const Tensor& p : params) {
    if (!p.grad().defined()) continue;
    const GradMark mark = mark_of(p.grad());
    // A gradient that was set to zero, and to which this rank added nothing, is not known.
    if (mark.known && !dynamic_cast<const LocalTag*>(mark.tag.get()))
      set_mark(p.grad(), make_ref<LocalTag>(mark.tag));
  }
}

std::vector<bool> Impl::any_rank(const std::vector<bool>& flags) {
  if (group->size() == 1) return flags;
  if (!agreed_.empty()) {
    HALFTAPE_CHECK(flags == asked_,
                   "DistributedDataParallel: other parameters got gradients than in the first "
                   "backward(); on a GPU that must not change");
    return agreed_;
  }
  std::vector<float> numbers(flags.begin(), flags.end());
  const Tensor largest = tensor(numbers).to(params[0].device());
  group->all_reduce(largest, ReduceOp::Max, {.label = "which gradients there are"});
  numbers = largest.to_vector<float>();
  std::vector<bool> any;
  any.reserve(numbers.size());
  for (const float n : numbers) any.push_back(n != 0);
  if (group->queues()) asked_ = flags, agreed_ = any;
  return any;
}

void Impl::check_usable() const {
  HALFTAPE_CHECK(!left_early,
                 "DistributedDataParallel: a loop over shards() was left before its "
                 "end, and the ranks have parted; end the program, and resume");
}

DistributedDataParallel::DistributedDataParallel(const nn::Module& module,
                                                 DataParallelOptions options,
                                                 std::shared_ptr<ProcessGroup> group)
    : impl_(std::make_shared<Impl>(module, options, std::move(group))) {
  const uint64_t seed = impl_->check_same_model();
  impl_->broadcast_weights(0);
  impl_->listen();
  agreement_ = agree_over(impl_->group, impl_->params, seed);
}
DistributedDataParallel::~DistributedDataParallel() = default;

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp) : ddp_(ddp) {
  ++ddp_.impl_->no_sync;
}
DistributedDataParallel::NoSync::~NoSync() { --ddp_.impl_->no_sync; }

void DistributedDataParallel::gather_gradients() { impl_->gather_gradients(); }
void DistributedDataParallel::check_weights() const { impl_->check_weights(); }
void DistributedDataParallel::broadcast_weights(int src) { impl_->broadcast_weights(src); }
ProcessGroup& DistributedDataParallel::group() const { return *impl_->group; }
std::vector<std::vector<size_t>> DistributedDataParallel::buckets() const {
  std::vector<std::vector<size_t>> all;
  for (const Bucket& bucket : impl_->buckets) all.push_back(bucket.numbers());
  return all;
}

}  // namespace halftape::distributed
