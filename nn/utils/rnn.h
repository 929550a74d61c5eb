// Batches of sequences of several lengths: padded to one length, or packed step by step. Spelled as
// torch::nn::utils::rnn.
#pragma once
#include <optional>
#include <tuple>

#include "halftape/autograd/tensor.h"
#include "halftape/core/array_ref.h"

namespace halftape::nn::utils::rnn {

/// The inverse of a permutation of 0 … n − 1; undefined for an undefined one. Throws where a number
/// is missing.
Tensor invert_permutation(const Tensor& permutation);

/// Sequences without padding, the longest first: all first steps, then all second steps, …
/// Made by pack_padded_sequence() and taken by recurrent layers.
class PackedSequence {
 public:
  PackedSequence() = default;
  /// data: (sum of lengths, …); batch_sizes: int64 on the CPU, how many sequences have each step.
  /// sorted_indices: the position of each before sorting by length; unsorted_indices: the inverse.
  /// One is made from the other. Both undefined: the sequences were not sorted. Throws unless batch
  /// sizes are positive, do not increase and add up to the rows of data.
  explicit PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices = {},
                          Tensor unsorted_indices = {});

  const Tensor& data() const { return data_; }
  const Tensor& batch_sizes() const { return batch_sizes_; }
  const Tensor& sorted_indices() const { return sorted_indices_; }
  const Tensor& unsorted_indices() const { return unsorted_indices_; }

  /// With the data in other options, and the indices on its device; itself where nothing changes.
  PackedSequence to(const TensorOptions& options) const;
  PackedSequence cuda() const { return to(kCUDA); }
  PackedSequence cpu() const { return to(kCPU); }
  /// With the data in memory that the GPU reads while the host goes on.
  PackedSequence pin_memory() const;
  bool is_cuda() const { return data_.is_cuda(); }
  bool is_pinned() const { return data_.is_pinned(); }

 private:
  Tensor data_, batch_sizes_, sorted_indices_, unsorted_indices_;
};

/// input: (T, N, …), with batch_first (N, T, …); lengths: (N) integers from 1 to T. enforce_sorted:
/// throws unless lengths decrease; without it the sequences are sorted here.
PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths,
                                    bool batch_first = false, bool enforce_sorted = true);
/// The inverse: (T, N, …), with batch_first (N, T, …), and lengths (N), in the order before
/// packing. T is the longest length, or total_length, which must not be less.
std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence,
                                               bool batch_first = false, double padding_value = 0,
                                               std::optional<int64_t> total_length = {});
/// Sequences (Lᵢ, …), one at least, side by side: (T, N, …), with batch_first (N, T, …), for the
/// longest of T steps.
Tensor pad_sequence(ArrayRef<Tensor> sequences, bool batch_first = false, double padding_value = 0);
/// pack_padded_sequence() of sequences (Lᵢ, …).
PackedSequence pack_sequence(ArrayRef<Tensor> sequences, bool enforce_sorted = true);

}  // namespace halftape::nn::utils::rnn
