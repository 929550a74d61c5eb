// Rows of the op table: matrix products and sums of products.
#include "halftape/tests/support/ops.h"

namespace halftape::testing {
namespace {

/// "ij,jk->ik" by its definition: a loop over the values of all letters.
std::vector<double> einsum_reference(const std::string& equation, const std::vector<Values>& in) {
  const size_t arrow = equation.find("->");
  std::vector<std::string> names(1);
  for (char c : equation.substr(0, arrow)) {
    if (c == ',')
      names.emplace_back();
    else
      names.back().push_back(c);
  }
  const std::string out = equation.substr(arrow + 2);
  std::string letters = out;
  for (const std::string& n : names)
    for (char c : n)
      if (letters.find(c) == std::string::npos) letters.push_back(c);
  Shape all = Dims::filled(static_cast<int>(letters.size()), 1);
  for (size_t t = 0; t < names.size(); ++t)
    for (size_t i = 0; i < names[t].size(); ++i) {
      int64_t& size = all[static_cast<int>(letters.find(names[t][i]))];
      if (size == 1) size = in[t].shape[static_cast<int>(i)];
    }
  Shape result;
  for (size_t i = 0; i < out.size(); ++i) result.push_back(all[static_cast<int>(i)]);
  std::vector<double> sums(static_cast<size_t>(numel(result)), 0);
  each_index(all, [&](const Dims& at) {
    auto index = [&](const std::string& n) {
      Dims i;
      for (char c : n) i.push_back(at[static_cast<int>(letters.find(c))]);
      return i;
    };
    double product = 1;
    for (size_t t = 0; t < names.size(); ++t)
      product *= in[t].v[position(in[t].shape, index(names[t]))];
    sums[position(result, index(out))] += product;
  });
  return sums;
}
auto summed(std::string equation) {
  return [=](const std::vector<Values>& in) { return einsum_reference(equation, in); };
}

/// beta·input + alpha·(the sum of products of the others).
auto added(std::string equation, double beta, double alpha, Shape shape) {
  return [=](const std::vector<Values>& in) {
    std::vector<double> y = einsum_reference(equation, {in[1], in[2]});
    size_t at = 0;
    each_index(shape, [&](const Dims& i) {
      y[at] = beta * in[0].v[position(in[0].shape, i)] + alpha * y[at];
      ++at;
    });
    return y;
  };
}

void matmul_rows(Rows& rows) {
  const std::pair<Shape, Shape> pairs[] = {{{3, 4}, {4, 5}},          {{2, 3, 4}, {4, 5}},
                                           {{2, 1, 3, 4}, {3, 4, 2}}, {{1, 4}, {4, 1}},
                                           {{3, 0}, {0, 2}},          {{0, 4}, {4, 2}}};
  for (const auto& [a, b] : pairs)
    rows.push_back(
        {.name = "matmul",
         .call = [](const TensorList& x) { return matmul(x[0], x[1]); },
         .shapes = {a, b},
         .reference =
             [](const std::vector<Values>& in) { return matmul_reference(in[0], in[1], false); },
         .cast = Cast::Lower});
  rows.push_back({.name = "matmul of vectors",
                  .call = [](const TensorList& x) { return matmul(x[0], x[1]); },
                  .shapes = {{4}, {4}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        return matmul_reference({{1, 4}, in[0].v}, {{4, 1}, in[1].v}, false);
                      },
                  .cast = Cast::Lower});
  rows.push_back({.name = "matmul of a matrix and a vector",
                  .call = [](const TensorList& x) { return matmul(x[0], x[1]); },
                  .shapes = {{3, 4}, {4}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        return matmul_reference(in[0], {{4, 1}, in[1].v}, false);
                      },
                  .cast = Cast::Lower});
  for (const Shape& x : {Shape{3, 4}, Shape{4}, Shape{2, 3, 4}, Shape{0, 4}}) {
    rows.push_back({.name = "linear",
                    .call = [](const TensorList& in) { return linear(in[0], in[1], in[2]); },
                    .shapes = {x, {2, 4}, {2}},
                    .reference =
                        [](const std::vector<Values>& in) {
                          const auto n = static_cast<int64_t>(in[0].v.size() / 4);
                          std::vector<double> y = matmul_reference({{n, 4}, in[0].v}, in[1], true);
                          for (size_t i = 0; i < y.size(); ++i) y[i] += in[2].v[i % 2];
                          return y;
                        },
                    .cast = Cast::Lower,
                    .needed = 2});
  }
  rows.push_back(
      {.name = "linear without bias",
       .call = [](const TensorList& in) { return linear(in[0], in[1]); },
       .shapes = {{3, 4}, {2, 4}},
       .reference =
           [](const std::vector<Values>& in) { return matmul_reference(in[0], in[1], true); },
       .cast = Cast::Lower});
}

void strict_rows(Rows& rows) {
  auto row = [&](const char* name, Tensor (*call)(const Tensor&, const Tensor&), Shape a, Shape b,
                 const char* equation, Cast cast = Cast::Lower) {
    rows.push_back({.name = name,
                    .call = [call](const TensorList& x) { return call(x[0], x[1]); },
                    .shapes = {a, b},
                    .reference = summed(equation),
                    .cast = cast});
  };
  row("mm", mm, {3, 4}, {4, 2}, "ij,jk->ik");
  row("mm", mm, {3, 0}, {0, 2}, "ij,jk->ik");
  row("bmm", bmm, {2, 3, 4}, {2, 4, 5}, "bij,bjk->bik");
  row("bmm", bmm, {0, 3, 4}, {0, 4, 5}, "bij,bjk->bik");
  row("mv", mv, {3, 4}, {4}, "ij,j->i");
  row("mv", mv, {3, 0}, {0}, "ij,j->i");
  row("dot", dot, {5}, {5}, "i,i->", Cast::Widest);
  row("dot", dot, {0}, {0}, "i,i->", Cast::Widest);
  row("vdot", vdot, {5}, {5}, "i,i->", Cast::Widest);
  row("inner", inner, {5}, {5}, "i,i->", Cast::Widest);
  row("inner", inner, {2, 3, 4}, {5, 4}, "abi,ci->abc", Cast::Widest);
  row("inner of a number", inner, {}, {2, 3}, ",ab->ab", Cast::Keep);
  row("outer", outer, {3}, {4}, "i,j->ij", Cast::Keep);
  row("ger", ger, {3}, {2}, "i,j->ij", Cast::Keep);
  row("ger", ger, {3}, {0}, "i,j->ij", Cast::Keep);
  row(
      "kron of vectors", [](const Tensor& a, const Tensor& b) { return kron(a, b); }, {3}, {4},
      "i,j->ij", Cast::Keep);
  row(
      "kron", [](const Tensor& a, const Tensor& b) { return kron(a, b); }, {2, 3}, {4, 5},
      "ac,bd->abcd", Cast::Keep);
  row(
      "kron of other ranks", [](const Tensor& a, const Tensor& b) { return kron(a, b); }, {3},
      {2, 4}, "b,ac->abc", Cast::Keep);
  row(
      "tensordot",
      [](const Tensor& a, const Tensor& b) {
        return tensordot(a, b, {2, 0}, {0, -1});
      },
      {2, 3, 4}, {4, 5, 2}, "abc,cda->bd", Cast::Widest);
  row(
      "tensordot over nothing",
      [](const Tensor& a, const Tensor& b) { return tensordot(a, b, {}, {}); }, {2}, {3, 2},
      "a,bc->abc", Cast::Widest);
}

/// Of shapes (n, 3) and (3), or (3) and (3).
std::vector<double> vector_products(const std::vector<Values>& in) {
  std::vector<double> out;
  for (size_t i = 0; i < in[0].v.size(); ++i) {
    const size_t row = i / 3 * 3, a = (i + 1) % 3, b = (i + 2) % 3;
    out.push_back(in[0].v[row + a] * in[1].v[b] - in[0].v[row + b] * in[1].v[a]);
  }
  return out;
}

void cross_rows(Rows& rows) {
  const auto row = [&](const char* name, Shape a, auto call) {
    rows.push_back({.name = name,
                    .call = [call](const TensorList& x) { return call(x[0], x[1]); },
                    .shapes = {std::move(a), {3}},
                    .reference = vector_products,
                    .cast = Cast::Widest});
  };
  row("cross", {3}, [](const Tensor& a, const Tensor& b) { return cross(a, b); });
  row("cross", {2, 3}, [](const Tensor& a, const Tensor& b) { return cross(a, b); });
  row("cross along a dimension", {4, 2, 3},
      [](const Tensor& a, const Tensor& b) { return a.cross(b, -1); });
  row("linalg_cross", {3, 3}, [](const Tensor& a, const Tensor& b) { return linalg::cross(a, b); });
}

void added_rows(Rows& rows) {
  using Call = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, Scalar, Scalar);
  auto row = [&](const char* name, Call call, std::vector<Shape> shapes, const char* equation,
                 Shape out) {
    const std::pair<double, double> scales[] = {{1, 1}, {0.5, -1.5}, {0, 2}};
    for (const auto& scale : scales) {
      const double beta = scale.first, alpha = scale.second;
      rows.push_back(
          {.name = name,
           .call = [=](const TensorList& x) { return call(x[0], x[1], x[2], beta, alpha); },
           .shapes = shapes,
           .reference = added(equation, beta, alpha, out),
           .cast = Cast::Lower});
    }
  };
  for (const Shape& input : {Shape{3, 2}, Shape{2}, Shape{3, 1}, Shape{}})
    row("addmm", addmm, {input, {3, 4}, {4, 2}}, "ij,jk->ik", {3, 2});
  row("addmm of nothing", addmm, {{2}, {3, 0}, {0, 2}}, "ij,jk->ik", {3, 2});
  for (const Shape& input : {Shape{3}, Shape{1}, Shape{}})
    row("addmv", addmv, {input, {3, 4}, {4}}, "ij,j->i", {3});
  for (const Shape& input : {Shape{3, 2}, Shape{2}})
    row("addr", addr, {input, {3}, {2}}, "i,j->ij", {3, 2});
  for (const Shape& input : {Shape{2, 3, 5}, Shape{3, 1}})
    row("baddbmm", baddbmm, {input, {2, 3, 4}, {2, 4, 5}}, "bij,bjk->bik", {2, 3, 5});
  for (const Shape& input : {Shape{3, 5}, Shape{5}})
    row("addbmm", addbmm, {input, {2, 3, 4}, {2, 4, 5}}, "bij,bjk->ik", {3, 5});

  using InPlace = Tensor& (Tensor::*)(const Tensor&, const Tensor&, Scalar, Scalar) const;
  auto in_place = [&](const char* name, InPlace write, std::vector<Shape> shapes,
                      const char* equation) {
    rows.push_back({.name = name,
                    .call =
                        [write](const TensorList& x) {
                          Tensor y = made(x[0], clone);
                          return (y.*write)(x[1], x[2], 0.5, 2);
                        },
                    .shapes = shapes,
                    .reference = added(equation, 0.5, 2, shapes[0])});
  };
  in_place("addmm_", &Tensor::addmm_, {{3, 2}, {3, 4}, {4, 2}}, "ij,jk->ik");
  in_place("addmv_", &Tensor::addmv_, {{3}, {3, 4}, {4}}, "ij,j->i");
  in_place("addr_", &Tensor::addr_, {{3, 2}, {3}, {2}}, "i,j->ij");
  in_place("baddbmm_", &Tensor::baddbmm_, {{2, 3, 5}, {2, 3, 4}, {2, 4, 5}}, "bij,bjk->bik");
  in_place("addbmm_", &Tensor::addbmm_, {{3, 5}, {2, 3, 4}, {2, 4, 5}}, "bij,bjk->ik");
}

void einsum_rows(Rows& rows) {
  // The equation, and the same without dots and omissions.
  auto row = [&](const char* equation, std::vector<Shape> shapes, const char* full = nullptr) {
    const std::string text = equation;
    rows.push_back({.name = "einsum " + text,
                    .call = [text](const TensorList& x) { return einsum(text, x); },
                    .shapes = shapes,
                    .reference = summed(full ? full : text),
                    .cast = Cast::Lower,
                    .one_kernel = shapes.size() < 3});
  };
  row("ij,jk->ik", {{3, 4}, {4, 2}});
  row("ij,jk", {{3, 4}, {4, 2}}, "ij,jk->ik");
  row("ba", {{3, 4}}, "ba->ab");
  row("ij->", {{3, 4}});
  row("ij->j", {{3, 4}});
  row("ii->", {{3, 3}});
  row("ii->i", {{3, 3}});
  row("iij->ji", {{2, 2, 3}});
  row("iii->i", {{2, 2, 2}});
  row("ij,ij->ij", {{3, 4}, {3, 4}});
  row("ij,ij->", {{3, 4}, {3, 4}});
  row("i,j->ij", {{3}, {4}});
  row("i,i", {{4}, {4}}, "i,i->");
  row("bij,bjk->bik", {{2, 3, 4}, {2, 4, 2}});
  row("bhqd,bhkd->bhqk", {{2, 2, 3, 4}, {2, 2, 2, 4}});
  row("ijk,kl->lji", {{2, 3, 4}, {4, 2}});
  row("ij,k->j", {{2, 3}, {4}});
  row("ij,jk,kl->il", {{2, 3}, {3, 4}, {4, 2}});
  row("i,ij,j->", {{3}, {3, 4}, {4}});
  row("ii,ij->j", {{3, 3}, {3, 2}});
  row(" i j , j k -> i k", {{3, 4}, {4, 2}}, "ij,jk->ik");
  row("...ij,...jk->...ik", {{2, 3, 4}, {2, 4, 5}}, "bij,bjk->bik");
  row("...ij,jk", {{2, 3, 4}, {4, 5}}, "bij,jk->bik");
  row("...i,...i->...", {{2, 1, 4}, {3, 4}}, "bai,ai->ba");
  row("i...->...i", {{2, 3, 4}}, "iab->abi");
  row("...i->i", {{2, 3, 4}}, "abi->i");
  row("ij,ij->i", {{3, 1}, {3, 4}});
  row("ij,jk->ik", {{3, 0}, {0, 2}});
  row(",->", {{}, {}});
  row("Ab,bC", {{2, 3}, {3, 4}}, "Ab,bC->AC");
}

void other_rows(Rows& rows) {
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 4}, Shape{4, 2}, Shape{0, 3}})
    rows.push_back({.name = "trace",
                    .call = [](const TensorList& x) { return trace(x[0]); },
                    .shapes = {shape},
                    .reference =
                        [](const std::vector<Values>& in) {
                          double sum = 0;
                          each_index(in[0].shape, [&](const Dims& i) {
                            if (i[0] == i[1]) sum += in[0].v[position(in[0].shape, i)];
                          });
                          return std::vector<double>{sum};
                        }});
  rows.push_back({.name = "chain_matmul",
                  .call = [](const TensorList& x) { return chain_matmul(x); },
                  .shapes = {{2, 5}, {5, 3}, {3, 4}, {4, 2}},
                  .reference = summed("ab,bc,cd,de->ae"),
                  .cast = Cast::Lower,
                  .one_kernel = false});
  rows.push_back({.name = "matrix_power",
                  .call = [](const TensorList& x) { return matrix_power(x[0], 3); },
                  .shapes = {{2, 3, 3}},
                  .reference =
                      [](const std::vector<Values>& in) {
                        return einsum_reference("bij,bjk,bkl->bil", {in[0], in[0], in[0]});
                      },
                  .cast = Cast::Lower,
                  .one_kernel = false});
  for (const bool bias : {false, true})
    for (const Shape& lead : {Shape{3}, Shape{2, 2}, Shape{}}) {
      Shape a = lead, b = lead;
      a.push_back(4), b.push_back(3);
      std::vector<Shape> shapes{a, b, {2, 4, 3}};
      if (bias) shapes.push_back({2});
      rows.push_back({.name = bias ? "bilinear" : "bilinear without bias",
                      .call =
                          [=](const TensorList& x) {
                            return bias ? bilinear(x[0], x[1], x[2], x[3])
                                        : bilinear(x[0], x[1], x[2]);
                          },
                      .shapes = shapes,
                      .reference =
                          [=](const std::vector<Values>& in) {
                            const auto n = static_cast<int64_t>(in[0].v.size() / 4);
                            std::vector<double> y = einsum_reference(
                                "ni,nj,oij->no", {{{n, 4}, in[0].v}, {{n, 3}, in[1].v}, in[2]});
                            if (bias)
                              for (size_t i = 0; i < y.size(); ++i) y[i] += in[3].v[i % 2];
                            return y;
                          },
                      .cast = Cast::Widest,
                      .needed = 3});
    }
}

}  // namespace

void matrix_rows(Rows& rows) {
  matmul_rows(rows);
  strict_rows(rows);
  cross_rows(rows);
  added_rows(rows);
  einsum_rows(rows);
  other_rows(rows);
}

}  // namespace halftape::testing
