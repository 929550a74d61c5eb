// LibTorch's names for this library: a program that includes <torch/torch.h> and says torch::, at::
// and c10:: compiles against halftape::torch_compat unchanged, as far as what it names exists.
//
// torch, at and c10 are namespaces that see all of halftape, rather than aliases of it, so that a
// program may put names of its own into them.
#pragma once
#include <halftape/halftape.h>
#ifdef HALFTAPE_VERSION  // otherwise it has said what the compiler must offer
#include <ATen/Parallel.h>
#include <torch/detail/aliases.h>
#include <torch/detail/static.h>
#include <torch/version.h>

#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>
#include <tuple>
#include <variant>

namespace halftape::torch_compat {

using std::make_optional;
using std::make_unique;
using std::nullopt;
using std::nullopt_t;
using std::optional;
using std::string_view;
using std::to_string;
using std::variant;

// LibTorch has two words for an element's type; here both are Dtype.
using ScalarType = Dtype;
inline Dtype typeMetaToScalarType(Dtype d) { return d; }
inline Dtype scalarTypeToTypeMeta(Dtype d) { return d; }
inline const char* toString(Dtype d) { return type_name(d); }

/// Holds a number, a text or tensors; no TorchScript.
using IValue = autograd::SavedValue;

using OptionalIntArrayRef = std::optional<IntArrayRef>;

/// The integers from `begin` up to but without `end`, for range-based for.
template <class T>
struct Integers {
  struct Iterator {
    T at;
    T operator*() const { return at; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  T first, last;
  Iterator begin() const { return {first}; }
  Iterator end() const { return {last < first ? first : last}; }
};
template <class T>
Integers<T> irange(T end) {
  return {T(0), end};
}
template <class A, class T>
Integers<T> irange(A begin, T end) {
  return {static_cast<T>(begin), end};
}

/// One part of a text; a module says the names that a LibTorch program knows it by.
template <class Part>
void print_part(std::ostream& out, const Part& part) {
  if constexpr (std::is_base_of_v<nn::Module, Part> || nn::detail::Holder<Part>) {
    std::ostringstream own;
    own << part;
    std::string text = own.str();
    constexpr std::string_view kOurs = "halftape::nn::", kTorchs = "torch::nn::";
    for (size_t at = 0; (at = text.find(kOurs, at)) != std::string::npos; at += kTorchs.size())
      text.replace(at, kOurs.size(), kTorchs);
    out << text;
  } else {
    out << part;
  }
}

/// Everything printed one after another.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream text;
  (print_part(text, parts), ...);
  return text.str();
}
template <class List>
std::string Join(const std::string& between, const List& list) {
  std::ostringstream text;
  bool first = true;
  for (const auto& part : list) {
    if (!first) text << between;
    text << part;
    first = false;
  }
  return text.str();
}

// Warnings go to std::cerr, or to the handler that the program installs.
struct SourceLocation {
  const char* function = "";
  const char* file = "";
  uint32_t line = 0;
};
class WarningHandler {
 public:
  virtual ~WarningHandler() = default;
  virtual void process(const SourceLocation& at, const std::string& message,
                       const bool /*verbatim*/) {
    std::cerr << "Warning: " << message;
    if (*at.file) std::cerr << " (" << at.file << ':' << at.line << ')';
    std::cerr << '\n';
  }
};
namespace Warning {
inline WarningHandler*& current() {
  static WarningHandler plain;
  static thread_local WarningHandler* handler = &plain;
  if (!handler) handler = &plain;
  return handler;
}
inline WarningHandler* get_warning_handler() { return current(); }
/// Null: std::cerr again.
inline void set_warning_handler(WarningHandler* handler) {
  current() = handler;
  // The library's own warnings go the same way.
  ::halftape::set_warning_handler(
      [](const std::string& message) { current()->process({}, message, false); });
}
inline void warn(const SourceLocation& at, const std::string& message, bool verbatim = false) {
  current()->process(at, message, verbatim);
}
/// LibTorch's switch for repeated warnings; here TORCH_WARN_ONCE alone decides.
struct WarnAlways {
  explicit WarnAlways(bool = true) {}
  ~WarnAlways() {}  // so that a guard is not an unused variable
};
}  // namespace Warning

#ifdef HALFTAPE_TORCH_1
/// For a program written for LibTorch 1, whose zero_grad() filled gradients with 0.
inline const bool kGradsStay = (set_zero_grad_sets_to_none(false), true);
#endif

#ifdef HALFTAPE_TORCH_RANDOM
/// For a program whose numbers are compared with LibTorch's, from the first manual_seed() on.
inline const bool kTorchRandom = (set_cpu_random_engine(RandomEngine::Mt19937), true);
#endif

/// From here on Optimizer::parameters() and its like say what LibTorch's do.
inline const bool kOldInterfaceWarns = (optim::warn_of_old_interface(true), true);

}  // namespace halftape::torch_compat

namespace halftape::autograd {

using tensor_list = variable_list;
using ::halftape::AutoGradMode;
using ::halftape::GradMode;
using ::halftape::InferenceMode;

inline Variable make_variable(const Tensor& data, bool requires_grad = false,
                              bool /*allow_tensor_metadata_change*/ = true) {
  return data.detach().requires_grad_(requires_grad);
}

using DifferentiableViewMeta = halftape::detail::TensorImpl;

/// Passes its inputs on and gives no gradient: what a rule must be able to take.
struct UndefinedGrad {
  variable_list apply(const variable_list& inputs) { return Op::apply(inputs); }

 private:
  struct Op : Function<Op> {
    static variable_list forward(AutogradContext*, const variable_list& inputs) { return inputs; }
    static variable_list backward(AutogradContext*, variable_list grads) {
      return variable_list(grads.size());
    }
  };
};

}  // namespace halftape::autograd

namespace halftape::data {
using datasets::BatchDataset;
using datasets::Dataset;
}  // namespace halftape::data

namespace halftape::nn::init {
inline std::tuple<int64_t, int64_t> _calculate_fan_in_and_fan_out(const Tensor& tensor) {
  return calculate_fan_in_and_fan_out(tensor);
}
}  // namespace halftape::nn::init

namespace torch {
using namespace halftape;
inline Tensor _reshape_alias(const Tensor& x, const Shape& size, const Strides& stride) {
  return as_strided(x, size, stride);
}
using namespace halftape::torch_compat;
inline constexpr Dtype kF16 = kFloat16, kBF16 = kBFloat16, kF32 = kFloat32, kF64 = kFloat64,
                       kU8 = kUInt8, kI8 = kInt8, kI16 = kInt16, kI32 = kInt32, kI64 = kInt64;
/// LibTorch's lets input and target differ in dimensions of size 1.
inline Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                                   const Tensor& weight = {},
                                   Reduction reduction = Reduction::Mean) {
  const bool fits = input.squeeze().sizes() == target.squeeze().sizes();
  return halftape::binary_cross_entropy(input, fits ? target.reshape(input.sizes()) : target,
                                        weight, reduction);
}

inline Tensor t(const Tensor& x) { return x.t(); }
namespace detail {
using ::halftape::detail::TensorDataContainer;
}
/// LibTorch's own, where −1 is no padding_idx; `sparse` gradients do not exist here.
inline Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx = -1,
                        bool scale_grad_by_freq = false, bool sparse = false) {
  if (sparse) ::halftape::detail::fail("embedding: sparse gradients do not exist here");
  return halftape::embedding(weight, indices,
                             padding_idx < 0 ? std::nullopt : std::optional(padding_idx),
                             scale_grad_by_freq);
}

using halftape::embedding_bag;
/// LibTorch's own: mode 0 adds, 1 averages, 2 takes the largest; the first of the four is the
/// result, and of the others, which its backward pass has for itself, there is nothing here.
inline std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(
    const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool scale_grad_by_freq,
    int64_t mode, bool sparse, const std::optional<Tensor>& per_sample_weights = {},
    bool include_last_offset = false, std::optional<int64_t> padding_idx = {}) {
  if (sparse) ::halftape::detail::fail("embedding_bag: sparse gradients do not exist here");
  constexpr BagMode kModes[] = {BagMode::Sum, BagMode::Mean, BagMode::Max};
  if (mode < 0 || mode > 2)
    ::halftape::detail::fail("embedding_bag: mode ", mode, ", expected 0, 1 or 2");
  return {halftape::embedding_bag(weight, indices, offsets, kModes[mode],
                                  per_sample_weights.value_or(Tensor()), include_last_offset,
                                  padding_idx, scale_grad_by_freq),
          {},
          {},
          {}};
}

/// LibTorch's own, whose running statistics come after weight and bias.
inline Tensor batch_norm(const Tensor& input, const std::optional<Tensor>& weight,
                         const std::optional<Tensor>& bias,
                         const std::optional<Tensor>& running_mean,
                         const std::optional<Tensor>& running_var, bool training, double momentum,
                         double eps, bool /*cudnn_enabled*/) {
  const Tensor none;
  return halftape::batch_norm(input, running_mean.value_or(none), running_var.value_or(none),
                              weight.value_or(none), bias.value_or(none), training, momentum, eps);
}
/// Likewise.
inline Tensor instance_norm(const Tensor& input, const std::optional<Tensor>& weight,
                            const std::optional<Tensor>& bias,
                            const std::optional<Tensor>& running_mean,
                            const std::optional<Tensor>& running_var, bool use_input_stats,
                            double momentum, double eps, bool /*cudnn_enabled*/) {
  const Tensor none;
  return halftape::instance_norm(input, running_mean.value_or(none), running_var.value_or(none),
                                 weight.value_or(none), bias.value_or(none), use_input_stats,
                                 momentum, eps);
}

namespace special {
using halftape::erf;
using halftape::erfc;
using halftape::exp2;
using halftape::expm1;
using halftape::log1p;
using halftape::log_softmax;
using halftape::logit;
using halftape::logsumexp;
using halftape::round;
using halftape::sinc;
using halftape::softmax;
using halftape::xlogy;
inline Tensor expit(const Tensor& x) { return sigmoid(x); }
}  // namespace special

namespace cuda {
using halftape::cuda::is_available;
inline size_t device_count() { return static_cast<size_t>(halftape::cuda::device_count()); }
/// Seeds the first GPU, which is the current one here, if there is one, and nothing else.
inline void manual_seed(uint64_t seed) {
  if (is_available()) set_generator({.seed = seed}, kCUDA);
}
/// Seeds all GPUs and nothing else.
inline void manual_seed_all(uint64_t seed) {
  for (DeviceIndex i = 0; i < halftape::cuda::device_count(); ++i)
    set_generator({.seed = seed}, Device(kCUDA, i));
}
inline void synchronize() {
  if (is_available()) halftape::cuda::synchronize();
}
}  // namespace cuda

#ifdef HALFTAPE_OPEN_TORCH_NN
// For a program that puts names of its own into torch::nn. Not for all: after `using namespace
// torch`, nn:: would then be either this one or halftape's.
namespace nn {
using namespace halftape::nn;
}
#endif
}  // namespace torch

namespace at {
namespace native {
inline bool is_nonzero(const ::halftape::Tensor& x) { return x.is_nonzero(); }
}  // namespace native

/// Autocast as LibTorch has it, without regions: switches of the thread.
namespace autocast {
using ::halftape::DeviceType;
using ::halftape::Dtype;
using ::halftape::Tensor;
using ::halftape::amp::get_autocast_dtype;
using ::halftape::amp::is_autocast_available;
using ::halftape::amp::is_autocast_cache_enabled;
using ::halftape::amp::is_autocast_enabled;
using ::halftape::amp::set_autocast_cache_enabled;
using ::halftape::amp::set_autocast_dtype;
using ::halftape::amp::set_autocast_enabled;
inline void clear_cache() { ::halftape::amp::clear_autocast_cache(); }
inline int increment_nesting() { return ::halftape::amp::increment_autocast_nesting(); }
inline int decrement_nesting() { return ::halftape::amp::decrement_autocast_nesting(); }
inline Tensor cached_cast(Dtype to, const Tensor& x, DeviceType device = DeviceType::CUDA) {
  return x.device().type() == device ? ::halftape::amp::cast_if_eligible(x, to) : x;
}
// The older names: one for each type of device.
inline bool is_enabled() { return is_autocast_enabled(::halftape::kCUDA); }
inline void set_enabled(bool on) { set_autocast_enabled(::halftape::kCUDA, on); }
inline bool is_cpu_enabled() { return is_autocast_enabled(::halftape::kCPU); }
inline void set_cpu_enabled(bool on) { set_autocast_enabled(::halftape::kCPU, on); }
inline Dtype get_autocast_gpu_dtype() { return get_autocast_dtype(::halftape::kCUDA); }
inline void set_autocast_gpu_dtype(Dtype d) { set_autocast_dtype(::halftape::kCUDA, d); }
inline Dtype get_autocast_cpu_dtype() { return get_autocast_dtype(::halftape::kCPU); }
inline void set_autocast_cpu_dtype(Dtype d) { set_autocast_dtype(::halftape::kCPU, d); }
}  // namespace autocast
using namespace halftape;
using namespace halftape::torch_compat;
using torch::batch_norm;
using torch::binary_cross_entropy;
using torch::embedding;
using torch::embedding_bag;
using torch::instance_norm;
}  // namespace at

namespace c10 {
using namespace halftape;
using namespace halftape::torch_compat;
using std::to_string;
// All errors are of one class here.
using IndexError = ::halftape::Error;
using NotImplementedError = ::halftape::Error;
using TypeError = ::halftape::Error;
using ValueError = ::halftape::Error;
}  // namespace c10

namespace c10::guts {
template <class T>
std::string to_string(const T& value) {
  return halftape::torch_compat::str(value);
}
}  // namespace c10::guts

namespace caffe2 {
/// LibTorch's run-time type of an element.
struct TypeMeta {
  template <class T>
  static halftape::Dtype Make() {
    return halftape::dtype_of<T>;
  }
};
}  // namespace caffe2

#define TORCH_MODULE(Name) HALFTAPE_MODULE(Name)
#define TORCH_MODULE_IMPL(Name, ImplType) HALFTAPE_MODULE_IMPL(Name, ImplType)
#define TORCH_ARG(T, name) HALFTAPE_ARG(T, name)

/// Throws c10::Error with the parts joined when the condition is false.
#define TORCH_CHECK(condition, ...)                                                     \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::halftape::detail::fail(                                                         \
          ::halftape::torch_compat::check_text(#condition __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)
#define TORCH_INTERNAL_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define TORCH_CHECK_INDEX(...) TORCH_CHECK(__VA_ARGS__)
#define TORCH_CHECK_TYPE(...) TORCH_CHECK(__VA_ARGS__)
#define TORCH_CHECK_VALUE(...) TORCH_CHECK(__VA_ARGS__)
#define TORCH_CHECK_EQ(a, b) TORCH_CHECK((a) == (b), #a " == " #b " does not hold")
#define TORCH_CHECK_NE(a, b) TORCH_CHECK((a) != (b), #a " != " #b " does not hold")
#define AT_ASSERT(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ASSERTM(...) TORCH_CHECK(__VA_ARGS__)
#define AT_ERROR(...) ::halftape::detail::fail(__VA_ARGS__)

#define TORCH_WARN(...)                                                   \
  ::halftape::torch_compat::Warning::warn({__func__, __FILE__, __LINE__}, \
                                          ::halftape::torch_compat::str(__VA_ARGS__))
#define TORCH_WARN_ONCE(...)                                  \
  do {                                                        \
    static std::once_flag warned;                             \
    std::call_once(warned, [&] { TORCH_WARN(__VA_ARGS__); }); \
  } while (false)

namespace halftape::torch_compat {
inline std::string check_text(const char* condition) {
  return str("Expected ", condition, " to be true, but got false.");
}
template <class... Parts>
requires(sizeof...(Parts) > 0) std::string check_text(const char*, const Parts&... parts) {
  return str(parts...);
}
}  // namespace halftape::torch_compat
#endif
