// Convolutions over one to three dimensions, forward and transposed, and their windows as columns.
// Inputs are (N, C, lengths…), or (C, lengths…) without a batch; all tensors share one floating
// dtype. Sums are kept in float32 (float64) and rounded once. One number stands for all dimensions.
// Under autocast: the lower dtype.
#pragma once
#include <string_view>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// Valid: no zeros. Same: as many outputs as inputs, for stride 1; an odd zero goes behind.
enum class PaddingRule : uint8_t { Valid, Same };
inline constexpr PaddingRule kValid = PaddingRule::Valid, kSame = PaddingRule::Same;

/// Zeros around the input of a convolution: numbers, or a rule or its name ("same").
class ConvPadding {
 public:
  template <class T>
  requires std::is_convertible_v<T, Dims> ConvPadding(const T& numbers) : numbers_(numbers) {}
  ConvPadding(std::initializer_list<int64_t> numbers) : numbers_(numbers) {}
  ConvPadding(PaddingRule rule) : rule_(rule) {}  // NOLINT: kSame is one
  template <class T>
  requires std::is_convertible_v<T, std::string_view> ConvPadding(const T& name)
      : ConvPadding(rule_of(name)) {}

  const std::optional<PaddingRule>& rule() const { return rule_; }
  const Dims& numbers() const { return numbers_; }

 private:
  static PaddingRule rule_of(std::string_view name);
  Dims numbers_;
  std::optional<PaddingRule> rule_;
};

/// y[n, o, l] = bias[o] + Σ over c, k of weight[o, c, k]·x[n, c, l·stride + k·dilation − padding].
/// weight: (out, in/groups, kernel…); group i of the outputs sees group i of the inputs.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Dims& stride = 1, const ConvPadding& padding = 0, const Dims& dilation = 1,
              int64_t groups = 1);
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Dims& stride = 1, const ConvPadding& padding = 0, const Dims& dilation = 1,
              int64_t groups = 1);
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Dims& stride = 1, const ConvPadding& padding = 0, const Dims& dilation = 1,
              int64_t groups = 1);

/// The transpose of a convolution: every input element adds its multiple of the kernel.
/// weight: (in, out/groups, kernel…). Lengths: (L − 1)·stride − 2·padding + dilation·(kernel − 1)
/// + output_padding + 1, where output_padding, smaller than stride or dilation, chooses between the
/// lengths that a convolution maps to one.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const Dims& stride = 1, const Dims& padding = 0,
                        const Dims& output_padding = 0, int64_t groups = 1,
                        const Dims& dilation = 1);
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const Dims& stride = 1, const Dims& padding = 0,
                        const Dims& output_padding = 0, int64_t groups = 1,
                        const Dims& dilation = 1);
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const Dims& stride = 1, const Dims& padding = 0,
                        const Dims& output_padding = 0, int64_t groups = 1,
                        const Dims& dilation = 1);

/// The windows of images (N, C, H, W) as columns: (N, C·kernel height·width, windows).
Tensor im2col(const Tensor& x, const Dims& kernel_size, const Dims& dilation = 1,
              const Dims& padding = 0, const Dims& stride = 1);
/// Columns added up to images of `output_size`: im2col's derivative.
Tensor col2im(const Tensor& columns, const Dims& output_size, const Dims& kernel_size,
              const Dims& dilation = 1, const Dims& padding = 0, const Dims& stride = 1);

}  // namespace halftape
