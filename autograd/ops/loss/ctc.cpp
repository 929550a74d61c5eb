#include "halftape/autograd/ops/loss/ctc.h"

#include <algorithm>
#include <limits>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/loss/loss_parts.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/statistics.h"

namespace halftape {
namespace {

using Numbers = std::vector<int64_t>;

// ln 0 in the recursion. Finite, so that gradients through impossible paths are 0 and not NaN: what
// these weigh in the end is e^(−1e30) = 0.
constexpr double kNever = -1e30;

Numbers numbers(const char* what, const Tensor& t) {
  HALFTAPE_CHECK(!t.is_floating_point() && t.dtype() != kBool, "ctc_loss: ", what,
                 " must be integral, not ", t.dtype());
  return t.to(kCPU).to(kInt64).reshape({-1}).to_vector<int64_t>();
}

void check_lengths(const char* what, const Numbers& lengths, const Tensor& x, int64_t most) {
  HALFTAPE_CHECK(static_cast<int64_t>(lengths.size()) == x.size(1), "ctc_loss: ", lengths.size(),
                 ' ', what, " for a batch of ", x.size(1), ", log_probs ", x.sizes());
  for (const int64_t length : lengths)
    HALFTAPE_CHECK(length >= 0 && length <= most, "ctc_loss: Expected ", what,
                   " to have value at most ", most, ", but got value ", length);
}

/// What a path may say: blank, label, blank, …, blank of each sample, blanks behind; and where it
/// may come from two places before, which is never a blank and never the same label.
struct States {
  Tensor labels, skips;  // (N, 2·longest + 1): int64, bool
};
States states(const Tensor& targets, const Numbers& lengths, int64_t blank, int64_t classes,
              Device device) {
  const Numbers labels = numbers("targets", targets);
  const auto batch = static_cast<int64_t>(lengths.size());
  const bool padded = targets.dim() == 2;
  int64_t longest = 0, sum = 0;
  for (const int64_t length : lengths)
    longest = std::max(longest, length), sum = checked_add(sum, length);
  if (padded)
    HALFTAPE_CHECK(targets.size(0) == batch && targets.size(1) >= longest,
                   "ctc_loss: targets. Expected tensor to have size at least ", longest,
                   " at dimension 1, and ", batch, " at dimension 0, but got ", targets.sizes());
  else
    HALFTAPE_CHECK(targets.dim() == 1 && targets.size(0) == sum, "ctc_loss: targets ",
                   targets.sizes(), " and target_lengths that add up to ", sum);
  const int64_t width = 2 * longest + 1;
  Numbers said(static_cast<size_t>(batch * width), blank);
  std::vector<uint8_t> skips(said.size(), 0);
  int64_t at = 0;
  for (int64_t n = 0; n < batch; ++n) {
    if (padded) at = n * targets.size(1);
    for (int64_t i = 0; i < lengths[static_cast<size_t>(n)]; ++i) {
      const int64_t label = labels[static_cast<size_t>(at + i)];
      HALFTAPE_CHECK(label >= 0 && label < classes, "ctc_loss: target ", label, " is not in [0, ",
                     classes, ")");
      const auto place = static_cast<size_t>(n * width + 2 * i + 1);
      said[place] = label;
      skips[place] = i > 0 && label != blank && label != said[place - 2];
    }
    at += lengths[static_cast<size_t>(n)];
  }
  const Shape shape{batch, width};
  return {tensor(said).reshape(shape).to(device), tensor(skips).reshape(shape).to(device) != 0};
}

/// x: (N, S), moved by `by` to the right.
Tensor moved(const Tensor& x, int64_t by) {
  const int64_t width = x.size(1);
  if (by >= width) return full(x.sizes(), kNever, x.options());
  return cat({full({x.size(0), by}, kNever, x.options()), narrow(x, 1, 0, width - by)}, 1);
}

/// (N): −ln p of each sample; −kNever or more where there is no path.
Tensor losses(const Tensor& x, const States& s, const Numbers& input_lengths,
              const Numbers& target_lengths) {
  const int64_t steps = x.size(0), batch = x.size(1), width = s.labels.size(1);
  const Device device = x.device();
  // What each state says at each step. ln 0 of the network is the recursion's.
  const Tensor probs = gather(x, 2, expand(s.labels, {steps, batch, width}));
  const Tensor said = where(probs < kNever, kNever, probs);
  const Tensor place = arange(width, TensorOptions(kInt64).device(device));
  // A path begins at the first blank or the first label, at no cost, one step before the first.
  Tensor alpha = where(expand(place == 0, {batch, width}), zeros({1}, x.options()), kNever);
  const Tensor lengths = tensor(input_lengths).to(device).unsqueeze(1);
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor two_before = where(s.skips, moved(alpha, 2), kNever);
    const Tensor next = logsumexp(stack({alpha, moved(alpha, 1), two_before}), {0}) + said[t];
    alpha = where(lengths > t, next, alpha);
  }
  // And ends at the last label or the blank behind it.
  Numbers last_blank, last_label;
  std::vector<uint8_t> empty;
  for (const int64_t length : target_lengths) {
    last_blank.push_back(2 * length);
    last_label.push_back(std::max<int64_t>(2 * length - 1, 0));
    empty.push_back(length == 0);
  }
  const auto at = [&](const Numbers& index) {
    return gather(alpha, 1, tensor(index).to(device).unsqueeze(1)).squeeze(1);
  };
  const Tensor by_label = where(tensor(empty).to(device) != 0, kNever, at(last_label));
  return -logsumexp(stack({at(last_blank), by_label}), {0});
}

}  // namespace

Tensor ctc_loss(const Tensor& given, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, Reduction reduction,
                bool zero_infinity) {
  const ErrorScope scope("ctc_loss", given, targets, input_lengths, target_lengths);
  return ctc_loss(given, targets, numbers("input_lengths", input_lengths),
                  numbers("target_lengths", target_lengths), blank, reduction, zero_infinity);
}

Tensor ctc_loss(const Tensor& given, const Tensor& targets, const Numbers& input_lengths,
                const Numbers& target_lengths, int64_t blank, Reduction reduction,
                bool zero_infinity) {
  const ErrorScope scope("ctc_loss", given, targets);
  const auto [cast] = cast_inputs(cast_list::ctc_loss, given);
  const PolicyScope plain(nullptr);
  const Dtype dtype = cast.dtype();
  HALFTAPE_CHECK(cast.is_floating_point() && (cast.dim() == 2 || cast.dim() == 3),
                 "ctc_loss: log_probs ", cast.sizes(), ' ', dtype,
                 " must be floats (steps, batch, classes), or (steps, classes) without a batch");
  const bool batched = cast.dim() == 3;
  const Tensor wide = cast.to(compute_dtype(dtype)), x = batched ? wide : unsqueeze(wide, 1);
  HALFTAPE_CHECK(blank >= 0 && blank < x.size(2), "ctc_loss: blank ", blank, " is not in [0, ",
                 x.size(2), ")");
  check_lengths("input_lengths", input_lengths, x, x.size(0));
  check_lengths("target_lengths", target_lengths, x, std::numeric_limits<int64_t>::max());
  const States s = states(targets, target_lengths, blank, x.size(2), x.device());
  Tensor loss = losses(x, s, input_lengths, target_lengths);
  loss = where(loss > -kNever / 2, zero_infinity ? 0.0 : std::numeric_limits<double>::infinity(),
               loss);
  if (reduction == Reduction::Mean) {
    std::vector<double> lengths;
    for (const int64_t length : target_lengths)
      lengths.push_back(static_cast<double>(std::max<int64_t>(length, 1)));
    loss = loss / tensor(lengths).to(loss.options());
  }
  if (!batched) loss = squeeze(loss, 0);
  return detail::reduced("ctc_loss", loss, reduction).to(dtype);
}

}  // namespace halftape
