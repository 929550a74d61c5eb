#include "halftape/distributed/data_parallel/bucket.h"

#include <algorithm>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/node.h"
#include "halftape/core/contract/backend.h"
#include "halftape/distributed/collectives.h"

namespace halftape::distributed {
namespace {

constexpr int64_t kAligned = 32;
/// From so many bytes on, a copy into a bucket and back costs more than a call.
constexpr int64_t kAlone = int64_t{4} << 20;

int64_t bytes_of(const Tensor& t) {
  return t.numel() * static_cast<int64_t>(element_size(t.dtype()));
}

}  // namespace

Bucket::Bucket(const std::vector<Tensor>& all, std::vector<size_t> numbers)
    : numbers_(std::move(numbers)) {
  for (const size_t n : numbers_) {
    params_.push_back(all[n]);
    offsets_.push_back(numel_);
    numel_ = checked_add(numel_, (all[n].numel() + kAligned - 1) / kAligned * kAligned);
  }
}

Array Bucket::part(size_t i, const Array& gathered) const {
  const int64_t begin = offsets_[i];
  return gathered.slice(0, begin, begin + params_[i].numel()).reshape(params_[i].sizes());
}

const Tensor& Bucket::tensor(Of of, size_t i) const {
  return of == Of::Values ? params_[i] : params_[i].grad();
}

void Bucket::check_places() const {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& p = params_[i];
    const int64_t room = (i + 1 < params_.size() ? offsets_[i + 1] : numel_) - offsets_[i];
    HALFTAPE_CHECK(p.numel() <= room && p.dtype() == dtype() && p.device() == device(),
                   "DistributedDataParallel: since it was made, a parameter became ", p.sizes(),
                   " of ", p.dtype(), " on ", p.device(), ", in a bucket of ", dtype(), " on ",
                   device(), " with room for ", room,
                   " elements; change models before, or make it anew");
  }
}

/// Whether the bytes of this tensor may be reduced as they are.
bool Bucket::has_form(Of of, size_t i) const {
  const Tensor& t = tensor(of, i);
  const bool of_graph = of == Of::Gradients && t.defined() && t.requires_grad();
  return t.defined() && !of_graph && t.dtype() == dtype() && t.device() == device() &&
         t.is_contiguous() && t.sizes() == params_[i].sizes();
}

/// The only tensor, if it fills the bucket; else the range of one buffer in which all are parts, in
/// this bucket's places; else undefined.
Array Bucket::in_place(Of of) const {
  if (!has_form(of, 0)) return {};
  const Tensor& first = tensor(of, 0);
  const bool is_own = of == Of::Values || first.unique();
  if (params_.size() == 1 && first.numel() == numel_ && is_own)
    return first.array().reshape({numel_});
  Buffer* const whole = first.array().buffer()->whole();
  if (!whole) return {};
  const auto size = static_cast<int64_t>(element_size(dtype()));
  const auto place = [&](const Array& a) {  // in elements from the beginning of the buffer
    return (static_cast<char*>(a.raw()) - static_cast<char*>(whole->bytes())) / size;
  };
  const int64_t begin = place(first.array());
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!has_form(of, i)) return {};
    const Array& a = tensor(of, i).array();
    if (a.buffer()->whole() != whole || place(a) != begin + offsets_[i]) return {};
  }
  if ((begin + numel_) * size > static_cast<int64_t>(whole->size())) return {};
  return {BufferPtr(whole), {numel_}, {1}, begin, dtype()};
}

Array Bucket::copy_as(Dtype dtype, Of of) const {
  Array all({numel_}, dtype, device());
  Backend& on = backend(device());
  for (size_t i = 0; i < params_.size(); ++i) {
    const Tensor& g = tensor(of, i);
    const int64_t end = offsets_[i] + params_[i].numel(),
                  next = i + 1 < params_.size() ? offsets_[i + 1] : numel_;
    HALFTAPE_CHECK(!g.defined() || (g.sizes() == params_[i].sizes() && g.device() == device()),
                   "DistributedDataParallel: a gradient of shape ", g.sizes(), " on ", g.device(),
                   " for a parameter of shape ", params_[i].sizes(), " on ", device());
    if (g.defined()) on.copy(part(i, all), g.array());
    const Array zeros = all.slice(0, g.defined() ? end : offsets_[i], next);
    if (zeros.numel() > 0) on.fill(zeros, 0);
  }
  return all;
}

Array Bucket::gathered() const {
  check_places();
  Array own = in_place(Of::Gradients);
  if (own.defined()) {
    for (const Tensor& p : params_) p.grad().array().bump_version();
    return own;
  }
  Array copy = copy_as(dtype(), Of::Gradients);
  move_gradients_to(copy);
  return copy;
}

void Bucket::move_gradients_to(const Array& copy) const {
  const size_t size = element_size(dtype());
  for (size_t i = 0; i < params_.size(); ++i) {
    Tensor& g = params_[i].mutable_grad();
    if (!g.unique() || g.requires_grad() || g.dtype() != dtype() || g.numel() == 0) continue;
    // A part has a version of its own, which a change of another gradient leaves alone.
    const Ref<Buffer> bytes =
        Buffer::part_of(copy.buffer(), static_cast<size_t>(offsets_[i]) * size,
                        static_cast<size_t>(g.numel()) * size);
    g = Tensor(
        Array(bytes, params_[i].sizes(), contiguous_strides(params_[i].sizes()), 0, dtype()));
  }
}

Array Bucket::copied() const {
  check_places();
  return copy_as(compute_dtype(dtype()), Of::Gradients);
}

Array Bucket::values() const {
  check_places();
  const Array own = in_place(Of::Values);
  return own.defined() ? own : copy_as(dtype(), Of::Values);
}

void Bucket::put_values(const Array& values) const {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Array &to = params_[i].array(), from = part(i, values);
    if (to.numel() == 0 || to.raw() == from.raw()) continue;
    backend(device()).copy(to, from);
    to.bump_version();
  }
}

bool Bucket::holds(size_t i, const Array& gathered) const {
  const Tensor& g = params_[i].grad();
  return g.defined() && g.array().raw() == part(i, gathered).raw();
}

void Bucket::put(size_t i, const Array& gathered) const {
  if (holds(i, gathered)) return;
  const NoGradGuard no_grad;
  const Array from = part(i, gathered);
  Tensor& g = params_[i].mutable_grad();
  if (g.defined() && !g.requires_grad() && g.dtype() == dtype() &&
      !overlaps_itself(g.sizes(), g.strides())) {
    backend(device()).copy(g.array(), from);
    g.array().bump_version();
    return;
  }
  g = Tensor();
  auto* const end = static_cast<Accumulate*>(params_[i].impl()->accumulator.get());
  Array slot = end && end->slots ? end->slots->gradient() : Array();
  if (!slot.defined()) slot = Array(params_[i].sizes(), dtype(), device());
  backend(device()).copy(slot, from);
  g = Tensor(std::move(slot));
}

std::vector<Tensor> parts_for(const ProcessGroup& group, const Array& gathered) {
  std::vector<Tensor> parts;
  for (Array& part : parts_of(gathered, group.size())) parts.emplace_back(std::move(part));
  return parts;
}

std::vector<Bucket> cut_into_buckets(const std::vector<Tensor>& params, int64_t first_bytes,
                                     int64_t bytes) {
  std::vector<Bucket> buckets;
  std::vector<size_t> open;
  int64_t size = 0;
  const auto close = [&] {
    if (open.empty()) return;
    std::reverse(open.begin(), open.end());
    buckets.emplace_back(params, std::exchange(open, {}));
    size = 0;
  };
  for (size_t i = params.size(); i-- > 0;) {
    const Tensor& p = params[i];
    if (bytes_of(p) >= kAlone && p.numel() % kAligned == 0) {
      buckets.emplace_back(params, std::vector<size_t>{i});
      continue;
    }
    const bool other_kind = !open.empty() && (params[open[0]].dtype() != p.dtype() ||
                                              params[open[0]].device() != p.device());
    if (other_kind) close();
    open.push_back(i);
    size += bytes_of(p);
    if (size >= (buckets.empty() ? first_bytes : bytes)) close();
  }
  close();
  return buckets;
}

}  // namespace halftape::distributed
