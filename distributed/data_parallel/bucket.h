// Parameters whose gradients are reduced, or whose values are gathered, by one call.
#pragma once
#include <vector>

#include "halftape/autograd/tensor.h"
#include "halftape/distributed/process_group.h"

namespace halftape::distributed {

/// Parameters of one dtype and device, and where their gradients lie in one array: each begins at a
/// multiple of 32 elements, as in flat storage, and the elements between are 0. The places are the
/// same on all ranks.
class Bucket {
 public:
  /// `numbers`: which of `all` belong to it.
  Bucket(const std::vector<Tensor>& all, std::vector<size_t> numbers);
  const std::vector<size_t>& numbers() const { return numbers_; }
  const std::vector<Tensor>& params() const { return params_; }
  Device device() const { return params_[0].device(); }
  Dtype dtype() const { return params_[0].dtype(); }
  int64_t numel() const { return numel_; }
  /// Where parameter i begins.
  int64_t offset(size_t i) const { return offsets_[i]; }

  /// The gradients as one array (numel) of dtype(): their own bytes where there is one alone, which
  /// nobody else holds, or where they lie side by side, as flatten() puts them; else a copy, to
  /// which those gradients move that nobody else holds. Zeros where there is none. The
  /// versions of these gradients rise here, for the call that is to write the array: in flat
  /// storage that would raise those of all buckets, whose marks would then be unknown.
  Array gathered() const;
  /// A copy in compute_dtype().
  Array copied() const;
  /// Gradient i from an array of that form. The parameter keeps its gradient's bytes if it has one.
  void put(size_t i, const Array& gathered) const;
  /// Whether the array's bytes are those of gradient i, so that put() has nothing to do.
  bool holds(size_t i, const Array& gathered) const;

  /// The parameters themselves as one array of that form.
  Array values() const;
  /// All parameters from such an array.
  void put_values(const Array& values) const;

 private:
  enum class Of : uint8_t { Values, Gradients };
  /// Value or gradient of parameter i.
  const Tensor& tensor(Of of, size_t i) const;
  Array part(size_t i, const Array& gathered) const;
  /// Throws if the parameters no longer have the places that they had when this was made.
  void check_places() const;
  bool has_form(Of of, size_t i) const;
  Array in_place(Of of) const;
  Array copy_as(Dtype dtype, Of of) const;
  void move_gradients_to(const Array& copy) const;

  std::vector<size_t> numbers_;
  std::vector<Tensor> params_;
  std::vector<int64_t> offsets_;
  int64_t numel_ = 0;
};

/// Cuts parameters into buckets, from the last one to the first, as gradients come: the first
/// bucket is full with `first_bytes`, the others with `bytes`. What fills one may be more:
/// otherwise a bias would go alone, and the large weight beside it late. A parameter of 4 MiB or
/// more is a bucket of its own, which is reduced where it lies.
std::vector<Bucket> cut_into_buckets(const std::vector<Tensor>& params, int64_t first_bytes,
                                     int64_t bytes);

/// The parts of all ranks, parts_of(), as tensors.
std::vector<Tensor> parts_for(const ProcessGroup& group, const Array& gathered);

}  // namespace halftape::distributed
