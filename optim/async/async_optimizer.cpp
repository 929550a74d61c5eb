#include "halftape/optim/async/async_optimizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/warn.h"
#include "halftape/optim/async/worker.h"
#include "halftape/optim/clip_grad.h"
#include "halftape/optim/state/flat_storage.h"
#include "halftape/optim/state/mismatches.h"

namespace halftape::optim {

namespace {
std::atomic<MeetingHook> meeting_hook{nullptr};
void meet(Meeting point) {
  if (const MeetingHook hook = meeting_hook.load(std::memory_order_acquire)) hook(point);
}
}  // namespace

MeetingHook set_meeting_hook(MeetingHook hook) { return meeting_hook.exchange(hook); }

/// What a step's two threads share.
struct AsyncStep::Record {
  const int64_t number;
  const float scale;
  StepVerdict verdict = StepVerdict::Failed;  // final once checked, as is nonfinite
  std::optional<size_t> nonfinite;

  void finish_check() {
    {
      const std::lock_guard lock(mutex_);
      checked_ = true;
    }
    changed_.notify_all();
  }
  void wait_for_check() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return checked_; });
  }

  Record(int64_t the_number, float the_scale) : number(the_number), scale(the_scale) {}

 private:
  // No std::atomic::wait: that of libstdc++ 12 loses calls of notify where there is no futex.
  std::mutex mutex_;
  std::condition_variable changed_;
  bool checked_ = false;
};

AsyncStep::AsyncStep(int64_t number, float scale)
    : record_(std::make_shared<Record>(number, scale)) {}
int64_t AsyncStep::number() const { return record_->number; }
float AsyncStep::scale() const { return record_->scale; }

StepVerdict AsyncStep::verdict() const {
  meet(Meeting::Await);
  record_->wait_for_check();
  return record_->verdict;
}

std::optional<size_t> AsyncStep::nonfinite() const {
  verdict();
  return record_->nonfinite;
}

/// A step by value: it reads nothing that the caller may change later.
struct AsyncOptimizer::StepTask {
  AsyncStep step;
  AsyncStepOptions options;
  std::vector<std::shared_ptr<const OptimizerOptions>> groups;
  std::vector<Tensor> grads;           // of parameters(), undefined for none; owned by this step
  std::shared_ptr<QueueMoment> ready;  // gradients and newest_ are computed; null without queues
};

AsyncOptimizer::AsyncOptimizer(std::unique_ptr<Optimizer> optimizer)
    : inner_(std::move(optimizer)), worker_(std::make_unique<Worker>()) {
  HALFTAPE_CHECK(inner_, "AsyncOptimizer: expected an optimizer, got null");
  HALFTAPE_CHECK(!inner_->needs_closure(),
                 "AsyncOptimizer: the step() of this optimizer needs a closure, which cannot run "
                 "beside the next forward pass; call the optimizer itself");
  HALFTAPE_CHECK(!inner_->is_collective(),
                 "AsyncOptimizer: the step() of this optimizer, as a ZeroRedundancyOptimizer's, "
                 "sends messages, which would come among those of the next backward pass in "
                 "another order on each rank; call the optimizer itself");
  inner_->alive_ = std::make_shared<char>();  // what was made for it would change it alone
  groups_ = inner_->param_groups();
  model_ = parameters_of(inner_->param_groups());
  HALFTAPE_CHECK(!model_.empty(),
                 "AsyncOptimizer: the optimizer has no parameters; are the modules registered?");
  // The wrapped optimizer goes on with copies of the weights, which no graph of the model has
  // saved, and with its state for the originals.
  const OptimizerState state = inner_->state_dict();
  for (OptimizerParamGroup& group : inner_->param_groups())
    for (Tensor& p : group.params()) p = Tensor(p.array().clone());
  inner_->load_state_dict(state);
  if (!inner_->flat_regions().empty()) inner_->flatten();
  newest_ = parameters_of(inner_->param_groups());
  for (const Tensor& p : model_) seen_.emplace_back(p);
  const Device device = model_[0].device();
  if (std::all_of(model_.begin(), model_.end(), [&](auto& p) { return p.device() == device; }))
    if (Queues* const queues = backend(device).queues()) queue_ = queues->new_side_queue();
}

AsyncOptimizer::~AsyncOptimizer() {
  try {
    synchronize();
  } catch (const std::exception& e) {
    warn(std::string("AsyncOptimizer: at its end, and so not thrown: ") + e.what());
  } catch (...) {
    warn("AsyncOptimizer: a step threw at its end, and nobody was left to catch it");
  }
}

AsyncStep AsyncOptimizer::step(const AsyncStepOptions& options) {
  HALFTAPE_CHECK(
      !Capture::active_or_tried(),
      "AsyncOptimizer::step: inside the step of a Graph, which cannot capture its worker; "
      "capture the step of the wrapped optimizer");
  drain();
  const std::vector<std::vector<Tensor>> updated = ready();
  check(options, updated);
  meet(Meeting::Publish);
  reconcile("step");
  for (size_t i = 0; i < groups_.size(); ++i) {
    std::vector<Tensor> originals = groups_[i].params();
    std::erase_if(originals, [](const Tensor& p) { return !p.grad().defined(); });
    inner_->draw_keys(groups_[i].options(), updated[i], originals);
  }
  StepTask task{{steps_++, static_cast<float>(options.scale.value_or(1))}, options, {}, {}, {}};
  for (const OptimizerParamGroup& group : groups_) task.groups.push_back(group.options().clone());
  if (options.found_inf.defined()) task.options.found_inf = options.found_inf.clone();
  task.grads = take_gradients();
  if (queue_) {
    task.ready = backend(model_[0].device()).queues()->now();
    // Freed memory is reused in the order of the caller's queue, where the worker's reads may come
    // later: hold it until drain().
    in_use_ = task.grads;
    if (options.found_inf.defined()) in_use_.emplace_back(task.options.found_inf);
  }
  AsyncStep step = task.step;
  meet(Meeting::HandOver);
  stale_ = true;
  worker_->start([this, task = std::move(task)] { run(task); });
  if (!options.is_async) synchronize();
  return step;
}

void AsyncOptimizer::drain() {
  meet(Meeting::Wait);
  std::exception_ptr failed;
  try {
    worker_->wait();
  } catch (...) {
    failed = std::current_exception();
  }
  if (const auto done = std::exchange(done_, nullptr)) done->await();
  in_use_.clear();
  if (failed) std::rethrow_exception(failed);
}

void AsyncOptimizer::synchronize() {
  drain();
  meet(Meeting::Publish);
  reconcile("synchronize");
}

void AsyncOptimizer::check_groups(const char* call) const {
  HALFTAPE_CHECK(groups_.size() == inner_->param_groups().size(), "AsyncOptimizer::", call,
                 ": param_groups() has ", groups_.size(), " groups, was made with ",
                 inner_->param_groups().size(), "; wrap a new optimizer to add one");
  auto of_model = model_.begin();
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<Tensor>& now = groups_[g].params();
    const size_t count = inner_->param_groups()[g].params().size();
    HALFTAPE_CHECK(now.size() == count && std::equal(now.begin(), now.end(), of_model,
                                                     [](auto& a, auto& b) { return a.is_same(b); }),
                   "AsyncOptimizer::", call, ": group ", g,
                   " has other parameters than it was made with; ",
                   "wrap a new optimizer to change them");
    of_model += static_cast<std::ptrdiff_t>(count);
  }
}

/// The parameters of the wrapped optimizer that a step would update, group by group.
std::vector<std::vector<Tensor>> AsyncOptimizer::ready() const {
  std::vector<std::vector<Tensor>> all;
  auto of_model = model_.begin();
  for (const OptimizerParamGroup& group : inner_->param_groups()) {
    auto& with_grad = all.emplace_back();
    for (const Tensor& p : group.params())
      if ((of_model++)->grad().defined()) with_grad.push_back(p);
  }
  return all;
}

void AsyncOptimizer::check(const AsyncStepOptions& options,
                           const std::vector<std::vector<Tensor>>& updated) const {
  check_groups("step");
  for (size_t i = 0; i < groups_.size(); ++i) {
    inner_->check_options(groups_[i].options());
    groups_[i].options().validate();
    inner_->check_state(groups_[i].options(), updated[i]);
  }
  if (options.scale)
    HALFTAPE_CHECK(*options.scale > 0 && std::isfinite(static_cast<float>(*options.scale)),
                   "AsyncOptimizer::step: scale ", *options.scale,
                   " must be positive and finite in float32");
  HALFTAPE_CHECK(!options.max_norm || *options.max_norm > 0, "AsyncOptimizer::step: max_norm ",
                 options.max_norm.value_or(0), " must be positive; leave it out not to clip");
  if (const Array& flag = options.found_inf; flag.defined())
    HALFTAPE_CHECK(flag.dtype() == kFloat32 && flag.numel() == 1,
                   "AsyncOptimizer::step: found_inf ", flag.dtype(), " ", flag.shape(),
                   " must be one float32");
  HALFTAPE_CHECK(options.norm_type > 0, "AsyncOptimizer::step: norm_type ", options.norm_type,
                 " must be positive");
  for (const Tensor& p : model_) {
    const Tensor& g = p.grad();
    check_mark(g, "AsyncOptimizer::step",
               options.scale ? GradTag::Use::Scaled : GradTag::Use::Unscaled);
    HALFTAPE_CHECK(!g.defined() || (g.sizes() == p.sizes() && g.is_floating_point()),
                   "AsyncOptimizer::step: a gradient (", g.sizes(), ", ", g.dtype(),
                   ") does not fit its parameter (", p.sizes(), ", ", p.dtype(), ")");
    if (!options.scale) check_verdict(g);  // with a scale the worker looks itself
  }
}

/// With no step in flight: that no write is about to be lost, and the model is of its former form.
void AsyncOptimizer::check_weights(const char* call) const {
  for (size_t i = 0; i < model_.size(); ++i) {
    HALFTAPE_CHECK(!stale_ || seen_[i].is(model_[i]), "AsyncOptimizer::", call,
                   ": a parameter of shape ", model_[i].sizes(),
                   " was written while it was one step behind, and the write would be lost; call "
                   "synchronize() first, or step with is_async = false");
    HALFTAPE_CHECK(model_[i].sizes() == newest_[i].sizes() &&
                       model_[i].dtype() == newest_[i].dtype() &&
                       model_[i].device() == newest_[i].device(),
                   "AsyncOptimizer::", call, ": a parameter is now ", model_[i].dtype(), " ",
                   model_[i].sizes(), " and was ", newest_[i].dtype(), " ", newest_[i].sizes(),
                   "; make a new AsyncOptimizer");
  }
}

/// With no step in flight: copies the newest weights into the model, or, if the model had them
/// already, what was written into the model since into newest_.
void AsyncOptimizer::reconcile(const char* call) {
  check_weights(call);
  const NoGradGuard no_grad;
  for (size_t i = 0; i < model_.size(); ++i) {
    if (stale_)
      model_[i].copy_(newest_[i]);
    else if (!seen_[i].is_surely(model_[i]))
      newest_[i].copy_(model_[i]);
    seen_[i] = SeenWeight(model_[i]);
  }
  stale_ = false;
}

std::vector<Tensor> AsyncOptimizer::take_gradients() {
  std::vector<Tensor> taken;
  for (const Tensor& p : model_) {
    // Moved out, so that the next backward pass takes another buffer. Bytes that another tensor
    // shares are copied.
    Tensor g = std::exchange(p.mutable_grad(), Tensor());
    if (!g.defined())
      taken.emplace_back();
    else
      taken.emplace_back(
          g.unique() && !overlaps_itself(g.sizes(), g.strides()) ? g.array() : g.array().clone());
  }
  return taken;
}

/// On the worker's thread, in its queue.
void AsyncOptimizer::run(const StepTask& task) {
  if (!queue_) return update(task);
  queue_->use([&] {
    std::exception_ptr failed;
    try {
      task.ready->await();
      update(task);
    } catch (...) {
      failed = std::current_exception();
      task.step.record_->finish_check();  // as Failed, so that verdict() returns
    }
    done_ = backend(newest_[0].device()).queues()->now();  // also when the step has failed half-way
    if (failed) std::rethrow_exception(failed);
  });
}

/// On the worker's thread: checks, publishes the verdict, clips, updates.
void AsyncOptimizer::update(const StepTask& task) {
  AsyncStep::Record& record = *task.step.record_;
  Array inverse;  // of the scale, while the gradients are still scaled; else undefined
  try {
    meet(Meeting::Check);
    std::vector<Array> grads;  // of the parameters in order; undefined for none
    const Tensor* some = nullptr;
    for (size_t i = 0; i < newest_.size(); ++i) {
      const Tensor& g = task.grads[i];
      newest_[i].mutable_grad() = g;
      grads.push_back(g.defined() ? g.array() : Array());
      if (g.defined()) some = &g;
    }
    StepVerdict verdict = some ? StepVerdict::Finite : StepVerdict::NoGradients;
    if (task.options.scale && some) {
      const Device device = some->device();
      const Array& known = task.options.found_inf;
      const Array found_inf = known.defined() ? known : full({}, 0, kFloat32, device);
      const Array first = full({}, -1, kInt64, device);
      inverse = full({}, 1 / record.scale, kFloat32, device);
      // No one else reads these gradients: without clipping, the update divides them as it reads.
      if (task.options.max_norm || !inner_->supports_control())
        backend(device).unscale(grads, std::exchange(inverse, {}), found_inf, first);
      else
        backend(device).check_finite(grads, found_inf, inverse, first);
      if (read_double(found_inf) != 0) {
        verdict = StepVerdict::NonFinite;
        if (const double at = read_double(first); at >= 0)
          record.nonfinite = static_cast<size_t>(at);
      }
    }
    meet(Meeting::Verdict);
    record.verdict = verdict;
    record.finish_check();
  } catch (...) {
    record.finish_check();  // as Failed, so that verdict() returns
    throw;
  }
  meet(Meeting::Update);
  if (record.verdict == StepVerdict::Finite) {
    if (task.options.max_norm)
      nn::utils::clip_grad_norm_(newest_, *task.options.max_norm, task.options.norm_type);
    for (size_t i = 0; i < task.groups.size(); ++i)
      inner_->param_groups()[i].assign_options(task.groups[i]->clone());
    if (inverse.defined())
      inner_->step(StepControl{{}, inverse});
    else
      inner_->step();
  }
  inner_->zero_grad();  // frees the buffers before the next backward pass asks for some
}

void AsyncOptimizer::zero_grad() {
  for (const Tensor& p : model_) p.mutable_grad() = Tensor();
}

AsyncOptimizerState AsyncOptimizer::state_dict() {
  drain();
  check_groups("state_dict");
  check_weights("state_dict");
  if (!stale_) reconcile("state_dict");
  AsyncOptimizerState saved{inner_->state_dict(), {}, {}, steps_, stale_};
  for (size_t i = 0; i < groups_.size(); ++i) saved.optimizer.groups[i] = groups_[i].to_map();
  for (const Tensor& p : model_) saved.weights.push_back(p.array().clone());
  for (const Tensor& p : newest_) saved.newest.push_back(p.array().clone());
  return saved;
}

void AsyncOptimizer::load_state_dict(const AsyncOptimizerState& saved) {
  drain();
  check_groups("load_state_dict");
  Mismatches mismatches;
  if (saved.steps < 0 || saved.steps > int64_t{1} << 53)
    mismatches.add("it has ", saved.steps, " steps, expected 0 to 2^53");
  if (saved.steps == 0 && saved.stale) mismatches.add("it is stale after 0 steps");
  for (const auto* list : {&saved.weights, &saved.newest}) {
    if (list->size() != model_.size())
      mismatches.add("it has ", list->size(), " saved weights for ", model_.size(), " parameters");
    for (size_t i = 0; i < std::min(list->size(), model_.size()); ++i)
      mismatches.fits("saved weight " + std::to_string(i), (*list)[i],
                      {newest_[i].sizes(), newest_[i].dtype()});
  }
  const auto on_host = [](const Array& x) { return Tensor(x).to(kCPU); };
  for (size_t i = 0; i < model_.size() && !saved.stale && !mismatches.any(); ++i)
    if (!on_host(saved.weights[i]).allclose(on_host(saved.newest[i]), 0, 0, /*equal_nan=*/true))
      mismatches.add("saved weight ", i, " differs from the newest one, and it is not stale");
  mismatches.check("AsyncOptimizer::load_state_dict: the saved state does not fit");
  inner_->load_state_dict(saved.optimizer);
  const NoGradGuard no_grad;
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].assign_options(inner_->param_groups()[i].options().clone());
    groups_[i].initial_lr = inner_->param_groups()[i].initial_lr;
  }
  for (size_t i = 0; i < model_.size(); ++i) {
    model_[i].copy_(Tensor(saved.weights[i]));
    newest_[i].copy_(Tensor(saved.newest[i]));
    seen_[i] = SeenWeight(model_[i]);
  }
  steps_ = saved.steps;
  stale_ = saved.stale;
}

}  // namespace halftape::optim
