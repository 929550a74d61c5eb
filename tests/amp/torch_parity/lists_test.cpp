// PyTorch's tests of the autocast lists (test/test_autocast.py, test/test_cuda.py): the names of
// the cases are theirs. Every op of a list, as a function and as a method: the dtype, and the bits
// of the same call with inputs cast by hand outside the region.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"

using namespace halftape;
using amp::autocast;
using testing::same_bits;

namespace {

struct Entry {
  std::string name;
  TensorList inputs;
  std::function<Tensor(const TensorList&)> function;
  std::function<Tensor(const TensorList&)> method = {};
};

/// f(t[0], t[1], …) of a list of n tensors.
template <size_t n, class F>
std::function<Tensor(const TensorList&)> on_list(F f) {
  return [f](const TensorList& t) {
    return [&]<size_t... i>(std::index_sequence<i...>) { return f(t[i]...); }
    (std::make_index_sequence<n>());
  };
}
template <class F, class... T>
Entry function(const char* name, F f, const T&... inputs) {
  return {name, {inputs...}, on_list<sizeof...(T)>(f)};
}
template <class F, class M, class... T>
Entry function_and_method(const char* name, F f, M method, const T&... inputs) {
  return {name, {inputs...}, on_list<sizeof...(T)>(f), on_list<sizeof...(T)>(method)};
}
// op(inputs…), and with BOTH also inputs[0].op(…).
#define FUNCTION(op, ...) \
  function(               \
      #op, [](auto&... t) { return op(t...); }, __VA_ARGS__)
#define BOTH(op, ...)                                     \
  function_and_method(                                    \
      #op, [](auto&... t) { return halftape::op(t...); }, \
      [](auto& first, auto&... rest) { return first.op(rest...); }, __VA_ARGS__)

TensorList converted(const TensorList& inputs, Dtype dtype) {
  TensorList out;
  for (const Tensor& x : inputs)
    out.push_back(x.defined() && x.is_floating_point() ? x.to(dtype) : x);
  return out;
}

/// Each entry runs in `run` in a region of `lower`.
void check(const std::vector<Entry>& list, Dtype lower, Dtype run) {
  for (const Entry& e : list) {
    INFO(e.name);
    const Tensor by_hand = e.function(converted(e.inputs, run));
    const autocast region(kCPU, lower);
    const Tensor y = e.function(e.inputs);
    CHECK(y.dtype() == run);
    CHECK(same_bits(y, by_hand));
    CHECK(same_bits(y, e.function(e.inputs)));  // test_generic_autocast: twice the same
    if (e.method) CHECK(same_bits(y, e.method(e.inputs)));
  }
}

std::vector<Entry> lower_ops(Dtype given) {
  const Tensor m = rand({8, 8}, given), n = rand({8, 8}, given), v = rand({8}, given),
               u = rand({8}, given), bm = rand({8, 8, 8}, given), bn = rand({8, 8, 8}, given),
               b4 = rand({3, 3, 4, 4}, given), b5 = rand({2, 2, 3, 3, 3}, given);
  return {
      BOTH(mm, m, n),
      BOTH(mv, m, v),
      BOTH(bmm, bm, bn),
      BOTH(matmul, m, n),
      BOTH(addmm, m, m, n),
      BOTH(addmv, v, m, v),
      BOTH(addr, m, v, u),
      BOTH(addbmm, m, bm, bn),
      BOTH(baddbmm, bm, bm, bn),
      BOTH(prelu, m, rand({1}, given)),
      FUNCTION(linear, m, n, v),
      {"linear without bias", {m, n}, [](const TensorList& t) { return linear(t[0], t[1]); }},
      {"einsum", {bm, bn}, [](const TensorList& t) { return einsum("bij,bjk->bik", t); }},
      {"chain_matmul", {m, n, m}, [](const TensorList& t) { return chain_matmul(t); }},
      FUNCTION(conv1d, bm, bn),
      FUNCTION(conv2d, b4, b4),
      FUNCTION(conv3d, b5, b5),
      FUNCTION(conv_transpose1d, bm, bn),
      FUNCTION(conv_transpose2d, b4, b4),
      FUNCTION(conv_transpose3d, b5, b5),
      FUNCTION(scaled_dot_product_attention, bm, bn, bm, m),
  };
}

std::vector<Entry> float32_ops(Dtype given) {
  const Tensor x = rand({4, 4}, given) * 0.5 + 0.25, y = rand({4, 4}, given) * 0.5 + 0.25;
  const Tensor image = rand({1, 2, 4, 4}, given);
  return {
      BOTH(acos, x),
      BOTH(asin, x),
      BOTH(cosh, x),
      BOTH(exp, x),
      BOTH(expm1, x),
      BOTH(log, x),
      BOTH(log10, x),
      BOTH(log2, x),
      BOTH(log1p, x),
      BOTH(reciprocal, x),
      BOTH(rsqrt, x),
      BOTH(sinh, x),
      BOTH(tan, x),
      BOTH(square, x),
      BOTH(sum, x),
      BOTH(prod, x),
      BOTH(norm, x),
      BOTH(pow, x, y),
      BOTH(dist, x, y),
      {"pow of a number", {x}, [](const TensorList& t) { return pow(t[0], 1.5); }},
      {"number to a power", {x}, [](const TensorList& t) { return pow(1.5, t[0]); }},
      {"number by tensor", {x}, [](const TensorList& t) { return 2.0 / t[0]; }},
      FUNCTION(softplus, x),
      {"softmax", {x}, [](const TensorList& t) { return softmax(t[0], 1); }},
      {"log_softmax", {x}, [](const TensorList& t) { return log_softmax(t[0], 0); }},
      {"cumsum", {x}, [](const TensorList& t) { return cumsum(t[0], 0); }},
      {"cumprod", {x}, [](const TensorList& t) { return cumprod(t[0], 1); }},
      {"sum over dims", {x}, [](const TensorList& t) { return sum(t[0], {0}); }},
      {"norm over dims", {x}, [](const TensorList& t) { return norm(t[0], 3, {1}); }},
      FUNCTION(linalg_vector_norm, x),
      {"logsumexp", {x}, [](const TensorList& t) { return logsumexp(t[0], {1}); }},
      {"interpolate",
       {image},
       [](const TensorList& t) {
         return interpolate(t[0], std::vector<int64_t>{3, 5}, {}, kBilinear);
       }},
      {"lp_pool2d", {image}, [](const TensorList& t) { return lp_pool2d(t[0], 2, 2); }},
      FUNCTION(cdist, x, y),
      FUNCTION(pdist, x),
      FUNCTION(cosine_similarity, x, y),
  };
}

std::vector<Entry> float32_losses(Dtype given) {
  const Tensor x = rand({4, 4}, given) * 0.5 + 0.25, y = rand({4, 4}, given) * 0.5 + 0.25;
  const Tensor classes = tensor({0, 1, 2, 3}, kInt64);
  return {
      FUNCTION(nll_loss, x, classes),
      FUNCTION(cross_entropy, x, classes),
      FUNCTION(mse_loss, x, y),
      FUNCTION(l1_loss, x, y),
      FUNCTION(smooth_l1_loss, x, y),
      FUNCTION(huber_loss, x, y),
      FUNCTION(kl_div, x, y),
      FUNCTION(poisson_nll_loss, x, y),
      FUNCTION(hinge_embedding_loss, x, y),
      FUNCTION(soft_margin_loss, x, y),
      {"margin_ranking_loss",
       {x, y},
       [](const TensorList& t) { return margin_ranking_loss(t[0], t[1], t[1]); }},
      {"cosine_embedding_loss",
       {x, y},
       [](const TensorList& t) { return cosine_embedding_loss(t[0], t[1], t[1].select(1, 0)); }},
      FUNCTION(multi_margin_loss, x, classes),
      FUNCTION(multilabel_margin_loss, x.select(0, 0), classes.narrow(0, 0, 1).expand({x.size(1)})),
      {"triplet_margin_loss",
       {x, y},
       [](const TensorList& t) { return triplet_margin_loss(t[0], t[1], t[0]); }},
      FUNCTION(binary_cross_entropy_with_logits, x, y),
  };
}

}  // namespace

TEST_CASE("test_autocast_torch_fp16, test_autocast_nn_fp16, test_autocast_methods_fp16") {
  check(lower_ops(kFloat32), kFloat16, kFloat16);
  check(lower_ops(kFloat16), kFloat16, kFloat16);
  check(lower_ops(kBFloat16), kFloat16, kFloat16);
}

TEST_CASE("test_autocast_torch_bf16, test_autocast_nn_bf16") {
  check(lower_ops(kFloat32), kBFloat16, kBFloat16);
  check(lower_ops(kBFloat16), kBFloat16, kBFloat16);
  check(lower_ops(kFloat16), kBFloat16, kBFloat16);
}

TEST_CASE("test_autocast_torch_fp32, test_autocast_nn_fp32, test_autocast_methods_fp32") {
  for (const Dtype lower : {kFloat16, kBFloat16})
    for (const Dtype given : {kFloat16, kBFloat16, kFloat32}) {
      check(float32_ops(given), lower, kFloat32);
      check(float32_losses(given), lower, kFloat32);
    }
}

TEST_CASE("test_autocast_torch_need_autocast_promote") {
  const Tensor f = rand({4}), at = tensor({0, 1, 2, 0}, kInt64);
  const auto list = [&](const Tensor& h) {
    return std::vector<Entry>{
        BOTH(addcdiv, f, h, f + 1),
        BOTH(addcmul, f, h, f),
        BOTH(atan2, h, f),
        BOTH(dot, h, f),
        BOTH(vdot, f, h),
        FUNCTION(bilinear, h, f, rand({2, 4, 4})),
        {"tensordot", {h, f}, [](const TensorList& t) { return tensordot(t[0], t[1], {0}, {0}); }},
        {"index_put",
         {f, at, h},
         [](const TensorList& t) {
           return index_put(t[0], std::vector<indexing::TensorIndex>{t[1]}, t[2], true);
         }},
        {"index_put into half",
         {h, at, f},
         [](const TensorList& t) {
           return index_put(t[0], std::vector<indexing::TensorIndex>{t[1]}, t[2], true);
         }},
        FUNCTION(grid_sample, f.reshape({1, 1, 2, 2}), h.reshape({1, 1, 2, 2})),
        {"scatter_add", {f, at, h}, [](const TensorList& t) {
           return scatter_add(t[0], 0, t[1], t[2]);
         }}};
  };
  // A third float type goes to float32, too, where torch throws.
  for (const Dtype lower : {kFloat16, kBFloat16})
    for (const Dtype given : {kFloat16, kBFloat16})
      check(list(rand({4}, given) + 0.5), lower, kFloat32);
  const autocast region(kCPU, kFloat16);
  const Tensor h = rand({4}, kFloat16);
  CHECK(dot(h, h).dtype() == kFloat16);
  CHECK(dot(f, f).dtype() == kFloat32);
}

TEST_CASE(
    "test_autocast_torch_expect_builtin_promote, test_autocast_methods_expect_builtin_promote") {
  const Tensor f = rand({4}), h = rand({4}, kFloat16);
  const autocast region(kCPU, kFloat16);
  for (const Tensor& y : {eq(h, f), ge(h, f), gt(h, f), le(h, f), lt(h, f), ne(h, f), h.eq(f),
                          h.ge(f), h.gt(f), h.le(f), h.lt(f), h.ne(f)})
    CHECK(y.dtype() == kBool);
  for (const Tensor& y : {h + f, h.add(f), h / f, h.div(f), h * f, h.mul(f), cat({h, f}),
                          stack({h, f}), cat({h, h.to(kBFloat16)})})
    CHECK(y.dtype() == kFloat32);
  for (const Tensor& y : {h + h, h / h, cat({h, h}), stack({h, h}), h.mean(), relu(h), gelu(h),
                          sigmoid(h), tanh(h), sqrt(h), h.var(), h.max(), where(h > 0.5, h, h)})
    CHECK(y.dtype() == kFloat16);
  CHECK(equal(h, h.to(kFloat32)) == h.equal(h.to(kFloat32)));
}

TEST_CASE("test_autocast_banned") {
  const Tensor p = rand({4}), y = rand({4}, kFloat16);
  const autocast region(kCPU, kFloat16);
  CHECK_THROWS_AS(binary_cross_entropy(p, y), Error);
  nn::BCELoss loss;
  CHECK_THROWS_WITH_AS(loss->forward(p, p), doctest::Contains("binary_cross_entropy_with_logits"),
                       Error);
  CHECK_THROWS_AS(binary_cross_entropy(y, y), Error);
}

TEST_CASE("test_autocast_ignored_types") {
  for (const bool on : {true, false}) {
    const autocast region(kCPU, kFloat16, on);
    const Tensor d = ones({8, 8}, kFloat64), i = ones({8, 8}, kInt64), h = ones({8, 8}, kFloat16);
    CHECK(mm(d, d).dtype() == kFloat64);
    CHECK_THROWS_AS(mm(d, h), Error);
    CHECK_THROWS_AS(mm(d, ones({8, 8})), Error);
    CHECK(i.sum().dtype() == kInt64);
    CHECK(pow(d, 2).dtype() == kFloat64);
    CHECK(pow(i, 2).dtype() == kInt64);
    CHECK(d.sum().dtype() == kFloat64);
    CHECK(softmax(d, 0).dtype() == kFloat64);
    CHECK(norm(d).dtype() == kFloat64);
    CHECK(norm(d, 2, {0}).dtype() == kFloat64);
    CHECK(norm(h, 2, {0}, false, kFloat64).dtype() == kFloat64);
    CHECK(h.sum(kFloat16).dtype() == kFloat16);
    CHECK(sum(h, {0}, false, kFloat64).dtype() == kFloat64);
  }
}

TEST_CASE("in-place operations are never cast") {
  const Tensor f = ones({8, 8}), h = ones({8, 8}, kFloat16);
  const autocast region(kCPU, kFloat16);
  Tensor target = ones({8, 8});
  CHECK(target.addmm_(f, f).dtype() == kFloat32);
  CHECK_THROWS_AS(target.addmm_(h, h), Error);
  CHECK(h.clone().exp_().dtype() == kFloat16);
}
