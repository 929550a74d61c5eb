// The rows of attention, and of embeddings.
#include <limits>

#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

using Sizes = std::vector<int64_t>;

/// softmax(scale·q·kᵀ + mask)·v of (batch, L, E), (batch, S, E), (batch, S, Ev); mask: (L, S).
std::vector<double> attended(const std::vector<Values>& in, const std::vector<double>& mask,
                             double scale) {
  const Values &q = in[0], &k = in[1], &v = in[2];
  const auto L = static_cast<size_t>(q.shape[1]), S = static_cast<size_t>(k.shape[1]);
  std::vector<double> s = matmul_reference(q, k, true);
  for (size_t i = 0; i < s.size(); ++i)
    s[i] = s[i] * scale + (mask.empty() ? 0 : mask[i % (L * S)]);
  return matmul_reference({{q.shape[0], q.shape[1], k.shape[1]}, softmax_rows(s, S, false)}, v,
                          false);
}

/// The matrices of x, in this order, as (order's length, rows, columns).
Values chosen(const Values& x, const std::vector<size_t>& order) {
  const int64_t rows = x.shape[x.shape.size() - 2], columns = x.shape[x.shape.size() - 1];
  const auto size = static_cast<size_t>(rows * columns);
  Values y{{static_cast<int64_t>(order.size()), rows, columns}, {}};
  for (const size_t b : order)
    for (size_t i = 0; i < size; ++i) y.v.push_back(x.v[b * size + i]);
  return y;
}

void attention_product_rows(Rows& rows) {
  const std::vector<Shape> shapes{{2, 3, 4}, {2, 5, 4}, {2, 5, 3}};
  const std::vector<double> hidden{1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1};
  std::vector<double> bool_mask, causal;
  const double inf = std::numeric_limits<double>::infinity();
  for (const double h : hidden) bool_mask.push_back(h != 0 ? 0 : -inf);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 5; ++j) causal.push_back(j <= i ? 0 : -inf);
  const auto row = [&](std::string use, std::function<Tensor(const TensorList&)> call,
                       std::vector<double> mask, double scale, bool mask_is_input = false) {
    OpRow r{.name = "scaled_dot_product_attention" + use,
            .call = std::move(call),
            .shapes = shapes,
            .reference =
                [=](const std::vector<Values>& in) {
                  return attended(in, mask_is_input ? in[3].v : mask, scale);
                },
            .cast = Cast::Lower,
            .one_kernel = false,
            .eps = 40,
            .needed = 3};
    if (mask_is_input) r.shapes.push_back({3, 5});
    rows.push_back(std::move(r));
  };
  row(
      "", [](const TensorList& x) { return scaled_dot_product_attention(x[0], x[1], x[2]); }, {},
      0.5);
  row(
      ", scaled",
      [](const TensorList& x) {
        return scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, false, 0.7);
      },
      {}, 0.7);
  row(
      ", causal",
      [](const TensorList& x) {
        return scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true);
      },
      causal, 0.5);
  row(
      ", bool mask",
      [hidden](const TensorList& x) {
        return scaled_dot_product_attention(x[0], x[1], x[2], tensor(hidden).reshape({3, 5}) > 0);
      },
      bool_mask, 0.5);
  row(
      ", float mask",
      [](const TensorList& x) { return scaled_dot_product_attention(x[0], x[1], x[2], x[3]); }, {},
      0.5, true);
  row(
      ", shared keys",
      [](const TensorList& x) { return scaled_dot_product_attention(x[0], x[1], x[2]); }, {}, 0.5);
  rows.back().shapes = {{1, 2, 3, 4}, {2, 1, 5, 4}, {2, 1, 5, 3}};
  rows.back().reference = [](const std::vector<Values>& in) {
    return attended(
        {chosen(in[0], {0, 1, 0, 1}), chosen(in[1], {0, 0, 1, 1}), chosen(in[2], {0, 0, 1, 1})}, {},
        0.5);
  };
}

/// What bags of rows of a (…, 3) table are: their sums, means or maxima.
std::vector<double> bagged(const std::vector<Values>& in, const Sizes& index, const Sizes& starts,
                           BagMode mode) {
  std::vector<double> out;
  for (size_t b = 0; b < starts.size(); ++b) {
    const auto from = static_cast<size_t>(starts[b]),
               to = b + 1 < starts.size() ? static_cast<size_t>(starts[b + 1]) : index.size();
    for (size_t c = 0; c < 3; ++c) {
      double sum = 0, largest = -99;
      for (size_t i = from; i < to; ++i) {
        const double x = in[0].v[static_cast<size_t>(index[i]) * 3 + c];
        sum += in.size() > 1 ? x * in[1].v[i] : x;
        largest = std::max(largest, x);
      }
      const auto n = static_cast<double>(to - from);
      out.push_back(to == from              ? 0
                    : mode == BagMode::Sum  ? sum
                    : mode == BagMode::Mean ? sum / n
                                            : largest);
    }
  }
  return out;
}

/// Memory that nobody else has, without history.
Tensor copied(const Tensor& x) { return x.detach().clone(); }

void embedding_rows(Rows& rows) {
  const Sizes index{1, 4, 0, 4, 4, 2}, starts{0, 2, 2, 3};
  const Tensor at = tensor(index), offsets = tensor(starts);
  with_square(rows, {.name = "embedding",
                     .call =
                         [at](const TensorList& x) {
                           return embedding(x[0], at.view({2, 3}));
                         },
                     .shapes = {{5, 3}},
                     .reference = picked({2, 3, 3}, [index](Dims i) {
                       return Dims{index[static_cast<size_t>(i[0] * 3 + i[1])], i[2]};
                     })});
  rows.push_back({.name = "embedding of nothing",
                  .call = [](const TensorList& x) { return embedding(x[0], zeros({0}, kInt32)); },
                  .shapes = {{5, 3}},
                  .reference = [](const std::vector<Values>&) { return std::vector<double>(); }});
  for (const BagMode mode : {BagMode::Sum, BagMode::Mean, BagMode::Max})
    with_square(
        rows, {.name = "embedding_bag",
               .call = [=](const TensorList& x) { return embedding_bag(x[0], at, offsets, mode); },
               .shapes = {{5, 3}},
               .reference =
                   [=](const std::vector<Values>& in) { return bagged(in, index, starts, mode); }});
  rows.push_back(
      {.name = "embedding_bag, weighted",
       .call =
           [=](const TensorList& x) {
             return embedding_bag(x[0], at, offsets, BagMode::Sum, input_or_none(x, 1));
           },
       .shapes = {{5, 3}, {6}},
       .reference =
           [=](const std::vector<Values>& in) { return bagged(in, index, starts, BagMode::Sum); },
       .needed = 1});
  rows.push_back(
      {.name = "embedding_renorm_",
       .call =
           [at](const TensorList& x) { return embedding_renorm_(made(x[0], copied), at, 1.25, 2); },
       .shapes = {{5, 3}},
       .reference =
           [](const std::vector<Values>& in) {
             std::vector<double> out = in[0].v;
             for (const size_t r : {0, 1, 2, 4}) {  // nobody names row 3
               const double length = std::hypot(out[r * 3], out[r * 3 + 1], out[r * 3 + 2]);
               for (size_t c = 0; c < 3 && length > 1.25; ++c)
                 out[r * 3 + c] *= 1.25 / (length + 1e-7);
             }
             return out;
           },
       .differentiable = false});
}

}  // namespace

void attention_rows(Rows& rows) {
  attention_product_rows(rows);
  embedding_rows(rows);
}

}  // namespace halftape::testing
