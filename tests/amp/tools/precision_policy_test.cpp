#include <doctest/doctest.h>

#include <sstream>

#include <halftape/halftape.h>

using namespace halftape;
using amp::Precise;
using amp::PrecisionPolicy;

TEST_CASE("a precision policy reads what it prints, and short forms") {
  const PrecisionPolicy mixed("params=float32,compute=float16,output=float32");
  CHECK(mixed.params() == kFloat32);
  CHECK(mixed.compute() == kFloat16);
  CHECK(mixed.output() == kFloat32);
  std::ostringstream text;
  text << mixed;
  CHECK(PrecisionPolicy(text.str()) == mixed);
  CHECK(PrecisionPolicy("o=f32,p=full,c=half") == mixed);
  CHECK(PrecisionPolicy("bfloat16") == PrecisionPolicy("bf16"));
  CHECK(PrecisionPolicy("bf16") == PrecisionPolicy(kBFloat16, kBFloat16, kBFloat16));
  CHECK(PrecisionPolicy("c=bf16,p=f32") == PrecisionPolicy(kFloat32, kBFloat16, kBFloat16));
}

TEST_CASE("what is not a precision policy is refused with the word that is wrong") {
  for (const auto& wrong : std::initializer_list<std::pair<const char*, const char*>>{
           {"float8", "\"float8\" in \"float8\" is none of"},
           {"c=f16,weights=f32", "\"weights\""},
           {"c=f16,f32", "\"f32\" in \"c=f16,f32\" is not role=dtype"},
           {"p=f32", "does not say compute"},
           {"c=f16,compute=f32", "states compute twice"},
           {"", "is none of"}}) {
    INFO(wrong.first);
    CHECK_THROWS_WITH_AS(PrecisionPolicy{std::string_view(wrong.first)},
                         doctest::Contains(wrong.second), Error);
  }
  CHECK_THROWS_WITH_AS(PrecisionPolicy(kFloat32, kFloat64, kFloat32),
                       doctest::Contains("compute is float64"), Error);
}

TEST_CASE("the three casts convert floats and leave float64 and integers") {
  const PrecisionPolicy p("p=f32,c=f16,o=bf16");
  const Tensor x = ones({2});
  CHECK(p.cast_to_param(x.to(kFloat16)).dtype() == kFloat32);
  CHECK(p.cast_to_compute(x).dtype() == kFloat16);
  CHECK(p.cast_to_output(x).dtype() == kBFloat16);
  for (const Dtype d : {kFloat64, kInt64, kBool})
    CHECK(p.cast_to_compute(ones({2}, d)).dtype() == d);
  CHECK_FALSE(p.cast_to_compute(Tensor()).defined());
}

namespace {
struct BlockImpl : nn::Module {
  nn::Linear linear = register_module("linear", nn::Linear(4, 3));
  Dtype saw = kFloat64;
  TensorList forward(const Tensor& x, double factor) {
    const Tensor h = softmax(exp(linear->forward(x)) * factor, -1);
    saw = h.dtype();
    return {h, argmax(h, -1)};
  }
};
HALFTAPE_MODULE(Block);
}  // namespace

TEST_CASE("a precise module computes every op in its dtype and returns the one it promises") {
  manual_seed(1);
  const Tensor x = randn({5, 4});
  for (const Dtype compute : {kFloat16, kBFloat16, kFloat32}) {
    for (const Dtype params : {kFloat32, kFloat16}) {
      Block block;
      Precise model(PrecisionPolicy(params, compute, kFloat32), block);
      const TensorList y = model->forward(x, 2.0);
      CHECK(block->saw == compute);
      CHECK(y[0].dtype() == kFloat32);
      CHECK(y[1].dtype() == kInt64);
      CHECK_FALSE(amp::is_autocast_enabled(kCPU));
      // By hand, in that dtype throughout.
      const Tensor w = block->linear->weight.to(compute), b = block->linear->bias.to(compute);
      const Tensor h = softmax(exp(linear(x.to(compute), w, b)) * 2.0, -1);
      CHECK(h.dtype() == compute);
      CHECK(y[0].equal(h.to(kFloat32)));
      y[0].sum().backward();
      for (const Tensor& p : model->parameters()) {
        CHECK(p.dtype() == params);
        CHECK(p.grad().dtype() == params);
      }
    }
  }
}

TEST_CASE("a precise module is a module: named, printed, its policy undisturbed by a region") {
  Precise model(PrecisionPolicy("p=f32,c=f32,o=f32"), nn::Linear(4, 3));
  CHECK(model->named_parameters().contains("module.weight"));
  std::ostringstream text;
  text << *model;
  CHECK(text.str().find("compute=float32") != std::string::npos);
  const Tensor x = randn({2, 4});
  const Tensor plain = model->module()->forward(x);
  const amp::autocast region(kCPU, kFloat16);
  CHECK(model->forward(x).equal(plain));
  CHECK(amp::is_autocast_enabled(kCPU));
}
