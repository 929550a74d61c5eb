// The rows of the error table.
#include <cctype>
#include <limits>

#include <halftape/halftape.h>

#include "halftape/tests/support/errors.h"

namespace halftape::testing {

bool names(const std::string& text, std::string op) {
  const std::pair<const char*, const char*> spellings[] = {
      {"swapaxes", "transpose"}, {"broadcast_to", "expand"}, {"clamp_min", "clamp"},
      {"clamp_max", "clamp"},    {"div_scalar", "div"},      {"scalar_div", "div"},
      {"trunc_divide", "div"},   {"pow_scalar", "pow"},      {"scalar_pow", "pow"},
      {"gelu_tanh", "gelu"}};
  for (const auto& [spelling, of] : spellings)
    if (op == spelling && names(text, of)) return true;
  if (op.back() == '_') op.pop_back();
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = text.find(op); at != std::string::npos; at = text.find(op, at + 1)) {
    size_t end = at + op.size();
    if (end < text.size() && text[end] == '_') ++end;
    if ((at == 0 || !(inside(text[at - 1]) || text[at - 1] == '_')) &&
        (end == text.size() || !(inside(text[end]) || text[end] == '_')))
      return true;
  }
  return false;
}

namespace {

using ErrorRows = std::vector<ErrorCase>;
using Write = void (*)(Tensor);

/// A parameter, and a tensor whose elements share their place.
Tensor parameter() { return ones({3, 2}).requires_grad_(); }
Tensor shared() { return ones({1, 2}).expand({3, 2}); }

/// What no in-place form may write to.
void refused_in_place(ErrorRows& rows, const char* op, Write write) {
  const bool bits = std::string(op).starts_with("bitwise");  // floats have none
  rows.push_back({op, [=] { write(parameter()); }, {bits ? "float32" : "NoGradGuard"}});
  if (!bits) rows.push_back({op, [=] { write(shared()); }, {"[3, 2]", "expanded"}});
}

void in_place(ErrorRows& rows) {
#define HALFTAPE_OF_ONE(name) refused_in_place(rows, #name, [](Tensor x) { x.name##_(); });
  HALFTAPE_UNARY_METHODS(HALFTAPE_OF_ONE)
#undef HALFTAPE_OF_ONE
#define HALFTAPE_OF_TWO(name) refused_in_place(rows, #name, [](Tensor x) { x.name##_(ones({2})); });
  HALFTAPE_BINARY_METHODS(HALFTAPE_OF_TWO)
  HALFTAPE_TENSOR_METHODS(HALFTAPE_OF_TWO)
  HALFTAPE_OF_TWO(add)
  HALFTAPE_OF_TWO(sub)
  HALFTAPE_OF_TWO(mul)
  HALFTAPE_OF_TWO(div)
  HALFTAPE_OF_TWO(copy)
#undef HALFTAPE_OF_TWO
  refused_in_place(rows, "relu", [](Tensor x) { relu_(x); });
  refused_in_place(rows, "relu6", [](Tensor x) { relu6_(x); });
  refused_in_place(rows, "leaky_relu", [](Tensor x) { leaky_relu_(x); });
  refused_in_place(rows, "elu", [](Tensor x) { elu_(x); });
  refused_in_place(rows, "selu", [](Tensor x) { selu_(x); });
  refused_in_place(rows, "celu", [](Tensor x) { celu_(x); });
  refused_in_place(rows, "gelu", [](Tensor x) { gelu_(x); });
  refused_in_place(rows, "silu", [](Tensor x) { silu_(x); });
  refused_in_place(rows, "mish", [](Tensor x) { mish_(x); });
  refused_in_place(rows, "hardtanh", [](Tensor x) { hardtanh_(x); });
  refused_in_place(rows, "hardsigmoid", [](Tensor x) { hardsigmoid_(x); });
  refused_in_place(rows, "hardswish", [](Tensor x) { hardswish_(x); });
  refused_in_place(rows, "threshold", [](Tensor x) { threshold_(x, 0, 0); });
  refused_in_place(rows, "clamp", [](Tensor x) { x.clamp_(0); });
  refused_in_place(rows, "logit", [](Tensor x) { x.logit_(); });
  refused_in_place(rows, "nan_to_num", [](Tensor x) { x.nan_to_num_(); });
  refused_in_place(rows, "tril", [](Tensor x) { x.tril_(); });
  refused_in_place(rows, "triu", [](Tensor x) { x.triu_(); });
  refused_in_place(rows, "cumsum", [](Tensor x) { x.cumsum_(0); });
  refused_in_place(rows, "cumprod", [](Tensor x) { x.cumprod_(0); });
}

// Arguments other than tensors, and shapes that only this op minds.

const char* const outside = "dimension 2 is out of range for 2 dimensions";

auto error_adder(ErrorRows& rows) {
  return [&rows](const char* op, std::function<void()> call, std::vector<std::string> words) {
    rows.push_back({op, std::move(call), std::move(words)});
  };
}

void order_arguments(ErrorRows& rows) {
  const auto row = error_adder(rows);
  const Tensor x = ones({2, 3}), nothing = ones({2, 0});
  const std::pair<const char*, Tensor (*)(const Tensor&, std::optional<int64_t>, bool)> places[] = {
      {"argmax", argmax}, {"argmin", argmin}};
  for (const auto& [op, of] : places) {
    row(op, [=, f = of] { f(x, 2, false); }, {outside});
    row(op, [=, f = of] { f(nothing, 1, false); }, {"[2, 0]", "empty"});
    row(op, [=, f = of] { f(nothing, {}, false); }, {"[2, 0]", "empty"});
  }
  row("argsort", [=] { argsort(x, 2); }, {outside});
  row("bincount", [=] { bincount(tensor({1, -2})); }, {"-2", "negative"});
  row("argsort", [=] { argsort(x, -3); }, {"dimension -3"});
  row("bitwise_not", [=] { bitwise_not(x); }, {"float32"});
  row("bitwise_not", [=] { bitwise_not(x.to(kFloat16)); }, {"float16"});
  row("bitwise_not", [] { bitwise_not({}); }, {"undefined"});
  const std::pair<const char*, std::tuple<Tensor, Tensor> (*)(const Tensor&, int64_t)> runs[] = {
      {"cummax", cummax}, {"cummin", cummin}};
  for (const auto& [op, of] : runs) {
    row(op, [=, f = of] { f(x, 2); }, {outside});
    row(op, [=, f = of] { f(x, -3); }, {"dimension -3"});
  }
  row("diff", [=] { diff(x, -1); }, {"order -1"});
  row("diff", [=] { diff(x, 1, 2); }, {outside});
}

void random_arguments(ErrorRows& rows) {
  const auto row = error_adder(rows);
  const Tensor x = ones({2, 3}), line = ones({3});
  row("dropout", [=] { dropout(x, 1.5); }, {"1.5"});
  row("dropout", [=] { dropout(x, -0.5); }, {"-0.5"});
  row("feature_dropout", [=] { feature_dropout(x, 1.5); }, {"1.5"});
  row("feature_dropout", [=] { feature_dropout(line); }, {"[3]", "2 dimensions"});
  row("alpha_dropout", [=] { alpha_dropout(x, 1.5); }, {"1.5"});
  row("feature_alpha_dropout", [=] { feature_alpha_dropout(x, -0.5); }, {"-0.5"});
  row("feature_alpha_dropout", [=] { feature_alpha_dropout(line); }, {"[3]", "2 dimensions"});
  row("rrelu", [=] { rrelu(x, 0.5, 0.25); }, {"0.5", "0.25"});
  row("gumbel_softmax", [=] { gumbel_softmax(x, 0); }, {"tau 0"});
}

void layout_arguments(ErrorRows& rows) {
  const auto row = error_adder(rows);
  const Tensor x = ones({2, 3}), number = ones({}), line = ones({3});
  row("as_strided", [=] { as_strided(x, {2}, {1, 1}); }, {"1 sizes", "2 strides"});
  row("as_strided", [=] { as_strided(x, {2}, {-1}); }, {"[-1]"});
  row("as_strided", [=] { as_strided(x.t(), {2}, {1}); }, {"[3, 2]", "contiguous"});
  row("chunk", [=] { chunk(x, 0); }, {"0 chunks"});
  row("chunk", [=] { chunk(number, 2); }, {"0-dim"});
  row("flatten", [=] { flatten(x, 1, 0); }, {"start_dim 1", "end_dim 0"});
  row("flatten", [=] { flatten(x, 2); }, {outside});
  row("fliplr", [=] { fliplr(line); }, {"[3]", "two dimensions"});
  row("flipud", [=] { flipud(number); }, {"0-dim"});
  row("flip", [=] { flip(x, {0, -2}); }, {"appears twice"});
}

void reduction_arguments(ErrorRows& rows) {
  const auto row = error_adder(rows);
  const Tensor x = ones({2, 3}), nothing = ones({2, 0});
  row("histc", [=] { histc(x, 0); }, {"0 bins"});
  row("histc", [=] { histc(x, 5, 2, 1); }, {"from 2 to 1"});
  row("histc", [=] { histc(x.to(kInt64)); }, {"int64"});
  row("kron", [=] { kron(ones({1, 1, 1, 1, 1, 1}), x); }, {"[1, 1, 1, 1, 1, 1]", "[2, 3]"});
  row("logical_not", [] { logical_not({}); }, {"undefined"});
  row("logcumsumexp", [=] { logcumsumexp(x, 2); }, {outside});
  row("movedim", [=] { movedim(x, {0, 1}, {0}); }, {"[0, 1]", "[0]"});
  row("movedim", [=] { movedim(x, {0, 0}, {0, 1}); }, {"appears twice"});
  row("nansum", [=] { nansum(x, {2}); }, {outside});
  row("nansum", [=] { nansum(x, {0, 0}); }, {"appears twice"});
  row("nanmedian", [=] { nanmedian(x, 2); }, {outside});
  row("nanmedian", [=] { nanmedian(nothing, 1); }, {"[2, 0]", "empty"});
}

void index_arguments(ErrorRows& rows) {
  const auto row = error_adder(rows);
  const Tensor x = ones({2, 3}), line = ones({3});
  row("one_hot", [=] { one_hot(line, 3); }, {"float32"});
  row("one_hot", [=] { one_hot(line.to(kInt64), 0); }, {"num_classes is 0"});
  row("one_hot", [=] { one_hot(line.to(kInt64), 1); }, {"class 1", "[0, 1)"});
  const Tensor at = tensor({1, 0, 2});
  row("embedding", [=] { embedding(x, at); }, {"index 2 at position 2", "[0, 2)"});
  row("embedding", [=] { embedding(x, line); }, {"float32", "int64"});
  row("embedding", [=] { embedding(x, at, -3); }, {"padding_idx -3", "[2, 3]"});
  row("embedding_renorm_", [=] { embedding_renorm_(x, at, 1); }, {"index 2", "[0, 2)"});
  row("embedding_renorm_", [=] { embedding_renorm_(x, at, -1); }, {"max_norm -1"});
  row("embedding_bag", [=] { embedding_bag(x, at); }, {"[3]", "offsets"});
  row("embedding_bag", [=] { embedding_bag(x, at, tensor({0})); }, {"index 2", "[0, 2)"});
  row("embedding_bag", [=] { embedding_bag(x, at, tensor({0}), kMax, line); }, {"kSum", "[3]"});
  const Tensor rows_there = zeros({3}, kInt64);
  row("embedding_bag", [=] { embedding_bag(x, rows_there, tensor({0, 4})); }, {"offset"});
  row("embedding_bag", [=] { embedding_bag(x, rows_there, tensor({0, -1})); }, {"offset"});
  row("embedding_bag", [=] { embedding_bag(x, rows_there, tensor({0, 2, 1})); }, {"offset"});
  row("embedding_bag", [=] { embedding_bag(x, rows_there, tensor({1})); }, {"0"});
  row("embedding_bag",
      [=] {
        embedding_bag(x, at.to(kInt64).reshape({1, 3}), at);
      },
      {"[1, 3]", "no offsets"});
}

void attention_arguments(ErrorRows& rows) {
  const auto row = error_adder(rows);
  const Tensor x = ones({2, 3});
  const auto attend = [=](const Tensor& k, const Tensor& v, const Tensor& mask, bool causal) {
    scaled_dot_product_attention(x, k, v, mask, 0, causal);
  };
  const char* attention = "scaled_dot_product_attention";
  row(attention, [=] { attend(x.t(), x, {}, false); }, {"[2, 3]", "[3, 2]", "features"});
  row(attention, [=] { attend(x, x.t(), {}, false); }, {"[2, 3]", "[3, 2]", "length"});
  row(attention, [=] { attend(x, x, ones({2, 2}), true); }, {"is_causal", "[2, 2]"});
  row(attention, [=] { attend(x, x, ones({2, 2}, kInt64), false); }, {"attn_mask", "int64"});
  row(attention, [=] { attend(x, x, ones({3, 2, 2}), false); }, {"[3, 2, 2]", "[2, 2]"});
}

void further_arguments(ErrorRows& rows) {
  const auto row = error_adder(rows);
  const Tensor x = ones({2, 3});
  row("rot90", [=] { rot90(x, 1, {0, 0}); }, {"appears twice"});
  row("rot90", [=] { rot90(x, 1, {0}); }, {"[0]", "[2, 3]"});
  row("scatter_reduce", [=] { scatter_reduce(x, 2, x.to(kInt64), x, "sum"); }, {outside});
  row("scatter_reduce", [=] { scatter_reduce(x, 1, x.to(kInt64), x, "max"); }, {"\"max\""});
  row("select", [=] { select(x, 1, 3); }, {"index 3", "[2, 3]"});
  row("select", [=] { select(x, 2, 0); }, {outside});
  row("sort", [=] { sort(x, 2); }, {outside});
  row("sort", [=] { sort(x, -3); }, {"dimension -3"});
  row("tile", [=] { tile(x, {-1}); }, {"-1 times"});
  row("tile", [=] { tile(x, {2, -3}); }, {"-3 times"});
}

/// Windows whose positions lie beyond 64 bits.
void far_windows(ErrorRows& rows) {
  constexpr int64_t far = std::numeric_limits<int64_t>::max();
  const Tensor x = ones({1, 1, 4, 4}), w = ones({1, 1, 2, 2});
  const auto row = [&](const char* op, std::function<void()> call) {
    rows.push_back({op, std::move(call), {"9223372036854775807", "do not fit 64 bits"}});
  };
  row("conv2d", [=] { conv2d(x, w, {}, 1, far); });
  row("conv2d", [=] { conv2d(x, w, {}, 1, 0, far); });
  row("conv2d", [=] { conv2d(x, w, {}, {1, far}); });
  row("conv2d", [=] { conv2d(x, w, {}, 1, kSame, far); });
  row("conv_transpose2d", [=] { conv_transpose2d(x, w, {}, far); });
  row("conv_transpose2d", [=] { conv_transpose2d(x, w, {}, 1, far); });
  row("conv_transpose2d", [=] { conv_transpose2d(x, w, {}, 1, 0, 0, 1, far); });
  row("max_pool2d", [=] { max_pool2d(x, 2, far, 0, 1, true); });
  row("max_pool2d", [=] { max_pool2d(x, 2, 1, 0, far); });
  row("avg_pool2d", [=] { avg_pool2d(x, far, 1, far / 2); });
  row("im2col", [=] { im2col(x, 2, 1, far); });
  row("col2im", [=] { col2im(ones({1, 4, 9}), 4, 2, far); });
}

}  // namespace

std::vector<ErrorCase> error_table() {
  ErrorRows rows;
  in_place(rows);
  order_arguments(rows);
  random_arguments(rows);
  layout_arguments(rows);
  reduction_arguments(rows);
  index_arguments(rows);
  attention_arguments(rows);
  further_arguments(rows);
  far_windows(rows);
  return rows;
}

}  // namespace halftape::testing
