// The models of all ranks are compared at the start, and their numbers when that is asked for.
#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/contract/backend.h"
#include "halftape/distributed/data_parallel/impl.h"
#include "halftape/distributed/engine/mix.h"

namespace halftape::distributed {

uint64_t hash_bytes(const void* bytes, size_t n) {
  uint64_t hash = n;
  for (size_t i = 0; i < n; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(bytes) + i, std::min<size_t>(8, n - i));
    hash = mix(hash, word);
  }
  return hash;
}

using Impl = DistributedDataParallel::Impl;

namespace {

uint64_t hash_of(const Tensor& t) {
  const Array host = t.array().to_contiguous().to(kCPU);
  return hash_bytes(host.raw(), static_cast<size_t>(host.numel()) * element_size(host.dtype()));
}

/// The numbers of all ranks, (size, n).
std::vector<std::vector<int64_t>> gathered(ProcessGroup& group, const std::vector<uint64_t>& own,
                                           const char* label) {
  const auto n = static_cast<int64_t>(own.size());
  std::vector<int64_t> numbers(own.begin(), own.end());
  const TensorOptions host = TensorOptions(kInt64).device(kCPU);
  const Tensor mine = tensor(numbers, host), all = empty({group.size() * n}, host);
  group.all_gather_into_tensor(all, mine, {.label = label});
  const std::vector<int64_t> flat = all.to_vector<int64_t>();
  std::vector<std::vector<int64_t>> ranks;
  ranks.reserve(static_cast<size_t>(group.size()));
  for (int r = 0; r < group.size(); ++r)
    ranks.emplace_back(flat.begin() + r * n, flat.begin() + (r + 1) * n);
  return ranks;
}

}  // namespace

Tensor Impl::ends_of(const Array& floats) const {
  const auto is_float64 = [](const Tensor& b) { return b.dtype() == kFloat64; };
  if (!floats.defined() || std::none_of(buffers.begin(), buffers.end(), is_float64)) return {};
  const Tensor x(floats);
  return stack({x, neg(x)});
}

void Impl::keep_equal(const Array& means, const Tensor& ends) const {
  if (!ends.defined()) return;
  group->all_reduce(ends, ReduceOp::Max, {.label = "buffers"});
  const Tensor most = ends.select(0, 0), least = neg(ends.select(0, 1));
  const Tensor is_one = logical_and(eq(most, least), ne(most, 0)),
               counts = logical_and(is_one, eq(Tensor(means), Tensor(means)));  // NaN stays
  backend(means.device()).copy(means, where(counts, most, Tensor(means)).array());
}

std::string text_of(ProcessGroup& group, const std::string& own, int rank,
                    const std::string& label) {
  const Tensor size = tensor(std::vector<int64_t>{static_cast<int64_t>(own.size())},
                             TensorOptions(kInt64).device(kCPU));
  group.broadcast(size, rank, {.label = label});
  const Tensor bytes = zeros({size.item<int64_t>()}, TensorOptions(kUInt8).device(kCPU));
  if (group.rank() == rank && !own.empty())
    std::memcpy(bytes.array().raw(), own.data(), own.size());
  group.broadcast(bytes, rank, {.label = label});
  return {static_cast<const char*>(bytes.array().raw()), static_cast<size_t>(bytes.numel())};
}

std::string Impl::describe(size_t i) const {
  const Tensor& t = all[i];
  const char* kind = i < params.size()                 ? ""
                     : i < all.size() - buffers.size() ? ", frozen"
                                                       : ", a buffer";
  return detail::str(names[i], ": ", t.dtype(), ' ', t.sizes(), kind);
}

uint64_t Impl::check_same_model() const {
  const Generator now = get_generator();
  const uint64_t drawn[] = {now.seed, now.offset}, seed = hash_bytes(drawn, sizeof(drawn));
  if (group->size() == 1) return seed;
  std::ostringstream text;
  for (size_t i = 0; i < all.size(); ++i) text << describe(i) << '\n';
  text << "options: bucket_bytes " << options.bucket_bytes << ", first_bucket_bytes "
       << options.first_bucket_bytes << ", overlap " << options.overlap << ", average_buffers "
       << options.average_buffers << ", shards " << options.shards << ", summation "
       << (group->summation() == Summation::Tree ? "Tree" : "Engine") << '\n';
  const std::string own = text.str();
  const auto ranks = gathered(*group, {hash_bytes(own.data(), own.size()), seed},
                              "hash of the model's description");
  for (int r = 1; r < group->size(); ++r) {
    if (ranks[static_cast<size_t>(r)][0] == ranks[0][0]) continue;
    std::istringstream theirs(text_of(*group, own, r, "description of a model")),
        first(text_of(*group, own, 0, "description of a model"));
    std::string a, b;
    do {
      if (!std::getline(first, a)) a = "nothing more";
      if (!std::getline(theirs, b)) b = "nothing more";
    } while (a == b && a != "nothing more");
    halftape::detail::fail("DistributedDataParallel: the models of ranks 0 and ", r,
                           " differ: rank 0 has \"", a, "\", rank ", r, " has \"", b, "\"");
  }
  return static_cast<uint64_t>(ranks[0][1]);
}

void Impl::broadcast_weights(int src) {
  const NoGradGuard no_grad;
  HALFTAPE_CHECK(src >= 0 && src < group->size(), "broadcast_weights: from rank ", src,
                 " in a group of ", group->size());
  for (size_t i = 0; i < all.size() && group->size() > 1; ++i)
    group->broadcast(all[i].detach(), src, {.label = names[i]});
}

void Impl::check_weights() const {
  std::vector<uint64_t> own;
  for (const Tensor& t : all) own.push_back(hash_of(t));
  if (group->size() == 1) return;
  const auto ranks = gathered(*group, own, "hashes of the weights");
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t r = 1; r < ranks.size(); ++r)
      HALFTAPE_CHECK(ranks[r][i] == ranks[0][i], "DistributedDataParallel: rank ", r,
                     " has other numbers than rank 0 in ", describe(i),
                     "; was it changed on one rank alone?");
}

BufferValues Impl::buffer_values() const {
  BufferValues values;
  for (const bool floating : {true, false}) {
    int64_t n = 0;
    for (const Tensor& b : buffers)
      if (b.is_floating_point() == floating) n += b.numel();
    if (n == 0) continue;
    Array flat({n}, floating ? kFloat64 : kInt64, buffers[0].device());
    int64_t at = 0;
    for (const Tensor& b : buffers) {
      if (b.is_floating_point() != floating) continue;
      const Array part = flat.slice(0, at, at + b.numel()).reshape(b.sizes());
      backend(flat.device()).copy(part, b.array());
      at += b.numel();
    }
    (floating ? values.floats : values.integers) = flat;
  }
  return values;
}

void Impl::set_buffers(const BufferValues& values) {
  int64_t at[] = {0, 0};
  for (const Tensor& b : buffers) {
    if (b.numel() == 0) continue;  // where there are no others of its kind, there is no array
    const bool floating = b.is_floating_point();
    const Array& flat = floating ? values.floats : values.integers;
    int64_t& begin = at[floating];
    backend(flat.device())
        .copy(b.array(), flat.slice(0, begin, begin + b.numel()).reshape(b.sizes()));
    b.array().bump_version();
    begin += b.numel();
  }
}

void Impl::average_buffers() {
  if (group->size() == 1 || buffers.empty()) return;
  const BufferValues values = buffer_values();
  if (values.floats.defined()) {
    const Tensor ends = ends_of(values.floats);
    group->all_reduce(Tensor(values.floats), ReduceOp::Avg, {.label = "buffers"});
    keep_equal(values.floats, ends);
  }
  if (values.integers.defined()) group->broadcast(Tensor(values.integers), 0, {.label = "buffers"});
  set_buffers(values);
}

}  // namespace halftape::distributed
