// Layers that move or pad elements, and activations as modules, against PyTorch's:
// scripts/torch_vectors/layers.py states the same problems.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/module_vectors.h"

using namespace halftape;
using namespace halftape::nn;
using testing::ModuleVectors;

namespace {

using Frame = std::vector<int64_t>;

/// The numbers of a vector as int64.
Tensor whole(const ModuleVectors& torch, const std::string& name, const Shape& shape) {
  return torch.leaf(name, shape).detach().to(kInt64);
}

}  // namespace

TEST_CASE("pads of every kind and rank give PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("layers.txt", dtype);
    const Tensor x1 = torch.leaf("x1", {2, 4, 3}), x2 = torch.leaf("x2", {1, 4, 3, 2}),
                 x3 = torch.leaf("x3", {1, 4, 2, 3, 2});
    const Frame f1{1, 0}, f2{1, 0, 1, 1}, f3{1, 0, 1, 1, 0, 1};
    torch.check("ReflectionPad1d", ReflectionPad1d(f1)(x1), {x1});
    torch.check("ReflectionPad2d", ReflectionPad2d(f2)(x2), {x2});
    torch.check("ReflectionPad3d", ReflectionPad3d(f3)(x3), {x3});
    torch.check("ReplicationPad1d", ReplicationPad1d(f1)(x1), {x1});
    torch.check("ReplicationPad2d", ReplicationPad2d(f2)(x2), {x2});
    torch.check("ReplicationPad3d", ReplicationPad3d(f3)(x3), {x3});
    torch.check("CircularPad1d", CircularPad1d(f1)(x1), {x1});
    torch.check("CircularPad2d", CircularPad2d(f2)(x2), {x2});
    torch.check("CircularPad3d", CircularPad3d(f3)(x3), {x3});
    torch.check("ZeroPad1d", ZeroPad1d(f1)(x1), {x1});
    torch.check("ZeroPad2d", ZeroPad2d(f2)(x2), {x2});
    torch.check("ZeroPad3d", ZeroPad3d(f3)(x3), {x3});
    torch.check("ConstantPad1d", ConstantPad1d(f1, 2.5)(x1), {x1});
    torch.check("ConstantPad2d", ConstantPad2d(f2, 2.5)(x2), {x2});
    torch.check("ConstantPad3d", ConstantPad3d(f3, 2.5)(x3), {x3});
  }
}

TEST_CASE("layers that move elements give PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("layers.txt", dtype);
    const auto indices = [&](const char* name, const Shape& shape) {
      return whole(torch, std::string(name) + "/indices", shape);
    };
    const Tensor s1 = torch.leaf("small1", {1, 2, 2}), s2 = torch.leaf("small2", {1, 2, 2, 2}),
                 s3 = torch.leaf("small3", {1, 2, 2, 2, 2});
    torch.check("MaxUnpool1d", MaxUnpool1d(2)(s1, indices("MaxUnpool1d", s1.sizes())), {s1});
    torch.check("MaxUnpool2d", MaxUnpool2d(2)(s2, indices("MaxUnpool2d", s2.sizes())), {s2});
    torch.check("MaxUnpool3d", MaxUnpool3d(2)(s3, indices("MaxUnpool3d", s3.sizes())), {s3});
    const Tensor maps = torch.leaf("maps", {1, 4, 4, 2});
    torch.check("PixelShuffle", PixelShuffle(2)(maps), {maps});
    torch.check("PixelUnshuffle", PixelUnshuffle(2)(maps), {maps});
    torch.check("Unfold", Unfold(2)(maps), {maps});
    torch.check("Flatten", Flatten()(maps), {maps});
    torch.check("Unflatten", Unflatten(1, std::vector<int64_t>{2, 2})(maps), {maps});
  }
}

TEST_CASE("activations as modules, with their options, give PyTorch's values and gradients") {
  for (const Dtype dtype : {kFloat64, kFloat32}) {
    const ModuleVectors torch("layers.txt", dtype);
    const Tensor v = torch.leaf("v", {4, 6}), u = torch.leaf("u", {4, 6});
    // PyTorch's 1/alpha and 1/6 are float32 in these derivatives, whatever v is.
    const Tensor celu = CELU(CELUOptions().alpha(0.7))(v), hardsigmoid = Hardsigmoid()(v);
    torch.same("CELU/value", celu);
    torch.same("Hardsigmoid/value", hardsigmoid);
    if (dtype == kFloat32) {
      torch.check("CELU", celu, {v});
      torch.check("Hardsigmoid", hardsigmoid, {v});
    }
    torch.check("ELU", ELU(ELUOptions().alpha(0.7))(v), {v});
    torch.check("GLU", GLU(1)(v), {v});
    torch.check("Hardshrink", Hardshrink(0.3)(v), {v});
    torch.check("Hardswish", Hardswish()(v), {v});
    torch.check("Hardtanh", Hardtanh(HardtanhOptions().min_val(-0.7).max_val(0.9))(v), {v});
    torch.check("LeakyReLU", LeakyReLU(LeakyReLUOptions().negative_slope(0.2))(v), {v});
    torch.check("LogSigmoid", LogSigmoid()(v), {v});
    torch.check("Mish", Mish()(v), {v});
    torch.check("ReLU6", ReLU6()(v), {v});
    torch.check("SELU", SELU()(v), {v});
    torch.check("Softmin", Softmin(1)(v), {v});
    torch.check("Softshrink", Softshrink(0.3)(v), {v});
    torch.check("Softsign", Softsign()(v), {v});
    torch.check("Tanhshrink", Tanhshrink()(v), {v});
    torch.check("Threshold", Threshold(0.1, 2.0)(v), {v});
    torch.check("Softplus", Softplus(SoftplusOptions().beta(2).threshold(1.5))(v), {v});
    torch.check("SiLU", SiLU()(v), {v});
    torch.check("GELU", GELU()(v), {v});
    torch.check("Identity", Identity()(v), {v});
    const RReLU rrelu(RReLUOptions().lower(0.1).upper(0.3));
    rrelu->eval();
    torch.check("RReLU", rrelu(v), {v});
    const PReLU prelu(PReLUOptions().num_parameters(6));
    prelu->weight.set_data(torch.leaf("w", {6}).detach());
    torch.check("PReLU", prelu(v), {v, prelu->weight});
    torch.check("CosineSimilarity",
                CosineSimilarity(CosineSimilarityOptions().dim(1).eps(1e-6))(v, u), {v, u});
    torch.check("PairwiseDistance", PairwiseDistance(PairwiseDistanceOptions().p(3))(v, u), {v, u});
  }
}
