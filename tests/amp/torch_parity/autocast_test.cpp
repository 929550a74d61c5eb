// PyTorch's tests of autocast regions (test/test_autocast.py, test/test_cuda.py): the names of the
// cases are theirs.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using amp::autocast;
using autograd::AutogradContext;
using autograd::variable_list;

namespace {

struct MyMM : amp::Function<MyMM> {
  static inline int forwards = 0, backwards = 0;
  static Tensor forward(AutogradContext* ctx, Tensor a, Tensor b) {
    ++forwards;
    CHECK(a.dtype() == kFloat32);
    CHECK(b.dtype() == kFloat32);
    CHECK(amp::is_autocast_enabled(kCPU));
    ctx->save_for_backward({a, b});
    return a.mm(b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    ++backwards;
    CHECK(amp::is_autocast_enabled(kCPU));
    const variable_list saved = ctx->get_saved_variables();
    const Tensor da = g[0].mm(saved[1].t()), db = saved[0].t().mm(g[0]);
    CHECK(da.dtype() == amp::get_autocast_dtype(kCPU));
    return {da, db};
  }
};

struct CastMM : amp::Function<CastMM> {
  static constexpr Dtype cast_inputs = kFloat32;
  static inline Dtype expected = kFloat32;
  static inline int forwards = 0, backwards = 0;
  static Tensor forward(AutogradContext* ctx, Tensor a, std::vector<variable_list> nested,
                        std::map<std::string, Tensor> named) {
    ++forwards;
    const Tensor b = nested.at(0).at(0);
    for (const Tensor& t : {a, b, named.at("c")}) CHECK(t.dtype() == expected);
    CHECK_FALSE(amp::is_autocast_enabled(kCPU));
    ctx->save_for_backward({a, b});
    return a.mm(b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    ++backwards;
    CHECK_FALSE(amp::is_autocast_enabled(kCPU));
    const Tensor da = g[0].mm(ctx->get_saved_variables()[1].t());
    CHECK(da.dtype() == expected);
    return {da, {}, {}};
  }
};

nn::Linear layer() {
  manual_seed(7);
  return nn::Linear(2, 2);
}

}  // namespace

TEST_CASE("test_autocast_custom_enabled") {
  const Tensor x = randn({8, 8}, requires_grad()), y = randn({8, 8}, requires_grad());
  int calls = 0;
  MyMM::forwards = MyMM::backwards = 0;
  for (const Dtype dtype : {kFloat16, kBFloat16}) {
    for (const Tensor* t : {&x, &y}) t->mutable_grad() = Tensor();
    Tensor loss;
    {
      const autocast region(kCPU, dtype);
      const Tensor out = MyMM::apply(x, y);
      CHECK(out.dtype() == dtype);
      loss = out.sum();
    }
    ++calls;
    CHECK(MyMM::forwards == calls);
    loss.backward();
    CHECK(MyMM::backwards == calls);
    // ones · yᵀ and xᵀ · ones, as the region rounds them.
    const Tensor one = ones({8, 8}, dtype);
    CHECK(x.grad().equal(one.mm(y.detach().to(dtype).t()).to(kFloat32)));
    CHECK(y.grad().equal(x.detach().to(dtype).t().mm(one).to(kFloat32)));
  }
}

TEST_CASE("test_autocast_custom_cast_inputs") {
  const Tensor x = randn({8, 8}, TensorOptions(kFloat16).requires_grad(true));
  const std::vector<variable_list> nested{{randn({8, 8}, kFloat16)}};
  const std::map<std::string, Tensor> named{{"c", randn({8, 8}, kFloat16)}};
  // ones · bᵀ in that dtype.
  const auto gradient = [&](Dtype dtype) {
    return ones({8, 8}, dtype).mm(nested[0][0].to(dtype).t()).to(kFloat16);
  };
  CastMM::forwards = CastMM::backwards = 0;
  CastMM::expected = kFloat32;
  {
    Tensor loss;
    {
      const autocast region(kCPU, kFloat16);
      const Tensor out = CastMM::apply(x, nested, named);
      CHECK(out.dtype() == kFloat32);
      loss = out.sum();
    }
    CHECK(CastMM::forwards == 1);
    loss.backward();
  }
  CHECK(CastMM::backwards == 1);
  CHECK(x.grad().equal(gradient(kFloat32)));
  // Outside a region nothing is cast.
  x.mutable_grad() = Tensor();
  CastMM::expected = kFloat16;
  const Tensor out = CastMM::apply(x, nested, named);
  CHECK(out.dtype() == kFloat16);
  CHECK(CastMM::forwards == 2);
  out.sum().backward();
  CHECK(CastMM::backwards == 2);
  CHECK(x.grad().equal(gradient(kFloat16)));
}

TEST_CASE("test_autocast_cache_leak") {
  const nn::Linear linear(10, 10);
  const Tensor x = randn({10, 10});
  const autocast region(kCPU, kFloat16);
  const NoGradGuard no_grad;
  (void)linear->forward(x);
  const int64_t tensors = detail::TensorImpl::live_count();
  const size_t casts = amp::autocast_cache_size();
  for (int i = 0; i < 3; ++i) (void)linear->forward(x);
  CHECK(detail::TensorImpl::live_count() == tensors);
  CHECK(amp::autocast_cache_size() == casts);
}

TEST_CASE("test_autocast_checkpointing") {
  nn::Sequential model(nn::Linear(8, 8), nn::Linear(8, 8), nn::Linear(8, 8));
  const Tensor x = rand({8, 8}, TensorOptions(kFloat16).requires_grad(true));
  Tensor y;
  {
    const autocast region(kCPU, kFloat16);
    y = autograd::checkpoint(std::function<Tensor(const TensorList&)>(
                                 [&](const TensorList& in) { return model->forward(in[0]); }),
                             {x});
    CHECK(y.requires_grad());
    CHECK(y.dtype() == kFloat16);
  }
  y.sum().backward();
  CHECK(model->parameters()[0].grad().dtype() == kFloat32);
}

namespace {
struct CastsAgain : autograd::Function<CastsAgain> {
  static inline const testing::TracingBackend* trace = nullptr;
  static inline Tensor weight;
  static inline int64_t in_backward = -1;
  static Tensor forward(AutogradContext*, Tensor x) { return matmul(x, weight); }
  static variable_list backward(AutogradContext*, variable_list g) {
    const autocast region(kCPU, kFloat16);
    const int64_t before = trace->count("cast");
    const Tensor d = matmul(g[0], weight);
    in_backward = trace->count("cast") - before;
    return {d};
  }
};
}  // namespace

TEST_CASE("test_cast_cache_is_global") {
  // Ours is the thread's: a region inside backward finds what forward has cast.
  const Tensor x = randn({4, 4}, TensorOptions(kFloat16).requires_grad(true));
  const testing::TracingBackend trace;
  CastsAgain::trace = &trace;
  CastsAgain::weight = randn({4, 4}, requires_grad());
  {
    const autocast outer(kCPU, kFloat16);
    const Tensor y = CastsAgain::apply(x);
    CHECK(trace.count("cast") == 1);
    y.sum(kFloat16).backward();
    CHECK(CastsAgain::in_backward == 0);
  }
  CastsAgain::weight = Tensor();
}

TEST_CASE("test_cache_disabled") {
  const Tensor x = randn({4, 4}, kFloat16), w = randn({4, 4}, requires_grad());
  testing::TracingBackend trace;
  const autocast region(kCPU, kFloat16, true, false);
  (void)matmul(x, w), (void)matmul(x, w);
  CHECK(trace.count("cast") == 2);
}

TEST_CASE("test_autocast_prioritize") {
  const Tensor x = zeros({4, 2}, TensorOptions(kBFloat16).requires_grad(true));
  const Tensor values = rand({2, 2}, requires_grad()), at = tensor({0, 3}, kInt64);
  const autocast region(kCPU, kBFloat16);
  const Tensor y =
      index_put(x, std::vector<indexing::TensorIndex>{at}, linear(values, ones({2, 2})));
  CHECK(y.dtype() == kBFloat16);
  CHECK_NOTHROW(y.sum().backward());
  CHECK(x.grad().dtype() == kBFloat16);
  CHECK(values.grad().dtype() == kFloat32);
}

TEST_CASE("test_autocast_nograd_caching_issue_158232") {
  const nn::Linear model = layer();
  const Tensor x = randn({1, 2});
  const autocast region(kCPU, kBFloat16);
  Tensor first;
  {
    const NoGradGuard no_grad;
    first = model->forward(x);
  }
  const Tensor second = model->forward(x);
  CHECK_FALSE(first.requires_grad());
  REQUIRE(second.grad_fn());
  second.sum().backward();
  CHECK(model->weight.grad().defined());
  CHECK(model->bias.grad().defined());
}

TEST_CASE("test_autocast_mixed_grad_contexts") {
  const nn::Linear model = layer();
  const Tensor x = randn({2, 2});
  const autocast region(kCPU, kBFloat16);
  for (const bool grad : {false, true, false, true}) {
    const AutoGradMode mode(grad);
    CHECK(model->forward(x).requires_grad() == grad);
    const NoGradGuard no_grad;
    CHECK_FALSE(model->forward(x).requires_grad());
    const AutoGradMode again(true);
    const Tensor y = model->forward(x);
    CHECK(y.requires_grad());
    y.sum().backward();
  }
  CHECK(model->weight.grad().defined());
}

TEST_CASE("test_autocast_inference_mode_interaction") {
  const nn::Linear model = layer();
  const Tensor x = randn({2, 2});
  const autocast region(kCPU, kBFloat16);
  {
    const InferenceMode inference;
    CHECK_FALSE(model->forward(x).requires_grad());
  }
  const Tensor y = model->forward(x);
  REQUIRE(y.requires_grad());
  y.sum().backward();
  CHECK(model->weight.grad().defined());
}

TEST_CASE("test_autocast_caching_still_works_with_gradients") {
  const nn::Linear model = layer();
  const Tensor x = randn({2, 2}, kBFloat16);
  testing::TracingBackend trace;
  const autocast region(kCPU, kBFloat16);
  const Tensor a = model->forward(x), b = model->forward(x), c = model->forward(x);
  CHECK(trace.count("cast") == 2);  // weight and bias
  for (const Tensor& y : {a, b, c}) CHECK(y.grad_fn());
  c.sum().backward();
  CHECK(model->weight.grad().defined());
}

TEST_CASE("test_autocast_fast_dtype") {
  CHECK(amp::get_autocast_dtype(kCPU) == kBFloat16);
  CHECK(amp::get_autocast_dtype(kCUDA) == kFloat16);
}

TEST_CASE("test_autocast_invalid_device, test_autocast_disabled_with_fp32_dtype") {
  CHECK_THROWS_AS(Device("meta"), Error);  // what is no device type does not become one
  CHECK_NOTHROW(const autocast region(kCUDA, kFloat32, false));
  const autocast region(kCPU, kFloat32, false);
  CHECK(mm(ones({2, 2}), ones({2, 2})).dtype() == kFloat32);
}
