#include "halftape/autograd/ops/indexing/embedding.h"

#include <limits>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/mask.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/reduction/scan.h"
#include "halftape/autograd/ops/reduction/statistics.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

void check_table(const char* op, const Tensor& weight, const Tensor& indices) {
  HALFTAPE_CHECK(weight.dim() == 2, op, ": weight ", weight.sizes(), " must be (rows, features)");
  HALFTAPE_CHECK(indices.dtype() == kInt64 || indices.dtype() == kInt32, op, ": indices are ",
                 indices.dtype(), ", expected int64 or int32");
  HALFTAPE_CHECK(weight.device() == indices.device(), op, ": indices on ", indices.device(),
                 ", weight on ", weight.device(), "; move one with .to(device)");
}

/// The row that padding_idx means.
std::optional<int64_t> padding_row(const char* op, const Tensor& weight,
                                   std::optional<int64_t> padding_idx) {
  const int64_t rows = weight.size(0);
  HALFTAPE_CHECK(!padding_idx || (*padding_idx >= -rows && *padding_idx < rows), op,
                 ": padding_idx ", padding_idx.value_or(0), " is no row of weight ",
                 weight.sizes());
  if (padding_idx && *padding_idx < 0) return *padding_idx + rows;
  return padding_idx;
}

/// One number of `index` for each element of rows of `features`.
Tensor over_features(const Tensor& index, int64_t features) {
  return expand(unsqueeze(index, -1), {index.numel(), features});
}

/// For each entry of `index`, how often its number occurs in `index`: (n) of `options`.
Tensor frequencies(const Tensor& index, int64_t rows, const TensorOptions& options) {
  const Tensor once = ones({index.numel()}, options);
  return gather(scatter_add(zeros({rows}, options), 0, index, once), 0, index);
}

/// y itself; its gradient loses what is about padding and is divided by `counts`, if there are any.
Tensor with_gradient(const Tensor& y, const Tensor& padding, const Tensor& counts) {
  if (!records({&y})) return y;
  return record(
      "embedding", y.array(), {&y},
      [padding = padding.defined() ? Saved(padding) : Saved(),
       counts = counts.defined() ? Saved(counts) : Saved()](Node& self, const Tensor& g) -> Grads {
        Tensor d = g;
        if (padding.defined()) d = masked_fill(d, padding.tensor(self), 0);
        if (!counts.defined()) return {d};
        const Tensor often = counts.tensor(self);
        return {(d.to(often.dtype()) / often).to(g.dtype())};
      });
}

/// Rows by a list of int64 numbers: (n, C). `padding` is a row of weight.
Tensor rows_of(const char* op, const Tensor& weight, const Tensor& index,
               std::optional<int64_t> padding, bool by_frequency) {
  if (weight.size(1) == 0) detail::check_rows(op, index, weight.size(0));
  Tensor y = detail::gather(weight, 0, over_features(index, weight.size(1)), {op});
  if (!padding && !by_frequency) return y;
  const TensorOptions options(compute_dtype(weight.dtype()));
  const auto counts = [&] {
    return unsqueeze(frequencies(index, weight.size(0), options.device(weight.device())), 1);
  };
  return with_gradient(y, padding ? unsqueeze(index == *padding, 1) : Tensor(),
                       by_frequency ? counts() : Tensor());
}

void check_bags(const char* op, const Tensor& indices, const Tensor& offsets, BagMode mode,
                const Tensor& per_sample_weights, bool scale_grad_by_freq) {
  HALFTAPE_CHECK(indices.dim() == 1 || indices.dim() == 2, op, ": indices ", indices.sizes(),
                 " must be (n), with offsets, or (bags, length)");
  HALFTAPE_CHECK(offsets.defined() == (indices.dim() == 1), op, ": indices ", indices.sizes(),
                 offsets.defined() ? " are bags of one length and take no offsets"
                                   : " need offsets, where each bag begins");
  HALFTAPE_CHECK(mode == BagMode::Sum || !per_sample_weights.defined(), op, ": per_sample_weights ",
                 Shape(per_sample_weights.sizes()), " are for mode kSum alone");
  HALFTAPE_CHECK(mode != BagMode::Max || !scale_grad_by_freq, op,
                 ": scale_grad_by_freq=1 is not for mode kMax");
}

/// The bag in which each index lies, and how many bags there are.
struct Bags {
  Tensor of_index;
  int64_t count;
};

/// Reads the offsets, for which a GPU would have to be waited for; see bags_of().
void check_offsets(const char* op, const Tensor& offsets, int64_t indices,
                   bool include_last_offset) {
  const int64_t* at = offsets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < offsets.numel(); ++i)
    HALFTAPE_CHECK((i == 0 ? at[i] == 0 : at[i] >= at[i - 1]) && at[i] <= indices, op, ": offset ",
                   i, " is ", at[i],
                   "; offsets begin with 0, do not fall, and do not "
                   "exceed the number of indices, ",
                   indices);
  HALFTAPE_CHECK(!include_last_offset || at[offsets.numel() - 1] == indices, op,
                 ": the last offset is ", at[offsets.numel() - 1],
                 "; with include_last_offset it is where the last bag ends, after all ", indices,
                 " indices");
}

Bags bags_of(const char* op, const Tensor& indices, const Tensor& offsets,
             bool include_last_offset) {
  if (!offsets.defined()) {
    const int64_t count = indices.size(0);
    return {repeat_interleave(arange(count, TensorOptions(kInt64).device(indices.device())),
                              indices.size(1), 0),
            count};
  }
  HALFTAPE_CHECK(offsets.dim() == 1 && (offsets.dtype() == kInt64 || offsets.dtype() == kInt32), op,
                 ": offsets ", offsets.sizes(), " are ", offsets.dtype(),
                 ", expected int64 or int32 of one dimension");
  const int64_t count = offsets.numel() - (include_last_offset ? 1 : 0);
  HALFTAPE_CHECK(count > 0 || indices.numel() == 0 || include_last_offset, op, ": ",
                 indices.numel(), " indices, and no offset where their bag begins");
  HALFTAPE_CHECK(count >= 0, op, ": include_last_offset with offsets ", offsets.sizes(),
                 "; expected at least one");
  const Tensor whole = offsets.to(kInt64);
  const int64_t n = indices.numel();
  if (whole.device().is_cpu()) check_offsets(op, whole.contiguous(), n, include_last_offset);
  // An index lies in the last bag that begins at or before it. On a GPU, what scatter_add refuses
  // stands for offsets that fall, bag −1 for indices before the first one, and bag `count` for
  // those after the last one.
  Tensor starts = whole;
  if (!starts.device().is_cpu() && starts.numel() > 0)
    starts = where(starts < detail::shifted(starts, 0, 1, 0), -1, starts);
  const Tensor begun = detail::scatter_add(zeros({n + 1}, starts.options()), 0, starts,
                                           ones_like(starts), {op, "offset"});
  return {slice(cumsum(begun, 0), 0, 0, n) - 1, count};
}

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& indices, std::optional<int64_t> padding_idx,
                 bool scale_grad_by_freq) {
  const ErrorScope scope("embedding", weight, indices);
  const PolicyScope plain(nullptr);  // it moves bytes
  check_table("embedding", weight, indices);
  const Tensor index = detail::reshaped(indices.to(kInt64), {indices.numel()});
  return detail::reshaped(
      rows_of("embedding", weight, index, padding_row("embedding", weight, padding_idx),
              scale_grad_by_freq),
      detail::joined(indices.sizes(), weight.size(1)));
}

Tensor embedding_renorm_(Tensor weight, const Tensor& indices, double max_norm, double norm_type) {
  const ErrorScope scope("embedding_renorm_", weight, indices);
  const PolicyScope plain(nullptr);
  check_table("embedding_renorm_", weight, indices);
  HALFTAPE_CHECK(max_norm >= 0, "embedding_renorm_: max_norm ", max_norm, " is negative");
  const NoGradGuard no_grad;
  const Tensor index = detail::reshaped(indices.to(kInt64), {indices.numel()});
  const Tensor rows = rows_of("embedding_renorm_", weight, index, {}, false);
  const Tensor wide = rows.to(kFloat64);  // powers of a float32 may be beyond its range
  const Tensor length = norm(wide, norm_type, {1}, true);
  const Tensor scaled = where(length > max_norm, wide * (max_norm / (length + 1e-7)), wide);
  weight.index_copy_(0, index, scaled.to(rows.dtype()));  // equal indices write equal rows
  return weight;
}

Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                     BagMode mode, const Tensor& per_sample_weights, bool include_last_offset,
                     std::optional<int64_t> padding_idx, bool scale_grad_by_freq) {
  const char* op = "embedding_bag";
  const ErrorScope scope(op, weight, indices);
  const PolicyScope plain(nullptr);  // one reduction in a dtype of its own
  check_table(op, weight, indices);
  check_bags(op, indices, offsets, mode, per_sample_weights, scale_grad_by_freq);
  const std::optional<int64_t> padding = padding_row(op, weight, padding_idx);
  const int64_t n = indices.numel(), features = weight.size(1);
  const Tensor index = detail::reshaped(indices.to(kInt64), {n});

  const Bags bags = bags_of(op, indices, offsets, include_last_offset);
  const Dtype dtype = compute_dtype(weight.dtype());
  const TensorOptions options = TensorOptions(dtype).device(weight.device());
  Tensor rows = rows_of(op, weight, index, padding, scale_grad_by_freq).to(dtype);
  if (per_sample_weights.defined()) {
    HALFTAPE_CHECK(per_sample_weights.sizes() == indices.sizes() &&
                       per_sample_weights.dtype() == weight.dtype(),
                   op, ": per_sample_weights ", per_sample_weights.sizes(), " of ",
                   per_sample_weights.dtype(), " for indices ", indices.sizes(), " of a ",
                   weight.dtype(), " weight");
    rows = rows * unsqueeze(detail::reshaped(per_sample_weights.to(dtype), {n}), 1);
  }
  const bool largest = mode == BagMode::Max;
  Tensor counted = ones({n}, options);
  if (padding) {
    const Tensor at = index == *padding;
    const double neutral = largest ? -std::numeric_limits<double>::infinity() : 0;
    rows = masked_fill(rows, unsqueeze(at, 1), neutral);
    counted = masked_fill(counted, at, 0);
  }
  const IndexUse use{op, "bag"};
  const Tensor nothing = zeros({bags.count, features}, options),
               to = over_features(bags.of_index, features);
  const auto count = [&] {
    return unsqueeze(
        detail::scatter_add(zeros({bags.count}, options), 0, bags.of_index, counted, use), 1);
  };
  if (!largest) {
    Tensor y = detail::scatter_add(nothing, 0, to, rows, use);
    if (mode == BagMode::Mean) y = y / clamp_min(count(), 1);
    return y.to(weight.dtype());
  }
  const Tensor filled = count() > 0;  // checks the bags, too
  const Tensor y = scatter_reduce(nothing, 0, to, rows, "amax", false);
  return where(filled, y, 0).to(weight.dtype());
}

}  // namespace halftape
