// The public type: a shared handle to an array, its gradient, and the node that made it. Spelled as
// LibTorch's. The methods are the functions of autograd/ops/*.h; documentation stands there.
#pragma once
#include <concepts>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "halftape/autograd/methods.h"
#include "halftape/autograd/tensor_base.h"

namespace halftape {

using TensorList = std::vector<Tensor>;

namespace indexing {
class TensorIndex;
}
class Indexed;

/// Numbers of one dtype on one device, and the ops that made them; copies of the object share both.
class Tensor : public TensorBase {
 public:
  Tensor() = default;
  /// A leaf over an array, without history.
  explicit Tensor(Array value);
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // x = y gives the name to another tensor; x[0] = y and x[mask] = y write into the elements of x.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  Tensor& operator=(const Tensor& values) && { return copy_(values); }
  Tensor& operator=(Scalar value) && { return fill_(value); }

  // Autograd
  /// Throws unless this is a floating-point leaf.
  const Tensor& requires_grad_(bool on = true) const;
  const Tensor& set_requires_grad(bool on) const { return requires_grad_(on); }
  /// The tensor whose bytes this view shares.
  Tensor _base() const;
  /// The gradient, undefined when there is none. Only leaves, and tensors that retain_grad(), have
  /// one.
  const Tensor& grad() const;
  /// The gradient, to be assigned or changed.
  Tensor& mutable_grad() const;
  /// Accumulates d(this)/d(leaf) into every leaf's grad(); with `inputs`, into theirs alone.
  /// `gradient` has this shape, and may be left out for one element. `retain_graph` (default:
  /// create_graph) keeps the graph for a further pass; `create_graph` records the gradients. Throws
  /// without requires_grad(), for another shape, and for a graph that was released.
  void backward(const Tensor& gradient = {}, std::optional<bool> retain_graph = {},
                bool create_graph = false, const std::optional<TensorList>& inputs = {}) const;
  void backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                std::initializer_list<Tensor> inputs) const;
  /// The same bytes without history.
  Tensor detach() const;
  Tensor data() const { return detach(); }
  Tensor tensor_data() const { return detach(); }
  Tensor variable_data() const { return detach(); }
  /// Puts the bytes of `other` behind this leaf; both share them from then on.
  void set_data(const Tensor& other) const;
  Tensor& detach_() const;

  // Copies and views
  /// Converted (rounded once) and moved; itself when nothing changes, unless `copy`. The gradient
  /// is converted and moved back. Between pinned memory and a GPU, `non_blocking` returns while the
  /// copy is under way. Until cuda::synchronize(), the source of a copy to a GPU must not change,
  /// and the result of one to the CPU, in pinned memory, is incomplete.
  Tensor to(Dtype dtype, bool non_blocking = false, bool copy = false) const;
  Tensor to(Device device, bool non_blocking = false, bool copy = false) const;
  Tensor to(DeviceType device, bool non_blocking = false, bool copy = false) const {
    return to(Device(device), non_blocking, copy);
  }
  Tensor to(Device device, Dtype dtype, bool non_blocking = false, bool copy = false) const;
  /// Dtype and device stay where the options name none. Throws if they ask for requires_grad.
  Tensor to(const TensorOptions& options, bool non_blocking = false, bool copy = false) const;
  /// The device and dtype of another tensor.
  Tensor to(const Tensor& other, bool non_blocking = false, bool copy = false) const;
  /// A copy in memory that the GPU reads while the host goes on; itself when it is pinned.
  Tensor pin_memory(Device gpu = kCUDA) const;
  Tensor toType(Dtype dtype) const { return to(dtype); }
  Tensor type_as(const Tensor& other) const { return to(other); }
  Tensor cpu() const { return to(Device(kCPU)); }
  Tensor cuda() const { return to(Device(kCUDA)); }
  // Without history; dtype and device are this tensor's where options say nothing.
  Tensor new_empty(const Shape& shape, const TensorOptions& options = {}) const;
  Tensor new_empty_strided(const Shape& shape, const Strides& strides,
                           const TensorOptions& options = {}) const;
  Tensor new_zeros(const Shape& shape, const TensorOptions& options = {}) const;
  Tensor new_ones(const Shape& shape, const TensorOptions& options = {}) const;
  Tensor new_full(const Shape& shape, Scalar value, const TensorOptions& options = {}) const;
  Tensor clone() const;
  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  Tensor view(const Shape& shape) const;
  /// The bytes read as another dtype, without history: ops/layout/view.h describes the sizes.
  Tensor view(Dtype dtype) const;
  Tensor reshape(const Shape& shape) const;
  Tensor view_as(const Tensor& other) const { return view(other.sizes()); }
  Tensor reshape_as(const Tensor& other) const { return reshape(other.sizes()); }
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor unflatten(int64_t dim, const Shape& sizes) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor squeeze(const Dims& dims) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const;
  Tensor mT() const { return transpose(-2, -1); }
  Tensor swapaxes(int64_t a, int64_t b) const { return transpose(a, b); }
  Tensor swapdims(int64_t a, int64_t b) const { return transpose(a, b); }
  Tensor permute(const Dims& order) const;
  Tensor movedim(int64_t source, int64_t destination) const;
  Tensor movedim(const Dims& source, const Dims& destination) const;
  Tensor moveaxis(int64_t source, int64_t destination) const {
    return movedim(source, destination);
  }
  Tensor moveaxis(const Dims& source, const Dims& destination) const {
    return movedim(source, destination);
  }
  Tensor ravel() const { return flatten(); }
  Tensor expand(const Shape& shape) const;
  Tensor expand_as(const Tensor& other) const { return expand(other.sizes()); }
  Tensor broadcast_to(const Shape& shape) const { return expand(shape); }
  /// Summed over the dimensions in which `shape`, which broadcasts to this one, has size 1 or none.
  Tensor sum_to_size(const Shape& shape) const;
  Tensor as_strided(const Shape& size, const Strides& stride,
                    std::optional<int64_t> storage_offset = {}) const;
  Tensor as_strided_scatter(const Tensor& window, const Shape& size, const Strides& stride,
                            std::optional<int64_t> storage_offset = {}) const;
  Tensor slice(int64_t dim = 0, std::optional<int64_t> start = {}, std::optional<int64_t> end = {},
               int64_t step = 1) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor unfold(int64_t dim, int64_t size, int64_t step) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  Tensor diag_embed(int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1) const;
  Tensor diag(int64_t diagonal = 0) const;
  Tensor tril(int64_t diagonal = 0) const;
  Tensor triu(int64_t diagonal = 0) const;
  TensorList split(int64_t split_size, int64_t dim = 0) const;
  TensorList split(const std::vector<int64_t>& split_sizes, int64_t dim = 0) const;
  TensorList split_with_sizes(const std::vector<int64_t>& split_sizes, int64_t dim = 0) const;
  TensorList chunk(int64_t chunks, int64_t dim = 0) const;
  TensorList tensor_split(int64_t sections, int64_t dim = 0) const;
  TensorList tensor_split(const std::vector<int64_t>& indices, int64_t dim = 0) const;
  TensorList unbind(int64_t dim = 0) const;
  Tensor repeat(const Shape& repeats) const;
  Tensor tile(const Shape& repeats) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const;
  Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim = {}) const;
  Tensor flip(const Dims& dims) const;
  Tensor fliplr() const;
  Tensor flipud() const;
  Tensor roll(const Dims& shifts, const Dims& dims = {}) const;
  Tensor roll(int64_t shift, std::optional<int64_t> dim = {}) const;
  Tensor rot90(int64_t k = 1, const Dims& dims = {0, 1}) const;

  // By number and by condition: autograd/indexing.h describes the lists.
  Tensor operator[](int64_t index) const { return select(0, index); }
  /// A 0-dim integer counts as a number; any other tensor as in index({…}).
  Indexed operator[](const Tensor& index) const;
  Indexed index(std::initializer_list<indexing::TensorIndex> indices) const;  // index({}), too
  Indexed index(const std::vector<indexing::TensorIndex>& indices) const;
  Indexed index(const Tensor& indices) const;
  Tensor index_put(const std::vector<indexing::TensorIndex>& indices, const Tensor& values,
                   bool accumulate = false) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor index_add(int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha = 1) const;
  Tensor index_copy(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor index_fill(int64_t dim, const Tensor& index, Scalar value) const;
  Tensor index_fill(int64_t dim, const Tensor& index, const Tensor& value) const;
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor scatter(int64_t dim, const Tensor& index, Scalar value) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Tensor& src,
                 std::string_view reduce) const;
  Tensor scatter(int64_t dim, const Tensor& index, Scalar value, std::string_view reduce) const;
  Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor scatter_reduce(int64_t dim, const Tensor& index, const Tensor& src,
                        std::string_view reduce, bool include_self = true) const;
  Tensor take(const Tensor& index) const;
  Tensor take_along_dim(const Tensor& index, std::optional<int64_t> dim = {}) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;
  Tensor masked_select(const Tensor& mask) const;
  Tensor masked_scatter(const Tensor& mask, const Tensor& source) const;
  Tensor nonzero() const;
  TensorList nonzero_numpy() const;
  Tensor argwhere() const { return nonzero(); }

  // Element-wise; most of these methods, and products, are listed in autograd/methods.h.
  Tensor operator-() const { return neg(); }
  Tensor operator~() const { return bitwise_not(); }
  Tensor operator!() const { return logical_not(); }
  Tensor negative() const { return neg(); }
#define HALFTAPE_METHOD(name) Tensor name() const;
#define HALFTAPE_METHOD_OF_TENSOR(name) Tensor name(const Tensor& other) const;
#define HALFTAPE_METHOD_OF_EITHER(name) \
  HALFTAPE_METHOD_OF_TENSOR(name)       \
  Tensor name(Scalar other) const;
  HALFTAPE_UNARY_METHODS(HALFTAPE_METHOD)
  HALFTAPE_PURE_UNARY_METHODS(HALFTAPE_METHOD)
  HALFTAPE_TENSOR_METHODS(HALFTAPE_METHOD_OF_TENSOR)
  HALFTAPE_PURE_BINARY_METHODS(HALFTAPE_METHOD_OF_TENSOR)
  HALFTAPE_PRODUCT_METHODS(HALFTAPE_METHOD_OF_TENSOR)
  HALFTAPE_BINARY_METHODS(HALFTAPE_METHOD_OF_EITHER)
#undef HALFTAPE_METHOD
#undef HALFTAPE_METHOD_OF_TENSOR
#undef HALFTAPE_METHOD_OF_EITHER
  Tensor add(const Tensor& other, Scalar alpha = 1) const;
  Tensor add(Scalar other, Scalar alpha = 1) const;
  Tensor sub(const Tensor& other, Scalar alpha = 1) const;
  Tensor sub(Scalar other, Scalar alpha = 1) const;
  Tensor mul(const Tensor& other) const;
  Tensor mul(Scalar other) const;
  Tensor div(const Tensor& other, std::optional<std::string_view> rounding_mode = {}) const;
  Tensor div(Scalar other, std::optional<std::string_view> rounding_mode = {}) const;
  Tensor addcmul(const Tensor& a, const Tensor& b, Scalar value = 1) const;
  Tensor addcdiv(const Tensor& a, const Tensor& b, Scalar value = 1) const;
  Tensor lerp(const Tensor& end, Scalar weight) const;
  Tensor lerp(const Tensor& end, const Tensor& weight) const;
  Tensor clamp(std::optional<Scalar> min, std::optional<Scalar> max = {}) const;
  Tensor clamp(const std::optional<Tensor>& min, const std::optional<Tensor>& max = {}) const;
  Tensor logit(std::optional<double> eps = {}) const;
  Tensor hardshrink(Scalar lambd = 0.5) const;
  Tensor nan_to_num(std::optional<double> nan = {}, std::optional<double> posinf = {},
                    std::optional<double> neginf = {}) const;
  /// this where condition, else other.
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor where(const Tensor& condition, Scalar other) const;
  /// True if shape, dtype and values are the same.
  bool equal(const Tensor& other) const;
  /// |this − other| ≤ atol + rtol·|other| everywhere.
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8,
                bool equal_nan = false) const;
  Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8,
                 bool equal_nan = false) const;

  // Reductions. An empty list of dimensions means all.
  Tensor sum(std::optional<Dtype> dtype = {}) const;
  Tensor sum(const Dims& dims, bool keepdim = false, std::optional<Dtype> dtype = {}) const;
  Tensor nansum(const Dims& dims = {}, bool keepdim = false, std::optional<Dtype> dtype = {}) const;
  Tensor mean(std::optional<Dtype> dtype = {}) const;
  Tensor mean(const Dims& dims, bool keepdim = false, std::optional<Dtype> dtype = {}) const;
  Tensor nanmean(const Dims& dims = {}, bool keepdim = false,
                 std::optional<Dtype> dtype = {}) const;
  Tensor prod(std::optional<Dtype> dtype = {}) const;
  Tensor prod(int64_t dim, bool keepdim = false, std::optional<Dtype> dtype = {}) const;
  Tensor amax(const Dims& dims = {}, bool keepdim = false) const;
  Tensor amin(const Dims& dims = {}, bool keepdim = false) const;
  std::tuple<Tensor, Tensor> aminmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  std::tuple<Tensor, Tensor> max(int64_t dim, bool keepdim = false) const;
  std::tuple<Tensor, Tensor> min(int64_t dim, bool keepdim = false) const;
  Tensor max(const Tensor& other) const;
  Tensor min(const Tensor& other) const;
  Tensor any(const Dims& dims = {}, bool keepdim = false) const;
  Tensor all(const Dims& dims = {}, bool keepdim = false) const;
  Tensor count_nonzero(const Dims& dims = {}) const;
  Tensor var(const Dims& dims = {}, std::optional<Scalar> correction = {},
             bool keepdim = false) const;
  Tensor std(const Dims& dims = {}, std::optional<Scalar> correction = {},
             bool keepdim = false) const;
  // With a flag instead of a correction. var(1) is refused: in Python the number is a dimension, in
  // LibTorch it is a flag.
#define HALFTAPE_WITH_FLAG(name)                                                       \
  template <std::same_as<bool> Flag>                                                   \
  Tensor name(const Dims& dims, Flag unbiased, bool keepdim = false) const {           \
    return this->name(dims, std::optional<Scalar>(unbiased ? 1 : 0), keepdim);         \
  }                                                                                    \
  Tensor name(std::same_as<bool> auto flag) const { return this->name(Dims(), flag); } \
  template <std::integral Number>                                                      \
  requires(!std::same_as<Number, bool>) Tensor name(Number)                            \
  const = delete;
  HALFTAPE_WITH_FLAG(var)
  HALFTAPE_WITH_FLAG(std)
#undef HALFTAPE_WITH_FLAG
  Tensor norm(Scalar p = 2) const;
  Tensor norm(std::optional<Scalar> p, const Dims& dims, bool keepdim = false,
              std::optional<Dtype> dtype = {}) const;
  Tensor norm(std::optional<Scalar> p, Dtype dtype) const;
  Tensor dist(const Tensor& other, Scalar p = 2) const;
  Tensor renorm(Scalar p, int64_t dim, Scalar maxnorm) const;
  Tensor logsumexp(const Dims& dims, bool keepdim = false) const;
  Tensor softmax(int64_t dim, std::optional<Dtype> dtype = {}) const;
  Tensor log_softmax(int64_t dim, std::optional<Dtype> dtype = {}) const;
  Tensor cumsum(int64_t dim, std::optional<Dtype> dtype = {}) const;
  Tensor cumprod(int64_t dim, std::optional<Dtype> dtype = {}) const;
  std::tuple<Tensor, Tensor> cummax(int64_t dim) const;
  std::tuple<Tensor, Tensor> cummin(int64_t dim) const;
  Tensor logcumsumexp(int64_t dim) const;
  Tensor diff(int64_t n = 1, int64_t dim = -1, const std::optional<Tensor>& prepend = {},
              const std::optional<Tensor>& append = {}) const;

  // Order
  std::tuple<Tensor, Tensor> sort(int64_t dim = -1, bool descending = false) const;
  std::tuple<Tensor, Tensor> sort(std::optional<bool> stable, int64_t dim = -1,
                                  bool descending = false) const;
  Tensor argsort(int64_t dim = -1, bool descending = false) const;
  Tensor argsort(bool stable, int64_t dim, bool descending = false) const;
  Tensor argsort(std::same_as<bool> auto stable) const { return argsort(stable, -1); }
  Tensor msort() const;
  std::tuple<Tensor, Tensor> topk(int64_t k, int64_t dim = -1, bool largest = true,
                                  bool sorted = true) const;
  std::tuple<Tensor, Tensor> kthvalue(int64_t k, int64_t dim = -1, bool keepdim = false) const;
  Tensor median() const;
  std::tuple<Tensor, Tensor> median(int64_t dim, bool keepdim = false) const;
  Tensor nanmedian() const;
  std::tuple<Tensor, Tensor> nanmedian(int64_t dim, bool keepdim = false) const;
  Tensor quantile(const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                  std::string_view interpolation = "linear") const;
  Tensor quantile(double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                  std::string_view interpolation = "linear") const;
  Tensor nanquantile(const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                     std::string_view interpolation = "linear") const;
  Tensor nanquantile(double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                     std::string_view interpolation = "linear") const;
  Tensor bincount(const Tensor& weights = {}, int64_t minlength = 0) const;
  Tensor histc(int64_t bins = 100, Scalar min = 0, Scalar max = 0) const;

  // Random numbers, these values as probabilities or weights
  Tensor bernoulli() const;
  Tensor bernoulli(double p) const;
  Tensor multinomial(int64_t n, bool replacement = false) const;

  // Matrix products
  Tensor cross(const Tensor& other, std::optional<int64_t> dim = {}) const;
  Tensor ger(const Tensor& other) const { return outer(other); }
  Tensor matrix_power(int64_t n) const;
  Tensor trace() const;

  // In place: the bytes change, the version rises, the history continues. Arguments that share
  // memory with this tensor are read as they were before. Throws on a leaf that requires grad
  // (outside NoGradGuard), on a view that would need history, on a tensor in which elements share
  // their place, and when the result does not fit the shape or dtype (can_cast()).
#define HALFTAPE_IN_PLACE(name) Tensor& name##_() const;
#define HALFTAPE_IN_PLACE_OF_TENSOR(name) Tensor& name##_(const Tensor& other) const;
#define HALFTAPE_IN_PLACE_OF_EITHER(name) \
  HALFTAPE_IN_PLACE_OF_TENSOR(name)       \
  Tensor& name##_(Scalar other) const;
  HALFTAPE_UNARY_METHODS(HALFTAPE_IN_PLACE)
  HALFTAPE_TENSOR_METHODS(HALFTAPE_IN_PLACE_OF_TENSOR)
  HALFTAPE_BINARY_METHODS(HALFTAPE_IN_PLACE_OF_EITHER)
#undef HALFTAPE_IN_PLACE
#undef HALFTAPE_IN_PLACE_OF_TENSOR
#undef HALFTAPE_IN_PLACE_OF_EITHER
#define HALFTAPE_WITH_SUM(name)                                                           \
  Tensor name(const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1) const; \
  Tensor& name##_(const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1) const;
  HALFTAPE_SUM_METHODS(HALFTAPE_WITH_SUM)
#undef HALFTAPE_WITH_SUM
  Tensor& negative_() const { return neg_(); }
  Tensor& add_(const Tensor& other, Scalar alpha = 1) const;
  Tensor& add_(Scalar other, Scalar alpha = 1) const;
  Tensor& sub_(const Tensor& other, Scalar alpha = 1) const;
  Tensor& sub_(Scalar other, Scalar alpha = 1) const;
  Tensor& mul_(const Tensor& other) const;
  Tensor& mul_(Scalar other) const;
  Tensor& div_(const Tensor& other, std::optional<std::string_view> rounding_mode = {}) const;
  Tensor& div_(Scalar other, std::optional<std::string_view> rounding_mode = {}) const;
  Tensor& addcmul_(const Tensor& a, const Tensor& b, Scalar value = 1) const;
  Tensor& addcdiv_(const Tensor& a, const Tensor& b, Scalar value = 1) const;
  Tensor& lerp_(const Tensor& end, Scalar weight) const;
  Tensor& lerp_(const Tensor& end, const Tensor& weight) const;
  Tensor& clamp_(std::optional<Scalar> min, std::optional<Scalar> max = {}) const;
  Tensor& clamp_(const std::optional<Tensor>& min, const std::optional<Tensor>& max = {}) const;
  Tensor& logit_(std::optional<double> eps = {}) const;
  Tensor& nan_to_num_(std::optional<double> nan = {}, std::optional<double> posinf = {},
                      std::optional<double> neginf = {}) const;
  Tensor& cumsum_(int64_t dim, std::optional<Dtype> dtype = {}) const;
  Tensor& cumprod_(int64_t dim, std::optional<Dtype> dtype = {}) const;
  /// The values of `source`, broadcast to this shape and converted; recorded.
  Tensor& copy_(const Tensor& source) const;
  /// One value everywhere; recorded: the former values get the gradient 0.
  Tensor& fill_(Scalar value) const;
  Tensor& zero_() const { return fill_(0); }
  Tensor& index_put_(const std::vector<indexing::TensorIndex>& indices, const Tensor& values,
                     bool accumulate = false) const;
  Tensor& index_put_(const std::vector<indexing::TensorIndex>& indices, Scalar value,
                     bool accumulate = false) const;
  Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& source,
                     Scalar alpha = 1) const;
  Tensor& index_copy_(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor& index_fill_(int64_t dim, const Tensor& index, Scalar value) const;
  Tensor& index_fill_(int64_t dim, const Tensor& index, const Tensor& value) const;
  Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor& scatter_(int64_t dim, const Tensor& index, Scalar value) const;
  Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& src,
                   std::string_view reduce) const;
  Tensor& scatter_(int64_t dim, const Tensor& index, Scalar value, std::string_view reduce) const;
  Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor& scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& src,
                          std::string_view reduce, bool include_self = true) const;
  Tensor& masked_fill_(const Tensor& mask, Scalar value) const;
  Tensor& masked_fill_(const Tensor& mask, const Tensor& value) const;
  Tensor& masked_scatter_(const Tensor& mask, const Tensor& source) const;
  Tensor& renorm_(Scalar p, int64_t dim, Scalar maxnorm) const;
  Tensor& tril_(int64_t diagonal = 0) const;
  Tensor& triu_(int64_t diagonal = 0) const;
  /// Random values in place, from the device's default generator.
  Tensor& uniform_(double from = 0, double to = 1) const;
  Tensor& normal_(double mean = 0, double std = 1) const;
  Tensor& bernoulli_(double p = 0.5) const;
  Tensor& exponential_(double lambd = 1) const;                // lambd: the rate
  Tensor& log_normal_(double mean = 1, double std = 2) const;  // e to the power of a normal number
  Tensor& cauchy_(double median = 0, double sigma = 1) const;  // sigma: half the width
  Tensor& geometric_(double p) const;  // draws of probability p up to the first success: 1, 2, …
  /// Uniform integers of [from, to), or of [0, to); without `to`, up to the largest n for which the
  /// dtype holds all of 0 … n (2^24 in float32), at most 2^53.
  Tensor& random_(int64_t from, std::optional<int64_t> to) const;
  Tensor& random_(int64_t to) const { return random_(0, to); }
  Tensor& random_() const { return random_(0, std::nullopt); }

  // Another layout in place: the bytes stay, the version rises, the history continues. Throws on a
  // leaf that requires grad, outside NoGradGuard, and inside on what is no leaf.
  Tensor& transpose_(int64_t a, int64_t b) const;
  Tensor& swapaxes_(int64_t a, int64_t b) const { return transpose_(a, b); }
  Tensor& swapdims_(int64_t a, int64_t b) const { return transpose_(a, b); }
  Tensor& t_() const;
  Tensor& squeeze_() const;
  Tensor& squeeze_(int64_t dim) const;
  Tensor& unsqueeze_(int64_t dim) const;
  /// Row-major in this shape: the bytes as they lie in memory, followed by uninitialised ones where
  /// the shape needs more. Throws when it requires grad, and when it would outgrow bytes that other
  /// tensors share, since those would not follow.
  Tensor& resize_(const Shape& shape) const;
  Tensor& resize_as_(const Tensor& other) const { return resize_(other.sizes()); }

  Tensor& operator+=(const Tensor& o) { return add_(o); }
  Tensor& operator-=(const Tensor& o) { return sub_(o); }
  Tensor& operator*=(const Tensor& o) { return mul_(o); }
  Tensor& operator/=(const Tensor& o) { return div_(o); }
  Tensor& operator+=(Scalar o) { return add_(o); }
  Tensor& operator-=(Scalar o) { return sub_(o); }
  Tensor& operator*=(Scalar o) { return mul_(o); }
  Tensor& operator/=(Scalar o) { return div_(o); }
  Tensor& operator&=(const Tensor& o) { return bitwise_and_(o); }
  Tensor& operator|=(const Tensor& o) { return bitwise_or_(o); }
  Tensor& operator^=(const Tensor& o) { return bitwise_xor_(o); }

  /// Another handle, for the library.
  explicit Tensor(Ref<detail::TensorImpl> impl) : TensorBase(std::move(impl)) {}
};
}  // namespace halftape
#include "halftape/autograd/indexed.h"
#include "halftape/autograd/tensor_impl.h"  // defines what is inline above
