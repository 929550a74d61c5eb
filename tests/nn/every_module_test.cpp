// Every module of nn in one table, a row each: what a row is checked for stands at the end. A
// module that a header declares and the table lacks is a failure.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <set>
#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/declared_modules.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
using namespace halftape::nn;
using testing::differ;
using testing::Vectors;

namespace {

/// Where a module is not held to what all others are.
struct Besides {
  bool eval = false;            // draws, and is evaluated instead
  bool smooth = true;           // differences say what its gradients are
  bool torch_gradients = true;  // are what PyTorch's values say
  double torch_eps = 1e-10;     // where PyTorch's constants are floats
  double half_eps = 16;         // of the largest element, from float64's result
};

struct Row {
  std::string name;  // in modules.txt; behind a dot, a second use
  std::shared_ptr<Module> module;
  std::function<Tensor(Module&, const TensorList&)> forward;
  std::string text;  // as LibTorch prints it
  Cast cast;         // what autocast makes of its result
  Besides besides;

  std::string kind() const { return name.substr(0, name.find('.')); }
};

Tensor value(const Tensor& y) { return y; }
Tensor value(const ASMoutput& y) { return cat({y.output, y.loss.reshape({1})}); }
template <class... T>
Tensor value(const std::tuple<T...>& y) {
  return std::get<0>(y);
}

template <class M>
Tensor forward(M& m, const TensorList& x) {
  if constexpr (requires { m.forward(x[0]); })
    if (x.size() == 1) return value(m.forward(x[0]));
  if constexpr (requires { m.forward(x[0], x[1]); })
    if (x.size() == 2) return value(m.forward(x[0], x[1]));
  if constexpr (requires { m.forward(x[0], x[1], x[2]); })
    if (x.size() == 3) return value(m.forward(x[0], x[1], x[2]));
  if constexpr (requires { m.forward(x[0], x[1], x[2], x[3]); })
    if (x.size() == 4) return value(m.forward(x[0], x[1], x[2], x[3]));
  FAIL("a module of ", x.size(), " inputs");
  return {};
}

template <class Holder>
Row row(const std::string& name, const Holder& module, const std::string& text,
        Cast cast = Cast::Keep, Besides besides = {}) {
  using Impl = typename Holder::ContainedType;
  return {name,
          module.ptr(),
          [](Module& m, const TensorList& x) { return forward(dynamic_cast<Impl&>(m), x); },
          "halftape::nn::" + text,
          cast,
          besides};
}

using Rows = std::vector<Row>;
const Besides kDraws{.eval = true};
const Besides kSteps{.smooth = false};

Rows activations() {
  return {
      row("Identity", Identity(), "Identity()"),
      row("ReLU", ReLU(), "ReLU()"),
      row("ReLU6", ReLU6(), "ReLU6()"),
      row("ELU", ELU(ELUOptions().alpha(0.7)), "ELU(alpha=0.7)"),
      row("SELU", SELU(), "SELU()"),
      row("CELU", CELU(CELUOptions().alpha(0.5)), "CELU(alpha=0.5)"),
      row("SiLU", SiLU(), "SiLU()"),
      row("Mish", Mish(), "Mish()"),
      row("Tanh", Tanh(), "Tanh()"),
      row("Tanhshrink", Tanhshrink(), "Tanhshrink()"),
      row("Sigmoid", Sigmoid(), "Sigmoid()"),
      row("LogSigmoid", LogSigmoid(), "LogSigmoid()"),
      row("Hardsigmoid", Hardsigmoid(), "Hardsigmoid()", Cast::Keep, {.torch_eps = 1e-7}),
      row("Hardswish", Hardswish(), "Hardswish()"),
      row("Hardtanh", Hardtanh(HardtanhOptions().min_val(-0.7).max_val(0.9)),
          "Hardtanh(min_val=-0.7, max_val=0.9)"),
      row("Hardshrink", Hardshrink(0.3), "Hardshrink(0.3)"),
      row("Softshrink", Softshrink(0.3), "Softshrink(0.3)"),
      row("Softplus", Softplus(SoftplusOptions().beta(2).threshold(1.5)),
          "Softplus(beta=2, threshold=1.5)", Cast::Float32),
      row("Softsign", Softsign(), "Softsign()"),
      row("LeakyReLU", LeakyReLU(LeakyReLUOptions().negative_slope(0.2)),
          "LeakyReLU(negative_slope=0.2)"),
      row("Threshold", Threshold(0.1, 2.0), "Threshold(threshold=0.1, value=2)"),
      row("PReLU", PReLU(PReLUOptions().num_parameters(4)), "PReLU(num_parameters=4)", Cast::Lower),
      row("GELU", GELU(GELUOptions().approximate("tanh")), "GELU()"),
      row("GLU", GLU(1), "GLU(dim=1)"),
      row("Softmax", Softmax(1), "Softmax(dim=1)", Cast::Float32),
      row("LogSoftmax", LogSoftmax(1), "LogSoftmax(dim=1)", Cast::Float32),
      row("Softmin", Softmin(1), "Softmin(dim=1)", Cast::Float32),
      row("Softmax2d", Softmax2d(), "Softmax2d()", Cast::Float32),
      row("RReLU", RReLU(RReLUOptions().lower(0.1).upper(0.3)), "RReLU(lower=0.1, upper=0.3)",
          Cast::Keep, kDraws),
      row("Dropout", Dropout(0.3), "Dropout(p=0.3, inplace=false)", Cast::Keep, kDraws),
      row("Dropout2d", Dropout2d(0.3), "Dropout2d(p=0.3, inplace=false)", Cast::Keep, kDraws),
      row("Dropout3d", Dropout3d(0.3), "Dropout3d(p=0.3, inplace=false)", Cast::Keep, kDraws),
      row("AlphaDropout", AlphaDropout(0.3), "AlphaDropout(p=0.3, inplace=false)", Cast::Keep,
          kDraws),
      row("FeatureAlphaDropout", FeatureAlphaDropout(0.3),
          "FeatureAlphaDropout(p=0.3, inplace=false)", Cast::Keep, kDraws),
      row("Flatten", Flatten(FlattenOptions().start_dim(2)), "Flatten(start_dim=2, end_dim=-1)"),
      row("Unflatten", Unflatten(1, std::vector<int64_t>{2, 2}),
          "Unflatten(dim=1, unflattened_size={2, 2})"),
      row("Functional", Functional(relu), "Functional()"),
  };
}

Rows losses() {
  const Tensor weight = tensor({0.5, 1.0, 2.0, 0.25}, kFloat64);
  return {
      row("L1Loss", L1Loss(kSum), "L1Loss()", Cast::Float32),
      row("MSELoss", MSELoss(kNone), "MSELoss()", Cast::Float32),
      row("SmoothL1Loss", SmoothL1Loss(SmoothL1LossOptions().beta(0.5)), "SmoothL1Loss",
          Cast::Float32),
      row("HuberLoss", HuberLoss(HuberLossOptions().delta(0.5)), "HuberLoss", Cast::Float32),
      row("KLDivLoss", KLDivLoss(KLDivLossOptions(kBatchMean).log_target(true)), "KLDivLoss()",
          Cast::Float32),
      row("PoissonNLLLoss", PoissonNLLLoss(PoissonNLLLossOptions().full(true)), "PoissonNLLLoss()",
          Cast::Float32),
      row("GaussianNLLLoss", GaussianNLLLoss(GaussianNLLLossOptions().full(true)),
          "GaussianNLLLoss()", Cast::Float32),
      row("BCELoss", BCELoss(BCELossOptions().weight(weight)), "BCELoss()", Cast::Refuse),
      row("BCEWithLogitsLoss",
          BCEWithLogitsLoss(BCEWithLogitsLossOptions().weight(weight).pos_weight(weight * 2)),
          "BCEWithLogitsLoss()", Cast::Float32),
      row("CrossEntropyLoss",
          CrossEntropyLoss(
              CrossEntropyLossOptions().weight(weight).ignore_index(3).label_smoothing(0.1)),
          "CrossEntropyLoss()", Cast::Float32),
      row("CrossEntropyLoss.probabilities",
          CrossEntropyLoss(CrossEntropyLossOptions().weight(weight).label_smoothing(0.1)),
          "CrossEntropyLoss()", Cast::Float32),
      row("NLLLoss", NLLLoss(NLLLossOptions().weight(weight).ignore_index(3)), "NLLLoss()",
          Cast::Float32),
      row("HingeEmbeddingLoss", HingeEmbeddingLoss(HingeEmbeddingLossOptions().margin(0.3)),
          "HingeEmbeddingLoss(margin=0.3)", Cast::Float32),
      row("SoftMarginLoss", SoftMarginLoss(kSum), "SoftMarginLoss()", Cast::Float32),
      row("MarginRankingLoss", MarginRankingLoss(MarginRankingLossOptions().margin(0.3)),
          "MarginRankingLoss()", Cast::Float32),
      row("CosineEmbeddingLoss", CosineEmbeddingLoss(CosineEmbeddingLossOptions().margin(0.1)),
          "CosineEmbeddingLoss(margin=0.1)", Cast::Float32),
      row("MultiMarginLoss",
          MultiMarginLoss(MultiMarginLossOptions().p(2).margin(0.7).weight(weight)),
          "MultiMarginLoss(p=2, margin=0.7, weight= 0.5000\n"
          " 1.0000\n"
          " 2.0000\n"
          " 0.2500\n"
          "[ CPUDoubleType{4} ], reduction=kMean)",
          Cast::Float32),
      row("MultiLabelMarginLoss", MultiLabelMarginLoss(), "MultiLabelMarginLoss()", Cast::Float32),
      row("MultiLabelSoftMarginLoss",
          MultiLabelSoftMarginLoss(MultiLabelSoftMarginLossOptions().weight(weight)),
          "MultiLabelSoftMarginLoss()", Cast::Float32),
      row("TripletMarginLoss",
          TripletMarginLoss(TripletMarginLossOptions().margin(0.7).p(3).swap(true)),
          "TripletMarginLoss(margin=0.7, p=3, eps=1e-06, swap=true)", Cast::Float32),
      row("TripletMarginWithDistanceLoss",
          TripletMarginWithDistanceLoss(
              TripletMarginWithDistanceLossOptions().margin(0.7).swap(true)),
          "TripletMarginWithDistanceLoss(margin=0.7, swap=true)", Cast::Float32),
      // PyTorch's gradients are right only behind a log_softmax: those are in ctc_test.cpp.
      row("CTCLoss", CTCLoss(CTCLossOptions().blank(1).reduction(kSum)), "CTCLoss()", Cast::Float32,
          {.torch_gradients = false}),
  };
}

Rows convolutions_and_pools() {
  const Tensor samples2 = tensor({6, 14, 21, 28, 35, 43, 50, 58}, kFloat64),
               samples3 = tensor({6, 11, 16, 20, 25, 30, 34, 39, 44, 48, 53, 58}, kFloat64);
  return {
      row("Conv1d",
          Conv1d(Conv1dOptions(4, 2, 3).stride(2).padding(1).groups(2).padding_mode(kReflect)),
          "Conv1d(4, 2, kernel_size=3, stride=2, padding=1, groups=2, padding_mode=kReflect)",
          Cast::Lower),
      row("Conv2d",
          Conv2d(Conv2dOptions(4, 2, 3).stride(2).padding(1).groups(2).padding_mode(kReflect)),
          "Conv2d(4, 2, kernel_size=[3, 3], stride=[2, 2], padding=[1, 1], groups=2, "
          "padding_mode=kReflect)",
          Cast::Lower),
      row("Conv3d",
          Conv3d(Conv3dOptions(4, 2, 3).stride(2).padding(1).groups(2).padding_mode(kReflect)),
          "Conv3d(4, 2, kernel_size=[3, 3, 3], stride=[2, 2, 2], padding=[1, 1, 1], groups=2, "
          "padding_mode=kReflect)",
          Cast::Lower),
      row("ConvTranspose1d",
          ConvTranspose1d(
              ConvTranspose1dOptions(4, 2, 2).stride(2).padding(1).output_padding(1).groups(2).bias(
                  false)),
          "ConvTranspose1d(4, 2, kernel_size=2, stride=2, padding=1, output_padding=1, groups=2, "
          "bias=false)",
          Cast::Lower),
      row("ConvTranspose2d",
          ConvTranspose2d(
              ConvTranspose2dOptions(4, 2, 2).stride(2).padding(1).output_padding(1).groups(2).bias(
                  false)),
          "ConvTranspose2d(4, 2, kernel_size=[2, 2], stride=[2, 2], padding=[1, 1], "
          "output_padding=[1, 1], groups=2, bias=false)",
          Cast::Lower),
      row("ConvTranspose3d",
          ConvTranspose3d(
              ConvTranspose3dOptions(4, 2, 2).stride(2).padding(1).output_padding(1).groups(2).bias(
                  false)),
          "ConvTranspose3d(4, 2, kernel_size=[2, 2, 2], stride=[2, 2, 2], padding=[1, 1, 1], "
          "output_padding=[1, 1, 1], groups=2, bias=false)",
          Cast::Lower),
      row("MaxPool1d", MaxPool1d(MaxPool1dOptions(3).stride(2).padding(1).ceil_mode(true)),
          "MaxPool1d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=true)"),
      row("MaxPool2d", MaxPool2d(MaxPool2dOptions(3).stride(2).padding(1).ceil_mode(true)),
          "MaxPool2d(kernel_size=[3, 3], stride=[2, 2], padding=[1, 1], dilation=[1, 1], "
          "ceil_mode=true)"),
      row("MaxPool3d", MaxPool3d(MaxPool3dOptions(3).stride(2).padding(1).ceil_mode(true)),
          "MaxPool3d(kernel_size=[3, 3, 3], stride=[2, 2, 2], padding=[1, 1, 1], dilation=[1, 1, "
          "1], ceil_mode=true)"),
      row("AvgPool1d",
          AvgPool1d(
              AvgPool1dOptions(3).stride(2).padding(1).ceil_mode(true).count_include_pad(false)),
          "AvgPool1d(kernel_size=3, stride=2, padding=1)"),
      row("AvgPool2d",
          AvgPool2d(AvgPool2dOptions(3)
                        .stride(2)
                        .padding(1)
                        .ceil_mode(true)
                        .count_include_pad(false)
                        .divisor_override(5)),
          "AvgPool2d(kernel_size=[3, 3], stride=[2, 2], padding=[1, 1])"),
      row("AvgPool3d",
          AvgPool3d(AvgPool3dOptions(3)
                        .stride(2)
                        .padding(1)
                        .ceil_mode(true)
                        .count_include_pad(false)
                        .divisor_override(5)),
          "AvgPool3d(kernel_size=[3, 3, 3], stride=[2, 2, 2], padding=[1, 1, 1])"),
      row("LPPool1d", LPPool1d(LPPool1dOptions(3, 2).stride(1)),
          "LPPool1d(norm_type=3, kernel_size=2, stride=1, ceil_mode=false)", Cast::Float32),
      row("LPPool2d", LPPool2d(LPPool2dOptions(3, 2).stride(1)),
          "LPPool2d(norm_type=3, kernel_size=[2, 2], stride=[1, 1], ceil_mode=false)",
          Cast::Float32),
      row("LPPool3d", LPPool3d(LPPool3dOptions(3, 2).stride(1)),
          "LPPool3d(norm_type=3, kernel_size=[2, 2, 2], stride=[1, 1, 1], ceil_mode=false)",
          Cast::Float32),
      row("AdaptiveMaxPool1d", AdaptiveMaxPool1d(2), "AdaptiveMaxPool1d(output_size=2)"),
      row("AdaptiveMaxPool2d", AdaptiveMaxPool2d(2), "AdaptiveMaxPool2d(output_size=[2, 2])"),
      row("AdaptiveMaxPool3d", AdaptiveMaxPool3d(2), "AdaptiveMaxPool3d(output_size=[2, 2, 2])"),
      row("AdaptiveAvgPool1d", AdaptiveAvgPool1d(2), "AdaptiveAvgPool1d(output_size=2)"),
      row("AdaptiveAvgPool2d", AdaptiveAvgPool2d(2), "AdaptiveAvgPool2d(output_size=[2, 2])"),
      row("AdaptiveAvgPool3d", AdaptiveAvgPool3d(2), "AdaptiveAvgPool3d(output_size=[2, 2, 2])"),
      row("MaxUnpool1d", MaxUnpool1d(2), "MaxUnpool1d(kernel_size=2, stride=2, padding=0)"),
      row("MaxUnpool2d", MaxUnpool2d(2),
          "MaxUnpool2d(kernel_size=[2, 2], stride=[2, 2], padding=[0, 0])"),
      row("MaxUnpool3d", MaxUnpool3d(2),
          "MaxUnpool3d(kernel_size=[2, 2, 2], stride=[2, 2, 2], padding=[0, 0, 0])"),
      row("FractionalMaxPool2d",
          FractionalMaxPool2d(FractionalMaxPool2dOptions({2, 3})
                                  .output_size(ExpandingArray<2>({3, 2}))
                                  ._random_samples((samples2 / 64).reshape({1, 4, 2}))),
          "FractionalMaxPool2d()"),
      row("FractionalMaxPool3d",
          FractionalMaxPool3d(FractionalMaxPool3dOptions(2).output_ratio(0.7)._random_samples(
              (samples3 / 64).reshape({1, 4, 3}))),
          "FractionalMaxPool3d()"),
  };
}

Rows pads() {
  const ExpandingArray<2> p1({1, 0});
  const ExpandingArray<4> p2({1, 0, 1, 1});
  const ExpandingArray<6> p3({1, 0, 1, 1, 0, 1});
  const std::string t1 = "(padding=[1, 0])", t2 = "(padding=[1, 0, 1, 1])",
                    t3 = "(padding=[1, 0, 1, 1, 0, 1])";
  return {
      row("ReflectionPad1d", ReflectionPad1d(p1), "ReflectionPad1d" + t1),
      row("ReflectionPad2d", ReflectionPad2d(p2), "ReflectionPad2d" + t2),
      row("ReflectionPad3d", ReflectionPad3d(p3), "ReflectionPad3d" + t3),
      row("ReplicationPad1d", ReplicationPad1d(p1), "ReplicationPad1d" + t1),
      row("ReplicationPad2d", ReplicationPad2d(p2), "ReplicationPad2d" + t2),
      row("ReplicationPad3d", ReplicationPad3d(p3), "ReplicationPad3d" + t3),
      row("CircularPad1d", CircularPad1d(p1), "CircularPad1d" + t1),
      row("CircularPad2d", CircularPad2d(p2), "CircularPad2d" + t2),
      row("CircularPad3d", CircularPad3d(p3), "CircularPad3d" + t3),
      row("ZeroPad1d", ZeroPad1d(p1), "ZeroPad1d" + t1),
      row("ZeroPad2d", ZeroPad2d(p2), "ZeroPad2d" + t2),
      row("ZeroPad3d", ZeroPad3d(p3), "ZeroPad3d" + t3),
      row("ConstantPad1d", ConstantPad1d(p1, 2.5), "ConstantPad1d(padding=[1, 0], value=2.5)"),
      row("ConstantPad2d", ConstantPad2d(p2, 2.5),
          "ConstantPad2d(padding=[1, 0, 1, 1], value=2.5)"),
      row("ConstantPad3d", ConstantPad3d(p3, 2.5),
          "ConstantPad3d(padding=[1, 0, 1, 1, 0, 1], value=2.5)"),
  };
}

Rows layers() {
  return {
      row("Linear", Linear(LinearOptions(5, 3).bias(false)),
          "Linear(in_features=5, out_features=3, bias=false)", Cast::Lower),
      row("Bilinear", Bilinear(5, 4, 3),
          "Bilinear(in1_features=5, in2_features=4, out_features=3, bias=true)", Cast::Float32),
      row("CosineSimilarity", CosineSimilarity(CosineSimilarityOptions().dim(2).eps(1e-6)),
          "CosineSimilarity(dim=2, eps=1e-06)", Cast::Float32),
      row("PairwiseDistance", PairwiseDistance(PairwiseDistanceOptions().p(3).keepdim(true)),
          "PairwiseDistance(p=3, eps=1e-06, keepdim=true)", Cast::Float32),
      row("BatchNorm1d", BatchNorm1d(BatchNormOptions(4).eps(0.01).momentum(0.3)),
          "BatchNorm1d(4, eps=0.01, momentum=0.3, affine=true, track_running_stats=true)"),
      row("BatchNorm2d", BatchNorm2d(BatchNormOptions(4).eps(0.01).momentum(0.3)),
          "BatchNorm2d(4, eps=0.01, momentum=0.3, affine=true, track_running_stats=true)"),
      row("BatchNorm3d", BatchNorm3d(BatchNormOptions(4).eps(0.01).momentum(0.3)),
          "BatchNorm3d(4, eps=0.01, momentum=0.3, affine=true, track_running_stats=true)"),
      row("InstanceNorm1d", InstanceNorm1d(InstanceNormOptions(4).eps(0.01).affine(true)),
          "InstanceNorm1d(4, eps=0.01, momentum=0.1, affine=true, track_running_stats=false)"),
      row("InstanceNorm2d", InstanceNorm2d(InstanceNormOptions(4).eps(0.01).affine(true)),
          "InstanceNorm2d(4, eps=0.01, momentum=0.1, affine=true, track_running_stats=false)"),
      row("InstanceNorm3d", InstanceNorm3d(InstanceNormOptions(4).eps(0.01).affine(true)),
          "InstanceNorm3d(4, eps=0.01, momentum=0.1, affine=true, track_running_stats=false)"),
      row("LayerNorm", LayerNorm(LayerNormOptions({4, 5}).eps(0.01)),
          "LayerNorm([4, 5], eps=0.01, elementwise_affine=true)", Cast::Float32),
      row("RMSNorm", RMSNorm(RMSNormOptions({5}).eps(0.01)),
          "RMSNorm([5], eps=0.01, elementwise_affine=true)", Cast::Float32),
      row("GroupNorm", GroupNorm(GroupNormOptions(2, 4).eps(0.01)),
          "GroupNorm(2, 4, eps=0.01, affine=true)", Cast::Float32),
      row("LocalResponseNorm",
          LocalResponseNorm(LocalResponseNormOptions(2).alpha(0.5).beta(0.6).k(1.5)),
          "LocalResponseNorm(2, alpha=0.5, beta=0.6, k=1.5)", Cast::Float32),
      // PyTorch's gradients are of a sum that lets go of the first channel, unlike its values.
      row("CrossMapLRN2d", CrossMapLRN2d(CrossMapLRN2dOptions(3).alpha(0.5).beta(0.6).k(1.5)),
          "CrossMapLRN2d(3, alpha=0.5, beta=0.6, k=1.5)", Cast::Keep, {.torch_gradients = false}),
      row("Fold", Fold(FoldOptions({4, 3}, {2, 2}).padding(1).stride({2, 1})),
          "Fold(output_size=[4, 3], kernel_size=[2, 2], dilation=[1, 1], padding=[1, 1], "
          "stride=[2, 1])"),
      row("Unfold", Unfold(UnfoldOptions({2, 3}).dilation(2).padding(1).stride(2)),
          "Unfold(kernel_size=[2, 3], dilation=[2, 2], padding=[1, 1], stride=[2, 2])"),
      row("Upsample",
          Upsample(UpsampleOptions()
                       .scale_factor(std::vector<double>{1.5, 1.5})
                       .mode(kBilinear)
                       .align_corners(true)),
          "Upsample(scale_factor=[1.5, 1.5], mode=kBilinear)", Cast::Float32),
      row("PixelShuffle", PixelShuffle(2), "PixelShuffle(upscale_factor=2)"),
      row("PixelUnshuffle", PixelUnshuffle(2), "PixelUnshuffle(downscale_factor=2)"),
      row("Embedding", Embedding(EmbeddingOptions(4, 3).padding_idx(2).scale_grad_by_freq(true)),
          "Embedding(num_embeddings=4, embedding_dim=3, padding_idx=2, scale_grad_by_freq=true)",
          Cast::Keep, kSteps),
      row("EmbeddingBag", EmbeddingBag(EmbeddingBagOptions(4, 3).mode(kSum).padding_idx(2)),
          "EmbeddingBag(num_embeddings=4, embedding_dim=3, mode=kSum, padding_idx=2)", Cast::Keep,
          kSteps),
      row("Sequential", Sequential(Linear(5, 3), ReLU(), Linear(3, 2)),
          "Sequential(\n"
          "  (0): halftape::nn::Linear(in_features=5, out_features=3, bias=true)\n"
          "  (1): halftape::nn::ReLU()\n"
          "  (2): halftape::nn::Linear(in_features=3, out_features=2, bias=true)\n"
          ")",
          Cast::Lower),
      row("AdaptiveLogSoftmaxWithLoss",
          AdaptiveLogSoftmaxWithLoss(
              AdaptiveLogSoftmaxWithLossOptions(6, 8, {2, 5}).div_value(2).head_bias(true)),
          "AdaptiveLogSoftmaxWithLoss(\n"
          "  (head): halftape::nn::Linear(in_features=6, out_features=4, bias=true)\n"
          "  (tail): halftape::nn::ModuleList(\n"
          "    (0): halftape::nn::Sequential(\n"
          "      (0): halftape::nn::Linear(in_features=6, out_features=3, bias=false)\n"
          "      (1): halftape::nn::Linear(in_features=3, out_features=3, bias=false)\n"
          "    )\n"
          "    (1): halftape::nn::Sequential(\n"
          "      (0): halftape::nn::Linear(in_features=6, out_features=1, bias=false)\n"
          "      (1): halftape::nn::Linear(in_features=1, out_features=3, bias=false)\n"
          "    )\n"
          "  )\n"
          ")",
          Cast::Float32),
  };
}

Rows sequences() {
  const auto encoder =
      TransformerEncoderLayerOptions(6, 2).dim_feedforward(5).dropout(0).activation(kGELU);
  const auto decoder =
      TransformerDecoderLayerOptions(6, 2).dim_feedforward(5).dropout(0).activation(kGELU);
  return {
      row("RNN", RNN(RNNOptions(3, 2).num_layers(2).nonlinearity(kReLU)),
          "RNN(input_size=3, hidden_size=2, num_layers=2, bias=true, batch_first=false, dropout=0, "
          "bidirectional=false)",
          Cast::Lower),
      row("GRU", GRU(GRUOptions(3, 2).bidirectional(true)),
          "GRU(input_size=3, hidden_size=2, num_layers=1, bias=true, batch_first=false, dropout=0, "
          "bidirectional=true)",
          Cast::Lower),
      row("LSTM", LSTM(LSTMOptions(3, 4).proj_size(2).bias(false)),
          "LSTM(input_size=3, hidden_size=4, num_layers=1, bias=false, batch_first=false, "
          "dropout=0, bidirectional=false, proj_size=2)",
          Cast::Lower),
      row("RNNCell", RNNCell(RNNCellOptions(3, 2).nonlinearity(kReLU)),
          "RNNCell(3, 2, nonlinearity=kReLU)", Cast::Lower),
      row("GRUCell", GRUCell(3, 2), "GRUCell(3, 2)", Cast::Lower),
      row("LSTMCell", LSTMCell(3, 2), "LSTMCell(3, 2)", Cast::Lower),
      row("MultiheadAttention",
          MultiheadAttention(MultiheadAttentionOptions(6, 2).kdim(3).vdim(5).add_bias_kv(true)),
          "MultiheadAttention(\n"
          "  (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          ")",
          Cast::Lower),
      row("TransformerEncoderLayer", TransformerEncoderLayer(encoder),
          "TransformerEncoderLayerImpl(\n"
          "  (self_attn): halftape::nn::MultiheadAttention(\n"
          "    (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "  )\n"
          "  (linear1): halftape::nn::Linear(in_features=6, out_features=5, bias=true)\n"
          "  (dropout): halftape::nn::Dropout(p=0, inplace=false)\n"
          "  (linear2): halftape::nn::Linear(in_features=5, out_features=6, bias=true)\n"
          "  (norm1): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "  (norm2): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "  (dropout1): halftape::nn::Dropout(p=0, inplace=false)\n"
          "  (dropout2): halftape::nn::Dropout(p=0, inplace=false)\n"
          ")",
          Cast::Float32),
      row("TransformerDecoderLayer", TransformerDecoderLayer(decoder),
          "TransformerDecoderLayerImpl(\n"
          "  (self_attn): halftape::nn::MultiheadAttention(\n"
          "    (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "  )\n"
          "  (multihead_attn): halftape::nn::MultiheadAttention(\n"
          "    (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "  )\n"
          "  (linear1): halftape::nn::Linear(in_features=6, out_features=5, bias=true)\n"
          "  (dropout): halftape::nn::Dropout(p=0, inplace=false)\n"
          "  (linear2): halftape::nn::Linear(in_features=5, out_features=6, bias=true)\n"
          "  (norm1): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "  (norm2): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "  (norm3): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "  (dropout1): halftape::nn::Dropout(p=0, inplace=false)\n"
          "  (dropout2): halftape::nn::Dropout(p=0, inplace=false)\n"
          "  (dropout3): halftape::nn::Dropout(p=0, inplace=false)\n"
          ")",
          Cast::Float32),
      row("TransformerEncoder",
          TransformerEncoder(
              TransformerEncoderOptions(encoder, 2).norm(AnyModule(LayerNorm(Shape{6})))),
          "TransformerEncoderImpl(\n"
          "  (layers): halftape::nn::ModuleList(\n"
          "    (0): halftape::nn::TransformerEncoderLayerImpl(\n"
          "      (self_attn): halftape::nn::MultiheadAttention(\n"
          "        (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "      )\n"
          "      (linear1): halftape::nn::Linear(in_features=6, out_features=5, bias=true)\n"
          "      (dropout): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (linear2): halftape::nn::Linear(in_features=5, out_features=6, bias=true)\n"
          "      (norm1): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (norm2): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (dropout1): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (dropout2): halftape::nn::Dropout(p=0, inplace=false)\n"
          "    )\n"
          "    (1): halftape::nn::TransformerEncoderLayerImpl(\n"
          "      (self_attn): halftape::nn::MultiheadAttention(\n"
          "        (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "      )\n"
          "      (linear1): halftape::nn::Linear(in_features=6, out_features=5, bias=true)\n"
          "      (dropout): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (linear2): halftape::nn::Linear(in_features=5, out_features=6, bias=true)\n"
          "      (norm1): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (norm2): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (dropout1): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (dropout2): halftape::nn::Dropout(p=0, inplace=false)\n"
          "    )\n"
          "  )\n"
          "  (norm): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          ")",
          Cast::Float32),
      row("TransformerDecoder", TransformerDecoder(TransformerDecoderOptions(decoder, 2)),
          "TransformerDecoderImpl(\n"
          "  (layers): halftape::nn::ModuleList(\n"
          "    (0): halftape::nn::TransformerDecoderLayerImpl(\n"
          "      (self_attn): halftape::nn::MultiheadAttention(\n"
          "        (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "      )\n"
          "      (multihead_attn): halftape::nn::MultiheadAttention(\n"
          "        (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "      )\n"
          "      (linear1): halftape::nn::Linear(in_features=6, out_features=5, bias=true)\n"
          "      (dropout): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (linear2): halftape::nn::Linear(in_features=5, out_features=6, bias=true)\n"
          "      (norm1): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (norm2): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (norm3): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (dropout1): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (dropout2): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (dropout3): halftape::nn::Dropout(p=0, inplace=false)\n"
          "    )\n"
          "    (1): halftape::nn::TransformerDecoderLayerImpl(\n"
          "      (self_attn): halftape::nn::MultiheadAttention(\n"
          "        (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "      )\n"
          "      (multihead_attn): halftape::nn::MultiheadAttention(\n"
          "        (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "      )\n"
          "      (linear1): halftape::nn::Linear(in_features=6, out_features=5, bias=true)\n"
          "      (dropout): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (linear2): halftape::nn::Linear(in_features=5, out_features=6, bias=true)\n"
          "      (norm1): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (norm2): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (norm3): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "      (dropout1): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (dropout2): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      (dropout3): halftape::nn::Dropout(p=0, inplace=false)\n"
          "    )\n"
          "  )\n"
          ")",
          Cast::Float32),
      row("Transformer", Transformer(TransformerOptions(6, 2, 1, 1).dim_feedforward(5).dropout(0)),
          "TransformerImpl(\n"
          "  (encoder): halftape::nn::TransformerEncoderImpl(\n"
          "    (layers): halftape::nn::ModuleList(\n"
          "      (0): halftape::nn::TransformerEncoderLayerImpl(\n"
          "        (self_attn): halftape::nn::MultiheadAttention(\n"
          "          (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "        )\n"
          "        (linear1): halftape::nn::Linear(in_features=6, out_features=5, bias=true)\n"
          "        (dropout): halftape::nn::Dropout(p=0, inplace=false)\n"
          "        (linear2): halftape::nn::Linear(in_features=5, out_features=6, bias=true)\n"
          "        (norm1): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "        (norm2): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "        (dropout1): halftape::nn::Dropout(p=0, inplace=false)\n"
          "        (dropout2): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      )\n"
          "    )\n"
          "    (norm): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "  )\n"
          "  (decoder): halftape::nn::TransformerDecoderImpl(\n"
          "    (layers): halftape::nn::ModuleList(\n"
          "      (0): halftape::nn::TransformerDecoderLayerImpl(\n"
          "        (self_attn): halftape::nn::MultiheadAttention(\n"
          "          (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "        )\n"
          "        (multihead_attn): halftape::nn::MultiheadAttention(\n"
          "          (out_proj): halftape::nn::Linear(in_features=6, out_features=6, bias=true)\n"
          "        )\n"
          "        (linear1): halftape::nn::Linear(in_features=6, out_features=5, bias=true)\n"
          "        (dropout): halftape::nn::Dropout(p=0, inplace=false)\n"
          "        (linear2): halftape::nn::Linear(in_features=5, out_features=6, bias=true)\n"
          "        (norm1): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "        (norm2): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "        (norm3): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "        (dropout1): halftape::nn::Dropout(p=0, inplace=false)\n"
          "        (dropout2): halftape::nn::Dropout(p=0, inplace=false)\n"
          "        (dropout3): halftape::nn::Dropout(p=0, inplace=false)\n"
          "      )\n"
          "    )\n"
          "    (norm): halftape::nn::LayerNorm([6], eps=1e-05, elementwise_affine=true)\n"
          "  )\n"
          ")",
          Cast::Float32),
  };
}

/// Held to what others say: module_list_test.cpp, sequential_test.cpp and fused_mlp_test.cpp.
const std::set<std::string> kElsewhere{"ModuleList", "ModuleDict", "ParameterList", "ParameterDict",
                                       "FusedMLP"};

Rows all_rows() {
  Rows all;
  for (auto* part : {activations, losses, convolutions_and_pools, pads, layers, sequences})
    for (Row& r : part()) all.push_back(std::move(r));
  return all;
}

const Vectors& torch() {
  static const Vectors vectors("modules.txt");
  return vectors;
}

/// The row's inputs; those that are differentiated are leaves in this dtype.
TensorList inputs_of(const Row& r, Dtype dtype) {
  TensorList all;
  for (const double leaf : torch()[r.name + "/leaves"]) {
    const std::string number = std::to_string(all.size());
    Shape shape;
    for (const double size : torch()[r.name + "/shape" + number])
      shape.push_back(static_cast<int64_t>(size));
    const Tensor x = torch().tensor(r.name + "/in" + number, shape);
    all.push_back(x.to(leaf < 0 ? kInt64 : dtype).requires_grad_(leaf > 0));
  }
  return all;
}

/// The module in this dtype, with torch's parameters.
void load(const Row& r, Dtype dtype) {
  const NoGradGuard no_grad;
  r.module->to(dtype);
  r.module->train(!r.besides.eval);
  for (const auto& p : r.module->named_parameters())
    p.value().copy_(torch().tensor(r.name + "/parameter/" + p.key(), p.value().sizes()));
}

std::string printed(const Module& module) {
  std::ostringstream text;
  text << module;
  return text.str();
}

}  // namespace

TEST_CASE("every module has PyTorch's values and gradients, in float64 and float32") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    for (const Row& r : all_rows()) {
      INFO(r.name << ' ' << dtype);
      const auto same = [&](const std::string& what, const Tensor& got) {
        INFO(what);
        CHECK(got.dtype() == dtype);
        CHECK(differ(got, torch()[r.name + what],
                     {.eps = (dtype == kFloat64 ? r.besides.torch_eps : 1e-5) / epsilon(dtype)}) ==
              "");
      };
      load(r, dtype);
      TensorList inputs = inputs_of(r, dtype), wanted;
      std::vector<std::string> names;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i].requires_grad()) continue;
        wanted.push_back(inputs[i]);
        names.push_back("/grad/in" + std::to_string(i));
      }
      for (const auto& p : r.module->named_parameters()) {
        wanted.push_back(p.value());
        names.push_back("/grad/" + p.key());
      }
      const Tensor y = r.forward(*r.module, inputs);
      same("/value", y);
      if (wanted.empty() || !r.besides.torch_gradients) continue;
      const TensorList grads = autograd::grad(
          {y}, wanted, {arange(1, y.numel() + 1, y.options()).reshape(y.sizes())}, {}, false, true);
      for (size_t i = 0; i < grads.size(); ++i)
        same(names[i], grads[i].defined() ? grads[i] : zeros_like(wanted[i]));
    }
  }
}

TEST_CASE("every module's gradients are what finite differences say") {
  for (const Row& r : all_rows()) {
    if (!r.besides.smooth) continue;
    INFO(r.name);
    load(r, kFloat64);
    TensorList inputs = inputs_of(r, kFloat64);
    double shift = 1e-3;
    for (Tensor& x : inputs) {  // no two equal, and none at a kink
      if (!x.requires_grad()) continue;
      x = (x.detach() + (arange(x.numel(), x.options()).reshape(x.sizes()) * 0.618).frac() * shift)
              .requires_grad_();
      shift *= 1.3;
    }
    for (const Tensor& p : r.module->parameters()) inputs.push_back(p);
    const size_t given = torch()[r.name + "/leaves"].size();
    CHECK(autograd::gradcheck(
        [&](const TensorList& x) {
          return r.forward(*r.module, {x.begin(), x.begin() + static_cast<std::ptrdiff_t>(given)});
        },
        inputs, {.eps = 1e-6, .atol = 1e-6, .rtol = 1e-5}));
  }
}

TEST_CASE("every module gives halves for halves, near float64's result") {
  for (const Dtype dtype : {kFloat16, kBFloat16}) {
    for (const Row& r : all_rows()) {
      INFO(r.name << ' ' << dtype);
      load(r, dtype);
      const Tensor y = r.forward(*r.module, inputs_of(r, dtype));
      CHECK(y.dtype() == dtype);
      CHECK(differ(y, torch()[r.name + "/value"], {.eps = r.besides.half_eps}) == "");
    }
  }
}

TEST_CASE("autocast makes of every module's result what its category says") {
  for (const Row& r : all_rows()) {
    INFO(r.name);
    load(r, kFloat32);
    const amp::autocast region(get_default_device().type(), kBFloat16);
    const auto dtype_for = [&](Dtype dtype) {
      return r.forward(*r.module, inputs_of(r, dtype)).dtype();
    };
    if (r.cast == Cast::Refuse) {
      CHECK_THROWS_AS(dtype_for(kFloat32), Error);
      continue;
    }
    CHECK(dtype_for(kFloat32) == (r.cast == Cast::Lower ? kBFloat16 : kFloat32));
    if (r.besides.smooth || r.cast != Cast::Keep)
      CHECK(dtype_for(kBFloat16) == (r.cast == Cast::Float32 ? kFloat32 : kBFloat16));
  }
}

TEST_CASE("every module prints as LibTorch's") {
  if (!get_default_device().is_cpu()) return;  // weights print where they are
  for (const Row& r : all_rows()) CHECK(printed(*r.module) == r.text);
}

TEST_CASE("the table has every module that a header declares") {
  std::set<std::string> tested = kElsewhere;
  for (const Row& r : all_rows()) tested.insert(r.kind());
  const std::set<std::string> declared = testing::declared_modules();
  CHECK(declared.size() > 130);
  for (const std::string& name : declared) CHECK_MESSAGE(tested.count(name), name, " is missing");
  for (const std::string& name : tested)
    CHECK_MESSAGE(declared.count(name), name, " is declared nowhere");
}
