#include "halftape/autograd/tensor.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/engine.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/autograd/tape/weight_cast.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/per_thread.h"
#include "halftape/core/machine/warn.h"

namespace halftape {
namespace detail {
namespace {
using LiveTensors = Counter<struct OfTensors>;
}
TensorImpl::TensorImpl(Array&& v) : value(std::move(v)) {
  inference = InferenceMode::is_enabled();
  LiveTensors::add(1);
}
namespace {
/// Drops a dying tensor's gradient. One that has a gradient, that has one, and so on, is dropped in
/// a loop of the first call: a chain of a million does not recurse.
void drop(Tensor&& grad) noexcept {
  thread_local constinit TensorImpl* waiting = nullptr;
  thread_local constinit bool dropping = false;
  Ref<TensorImpl> held(grad.impl());
  grad.reset();
  if (waiting) return;  // a second one of the same turn, that of a view's base, goes at once
  waiting = held.leak();
  if (dropping) return;
  dropping = true;
  while (waiting) Ref<TensorImpl>::adopt(std::exchange(waiting, nullptr));
  dropping = false;
}
}  // namespace

TensorImpl::~TensorImpl() {
  if (low_copied) drop_low_copy(this);
  if (accumulator) static_cast<Accumulate&>(*accumulator).detach_leaf();
  if (retained) retained->cut();
  LiveTensors::add(-1);
  if (grad.impl()) [[unlikely]]
    drop(std::move(grad));
}

void TensorImpl::set_value(Array v) {
  value = std::move(v);
  marked_version = ~uint64_t{0};  // the mark was of the other bytes
  if (low_copied) drop_low_copy(this);
}

void TensorImpl::becomes_view_of(const Tensor& x) {
  // As in LibTorch: a tensor and its views are all made in InferenceMode, or none of them is.
  inference = x.is_inference();
  if (inference) return;
  is_view = true;
  const TensorImpl* parent = x.impl();
  base = parent->is_view ? parent->base : Ref(x.impl());
  seen = base ? base->rewritten : 0;
  creation_meta = parent->creation_meta;
  if (GradMode::is_enabled()) return;
  creation_meta = InferenceMode::is_enabled() ? autograd::CreationMeta::INFERENCE_MODE
                                              : autograd::CreationMeta::NO_GRAD_MODE;
  // As in PyTorch (issue 11390): requires_grad() is true, but gradients end here.
  unrecorded = x.requires_grad();
}

void TensorImpl::set_history(Edge edge) {
  if (retained) {
    if (history)
      std::erase_if(history.node->extras().retained,
                    [&](const auto& entry) { return entry.second == retained; });
    if (edge) edge.node->extras().retained.emplace_back(edge.output, retained);
  }
  history = std::move(edge);
  if (!is_view) ++rewritten;
}

void TensorImpl::catch_up() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (!outdated()) return;
  if (follows() || !(history || Tensor(base).requires_grad())) return renew();
  if (!unrecorded) unrecorded = true;
}

std::string TensorImpl::creation() const {
  using autograd::CreationMeta;
  const char* where = creation_meta == CreationMeta::IN_CUSTOM_FUNCTION ? "inside a custom Function"
                      : creation_meta == CreationMeta::INFERENCE_MODE   ? "in inference mode"
                                                                        : "in no_grad mode";
  return std::string("A view was created ") + where;
}

void TensorImpl::refuse_outdated() const {
  const bool in_function = creation_meta == autograd::CreationMeta::IN_CUSTOM_FUNCTION;
  fail(creation(), " and its base or another view of its base has been modified inplace since, ",
       "so that gradients of ", value.shape(), " would be lost; ",
       in_function ? "clone() the output of the Function"
                   : "make the view and the change both while recording, or neither");
}

void TensorImpl::renew() {
  if (!Tensor(base).requires_grad()) {
    set_history({});
    seen = base->rewritten;
    return;
  }
  const AutoGradMode recording(true);
  set_history(history_of_view(Tensor(base), value));
  seen = base->rewritten;
}

void undefined_tensor() {
  HALFTAPE_CHECK(
      false,
      "an undefined tensor was used: a default-constructed Tensor has no shape, dtype or values");
  std::abort();
}

int64_t TensorImpl::live_count() { return LiveTensors::total(); }
void dispose(TensorImpl* impl) noexcept { delete impl; }  // NOLINT: the counterpart of make_ref
}  // namespace detail

Tensor::Tensor(Array value) : TensorBase(make_ref<detail::TensorImpl>(std::move(value))) {}

const Array& TensorBase::host_array(const char* who) const {
  const Array& a = array();
  HALFTAPE_CHECK(a.device().is_cpu(), who, ": the tensor is on ", a.device(),
                 "; copy it with .cpu() first");
  return a;
}

int64_t TensorBase::size(int64_t d) const {
  HALFTAPE_CHECK(dim() > 0, "size(", d, "): the tensor has no dimensions");
  return sizes()[wrap_dim("size", d, sizes().size())];
}

int64_t TensorBase::stride(int64_t d) const {
  HALFTAPE_CHECK(dim() > 0, "stride(", d, "): the tensor has no dimensions");
  return strides()[wrap_dim("stride", d, sizes().size())];
}

void* TensorBase::data_ptr() const {
  array().bump_version();
  array().buffer()->expose();
  return array().raw();
}

bool TensorBase::is_nonzero() const {
  HALFTAPE_CHECK(numel() == 1, "is_nonzero: a tensor of shape ", sizes(), " has ", numel(),
                 " elements; it needs exactly one");
  return is_floating_point() ? read_double(array()) != 0 : read_int64(array()) != 0;
}

Scalar TensorBase::item() const {
  if (is_floating_point()) return read_double(array());
  return dtype() == kBool ? Scalar(read_int64(array()) != 0) : Scalar(read_int64(array()));
}

int64_t TensorBase::integer_item() const {
  const double v = std::trunc(read_double(array()));
  HALFTAPE_CHECK(v >= -0x1p63 && v < 0x1p63, "item: value ", v,
                 " cannot be converted to an integer without overflow");
  return static_cast<int64_t>(v);
}

int64_t TensorBase::output_nr() const { return is_leaf() ? 0 : impl_->history.output; }

void Tensor::set_data(const Tensor& other) const {
  const Array &mine = array(), &theirs = other.array();
  const bool trains = requires_grad();
  HALFTAPE_CHECK(is_leaf(), "set_data: only of leaves; this tensor was made by `",
                 impl_->history.node->name(), "`");
  HALFTAPE_CHECK(!trains || other.is_floating_point(), "set_data: ", other.dtype(),
                 " values for a tensor that requires grad; only floating-point tensors have "
                 "gradients");
  // The accumulator knows shape and dtype: it goes if it must, and the hooks stay.
  const bool fits = mine.shape() == theirs.shape() && mine.dtype() == theirs.dtype() &&
                    mine.device() == theirs.device();
  const bool other_numbers =
      !fits || mine.raw() != theirs.raw() || mine.strides() != theirs.strides();
  if (!fits) requires_grad_(false);
  impl_->set_value(theirs);
  impl_->times_set += other_numbers;
  requires_grad_(trains);
  for (const Ref<Node>& end : {impl_->accumulator, impl_->resting})
    if (!fits && end) static_cast<Accumulate&>(*end).slots = {};
}

bool TensorBase::is_leaf() const { return !requires_grad() || !impl_->history; }
bool TensorBase::is_inference() const { return impl_ && impl_->inference; }
bool TensorBase::is_view() const { return impl_ && impl_->is_view; }
Tensor Tensor::_base() const {
  array();
  HALFTAPE_CHECK(impl_->base, "_base: the tensor ", sizes(), " is not a view");
  return Tensor(impl_->base);
}
bool TensorBase::unique() const {
  if (!impl_ || impl_->use_count() != 1) return false;
  const Ref<detail::TensorImpl>& base = impl_->base;
  // A base that this view alone holds has the bytes for nobody else.
  const bool with_base =
      base && base->use_count() == 1 && base->value.buffer() == impl_->value.buffer();
  return impl_->value.unique(with_base ? 2 : 1);
}

const Tensor& Tensor::requires_grad_(bool on) const {
  array();
  requires_grad();  // brings a view's history up to date
  const bool own = impl_->history || impl_->accumulator;
  if (!on) impl_->unrecorded = false;
  if (on == own) return *this;
  HALFTAPE_CHECK(!on || !is_inference() || InferenceMode::is_enabled(),
                 "requires_grad_: Setting requires_grad=True on inference tensor outside "
                 "InferenceMode is not allowed. clone() it and set it for the copy");
  HALFTAPE_CHECK(is_leaf(),
                 "requires_grad_: you can only change requires_grad flags of leaf variables. This "
                 "tensor was made by `",
                 impl_->history.node->name(), "`; use detach() to get a leaf");
  HALFTAPE_CHECK(!on || is_floating_point(),
                 "requires_grad_: Only Tensors of floating point and complex dtype can require "
                 "gradients, and this is ",
                 dtype());
  if (on) {
    Ref<Node> former = std::exchange(impl_->resting, {});
    if (former && static_cast<Accumulate&>(*former).attach_leaf(impl_.get())) {
      impl_->accumulator = std::move(former);  // what was recorded before leads here
    } else {
      auto now = make_ref<Accumulate>(impl_.get());
      if (former) now->take_over(static_cast<Accumulate&>(*former));
      impl_->accumulator = std::move(now);
    }
  } else {
    static_cast<Accumulate&>(*impl_->accumulator).detach_leaf();
    impl_->resting = std::move(impl_->accumulator);
  }
  return *this;
}

const Tensor& Tensor::grad() const {
  if (impl_ && !impl_->grad.defined() && !impl_->retained && impl_->history)
    warn(
        "the grad() of a tensor that is not a leaf is asked for; it has none unless retain_grad() "
        "was called before the backward pass");
  return mutable_grad();
}
Tensor& Tensor::mutable_grad() const {
  array();
  return impl_->grad;
}

const Ref<Node>& TensorBase::grad_fn() const {
  array();
  requires_grad();  // brings a view's history up to date
  if (impl_->outdated()) [[unlikely]]
    impl_->refuse_outdated();
  return impl_->history.node;
}

Edge TensorBase::gradient_edge() const {
  if (!requires_grad()) return {};
  if (impl_->outdated()) [[unlikely]]
    impl_->refuse_outdated();
  return impl_->history ? impl_->history : Edge{impl_->accumulator, 0};
}

void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      const std::optional<TensorList>& inputs) const {
  autograd::backward({*this}, gradient.defined() ? TensorList{gradient} : TensorList{},
                     retain_graph, create_graph, inputs);
}

void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      std::initializer_list<Tensor> inputs) const {
  backward(gradient, retain_graph, create_graph, TensorList(inputs));
}

void TensorBase::retain_grad() const {
  const Edge edge = gradient_edge();
  HALFTAPE_CHECK(edge, "retain_grad: the tensor does not require grad");
  if (is_leaf() || impl_->retained) return;
  impl_->retained = std::make_shared<GradSlot>(impl_.get());
  edge.node->extras().retained.emplace_back(edge.output, impl_->retained);
}
bool TensorBase::retains_grad() const { return impl_ && impl_->retained; }

namespace {

/// Of no other hook of this process: a tensor may have another node, with other hooks, by the time
/// that one is taken back.
unsigned new_hook_number() {
  static std::atomic<unsigned> next{0};
  return next.fetch_add(1, std::memory_order_relaxed);
}

/// Takes back the hook of that number, if it is there. Hooks that run keep their places.
bool take_back(auto& hooks, unsigned number) {
  const auto found = std::find_if(hooks.begin(), hooks.end(), [number](const auto& hook) {
    return hook.number == number && hook.call;
  });
  if (found == hooks.end()) return false;
  found->call = nullptr;
  while (!hooks.empty() && !hooks.back().call) hooks.pop_back();
  return true;
}

}  // namespace

unsigned TensorBase::add_hook(std::function<Tensor(const Tensor&)> hook) const {
  const Edge edge = gradient_edge();
  HALFTAPE_CHECK(edge, "register_hook: the tensor does not require grad; no gradient will come");
  edge.node->extras().hooks.push_back({new_hook_number(), edge.output, std::move(hook)});
  return edge.node->extras().hooks.back().number;
}
void TensorBase::remove_hook(unsigned number) const {
  const Ref<Node> present = gradient_edge().node, resting = impl_ ? impl_->resting : Ref<Node>();
  for (const Ref<Node>& node : {present, resting}) {
    if (!node) continue;
    if (take_back(node->extras().hooks, number)) return;
    const bool of_leaf = node == resting || node == impl_->accumulator;
    if (of_leaf && take_back(static_cast<Accumulate&>(*node).after, number)) return;
  }
  halftape::detail::fail("remove_hook: Invalid index ", number,
                         ": this tensor's present value has no such hook");
}
unsigned TensorBase::register_post_accumulate_grad_hook(std::function<void(Tensor)> hook) const {
  HALFTAPE_CHECK(
      impl_ && impl_->accumulator,
      "register_post_accumulate_grad_hook: only leaves that require grad accumulate one");
  impl_->watch();
  auto& hooks = static_cast<Accumulate&>(*impl_->accumulator).after;
  hooks.push_back({new_hook_number(), std::move(hook)});
  return hooks.back().number;
}

namespace {
/// True if `order` names the dimensions from the one whose neighbours lie closest on: strides never
/// fall. Where the sizes of 1 leave both orders possible, row-major is meant.
bool is_strided_in(const TensorBase& t, std::initializer_list<int> order) {
  int64_t least = 0;
  if (t.strides()[1] == 0) return false;
  for (const int d : order) {
    const int64_t n = t.sizes()[d], stride = t.strides()[d];
    if (n == 0 || stride < least || (d == 0 && least == t.strides()[1])) return false;
    least = n > 1 ? stride * n : stride;
  }
  return true;
}
}  // namespace

bool TensorBase::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::ChannelsLast)
    return dim() == 4 && (numel() == 0 || array().permute({0, 2, 3, 1}).contiguous());
  if (format == MemoryFormat::ChannelsLast3d)
    return dim() == 5 && (numel() == 0 || array().permute({0, 2, 3, 4, 1}).contiguous());
  return is_contiguous();
}
MemoryFormat TensorBase::suggest_memory_format() const {
  if (dim() == 4 && is_strided_in(*this, {1, 3, 2, 0})) return MemoryFormat::ChannelsLast;
  if (dim() == 5 && is_strided_in(*this, {1, 4, 3, 2, 0})) return MemoryFormat::ChannelsLast3d;
  return MemoryFormat::Contiguous;
}

Tensor Tensor::detach() const {
  Tensor t(array());
  t.impl_->inference = impl_->inference;  // as a view's: the bytes are the same
  return t;
}

Tensor& Tensor::detach_() const {
  array();
  HALFTAPE_CHECK(!impl_->is_view, "detach_: a view cannot leave its base's graph; use detach()");
  const uint32_t writes = impl_->rewritten;
  impl_->set_history({});
  impl_->rewritten = writes;  // views keep their histories, as nothing was written
  requires_grad_(false);
  return const_cast<Tensor&>(*this);  // NOLINT: const as LibTorch's
}

template <class T>
std::vector<T> TensorBase::to_vector() const {
  const Array a = array().to(dtype_of<T>).to_contiguous();
  auto out = host_vector<T>(a.numel());
  if (a.numel() > 0) backend(a.device()).read(out.data(), a);
  return out;
}
template std::vector<double> TensorBase::to_vector() const;
template std::vector<float> TensorBase::to_vector() const;
template std::vector<int8_t> TensorBase::to_vector() const;
template std::vector<int16_t> TensorBase::to_vector() const;
template std::vector<int32_t> TensorBase::to_vector() const;
template std::vector<int64_t> TensorBase::to_vector() const;
template std::vector<uint8_t> TensorBase::to_vector() const;
template std::vector<Half> TensorBase::to_vector() const;
template std::vector<BFloat16> TensorBase::to_vector() const;

}  // namespace halftape
