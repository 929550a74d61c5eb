// Every module's clone(): the same values in memory of its own, and the same forward().
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <set>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/modules/declared_modules.h"
#include "halftape/tests/support/printed.h"

using namespace halftape;
using namespace halftape::nn;
using testing::printed;
using testing::same_bits;

namespace {

// What a forward() gives, as a list.
void collect(TensorList& into, const Tensor& t) { into.push_back(t); }
template <class... T>
void collect(TensorList& into, const std::tuple<T...>& parts) {
  std::apply([&](const auto&... part) { (collect(into, part), ...); }, parts);
}

void collect(TensorList& into, const ASMoutput& result) {
  into.push_back(result.output);
  into.push_back(result.loss);
}

/// A module, and the results of its forward() in a call that any module of its class can take.
struct CloneCase {
  std::string name;
  std::shared_ptr<Module> module;
  std::function<TensorList(Module&)> forward;
};

template <class Holder, class... In>
CloneCase row(const std::string& name, const Holder& module, In... in) {
  using Impl = typename Holder::ContainedType;
  return {name, module.ptr(), [in...](Module& m) {
            manual_seed(11);  // for those that draw
            TensorList results;
            collect(results, dynamic_cast<Impl&>(m).forward(in...));
            return results;
          }};
}

Tensor image(std::initializer_list<int64_t> shape) {
  return randn(Shape(shape), TensorOptions(kFloat32));
}

std::vector<CloneCase> losses() {
  const Tensor x = rand({4, 3}) * 0.9 + 0.05, y = rand({4, 3}) * 0.9 + 0.05,
               sign = (y > 0.5) * 2 - 1;
  const Tensor classes = tensor({0, 2, 1, 0}), labels = tensor({{0, 1}, {2, -1}, {1, -1}, {0, 2}});
  const Tensor weight = rand({3}) + 0.5;
  const Tensor ones_or_less = tensor({1.0f, -1.0f, 1.0f, 1.0f});
  return {
      row("L1Loss", L1Loss(), x, y),
      row("MSELoss", MSELoss(kSum), x, y),
      row("SmoothL1Loss", SmoothL1Loss(), x, y),
      row("HuberLoss", HuberLoss(HuberLossOptions().delta(0.1)), x, y),
      row("KLDivLoss", KLDivLoss(), x, y),
      row("PoissonNLLLoss", PoissonNLLLoss(), x, y),
      row("GaussianNLLLoss", GaussianNLLLoss(), x, y, x),
      row("BCELoss", BCELoss(BCELossOptions().weight(weight)), x, y),
      row("BCEWithLogitsLoss",
          BCEWithLogitsLoss(BCEWithLogitsLossOptions().weight(weight).pos_weight(weight)), x, y),
      row("CrossEntropyLoss", CrossEntropyLoss(CrossEntropyLossOptions().weight(weight)), x,
          classes),
      row("NLLLoss", NLLLoss(NLLLossOptions().weight(weight)), x, classes),
      row("HingeEmbeddingLoss", HingeEmbeddingLoss(HingeEmbeddingLossOptions().margin(0.3)), x,
          sign),
      row("SoftMarginLoss", SoftMarginLoss(), x, sign),
      row("MarginRankingLoss", MarginRankingLoss(), x, y, sign),
      row("CosineEmbeddingLoss", CosineEmbeddingLoss(), x, y, ones_or_less),
      row("MultiMarginLoss", MultiMarginLoss(MultiMarginLossOptions().weight(weight)), x, classes),
      row("MultiLabelMarginLoss", MultiLabelMarginLoss(), x,
          cat({labels, full({4, 1}, -1, kInt64)}, 1)),
      row("MultiLabelSoftMarginLoss",
          MultiLabelSoftMarginLoss(MultiLabelSoftMarginLossOptions().weight(weight)), x, y),
      row("TripletMarginLoss", TripletMarginLoss(), x, y, x * 0.5),
      row("TripletMarginWithDistanceLoss", TripletMarginWithDistanceLoss(), x, y, x * 0.5),
      row("CTCLoss", CTCLoss(), log_softmax(randn({6, 2, 4}), 2), tensor({{1, 2}, {3, 0}}),
          tensor({6, 5}), tensor({2, 1})),
  };
}

std::vector<CloneCase> activations() {
  const Tensor x = image({2, 4, 3});
  return {
      row("Identity", Identity(), x),
      row("ReLU", ReLU(), x),
      row("ReLU6", ReLU6(), x),
      row("ELU", ELU(ELUOptions().alpha(0.5)), x),
      row("SELU", SELU(), x),
      row("CELU", CELU(), x),
      row("GELU", GELU(), x),
      row("GLU", GLU(1), x),
      row("SiLU", SiLU(), x),
      row("Mish", Mish(), x),
      row("Tanh", Tanh(), x),
      row("Tanhshrink", Tanhshrink(), x),
      row("Sigmoid", Sigmoid(), x),
      row("LogSigmoid", LogSigmoid(), x),
      row("Hardsigmoid", Hardsigmoid(), x),
      row("Hardswish", Hardswish(), x),
      row("Hardtanh", Hardtanh(), x),
      row("Hardshrink", Hardshrink(), x),
      row("Softshrink", Softshrink(), x),
      row("Softplus", Softplus(), x),
      row("Softsign", Softsign(), x),
      row("Softmax", Softmax(1), x),
      row("Softmax2d", Softmax2d(), x),
      row("Softmin", Softmin(1), x),
      row("LogSoftmax", LogSoftmax(1), x),
      row("LeakyReLU", LeakyReLU(), x),
      row("RReLU", RReLU(), x),
      row("PReLU", PReLU(PReLUOptions().num_parameters(4)), x),
      row("Threshold", Threshold(0.1, 2.0), x),
      row("Dropout", Dropout(), x),
      row("Dropout2d", Dropout2d(), x),
      row("Dropout3d", Dropout3d(), x),
      row("AlphaDropout", AlphaDropout(), x),
      row("FeatureAlphaDropout", FeatureAlphaDropout(), x),
      row("Flatten", Flatten(), x),
      row("Unflatten", Unflatten(1, std::vector<int64_t>{2, 2}), x),
  };
}

std::vector<CloneCase> product_and_pooling_layers() {
  const Tensor x1 = image({2, 4, 6}), x2 = image({2, 4, 6, 6}), x3 = image({2, 4, 4, 4, 4});
  const auto at = [](const Tensor& x, int64_t n) {
    Shape shape = x.sizes();
    for (int d = 2; d < shape.size(); ++d) shape[d] /= n;
    return tensor(std::vector<int64_t>(static_cast<size_t>(numel(shape)), 0)).reshape(shape);
  };
  const Tensor half1 = image({2, 4, 3}), half2 = image({2, 4, 3, 3}),
               half3 = image({2, 4, 2, 2, 2});
  const std::optional<std::vector<int64_t>> no_size;
  return {
      row("Linear", Linear(6, 3), x1),
      row("Bilinear", Bilinear(6, 6, 3), x1, x1),
      row("CosineSimilarity", CosineSimilarity(), x1, x1 * x1),
      row("PairwiseDistance", PairwiseDistance(), x1, x1 * x1),
      row("Conv1d", Conv1d(4, 2, 3), x1),
      row("Conv2d", Conv2d(Conv2dOptions(4, 2, 3).bias(false).padding(kSame)), x2),
      row("Conv3d", Conv3d(Conv3dOptions(4, 2, 3).groups(2)), x3),
      row("ConvTranspose1d", ConvTranspose1d(4, 2, 3), x1, std::optional<Dims>()),
      row("ConvTranspose2d", ConvTranspose2d(4, 2, 3), x2, std::optional<Dims>()),
      row("ConvTranspose3d", ConvTranspose3d(4, 2, 3), x3, std::optional<Dims>()),
      row("MaxPool1d", MaxPool1d(2), x1),
      row("MaxPool2d", MaxPool2d(MaxPool2dOptions(3).stride(2).padding(1)), x2),
      row("MaxPool3d", MaxPool3d(2), x3),
      row("AvgPool1d", AvgPool1d(2), x1),
      row("AvgPool2d", AvgPool2d(2), x2),
      row("AvgPool3d", AvgPool3d(2), x3),
      row("LPPool1d", LPPool1d(2, 2), x1),
      row("LPPool2d", LPPool2d(2, 2), x2),
      row("LPPool3d", LPPool3d(2, 2), x3),
      row("MaxUnpool1d", MaxUnpool1d(2), half1, at(x1, 2), no_size),
      row("MaxUnpool2d", MaxUnpool2d(2), half2, at(x2, 2), no_size),
      row("MaxUnpool3d", MaxUnpool3d(2), half3, at(x3, 2), no_size),
      row("AdaptiveMaxPool1d", AdaptiveMaxPool1d(2), x1),
      row("AdaptiveMaxPool2d", AdaptiveMaxPool2d(2), x2),
      row("AdaptiveMaxPool3d", AdaptiveMaxPool3d(2), x3),
      row("AdaptiveAvgPool1d", AdaptiveAvgPool1d(2), x1),
      row("AdaptiveAvgPool2d", AdaptiveAvgPool2d(2), x2),
      row("AdaptiveAvgPool3d", AdaptiveAvgPool3d(2), x3),
      row("FractionalMaxPool2d", FractionalMaxPool2d(FractionalMaxPool2dOptions(2).output_size(3)),
          x2),
      row("FractionalMaxPool3d",
          FractionalMaxPool3d(FractionalMaxPool3dOptions(2).output_ratio(0.5)), x3),
  };
}

std::vector<CloneCase> image_and_norm_layers() {
  const Tensor x1 = image({2, 4, 6}), x2 = image({2, 4, 6, 6}), x3 = image({2, 4, 4, 4, 4});
  return {
      row("ReflectionPad1d", ReflectionPad1d(1), x1),
      row("ReflectionPad2d", ReflectionPad2d(1), x2),
      row("ReflectionPad3d", ReflectionPad3d(1), x3),
      row("ReplicationPad1d", ReplicationPad1d(1), x1),
      row("ReplicationPad2d", ReplicationPad2d(1), x2),
      row("ReplicationPad3d", ReplicationPad3d(1), x3),
      row("CircularPad1d", CircularPad1d(1), x1),
      row("CircularPad2d", CircularPad2d(1), x2),
      row("CircularPad3d", CircularPad3d(1), x3),
      row("ZeroPad1d", ZeroPad1d(1), x1),
      row("ZeroPad2d", ZeroPad2d(1), x2),
      row("ZeroPad3d", ZeroPad3d(1), x3),
      row("ConstantPad1d", ConstantPad1d(1, 2.5), x1),
      row("ConstantPad2d", ConstantPad2d(1, 2.5), x2),
      row("ConstantPad3d", ConstantPad3d(1, 2.5), x3),
      row("Fold", Fold(ExpandingArray<2>(4), ExpandingArray<2>(2)), image({1, 8, 9})),
      row("Unfold", Unfold(2), x2),
      row("Upsample", Upsample(UpsampleOptions().scale_factor(std::vector<double>{2})), x2),
      row("PixelShuffle", PixelShuffle(2), x2),
      row("PixelUnshuffle", PixelUnshuffle(2), x2),
      row("LayerNorm", LayerNorm(Shape{6}), x1),
      row("RMSNorm", RMSNorm(Shape{6}), x1),
      row("BatchNorm1d", BatchNorm1d(4), x1),
      row("BatchNorm2d", BatchNorm2d(BatchNormOptions(4).momentum(0.3)), x2),
      row("BatchNorm3d", BatchNorm3d(4), x3),
      row("InstanceNorm1d", InstanceNorm1d(InstanceNormOptions(4).affine(true)), x1),
      row("InstanceNorm2d",
          InstanceNorm2d(InstanceNormOptions(4).affine(true).track_running_stats(true)), x2),
      row("InstanceNorm3d", InstanceNorm3d(4), x3),
      row("GroupNorm", GroupNorm(2, 4), x1),
      row("LocalResponseNorm", LocalResponseNorm(2), x2),
      row("CrossMapLRN2d", CrossMapLRN2d(3), x2),
  };
}

std::vector<CloneCase> sequence_layers() {
  const Tensor x1 = image({2, 4, 6}), sequence = image({5, 2, 4});
  const Tensor tokens = tensor({{1, 0, 2}, {2, 2, 1}});
  return {
      row("AdaptiveLogSoftmaxWithLoss",
          AdaptiveLogSoftmaxWithLoss(
              AdaptiveLogSoftmaxWithLossOptions(4, 6, {2, 4}).div_value(1.5)),
          sequence[0], tensor({1, 5})),
      row("Embedding", Embedding(3, 5), tokens),
      row("EmbeddingBag", EmbeddingBag(3, 5), tokens, Tensor(), Tensor()),
      row("RNN", RNN(4, 3), sequence, Tensor()),
      row("GRU", GRU(GRUOptions(4, 3).num_layers(2).bidirectional(true)), sequence, Tensor()),
      row("RNNCell", RNNCell(4, 3), sequence[0], Tensor()),
      row("GRUCell", GRUCell(4, 3), sequence[0], Tensor()),
      row("LSTM", LSTM(LSTMOptions(4, 3).proj_size(2)), sequence,
          std::optional<LSTMImpl::States>()),
      row("LSTMCell", LSTMCell(4, 3), sequence[0], std::optional<LSTMCellImpl::States>()),
      row("MultiheadAttention", MultiheadAttention(4, 2), sequence, sequence, sequence),
      row("TransformerEncoderLayer",
          TransformerEncoderLayer(TransformerEncoderLayerOptions(4, 2).dim_feedforward(6)),
          sequence),
      row("TransformerDecoderLayer",
          TransformerDecoderLayer(TransformerDecoderLayerOptions(4, 2).dim_feedforward(6)),
          sequence, sequence),
      row("TransformerEncoder",
          TransformerEncoder(TransformerEncoderOptions(
              TransformerEncoderLayer(TransformerEncoderLayerOptions(4, 2).dim_feedforward(6)), 2)),
          sequence),
      row("TransformerDecoder",
          TransformerDecoder(TransformerDecoderOptions(
              TransformerDecoderLayer(TransformerDecoderLayerOptions(4, 2).dim_feedforward(6)), 2)),
          sequence, sequence),
      row("Transformer", Transformer(TransformerOptions(4, 2, 1, 1).dim_feedforward(6)), sequence,
          sequence),
      row("FusedMLP", FusedMLP(6, 8, 2, 3), x1),
      row("Sequential", Sequential(Linear(6, 3), relu, Linear(3, 2)), x1),
      row("Functional", Functional(relu), x1),
  };
}

/// Have no forward(): module_list_test.cpp clones them.
const std::set<std::string> kContainers{"ModuleList", "ModuleDict", "ParameterList",
                                        "ParameterDict"};

std::vector<CloneCase> all_cases() {
  manual_seed(7);
  std::vector<CloneCase> all = losses();
  for (auto* more :
       {&activations, &product_and_pooling_layers, &image_and_norm_layers, &sequence_layers})
    for (CloneCase& c : (*more)()) all.push_back(std::move(c));
  return all;
}

/// Values that no reset() would give.
void fill(const Module& module, uint64_t seed) {
  manual_seed(seed);
  const NoGradGuard no_grad;
  for (const Tensor& t : module.parameters()) t.copy_(rand(t.sizes()) + 0.5);
  for (const Tensor& t : module.buffers())
    if (t.is_floating_point()) t.copy_(rand(t.sizes()) + 0.5);
}

bool same(const TensorList& a, const TensorList& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !same_bits(a[i], b[i])))
      return false;
  return true;
}

void check_tensors(const OrderedDict<std::string, Tensor>& from,
                   const OrderedDict<std::string, Tensor>& to) {
  REQUIRE(from.keys() == to.keys());
  for (const auto& item : from) {
    CAPTURE(item.key());
    const Tensor& copy = to[item.key()];
    CHECK(same_bits(copy, item.value()));
    CHECK(copy.requires_grad() == item.value().requires_grad());
    CHECK(copy.const_data_ptr() != item.value().const_data_ptr());
  }
}

}  // namespace

TEST_CASE("the clone of every module has its class, options, values and forward()") {
  for (const CloneCase& c : all_cases()) {
    CAPTURE(c.name);
    Module& module = *c.module;
    fill(module, 1);
    for (const std::optional<Device> device :
         {std::optional<Device>(), std::optional<Device>(get_default_device())}) {
      const std::shared_ptr<Module> clone = module.clone(device);
      const Module& copy = *clone;
      CHECK(typeid(copy) == typeid(module));
      CHECK(printed(*clone) == printed(module));
      check_tensors(module.named_parameters(), clone->named_parameters());
      check_tensors(module.named_buffers(), clone->named_buffers());
      // Twice: what the first leaves behind in buffers is the same, too, and each has its own.
      for (int i = 0; i < 2; ++i) CHECK(same(c.forward(*clone), c.forward(module)));
      check_tensors(module.named_buffers(), clone->named_buffers());

      const TensorList before = [&] {
        module.eval();
        return c.forward(module);
      }();
      const bool has_weights = !clone->parameters().empty() || !clone->buffers().empty();
      if (has_weights) {
        fill(*clone, 2);
        CHECK(same(c.forward(module), before));
        clone->eval();
        CHECK_FALSE(same(c.forward(*clone), before));
      }
      CHECK_FALSE(module.clone(device)->is_training());
      module.train();
    }
  }
}

TEST_CASE("a clone has the dtype of its original, which then may take another") {
  for (const CloneCase& c : all_cases()) {
    CAPTURE(c.name);
    c.module->to(kFloat64);
    const std::shared_ptr<Module> clone = c.module->clone();
    c.module->to(kBFloat16);
    for (const Tensor& t : clone->parameters()) CHECK(t.dtype() == kFloat64);
    for (const Tensor& t : clone->buffers())
      CHECK(t.dtype() == (t.is_floating_point() ? kFloat64 : kInt64));
  }
}

TEST_CASE("the table of clones has every module that a header declares") {
  const std::set<std::string> declared = testing::declared_modules();
  std::set<std::string> tested = kContainers;
  for (const CloneCase& c : all_cases()) tested.insert(c.name);
  CHECK(declared.size() > 130);
  for (const std::string& name : declared) CHECK_MESSAGE(tested.count(name), name, " is missing");
}

TEST_CASE("weights of losses are buffers that follow the module") {
  const Tensor weight = tensor({0.5, 2.0, 1.0});
  const CrossEntropyLoss loss(CrossEntropyLossOptions().weight(weight));
  CHECK(loss->named_buffers().keys() == std::vector<std::string>{"weight"});
  CHECK(loss->parameters().empty());
  loss->to(kFloat64);
  CHECK(loss->options.weight().dtype() == kFloat64);
  CHECK(weight.dtype() == kFloat32);
  const BCEWithLogitsLoss logits(BCEWithLogitsLossOptions().pos_weight(weight));
  CHECK(logits->named_buffers().keys() == std::vector<std::string>{"pos_weight"});
  CHECK(MSELoss()->named_buffers().is_empty());
}

TEST_CASE("a class that inherits its base's copy is not cloned as its base") {
  struct Scaled : nn::LinearImpl {
    using LinearImpl::LinearImpl;
    double factor = 3;
  };
  const auto scaled = std::make_shared<Scaled>(2, 2);
  CHECK_THROWS_WITH_AS(scaled->clone(), doctest::Contains("would be a"), Error);
  nn::ModuleList list;
  list->push_back(scaled);
  CHECK_THROWS_WITH_AS(list->clone(), doctest::Contains("derive it from nn::Cloneable<"), Error);
}
