#include "halftape/nn/utils/rnn.h"

#include <algorithm>
#include <numeric>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/indexing/index.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"

namespace halftape::nn::utils::rnn {
namespace {

using Numbers = std::vector<int64_t>;

Numbers numbers(const Tensor& t) {
  HALFTAPE_CHECK(!t.is_floating_point() && t.dtype() != kBool,
                 "nn::utils::rnn: lengths, batch sizes and permutations are integers, not ",
                 t.dtype());
  return t.to(kCPU).to(kInt64).to_vector<int64_t>();
}
Tensor on(Device device, const Numbers& values) {
  return tensor(values, TensorOptions(kInt64).device(device));
}

/// Rows of x, (n, …), by number: index (…), on any device → (…, …).
Tensor picked(const Tensor& x, const Tensor& index) {
  Shape shape = index.sizes();
  for (int64_t d = 1; d < x.dim(); ++d) shape.push_back(x.size(d));
  return index_select(x, 0, index.reshape({-1}).to(x.device())).reshape(shape);
}

/// Where each of 0 … n − 1 stands; throws unless each stands there once.
Numbers inverse_of(const Numbers& permutation) {
  const auto count = static_cast<int64_t>(permutation.size());
  Numbers inverse(permutation.size(), -1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = permutation[static_cast<size_t>(i)];
    HALFTAPE_CHECK(at >= 0 && at < count && inverse[static_cast<size_t>(at)] < 0,
                   "invert_permutation: ", at, " is no place among ", count,
                   ", or stands there twice");
    inverse[static_cast<size_t>(at)] = i;
  }
  return inverse;
}

}  // namespace

Tensor invert_permutation(const Tensor& permutation) {
  return permutation.defined() ? on(permutation.device(), inverse_of(numbers(permutation)))
                               : Tensor();
}

PackedSequence::PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices,
                               Tensor unsorted_indices)
    : data_(std::move(data)),
      batch_sizes_(std::move(batch_sizes)),
      sorted_indices_(std::move(sorted_indices)),
      unsorted_indices_(std::move(unsorted_indices)) {
  HALFTAPE_CHECK(data_.defined() && batch_sizes_.defined(),
                 "PackedSequence: expected data and batch sizes");
  HALFTAPE_CHECK(data_.dim() > 0 && batch_sizes_.dim() == 1 && batch_sizes_.numel() > 0 &&
                     !batch_sizes_.is_cuda(),
                 "PackedSequence: data ", data_.sizes(), " must have rows, and batch sizes ",
                 batch_sizes_.sizes(), " one number on the CPU for each step, one at least");
  int64_t before = data_.size(0), sum = 0;
  for (const int64_t size : numbers(batch_sizes_)) {
    HALFTAPE_CHECK(size > 0 && size <= before, "PackedSequence: batch size ", size,
                   " must be positive, and not more than the one before or the ", data_.size(0),
                   " rows of data");
    sum += before = size;
  }
  HALFTAPE_CHECK(sum == data_.size(0), "PackedSequence: the batch sizes add up to ", sum,
                 ", data has ", data_.size(0), " rows");
  if (!unsorted_indices_.defined()) unsorted_indices_ = invert_permutation(sorted_indices_);
  if (!sorted_indices_.defined()) sorted_indices_ = invert_permutation(unsorted_indices_);
}

PackedSequence PackedSequence::to(const TensorOptions& options) const {
  const Tensor data = data_.to(options);
  if (data.is_same(data_)) return *this;
  const auto beside = [&](const Tensor& t) { return t.defined() ? t.to(data.device()) : t; };
  return PackedSequence(data, batch_sizes_, beside(sorted_indices_), beside(unsorted_indices_));
}
PackedSequence PackedSequence::pin_memory() const {
  const auto pinned = [](const Tensor& t) { return t.defined() ? t.pin_memory() : t; };
  return PackedSequence(data_.pin_memory(), batch_sizes_, pinned(sorted_indices_),
                        pinned(unsorted_indices_));
}

PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, bool batch_first,
                                    bool enforce_sorted) {
  HALFTAPE_CHECK(input.dim() >= 2, "pack_padded_sequence: input ", input.sizes(),
                 " must be (steps, batch, …)");
  const Tensor steps_first = batch_first ? transpose(input, 0, 1) : input;
  const int64_t steps = steps_first.size(0), batch = steps_first.size(1);
  const Numbers given = numbers(lengths);
  HALFTAPE_CHECK(batch > 0, "pack_padded_sequence: cannot pack an empty tensor, as ", input.sizes(),
                 " is");
  HALFTAPE_CHECK(lengths.dim() == 1 && static_cast<int64_t>(given.size()) == batch,
                 "pack_padded_sequence: lengths ", lengths.sizes(), " for a batch of ", batch);
  for (const int64_t length : given)
    HALFTAPE_CHECK(length > 0 && length <= steps, "pack_padded_sequence: length ", length,
                   " must be from 1 to the ", steps, " steps of the input");
  Numbers order(given.size());
  std::iota(order.begin(), order.end(), 0);
  const auto longer = [&](int64_t a, int64_t b) {
    return given[static_cast<size_t>(a)] > given[static_cast<size_t>(b)];
  };
  if (enforce_sorted)
    HALFTAPE_CHECK(std::is_sorted(order.begin(), order.end(), longer),
                   "pack_padded_sequence: `lengths` must be sorted in decreasing order when "
                   "`enforce_sorted` is true. You can pass `enforce_sorted=False` to have them "
                   "sorted");
  else
    std::stable_sort(order.begin(), order.end(), longer);

  Numbers index, sizes;
  const int64_t longest = given[static_cast<size_t>(order[0])];
  for (int64_t t = 0; t < longest; ++t) {
    const size_t before = index.size();
    for (const int64_t i : order)
      if (given[static_cast<size_t>(i)] > t) index.push_back(t * batch + i);
    sizes.push_back(static_cast<int64_t>(index.size() - before));
  }
  return PackedSequence(picked(flatten(steps_first, 0, 1), on(kCPU, index)), on(kCPU, sizes),
                        enforce_sorted ? Tensor() : on(input.device(), order));
}

std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first,
                                               double padding_value,
                                               std::optional<int64_t> total_length) {
  const Numbers sizes = numbers(sequence.batch_sizes());
  const auto longest = static_cast<int64_t>(sizes.size());
  const int64_t steps = total_length.value_or(longest);
  HALFTAPE_CHECK(steps >= longest,
                 "Expected total_length to be at least the length of the longest sequence in "
                 "input, but got total_length=",
                 steps, " and max sequence length being ", longest);
  const int64_t batch = sizes[0];
  Numbers place(static_cast<size_t>(batch));  // of each sequence in the padded batch
  if (sequence.unsorted_indices().defined())
    place = inverse_of(numbers(sequence.unsorted_indices()));
  else
    std::iota(place.begin(), place.end(), 0);
  HALFTAPE_CHECK(static_cast<int64_t>(place.size()) == batch, "pad_packed_sequence: ", place.size(),
                 " indices for a batch of ", batch);

  // A sequence without a step takes the row behind the data, which is padding.
  const Tensor& data = sequence.data();
  Shape row = data.sizes();
  row[0] = 1;
  const Tensor rows = cat({data, full(row, padding_value, data.options())}, 0);
  const Tensor index = full({steps, batch}, data.size(0), TensorOptions(kInt64).device(kCPU));
  auto* of_step = index.data_ptr<int64_t>();
  Numbers lengths(place.size(), 0);
  int64_t at = 0;
  for (const int64_t size : sizes) {
    for (int64_t i = 0; i < size; ++i) {
      const auto to = static_cast<size_t>(place[static_cast<size_t>(i)]);
      of_step[to] = at++;
      ++lengths[to];
    }
    of_step += batch;
  }
  const Tensor padded = picked(rows, index);
  return {batch_first ? transpose(padded, 0, 1) : padded, on(kCPU, lengths)};
}

Tensor pad_sequence(ArrayRef<Tensor> sequences, bool batch_first, double padding_value) {
  HALFTAPE_CHECK(!sequences.empty(), "pad_sequence: expected one sequence at least");
  int64_t longest = 0;
  for (const Tensor& s : sequences) {
    HALFTAPE_CHECK(s.dim() >= 1, "pad_sequence: a sequence ", s.sizes(), " has no steps");
    longest = std::max(longest, s.size(0));
  }
  TensorList padded;
  for (const Tensor& s : sequences) {
    Shape missing = s.sizes();
    missing[0] = longest - s.size(0);
    padded.push_back(cat({s, full(missing, padding_value, s.options())}, 0));
  }
  return stack(padded, batch_first ? 0 : 1);
}

PackedSequence pack_sequence(ArrayRef<Tensor> sequences, bool enforce_sorted) {
  Numbers lengths;
  for (const Tensor& s : sequences) lengths.push_back(s.size(0));
  return pack_padded_sequence(pad_sequence(sequences), on(kCPU, lengths), false, enforce_sorted);
}

}  // namespace halftape::nn::utils::rnn
